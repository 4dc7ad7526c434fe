//! `obento build` as a user runs it; e2fsck and the kernel judge the images.

mod formats;
mod hostile;
mod limits;
mod oci;
mod pipe;
mod sources;
mod values;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use obento_testkit::entries::{self, Differences, Entries};
use obento_testkit::image::{ImageSpec, kernel_entries, tar_of};
use obento_testkit::matrix;
use obento_testkit::oracle::{Oracle, call, program, require};
use obento_testkit::tree::{self, TreeSpec};
use tempfile::TempDir;

const SPEC: TreeSpec =
    TreeSpec { files: 300, wide: 3000, sparse_len: 1 << 30, xattr_len: 900, root: true, raw_names: true };
const JUDGES: &[Oracle] =
    &[Oracle::Root, Oracle::LoopMount, Oracle::Program("e2fsck"), Oracle::Program("tar")];

/// A folder to build in.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(line.split(' ')).env_clear();
        command
    }

    /// Expects this exit code, and returns standard output and error.
    #[track_caller]
    fn run(&self, line: &str, code: i32) -> (String, String) {
        let output = self.command(line).output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        (out, err)
    }

    /// Expects no message except that a tree with every possible time contains files of the future.
    #[track_caller]
    fn quietly(&self, line: &str) {
        let (out, err) = self.run(line, 0);
        let is_known = |line: &str| line.contains(": note: contains files with future times");
        assert!(out.is_empty() && err.lines().all(is_known), "{line}: {out}{err}");
    }

    /// Creates a folder with everything that a file system can store.
    fn tree(&self) -> PathBuf {
        let tree = self.path("tree");
        fs::create_dir(&tree).unwrap();
        tree::write(&tree, &SPEC).unwrap();
        tree
    }

    #[track_caller]
    fn fsck(&self, name: &str) {
        call("e2fsck", ["-fn".as_ref(), self.path(name).as_os_str()]).unwrap();
    }

    /// Returns what the kernel shows of an image, without lost+found.
    fn kernel(&self, name: &str) -> Entries {
        let spec = ImageSpec { name: "built", ..matrix::base("built", &["-t", "ext4"], SPEC) };
        let mut entries = kernel_entries(&self.path(name), &spec).unwrap();
        entries.remove(&b"lost+found"[..]);
        entries
    }

    #[track_caller]
    fn expect_same(&self, expected: &Entries, name: &str) {
        self.fsck(name);
        let differences = Differences::between(expected, &self.kernel(name));
        assert!(differences.is_empty(), "{name}: {differences}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns what GNU tar shows of a folder.
fn entries_of(bench: &Bench, folder: &Path) -> Entries {
    let tar = bench.path("expected.tar");
    tar_of(folder, &tar).unwrap();
    entries::from_tar(File::open(&tar).unwrap()).unwrap()
}

#[test]
fn an_image_of_a_folder_is_what_the_kernel_reads_in_it_whatever_the_type() {
    if !require(JUDGES) {
        return;
    }
    let bench = Bench::new();
    let expected = entries_of(&bench, &bench.tree());
    for (name, options) in [
        ("ext4.img", "-t ext4"),
        ("ext3.img", "-t ext3"),
        ("ext2.img", "-t ext2 -I 256"),
        ("small.img", "-t ext4 -b 1024 --minimize"),
        ("old.img", "-t ext2 -b 2048 --free 30% -I 256 -O ^dir_index"),
        ("clusters.img", "-O bigalloc -b 4096 --threads 3"),
        ("plain.img", "-O ^metadata_csum,uninit_bg,^64bit,^flex_bg --size 400M"),
        ("quota.img", "-O quota,project -E quotatype=usrquota:grpquota:prjquota"),
        ("counted.img", "-O quota,bigalloc --minimize"),
        ("more.img", "-O sparse_super2,orphan_file,large_dir,meta_bg,^resize_inode -N 100000 -m 1"),
    ] {
        let line = format!("build {options} {name} --from tree --owner keep --xattrs -q");
        bench.quietly(&line);
        let mut expected = expected.clone();
        if options.contains("bigalloc") {
            // Holes of this format begin and end with clusters.
            expected.values_mut().for_each(|entry| entry.map = None);
        }
        bench.expect_same(&expected, name);
    }
}

#[test]
fn an_archive_gives_the_same_image_however_it_is_packed() {
    if !require(JUDGES) || !require(&[Oracle::Program("zstd"), Oracle::Program("gzip")]) {
        return;
    }
    let bench = Bench::new();
    let expected = entries_of(&bench, &bench.tree());
    call("gzip", ["-k".as_ref(), bench.path("expected.tar").as_os_str()]).unwrap();
    call("zstd", ["-q".as_ref(), bench.path("expected.tar").as_os_str()]).unwrap();
    bench.run("build plain.img --from expected.tar -q", 0);
    bench.run("build gzip.img --from expected.tar.gz -q", 0);
    bench.run("build zstd.img --from tar:expected.tar.zst -q", 0);
    let plain = fs::read(bench.path("plain.img")).unwrap();
    for name in ["gzip.img", "zstd.img"] {
        assert!(fs::read(bench.path(name)).unwrap() == plain, "{name}");
    }
    // GNU tar does not store sockets.
    bench.expect_same(&expected, "plain.img");
}

#[test]
fn two_copies_of_a_tree_make_the_same_bytes_wherever_and_whenever() {
    let bench = Bench::new();
    for (name, reverse) in [("one", false), ("two", true)] {
        let root = bench.path(name);
        let mut names: Vec<u32> = (0..200).collect();
        if reverse {
            names.reverse();
        }
        fs::create_dir(&root).unwrap();
        for at in names {
            let dir = root.join(format!("dir{}", at % 7));
            let _ = fs::create_dir(&dir);
            fs::write(dir.join(format!("file {at}")), format!("content {at}").repeat(at as usize)).unwrap();
        }
        for entry in ["dir1", "dir1/file 1", "dir3"] {
            fs::set_permissions(root.join(entry), fs::Permissions::from_mode(0o750)).unwrap();
        }
        set_times(&root);
    }
    let mut second = bench.command("build two.img --from two --verify -q --threads 4");
    second.env("TZ", "Asia/Tokyo").env("LC_ALL", "tr_TR.UTF-8");
    // A shell sets the umask, which the command inherits.
    let shell = Command::new("sh")
        .arg("-c")
        .arg("umask 077; exec \"$0\" \"$@\"")
        .arg(second.get_program())
        .args(second.get_args())
        .current_dir(bench.0.path())
        .env("TZ", "Asia/Tokyo")
        .output()
        .unwrap();
    assert!(shell.status.success(), "{}", text(&shell.stderr));
    bench.run("build one.img --from one --verify -q --threads 1", 0);
    assert!(fs::read(bench.path("one.img")).unwrap() == fs::read(bench.path("two.img")).unwrap());
    // Another name is another volume.
    fs::rename(bench.path("two/dir1/file 1"), bench.path("two/dir1/file 1b")).unwrap();
    set_times(&bench.path("two"));
    bench.run("build three.img --from two -q", 0);
    let uuid = |name: &str| fs::read(bench.path(name)).unwrap()[1024 + 0x68..1024 + 0x78].to_vec();
    assert_ne!(uuid("one.img"), uuid("three.img"));
}

/// Sets the same time for everything below `root`, so that only the intended differences remain.
fn set_times(root: &Path) {
    for entry in fs::read_dir(root).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            set_times(&entry.path());
        }
        let file = File::open(entry.path()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 123_456_789))
            .unwrap();
    }
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_001);
    File::open(root).unwrap().set_modified(time).unwrap();
}

