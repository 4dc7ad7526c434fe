//! Every command that reads files shows the same tree of each source.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use obento_testkit::ganesha::Ganesha;
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use tempfile::TempDir;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../fs/lfs/tests/common/recipe.rs"]
mod recipe;

const BCACHEFS: &[u8] = include_bytes!("../../../fs/bcachefs/tests/data/zstd.img.zst");
const BCACHEFS_TREE: &str = include_str!("../../../fs/bcachefs/tests/data/tree.txt");

/// A file: its type as for `find -printf %y`, and its size and CRC-32, or the target of a link.
type Seen = (char, u64, u32, String);
/// Files by path.
type Tree = BTreeMap<String, Seen>;

/// A source, with the files below a directory.
struct Source {
    name: &'static str,
    /// The address, without a path.
    address: String,
    /// The directory.
    top: &'static str,
    tree: Tree,
    /// What `obento types` prints after READ: WRITE, MAKE, CHECK, MOUNT.
    can: [&'static str; 4],
}

struct Lab {
    folder: TempDir,
    _server: Option<Ganesha>,
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Returns the files below a directory of the host.
fn tree_of(folder: &Path) -> Tree {
    fn visit(folder: &Path, prefix: &str, found: &mut Tree) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            let kind = entry.file_type().unwrap();
            let seen = if kind.is_dir() {
                visit(&entry.path(), &format!("{path}/"), found);
                ('d', 0, 0, String::new())
            } else if kind.is_symlink() {
                ('l', 0, 0, fs::read_link(entry.path()).unwrap().to_str().unwrap().to_owned())
            } else {
                let bytes = fs::read(entry.path()).unwrap();
                ('f', bytes.len() as u64, crc32(&bytes), String::new())
            };
            found.insert(path, seen);
        }
    }
    let mut found = Tree::new();
    visit(folder, "", &mut found);
    found
}

