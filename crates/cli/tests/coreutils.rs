//! The commands print the same as coreutils, tree and getfattr for the same tree, which the kernel has
//! mounted.
//!
//! The path of the mount is replaced by that of the image: `/tmp/mount/etc` is read as `disk.img:/etc`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use obento_testkit::image::small_ext4;
use obento_testkit::oracle::{LoopMount, program};
use obento_testkit::{Oracle, require};

/// An image, and the kernel's mount of it.
struct Both {
    folder: tempfile::TempDir,
    image: PathBuf,
    mount: LoopMount,
}

impl Both {
    /// Returns `None`, with a message, if an oracle is missing.
    fn new(programs: &[&'static str]) -> Option<Self> {
        let programs = programs.iter().map(|name| Oracle::Program(name));
        let needed: Vec<_> =
            programs.chain([Oracle::Program("mke2fs"), Oracle::LoopMount, Oracle::Root]).collect();
        if !require(&needed) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = small_ext4(folder.path()).unwrap();
        let mount = LoopMount::new(&image, "ro,noload").unwrap();
        Some(Self { folder, image, mount })
    }

    /// The same for a tree of empty files with these names, and a few links.
    fn of_names(names: &[&str]) -> Option<Self> {
        if !require(&[Oracle::Program("ls"), Oracle::Program("mke2fs"), Oracle::LoopMount, Oracle::Root]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (tree, image) = (folder.path().join("tree"), folder.path().join("names.img"));
        std::fs::create_dir_all(tree.join("d/sub")).unwrap();
        for name in names {
            std::fs::write(tree.join("d").join(name), "").unwrap();
        }
        for (link, target) in [("to-dir", "d"), ("to-file", "d/a1"), ("nowhere", "none"), ("d/up", "../d/a1")]
        {
            std::os::unix::fs::symlink(target, tree.join(link)).unwrap();
        }
        let made =
            program("mke2fs").args(["-q", "-t", "ext4", "-d"]).args([&tree, &image]).arg("8M").status();
        assert!(made.unwrap().success());
        let mount = LoopMount::new(&image, "ro,noload").unwrap();
        Some(Self { folder, image, mount })
    }

    /// Runs `tool` on the mount and obento on the image, and returns both outputs; `@/` in `args` is the
    /// root.
    fn run(&self, tool: &str, args: &[&str]) -> (Output, Output) {
        let expected = program(tool).args(with_root(args, self.mount.path(), "/")).output().unwrap();
        let found = obento(self.folder.path())
            .arg(tool)
            .args(with_root(args, self.image.file_name().unwrap().as_ref(), ":/"))
            .output()
            .unwrap();
        (expected, found)
    }

    fn assert_same(&self, tool: &str, args: &[&str]) {
        self.assert_same_by(tool, args, <[u8]>::to_vec);
    }

    /// Compares the outputs after `order` has sorted both.
    fn assert_same_by(&self, tool: &str, args: &[&str], order: impl Fn(&[u8]) -> Vec<u8>) {
        let (expected, found) = self.run(tool, args);
        let root = [self.mount.path().as_os_str().as_bytes(), b"/"].concat();
        let image = [self.image.file_name().unwrap().as_bytes(), b":/"].concat();
        let expected_text = order(&replace(&expected.stdout, &root, &image));
        let found_text = order(&found.stdout);
        let errors = String::from_utf8_lossy(&found.stderr);
        assert!(!expected_text.is_empty(), "{tool} {args:?}: {}", String::from_utf8_lossy(&expected.stderr));
        if let Some((expected, found)) = first_difference(&expected_text, &found_text) {
            panic!("{tool} {args:?}\nexpected {expected:?}\nfound    {found:?}\n{errors}");
        }
        assert_eq!(expected.status.code(), found.status.code(), "{tool} {args:?}: {errors}");
    }
}

fn obento(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).env_clear().env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env("TERM", "xterm");
    command
}

fn with_root(args: &[&str], root: &Path, slash: &str) -> Vec<std::ffi::OsString> {
    let root = [root.as_os_str().as_bytes(), slash.as_bytes()].concat();
    args.iter().map(|arg| OsStr::from_bytes(&replace(arg.as_bytes(), b"@/", &root)).to_owned()).collect()
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) {
            out.extend_from_slice(to);
            at += from.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

fn first_difference(expected: &[u8], found: &[u8]) -> Option<(String, String)> {
    let lines = |text: &[u8]| -> Vec<String> {
        text.split(|&b| b == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    };
    let (expected, found) = (lines(expected), lines(found));
    let end = "(the end)".to_owned();
    (0..expected.len().max(found.len())).find_map(|at| {
        let pair = (expected.get(at).unwrap_or(&end), found.get(at).unwrap_or(&end));
        (pair.0 != pair.1).then(|| (pair.0.clone(), pair.1.clone()))
    })
}

fn sorted_by(separator: &'static str) -> impl Fn(&[u8]) -> Vec<u8> {
    move |text| {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.windows(separator.len()).position(|w| w == separator.as_bytes()) {
            parts.push(rest[..at].to_vec());
            rest = &rest[at + separator.len()..];
        }
        parts.push(rest.to_vec());
        parts.sort();
        parts.join(separator.as_bytes())
    }
}

#[test]
fn ls_lists_a_tree_as_gnu_ls_does() {
    let Some(both) = Both::new(&["ls"]) else { return };
    for flags in [
        "-lnAR",
        "-nAR --full-time",
        "-nAR --time-style=long-iso",
        "-nAR --time-style=iso",
        "-AR",
        "-AiR",
        "-AsR",
        "-1AR",
        "-AhlnR",
        "-AlnRt",
        "-AlnRS",
        "-ARr",
        "-AlnRtr",
        "-AlnRc",
        "-AlnRu --full-time",
        "-AlnsiR",
        "-gnAR",
        "-onAR",
        "-GlnAR",
        "-AFR",
        "-ApR",
        "-AlnFR",
        "-AQR",
        "-AbR",
        "-AqR",
        "-ANR",
        "-AlnXR",
        "-AlnhsR",
        "-AR --quoting-style=shell-escape",
        "-lnAR --quoting-style=shell-escape",
        "-lnAR --si",
        "-AlnkR",
        "-dln",
        "-lnA --time-style=+%Y/%j",
        "-lnAR --group-directories-first",
        "-AR --zero",
        "-mAR",
        "-mAR -w 40",
        "-mAR -w 0",
        "-mAisFR -w 77",
        "-mAQR",
        "-vR",
        "-lnvrR",
        "-AR --sort=width",
        "-R --sort=version",
        "-lnAR --sort=size",
        "-lnAR --sort=time",
        "-AR --sort=extension",
        "-AR --file-type",
        "-lnAR --file-type",
        "-AR --indicator-style=slash",
        "-AR --format=commas",
        "-nAR --format=long",
        "-AR --format=across",
        "-AR -I *.txt",
        "-aR -I .* -I f*",
        "-R --hide=*1* --hide=d*",
        "-AR --hide=*1*",
        "-BR",
        "-lnH",
        "-CAR -T 4",
    ] {
        let mut args: Vec<&str> = flags.split(' ').collect();
        args.push("@/");
        both.assert_same("ls", &args);
    }
}

#[test]
fn ls_orders_and_leaves_out_names_and_follows_links_as_gnu_ls_does() {
    let names = [
        "a1",
        "a2",
        "a10",
        "a01",
        "a001",
        "a",
        "a~",
        "a.b",
        "a.b~",
        "a.b1.c",
        "b.tar.gz",
        "b-2.tar.gz",
        "b-10.tar.gz",
        "b-2.0.tar.gz",
        ".hidden",
        ".2",
        ".10",
        "..x",
        "x.c",
        "x.c.~1~",
        "#x#",
        "1",
        "02",
        "10",
        "_",
        "-",
        "Z9",
        "z9",
        "long name with blanks",
        "tab\there",
        "é",
        "日本",
        "9223372036854775808",
        "18446744073709551616",
        "*",
        "[a]",
        "\\",
        ".b~",
    ];
    let Some(both) = Both::of_names(&names) else { return };
    for flags in [
        // The position of hidden names differs between versions of GNU coreutils.
        "-v",
        "-vr",
        "-1 --sort=width",
        "-A --sort=width -Q",
        "-m",
        "-mA -w 30",
        "-mQ -w 25",
        "-mF --color=always -w 33",
        "-A -I *~",
        "-a -I *",
        "-a -I .*",
        "-A -I [!a-b]*",
        "-A -I \\.*",
        "-A -I [.]*",
        "-A -I \\*",
        "-B",
        "-BA",
        "-Ba --hide=*1*",
        "--hide=a* --hide=*.gz",
        "-tv",
        "-vt",
        "-vS --sort=width",
        "--sort=none -v",
        "-m -1",
        "-1 -m",
        "-lnm",
        "-mln",
    ] {
        let args: Vec<&str> = flags.split(' ').chain(["@/d"]).collect();
        both.assert_same("ls", &args);
    }
    let operands = ["@/to-dir", "@/to-file", "@/d/up"];
    for flags in [
        "-lnH",
        "-lnL",
        "-ln",
        "-FH",
        "-F",
        "-dH",
        "-dlnH",
        "-LH",
        "-HL",
        "-ln --dereference-command-line-symlink-to-dir",
        "-F --dereference-command-line-symlink-to-dir",
        "-d --file-type",
        "--file-type",
        "-iH",
    ] {
        // Separate, because GNU computes the widths of columns from directories that are listed later.
        for operand in operands {
            both.assert_same("ls", &flags.split(' ').chain([operand]).collect::<Vec<_>>());
        }
    }
    // A link without a target cannot be followed.
    let (expected, found) = both.run("ls", &["-lnH", "@/nowhere"]);
    assert_eq!((expected.status.code(), found.status.code()), (Some(2), Some(2)));
}

#[test]
fn ls_lays_out_columns_and_colours_as_gnu_ls_does() {
    let Some(both) = Both::new(&["ls"]) else { return };
    for flags in [
        "-CAR",
        "-CAR -w 40",
        "-CAR -w 200",
        "-xAR",
        "-xAR -w 60",
        "-CAsiR",
        "-CAFR",
        "-CAR -w 0",
        "-CAR --quoting-style=shell-escape",
        "-xAQR",
        "-CAR --color=always",
        "-lnAR --color=always",
        "-1AFR --color=always",
        "-CAR --color=always --quoting-style=shell-escape",
    ] {
        let mut args: Vec<&str> = flags.split(' ').collect();
        args.push("@/");
        both.assert_same("ls", &args);
    }
}

#[test]
fn ls_orders_several_operands_as_gnu_ls_does() {
    let Some(both) = Both::new(&["ls"]) else { return };
    let operands = ["@/etc", "@/files/000/f00001.txt", "@/files/001", "@/etc/passwd"];
    for flags in ["-ln", "-1", "-lnd", "-lnr", "-lnS", "-lna"] {
        both.assert_same("ls", &[&[flags], &operands[..]].concat());
    }
}

#[test]
fn stat_shows_every_file_as_gnu_stat_does() {
    let Some(both) = Both::new(&["stat"]) else { return };
    let paths = paths(both.mount.path());
    let formats = [
        "%a %A %b %B %f %F %g %h %i %o %s %t %T %u %n",
        "%w|%x|%y|%z|%W|%X|%Y|%Z",
        "%N",
        "[%5s|%-20s|%020s|%#a|%#f|%04a|%.3X|%.Y|%25.9Z|%-30.2A|]",
    ];
    for chunk in paths.chunks(400) {
        for format in formats {
            let args: Vec<&str> =
                ["-c", format].into_iter().chain(chunk.iter().map(String::as_str)).collect();
            both.assert_same("stat", &args);
        }
    }
    both.assert_same("stat", &["--printf", "%n\\t%s\\x41\\101\\n", "@/etc", "@/etc/passwd"]);
    both.assert_same("stat", &["-f", "-c", "%a %b %c %d %f %i %l %s %S %t", "@/"]);
}

/// Returns every path whose name is UTF-8 without special characters, with `@/` for the root.
fn paths(root: &Path) -> Vec<String> {
    let list = program("find").current_dir(root).args([".", "-mindepth", "1", "-print0"]).output().unwrap();
    let names = list.stdout.split(|&b| b == 0).filter_map(|name| std::str::from_utf8(name).ok());
    names.filter(|name| name.len() > 2).map(|name| format!("@/{}", &name[2..])).collect()
}

#[test]
fn du_counts_as_gnu_du_does() {
    let Some(both) = Both::new(&["du"]) else { return };
    // The directory for which a file with several names counts depends on the order of the walk. -l counts the file for
    // each name, and -s shows only the total.
    for flags in [
        "-l",
        "-la",
        "-lh",
        "-s",
        "-sc",
        "-sh",
        "-s --inodes",
        "-ld1",
        "-lac",
        "-lk",
        "-lm",
        "-lB512",
        "-lS",
        "-laS",
        "-lSh",
        "-l --inodes",
        "-l --si",
    ] {
        let mut args: Vec<&str> = flags.split(' ').filter(|flag| !flag.is_empty()).collect();
        args.push("@/");
        both.assert_same_by("du", &args, sorted_by("\n"));
    }
    both.assert_same("du", &["-ab", "@/files/000/f00001.txt"]);
}

#[test]
fn readlink_and_getfattr_answer_as_their_namesakes_do() {
    let Some(both) = Both::new(&["readlink", "getfattr"]) else { return };
    let links: Vec<String> = paths(both.mount.path())
        .into_iter()
        .filter(|path| both.mount.path().join(&path[2..]).is_symlink())
        .collect();
    assert!(!links.is_empty());
    for link in &links {
        both.assert_same("readlink", &[link]);
        both.assert_same("readlink", &["-z", link]);
        both.assert_same("readlink", &["-n", link]);
    }
    both.assert_same("readlink", &["-f", "@/etc/../etc//passwd"]);
    both.assert_same("readlink", &["-m", "@/no/such/../thing"]);
    both.assert_same("readlink", &["-f", "@/etc/none"]);
    for flags in
        ["-d", "-d -m -", "-m -", "-d -m - -e hex", "-d -m - -e base64", "-d -e text", "-n user.note"]
    {
        let mut args: Vec<&str> = flags.split(' ').collect();
        args.extend(["-h", "-R", "--absolute-names", "@/"]);
        both.assert_same_attributes(&args);
    }
}

impl Both {
    /// The same as `assert_same`, for output with paths that lack the name of the image.
    fn assert_same_attributes(&self, args: &[&str]) {
        let (expected, found) = self.run("getfattr", args);
        let root = [self.mount.path().as_os_str().as_bytes(), b"/"].concat();
        let order = sorted_by("\n\n");
        // For a folder with a trailing slash, getfattr prints `folder//name`.
        let expected_text =
            order(&replace(&replace(&expected.stdout, &root, b"/"), b"# file: //", b"# file: /"));
        let difference = first_difference(&expected_text, &order(&found.stdout));
        assert_eq!(difference, None, "getfattr {args:?}: {}", String::from_utf8_lossy(&found.stderr));
        assert_eq!(expected.status.code(), found.status.code(), "getfattr {args:?}");
    }
}

#[test]
fn tree_draws_as_tree_does() {
    let Some(both) = Both::new(&["tree"]) else { return };
    for flags in [
        "-n",
        "-na",
        "-nd",
        "-nL 1",
        "-np",
        "-nps",
        "-nph",
        "-nf",
        "-ni",
        "-nF",
        "-n --dirsfirst",
        "-n --noreport",
    ] {
        let mut args: Vec<&str> = flags.split(' ').collect();
        args.push("@/files");
        both.assert_same("tree", &args);
    }
}

#[test]
fn df_counts_blocks_and_inodes_as_gnu_df_does() {
    let Some(both) = Both::new(&["df"]) else { return };
    let columns = |text: &[u8], from: usize| -> Vec<String> {
        let text = String::from_utf8_lossy(text).into_owned();
        text.lines().last().unwrap().split_whitespace().skip(from).take(4).map(str::to_owned).collect()
    };
    for flags in ["-k", "-h", "-H", "-i", "-B512", "-ih"] {
        let expected = program("df").arg(flags).arg(both.mount.path()).output().unwrap();
        let found = obento(both.folder.path()).args(["df", flags]).arg(&both.image).output().unwrap();
        assert_eq!(columns(&expected.stdout, 1), columns(&found.stdout, 1), "df {flags}");
    }
}