/// Copies the program to `path`, for users who may not enter its folder. Another process copies it: a file
/// that a child of this process holds open for writing, even for the moment before its exec(2), cannot be
/// executed.
fn copy_of_obento(path: &Path) {
    call("cp", [env!("CARGO_BIN_EXE_obento").as_ref(), path.as_os_str()]).unwrap();
}

#[test]
fn an_ordinary_user_builds_files_that_belong_to_root() {
    if !require(JUDGES) {
        return;
    }
    let bench = Bench::new();
    let expected = entries_of(&bench, &bench.tree());
    fs::set_permissions(bench.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(bench.path("expected.tar"), fs::Permissions::from_mode(0o644)).unwrap();
    let program = bench.path("obento");
    copy_of_obento(&program);
    let mut command = Command::new(&program);
    command.current_dir(bench.0.path()).args(["build", "-q", "disk.img", "--from", "expected.tar"]);
    let output = command.uid(65_534).gid(65_534).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::metadata(bench.path("disk.img")).unwrap().uid(), 65_534);
    bench.expect_same(&expected, "disk.img");
}

#[test]
fn all_unreadable_files_are_named_and_no_image_is_created() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let bench = Bench::new();
    fs::set_permissions(bench.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(bench.path("tree")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(bench.path("tree").join(name), name).unwrap();
    }
    for name in ["a", "c"] {
        fs::set_permissions(bench.path("tree").join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let program = bench.path("obento");
    copy_of_obento(&program);
    let mut command = Command::new(&program);
    command.current_dir(bench.0.path()).args(["build", "disk.img", "--from", "tree"]);
    let output = command.uid(65_534).gid(65_534).env_clear().output().unwrap();
    assert_eq!(
        text(&output.stderr),
        "obento: cannot use 'tree/a': permission denied\n\
         obento: cannot use 'tree/c': permission denied\n\
         obento: cannot build 'disk.img': 2 entries of the sources cannot be used; nothing was written\n  \
         help: fix the sources, or omit the files with --exclude\n"
    );
    assert!(!bench.path("disk.img").exists());
    command.args(["--exclude", "a", "--exclude", "c"]);
    assert!(command.output().unwrap().status.success());
    assert_eq!(bench.run("ls disk.img", 0).0, "b\nlost+found\n");
}

#[test]
fn layers_of_an_oci_image_hide_what_is_below_them() {
    let bench = Bench::new();
    let layer = |members: &[(&str, &str)]| {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, content) in members {
            let mut header = tar::Header::new_gnu();
            header.set_mode(if path.ends_with('/') { 0o755 } else { 0o644 });
            header.set_mtime(1_600_000_000);
            let kind = if path.ends_with('/') { tar::EntryType::Directory } else { tar::EntryType::Regular };
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    };
    let blobs = bench.path("image/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8]| {
        let path = bench.path("blob");
        fs::write(&path, bytes).unwrap();
        let sum = text(&call("sha256sum", [&path]).unwrap().stdout);
        let digest = sum.split(' ').next().unwrap();
        fs::rename(&path, blobs.join(digest)).unwrap();
        format!("{{\"digest\":\"sha256:{digest}\",\"size\":{}}}", bytes.len())
    };
    let layers = [
        layer(&[
            ("etc/", ""),
            ("etc/old", "1"),
            ("etc/kept", "2"),
            ("var/", ""),
            ("var/a", "3"),
            ("gone/", ""),
            ("gone/b", "4"),
        ]),
        layer(&[
            ("etc/.wh.old", ""),
            ("var/", ""),
            ("var/new", "5"),
            ("var/.wh..wh..opq", ""),
            (".wh.gone", ""),
        ]),
    ]
    .map(|bytes| blob(&bytes));
    let manifest = blob(format!("{{\"layers\":[{}]}}", layers.join(",")).as_bytes());
    fs::write(bench.path("image/index.json"), format!("{{\"manifests\":[{manifest}]}}")).unwrap();
    fs::write(bench.path("image/oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
    bench.run("build disk.img --from image -q", 0);
    let found = bench.run("find disk.img", 0).0;
    let found: Vec<&str> = found.lines().map(|line| line.trim_start_matches("disk.img:")).collect();
    assert_eq!(found, ["/", "/etc", "/etc/kept", "/lost+found", "/var", "/var/new"]);
    if require(&[Oracle::Program("e2fsck")]) {
        bench.fsck("disk.img");
    }
    let first = fs::read_dir(&blobs).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&first).unwrap();
    bytes[0] ^= 1;
    fs::write(&first, &bytes).unwrap();
    assert!(bench.run("build other.img --from image", 2).1.contains("the digest of the data is"));
}

#[test]
fn manifests_need_no_rights_and_override_existing_entries() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/su"), "#!").unwrap();
    fs::write(bench.path("payload"), "bytes").unwrap();
    fs::write(
        bench.path("more.mtree"),
        "#mtree\n/set type=file uid=0 gid=0\n. type=dir mode=0755\n    su mode=4755 uid=7 time=5.000000006\n\
         dev type=dir mode=0755\n    sda type=block mode=0660 gid=6 device=native,8,0\n..\n\
         with\\040space contents=payload mode=0600 xattr.user.note=aGk=\n./a/link type=link link=../su\n",
    )
    .unwrap();
    fs::write(
        bench.path("last.dump"),
        "/ 0 40711 2 0 0 0 9.0 - - -\n/inline 5 100640 1 3 4 0 10.5 - a\\x20b\\n\\\\ - user.k=v\n\
         /second 0 @100640 - - - - - /inline - -\n/null 0 20666 1 0 0 259 0.0 - - -\n",
    )
    .unwrap();
    bench.run("build disk.img --from tree more.mtree dump:last.dump -q --add payload:/srv/deep/", 0);
    let stat = |path: &str, format: &str| {
        let mut command = bench.command("stat -c");
        let output = command.arg(format).arg(format!("disk.img:{path}")).output().unwrap();
        text(&output.stdout).trim().to_owned()
    };
    assert_eq!(stat("/su", "%a %u %g %.9Y"), "4755 7 0 5.000000006");
    assert_eq!(stat("/dev/sda", "%a %g %F %t,%T"), "660 6 block special file 8,0");
    assert_eq!(stat("/with space", "%a %s"), "600 5");
    assert_eq!(stat("/inline", "%a %h %s"), "640 2 5");
    assert_eq!(stat("/null", "%F %t,%T"), "character special file 1,3");
    assert_eq!(stat("/", "%a"), "711");
    assert_eq!(bench.run("cat disk.img:/srv/deep/payload", 0).0, "bytes");
    assert_eq!(bench.run("cat disk.img:/second", 0).0, "a b\n\\");
    assert_eq!(bench.run("readlink disk.img:/a/link", 0).0, "../su\n");
    if require(&[Oracle::Program("e2fsck")]) {
        bench.fsck("disk.img");
    }
}

#[test]
fn a_hostile_archive_leads_nowhere() {
    let bench = Bench::new();
    fs::write(bench.path("outside"), "mine").unwrap();
    let build = |members: &[(&str, tar::EntryType, &str)]| {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, kind, link) in members {
            let mut header = tar::Header::new_ustar();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(0);
            header.set_cksum();
            tar.append(&header, &b""[..]).unwrap();
        }
        fs::write(bench.path("hostile.tar"), tar.into_inner().unwrap()).unwrap();
        bench.command("build -F disk.img --from hostile.tar").output().unwrap()
    };
    use tar::EntryType::{Directory, Link, Regular, Symlink};
    let said = |output: Output| text(&output.stderr);
    assert!(
        said(build(&[("../outside", Regular, "")]))
            .contains("cannot use '../outside': the path contains '..'")
    );
    assert!(said(build(&[("a", Link, "../outside")])).contains("cannot use 'a': the path contains '..'"));
    assert!(said(build(&[("a", Link, "/outside")])).contains("of the hard link does not exist"));
    assert!(said(build(&[("a", Link, "a")])).contains("of the hard link does not exist"));
    assert!(
        said(build(&[("a", Symlink, "b"), ("b", Symlink, "a"), ("a/c", Regular, "")]))
            .contains("too many symbolic links")
    );
    assert!(
        said(build(&[("d", Directory, ""), ("e", Link, "d")]))
            .contains("a hard link to a directory is not possible")
    );
    assert!(!bench.path("disk.img").exists());
    // Links that lead up end at the root of the image.
    let links = [
        ("up", Symlink, "../../../.."),
        ("up/new", Regular, ""),
        ("/abs", Symlink, "/up/sub"),
        ("abs/x", Regular, ""),
    ];
    let output = build(&links);
    assert!(output.status.success(), "{}", said(output));
    let found = bench.run("find disk.img", 0).0;
    assert!(found.contains("disk.img:/new\n") && found.contains("disk.img:/sub/x\n"), "{found}");
    assert_eq!(fs::read(bench.path("outside")).unwrap(), b"mine");
}

#[test]
fn an_insufficient_size_is_reported_with_a_sufficient_one() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/big"), vec![7; 20 << 20]).unwrap();
    let (_, err) = bench.run("build disk.img --from tree --size 16M", 2);
    let needed: u64 = err.split("too small; ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((20 << 20..30 << 20).contains(&needed), "{err}");
    assert!(!bench.path("disk.img").exists());
    bench.run(&format!("build disk.img --from tree -q --size {}k", needed / 1024), 0);
    let (out, _) = bench.run("build -F -L root disk.img --from tree --minimize", 0);
    assert!(
        out.starts_with("disk.img: ext4 'root', ") && out.contains("  1 file and 1 directory with 20 MiB in"),
        "{out}"
    );
    assert!(bench.run("build disk.img --from tree", 2).1.contains("file exists"));
    assert!(bench.run("build x.img", 2).1.contains("no source given"));
    let (_, err) = bench.run("build -t ntfs x.img --from tree", 2);
    assert!(err.contains(", but opens existing volumes") && err.contains("ext4/ext3/ext2, "), "{err}");
    let (json, _) = bench.run("build --json y.img --from tree --verify --exclude big", 0);
    assert!(json.contains("\"kind\":\"built\"") && json.contains("\"excluded\":1"), "{json}");
}

#[test]
fn files_with_future_times_are_reported_unless_the_time_is_given() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/file"), "bytes").unwrap();
    let future = std::time::SystemTime::now() + std::time::Duration::from_secs(1000 * 24 * 60 * 60);
    File::options().write(true).open(bench.path("tree/file")).unwrap().set_modified(future).unwrap();
    let (_, err) = bench.run("build disk.img --from tree", 0);
    assert!(
        err.contains("disk.img: note: contains files with future times") && err.contains("SOURCE_DATE_EPOCH"),
        "{err}"
    );
    let output = bench
        .command("build -F disk.img --from tree")
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!text(&output.stderr).contains("future"), "{}", text(&output.stderr));
}