/// Returns the tree below `dir` of the list of the bcachefs image.
fn listed_tree() -> Tree {
    let lines: Vec<Vec<&str>> = BCACHEFS_TREE.lines().map(|line| line.split('\t').collect()).collect();
    let seen_of = |fields: &[&str]| {
        let crc = u32::from_str_radix(fields[7], 16).unwrap();
        match fields[1] {
            "f" => ('f', fields[5].parse().unwrap(), crc, String::new()),
            "l" => ('l', 0, 0, fields[8].to_owned()),
            kind => (kind.chars().next().unwrap(), 0, 0, String::new()),
        }
    };
    let by_path: BTreeMap<&str, &Vec<&str>> = lines.iter().map(|fields| (fields[0], fields)).collect();
    let below = by_path.iter().filter_map(|(path, fields)| Some((path.strip_prefix("dir/")?, *fields)));
    below
        .map(|(path, fields)| {
            // The target of a hard link is the first name of its file.
            let fields = if fields[1] == "h" { by_path[fields[8]] } else { fields };
            (path.to_owned(), seen_of(fields))
        })
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Lab {
    /// Writes the tree that most sources contain.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("dir/deep/deeper")).unwrap();
        fs::write(tree.join("dir/file"), "contents\n").unwrap();
        fs::write(tree.join("empty"), "").unwrap();
        let large: Vec<u8> =
            (0..200_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        fs::write(tree.join("dir/deep/large"), large).unwrap();
        for number in 0..150 {
            fs::write(tree.join(format!("dir/deep/deeper/file {number}")), number.to_string()).unwrap();
        }
        symlink("dir/file", tree.join("link")).unwrap();
        Self { folder, _server: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, Vec<u8>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).args(arguments);
        let output = command.output().unwrap();
        (output.status.code(), output.stdout, text(&output.stderr))
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    fn output(&self, arguments: &[&str]) -> String {
        let (code, out, said) = self.run(arguments);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
        text(&out)
    }

    fn host(&self, name: &str, arguments: &[&str]) {
        run(program(name).args(arguments).current_dir(self.folder.path())).unwrap();
    }

    fn source(&self, name: &'static str, address: &str, can: [&'static str; 4]) -> Source {
        Source { name, address: address.into(), top: "", tree: tree_of(&self.path("tree")), can }
    }

    fn jffs2(&self) -> Source {
        self.output(&["build", "-t", "jffs2", "jffs2.img", "--from", "tree", "-q"]);
        self.source("jffs2", "jffs2.img", ["-", "yes", "yes", "yes"])
    }

    fn ntfs(&self) -> Option<Source> {
        let needed = ["mkntfs", "ntfs-3g", "fusermount3"].map(Oracle::Program);
        if !require(&needed) || !require(&[Oracle::Fuse, Oracle::Root]) {
            return None;
        }
        fs::File::create(self.path("ntfs.img")).unwrap().set_len(24 << 20).unwrap();
        self.host("mkntfs", &["-F", "-q", "-s", "512", "-p", "0", "-H", "16", "-S", "63", "ntfs.img"]);
        fs::create_dir(self.path("ntfs")).unwrap();
        self.host("ntfs-3g", &["ntfs.img", "ntfs"]);
        self.host("cp", &["-r", "tree/.", "ntfs"]);
        self.host("umount", &["ntfs"]);
        // The process of the mount closes the image after the unmount.
        let start = Instant::now();
        while self.run(&["ls", "ntfs.img"]).0 != Some(0) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        Some(self.source("ntfs", "ntfs.img", ["-", "-", "yes", "yes"]))
    }

    fn lfs(&self) -> Source {
        fs::write(self.path("lfs.img"), recipe::Recipe::default().write()).unwrap();
        let file = |number: u32| {
            let bytes = format!("contents of {}", 20 + number).into_bytes();
            (format!("name number {number}"), ('f', bytes.len() as u64, crc32(&bytes), String::new()))
        };
        let tree = (0..60).map(file).collect();
        let (address, can) = ("lfs.img".into(), ["-", "-", "yes", "yes"]);
        Source { name: "lfs", address, top: "/dir", tree, can }
    }

    fn bcachefs(&self) -> Source {
        fs::write(self.path("bcachefs.img.zst"), BCACHEFS).unwrap();
        self.output(&["convert", "-q", "bcachefs.img.zst", "bcachefs.img"]);
        let (address, can) = ("bcachefs.img".into(), ["-", "-", "-", "yes"]);
        Source { name: "bcachefs", address, top: "/dir", tree: listed_tree(), can }
    }

    fn fuse(&self) -> Option<Source> {
        if !require(&[Oracle::Program("squashfuse"), Oracle::Program("mksquashfs")]) {
            return None;
        }
        self.host("mksquashfs", &["tree", "a b.sqfs", "-quiet", "-no-progress"]);
        Some(self.source("fuse", "fuse:squashfuse 'a b.sqfs'", ["yes", "-", "-", "yes"]))
    }

    fn nfs(&mut self) -> Option<Source> {
        let tree = self.path("tree");
        let server = Ganesha::start(self.folder.path(), &tree)?;
        let (port, mount_port) = (server.port, server.mount_port);
        let address = format!("nfs://127.0.0.1:{port}{}?mountport={mount_port}", tree.display());
        self._server = Some(server);
        let start = Instant::now();
        while self.run(&["ls", &address]).0 != Some(0) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", self.run(&["ls", &address]));
        }
        Some(self.source("nfs", &address, ["yes", "-", "-", "yes"]))
    }

    fn sources(&mut self) -> Vec<Source> {
        let mut sources = vec![self.jffs2(), self.lfs(), self.bcachefs()];
        sources.extend(self.ntfs());
        sources.extend(self.fuse());
        sources.extend(self.nfs());
        sources
    }
}