#[test]
fn an_image_within_its_own_source_is_left_out_when_it_is_built_again() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/file"), "bytes").unwrap();
    let build = |words: &str| {
        let mut command = bench.command(&format!("build tree/disk.img --from tree {words}"));
        let output = command.env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (fs::read(bench.path("tree/disk.img")).unwrap(), text(&output.stderr))
    };
    let (first, _) = build("--threads 2");
    let (again, said) = build("--threads 2 -F");
    assert!(first == again);
    assert!(said.contains("tree/disk.img: skipped, because the build replaces this image"), "{said}");
}

#[test]
fn numbers_that_no_image_can_hold_are_refused() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    for seconds in ["-1", "99999999999999", "soon"] {
        let mut command = bench.command("build disk.img --from tree");
        let output = command.env("SOURCE_DATE_EPOCH", seconds).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{seconds}");
        assert!(text(&output.stderr).contains("since 1970, up to the year 9999"), "{}", text(&output.stderr));
    }
    let (_, said) = bench.run("build disk.img --from tree --owner 4294967295:0", 2);
    assert!(said.contains("4294967295:0") && !bench.path("disk.img").exists(), "{said}");
}

#[test]
fn formats_without_a_builder_report_a_sufficient_size_too() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    for at in 0..20 {
        fs::write(bench.path("tree").join(format!("file{at}")), vec![7; 60_000]).unwrap();
    }
    for fs_type in ["vfat", "xv6"] {
        let (_, err) = bench.run(&format!("build -t {fs_type} disk.img --from tree --size 700k"), 2);
        let needed: u64 =
            err.split("too small; ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(!bench.path("disk.img").exists());
        bench.run(&format!("build -t {fs_type} disk.img --from tree -q --size {}k", needed / 1024), 0);
        fs::remove_file(bench.path("disk.img")).unwrap();
    }
}

#[test]
fn links_sparse_files_and_rules_for_owners_come_through() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    fs::hard_link(tree.join("file"), tree.join("other")).unwrap();
    symlink("x".repeat(500), tree.join("long")).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 1 << 29).unwrap();
    bench.run("build disk.img --from tree -q --owner 1000:100 --map-uid 1000:5 --chmod a+x", 0);
    let meta = fs::metadata(bench.path("disk.img")).unwrap();
    assert!(meta.len() < 64 << 20, "{}", meta.len());
    let listing = bench.run("ls -ln disk.img", 0).0;
    assert!(listing.contains("-rwxr-xr-x 2 5 100"), "{listing}");
    assert_eq!(bench.run("readlink disk.img:/long", 0).0.trim().len(), 500);
    assert_eq!(bench.run("du -B1 disk.img:/sparse", 0).0, "4096\tdisk.img:/sparse\n");
    if require(&[Oracle::Program("e2fsck")]) {
        bench.fsck("disk.img");
    }
}

#[test]
fn a_file_that_ends_with_a_hole_keeps_its_bytes_apart_from_those_of_others() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    let write = |name: &str, bytes: &[u8], len: u64| {
        let file = File::create(bench.path("tree").join(name)).unwrap();
        (&file).write_all(bytes).unwrap();
        file.set_len(len).unwrap();
    };
    write("a", b"TEST\n", 1 << 20);
    write("b", &[b'B'; 3000], 3000);
    write("c", b"TEST\n", 6000);
    for options in ["-t ext4", "-t ext4 -b 1024", "-t ext4 -O bigalloc", "-t ext3", "-t ext2 -b 2048"] {
        bench.run(&format!("build -q -F {options} disk.img --from tree --verify"), 0);
        for name in ["a", "b", "c"] {
            let output = bench.command(&format!("cat disk.img:/{name}")).output().unwrap();
            assert!(output.stdout == fs::read(bench.path("tree").join(name)).unwrap(), "{options}: {name}");
        }
        if require(&[Oracle::Program("e2fsck")]) {
            bench.fsck("disk.img");
        }
    }
}