#[test]
fn every_command_that_reads_files_shows_the_tree_of_each_source() {
    let mut lab = Lab::new();
    let types = lab.output(&["types"]);
    for source in lab.sources() {
        println!("{}", source.name);
        let Source { name, address, top, tree, can } = &source;
        assert!(!tree.is_empty());
        let at = |path: &str| format!("{address}:{top}/{path}");
        let line = types.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
        let words: Vec<&str> = line.split_whitespace().rev().take(5).collect();
        assert_eq!(words, [can[3], can[2], can[1], can[0], "yes"], "{line}");

        listing_and_searching(&lab, &source);
        lab.output(&["cp", "-r", &at(""), &format!("copy-{name}")]);
        assert_eq!(tree_of(&lab.path(&format!("copy-{name}"))), *tree, "cp of {name}");
        lab.output(&["diff", "-r", &at(""), &format!("host:copy-{name}")]);
        fs::write(lab.path(&format!("copy-{name}/extra")), "").unwrap();
        let (code, out, _) = lab.run(&["diff", "-r", &at(""), &format!("host:copy-{name}")]);
        assert_eq!(code, Some(1), "{name}");
        assert!(text(&out).contains("extra"), "{}", text(&out));

        lab.output(&["export", &at(""), "-o", "out.tar"]);
        fs::create_dir(lab.path(&format!("tar-{name}"))).unwrap();
        lab.host("tar", &["xf", "out.tar", "-C", &format!("tar-{name}")]);
        assert_eq!(tree_of(&lab.path(&format!("tar-{name}"))), *tree, "export of {name}");

        mounting(&lab, &source);
        changing(&lab, &source);
        measuring(&lab, &source);
    }
}

/// Tests `ls`, `find`, `cat` and `shell`.
fn listing_and_searching(lab: &Lab, Source { address, top, tree, name, .. }: &Source) {
    let at = |path: &str| format!("{address}:{top}/{path}");
    let names: Vec<&str> = tree.keys().map(String::as_str).filter(|path| !path.contains('/')).collect();
    let listed = lab.output(&["ls", "-1", &at("")]);
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, names, "ls of {name}");

    let found = lab.output(&["find", &at(""), "-mindepth", "1", "-printf", "%P\\t%y\\t%s\\t%l\\n"]);
    let found: BTreeMap<String, (char, u64, String)> = found
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let kind = fields[1].chars().next().unwrap();
            let size = if kind == 'f' { fields[2].parse().unwrap() } else { 0 };
            (fields[0].to_owned(), (kind, size, fields[3].to_owned()))
        })
        .collect();
    let expected: BTreeMap<_, _> = tree
        .iter()
        .map(|(path, (kind, size, _, target))| (path.clone(), (*kind, *size, target.clone())))
        .collect();
    assert_eq!(found, expected, "find of {name}");

    let (path, seen) = tree.iter().filter(|(_, seen)| seen.0 == 'f').max_by_key(|(_, seen)| seen.1).unwrap();
    let (code, bytes, said) = lab.run(&["cat", &at(path)]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert_eq!((bytes.len() as u64, crc32(&bytes)), (seen.1, seen.2), "cat of {name}");
    let whole = format!("{address}:{top}/");
    let script = format!("ls -1; cat '{path}'");
    let (code, bytes, said) = lab.run(&["shell", "-r", &whole, "-c", &script]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "shell of {name}");
    let (names, contents) = bytes.split_at(bytes.len() - usize::try_from(seen.1).unwrap());
    assert_eq!(text(names).lines().count(), listed.len());
    assert_eq!(crc32(contents), seen.2);
}

fn mounting(lab: &Lab, Source { name, address, top, tree, .. }: &Source) {
    if !require(&[Oracle::Fuse]) {
        return;
    }
    let mount = lab.path("mnt");
    fs::create_dir_all(&mount).unwrap();
    // The command line of a server requires a path.
    let whole = if *name == "fuse" { format!("{address}:/") } else { address.clone() };
    let (code, _, said) = lab.run(&["mount", "-r", &whole, "mnt"]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "mount of {name}");
    let shown = tree_of(&mount.join(top.trim_start_matches('/')));
    let refused = fs::write(mount.join("new"), "").unwrap_err();
    let start = Instant::now();
    // A program that another test starts may use the mount until its exec(2).
    while lab.run(&["umount", "mnt"]).0 != Some(0) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", lab.run(&["umount", "mnt"]));
    }
    assert_eq!(shown, *tree, "mount of {name}");
    assert_eq!(refused.raw_os_error(), Some(30), "{refused}");
}