#[test]
fn each_number_of_files_has_an_inode_for_each() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    for count in 0..20 {
        fs::write(bench.path("tree").join(format!("f{count}")), "x").unwrap();
        bench.run("build -q -F -t ext2 -b 1024 disk.img --from tree --free 0% --verify", 0);
    }
}

#[test]
fn the_least_volume_is_no_larger_than_one_without_free_space() {
    let bench = Bench::new();
    let mut tar = tar::Builder::new(Vec::new());
    for at in 0..30_000 {
        let mut header = header_of_a_file(0);
        tar.append_data(&mut header, format!("file{at}"), &[][..]).unwrap();
    }
    fs::write(bench.path("empty.tar"), tar.into_inner().unwrap()).unwrap();
    for options in ["-t ext4", "-t ext3 -b 1024", "-t ext2"] {
        bench.run(&format!("build -q -F {options} least.img --from empty.tar --minimize"), 0);
        bench.run(&format!("build -q -F {options} full.img --from empty.tar --free 0%"), 0);
        let len = |name| fs::metadata(bench.path(name)).unwrap().len();
        assert!(
            len("least.img") <= len("full.img"),
            "{options}: {} and {}",
            len("least.img"),
            len("full.img")
        );
        if require(&[Oracle::Program("e2fsck")]) {
            bench.fsck("least.img");
        }
    }
}

#[test]
fn the_image_may_be_named_behind_its_sources() {
    let bench = Bench::new();
    for name in ["tree", "over"] {
        fs::create_dir(bench.path(name)).unwrap();
    }
    bench.run("build -q --from tree out.img", 0);
    bench.run("build -q --from tree over more.img", 0);
    bench.run("build -q --from tree --add over:/x last.img", 0);
    let missing = "help: name the image first: obento build OUT --from SRC...";
    for line in ["build", "build --from tree", "build --from tree over", "build -F --from tree out.img"] {
        let (_, said) = bench.run(line, 2);
        assert!(said.contains("missing operand OUT") && said.contains(missing), "{line}: {said}");
    }
}

#[test]
fn a_volume_with_fewer_inodes_in_its_first_group_than_every_volume_has_keeps_them_all() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/large"), vec![7; 40 << 20]).unwrap();
    bench.run("build -b 1024 disk.img --from tree -q", 0);
    assert_eq!(bench.run("ls disk.img:/", 0).0, "large\nlost+found\n");
    if require(&[Oracle::Program("e2fsck")]) {
        bench.fsck("disk.img");
    }
}

/// Starts to build `disk.img` in `folder` from a pipe, writes a part of a file to the pipe, sends the process
/// a signal, and waits.
fn interrupt(bench: &Bench, folder: &Path, build: &str, signal: &str) -> std::process::ExitStatus {
    let build = bench.command(build);
    // A parent such as nohup(1) may ignore signals, and every program inherits that.
    let mut command = program("env");
    command.args(["-i", "--default-signal=INT,TERM,HUP"]).arg(build.get_program()).args(build.get_args());
    let mut child = command.current_dir(folder).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(header_of_a_file(100 << 20).as_bytes()).unwrap();
    // More than the pipe can contain, so that the process has started to read.
    stdin.write_all(&vec![1; 8 << 20]).unwrap();
    call("kill", ["-s", signal, &child.id().to_string()]).unwrap();
    child.wait().unwrap()
}