/// Tests that a source is refused that cannot be changed, and that `bench` names the reason.
fn changing(lab: &Lab, Source { name, address, can, .. }: &Source) {
    if can[0] == "yes" {
        return;
    }
    let (code, _, said) = lab.run(&["mkdir", &format!("{address}:/new")]);
    assert_eq!(code, Some(1), "{name}: {said}");
    let reason = format!("obento reads {name}, but does not write it");
    assert!(said.contains(&reason), "{name}: {said}");
    assert_eq!(said.contains("obento build -t jffs2"), *name == "jffs2", "{said}");
    for target in [format!("image:{name}"), format!("fuse:{name}")] {
        let size = ["--repeat", "1", "--size", "64M", "--file-size", "1M"];
        let (_, out, said) = lab.run(&[&["bench", "seq_read_4k,T=1", "-T", &target][..], &size].concat());
        let said = text(&out) + &said;
        assert!(said.contains(&reason), "{target}: {said}");
    }
}

/// Tests that `bench` reads every file of the source once, and changes nothing.
fn measuring(lab: &Lab, Source { address, name, .. }: &Source) {
    let listed = lab.output(&["find", &format!("{address}:/"), "-mindepth", "1", "-printf", "%y %s\\n"]);
    let listed: Vec<(&str, u64)> =
        listed.lines().map(|line| (&line[..1], line[2..].parse().unwrap())).collect();
    let sizes: Vec<u64> = listed.iter().filter(|(kind, _)| *kind == "f").map(|(_, size)| *size).collect();
    let small = sizes.iter().filter(|size| **size <= 64 << 10);
    let expected = [
        ("read-walk-cold", listed.len(), 0),
        ("read-files-cold", sizes.len(), sizes.iter().sum()),
        ("read-small-cold", small.clone().count(), small.sum::<u64>()),
    ];
    let image = || fs::read(lab.path(address)).ok().map(|bytes| (bytes.len(), crc32(&bytes)));
    let before = image();
    let targets = match before {
        None => vec![address.clone()],
        Some(_) if require(&[Oracle::Fuse]) => vec![format!("image:{address}"), format!("fuse:{address}")],
        Some(_) => vec![format!("image:{address}")],
    };
    for target in targets {
        let mut words = vec!["bench", "-T", &target, "--threads", "3", "--repeat", "1", "--repeat-most", "1"];
        let workloads: Vec<String> = expected.iter().map(|(load, ..)| format!("{load},T=N")).collect();
        words.extend(workloads.iter().map(String::as_str));
        let output = format!("bench-{name}-{}.json", target.len());
        let (code, _, said) = lab.run(&[&words[..], &["--output", &output]].concat());
        // The contents of one file of this image are damaged.
        let damaged = if *name == "bcachefs" { Some("big.bin") } else { None };
        assert_eq!(code, Some(i32::from(damaged.is_some())), "{target}: {said}");
        assert_eq!(said.matches("cannot measure").count(), usize::from(damaged.is_some()), "{said}");
        assert!(damaged.is_none_or(|file| said.contains(file)), "{said}");
        let lines = lab.output(&["bench", "report", &output, "--format", "csv"]);
        for (load, files, bytes) in &expected {
            let line = lines.lines().find(|line| line.contains(load));
            let counts = line.map(|line| {
                let fields: Vec<&str> = line.rsplit(',').collect();
                (fields[8].to_owned(), fields[7].to_owned())
            });
            let is_measured = damaged.is_none() || !load.contains("files");
            assert_eq!(
                counts,
                is_measured.then(|| (files.to_string(), bytes.to_string())),
                "{target}: {load}"
            );
        }
    }
    assert!(image() == before, "{name} was changed");
}

#[test]
fn the_checksum_is_that_of_zlib() {
    assert_eq!(crc32(&std::ffi::OsString::from("123456789").into_vec()), 0xcbf4_3926);
}