fn header_of_a_file(len: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_path("file").unwrap();
    header.set_mode(0o644);
    header.set_size(len);
    header.set_cksum();
    header
}

#[test]
fn a_build_that_is_interrupted_leaves_nothing() {
    let bench = Bench::new();
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("KILL", 9)] {
        let status = interrupt(&bench, bench.0.path(), "build disk.img --from -", signal);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(number));
        assert_eq!(fs::read_dir(bench.0.path()).unwrap().count(), 0, "{signal}");
    }
    let mut command = bench.command("build disk.img --from -");
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(header_of_a_file(100 << 20).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("ends too early"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(bench.0.path()).unwrap().count(), 0);
}

#[test]
fn without_unnamed_files_a_signal_removes_the_unfinished_file() {
    if !require(&[Oracle::Root, Oracle::Fuse]) {
        return;
    }
    let bench = Bench::new();
    let host = bench.path("host");
    fs::create_dir(&host).unwrap();
    bench.run("mkfs -q -t vfat host.img 64M", 0);
    bench.run("mount host.img host", 0);
    let count = || fs::read_dir(&host).unwrap().count();
    let left = ["INT", "TERM", "KILL", "HUP"].map(|signal| {
        let status = interrupt(&bench, &host, "build disk.img --stream --from -", signal);
        (std::os::unix::process::ExitStatusExt::signal(&status), count())
    });
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/file"), "bytes").unwrap();
    let built = bench.command("build host/disk.img --from tree -q").output().unwrap();
    let again = bench.command("build -F host/disk.img --from tree -q --verify").output().unwrap();
    let names: Vec<_> = fs::read_dir(&host).unwrap().flatten().map(|entry| entry.file_name()).collect();
    bench.run("umount host", 0);
    // A killed build leaves its file, which the next build there removes.
    assert_eq!(left, [(Some(2), 0), (Some(15), 0), (Some(9), 1), (Some(1), 0)]);
    assert!(
        built.status.success() && again.status.success(),
        "{}{}",
        text(&built.stderr),
        text(&again.stderr)
    );
    assert_eq!(names, ["disk.img"]);
}
