//! FAT and exFAT between obento and other implementations (mtools, vfat of Linux, exfat-fuse): each reads the
//! names, bytes and times that another one wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use obento_testkit::oracle::{Oracle, call, program, run};
use obento_testkit::{require, second};

/// A tree as all implementations show it: types, times, sizes and names, then the contents of files.
const LISTING: &str = r"
    find . -mindepth 1 \( -type d -printf 'd %T@ %P\n' -o -printf 'f %T@ %s %P\n' \) | LC_ALL=C sort
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
";

/// The options with which Linux shows the same names and times.
const LINUX: &str = "utf8,codepage=437,iocharset=ascii,tz=UTC";

/// Names with which formats and implementations differ. No two names of a folder differ only by case.
const NAMES: &[&str] = &[
    "UPPER.TXT",
    "lower.txt",
    "lower.TXT",
    "UPPER.low",
    "Mixed.Txt",
    "NOEXT",
    "noext",
    "\u{e9}t\u{e9}.txt",
    "\u{c4}\u{d6}\u{dc}.TXT",
    "stra\u{df}e",
    "two.dots.here",
    ".hidden",
    " leads with a space",
    "plus+comma,semi;[brackets]=",
    "exactly13char",
    "exactly26characters.in all",
    "\u{3b1}\u{3b2}\u{3b3} \u{65e5}\u{672c}\u{8a9e}.html",
    "\u{1f600} beyond sixteen bits",
];

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("obento-others-").tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs obento, and expects no output.
    #[track_caller]
    fn obento(&self, line: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(&self.folder).args(line.split(' ')).env("TZ", "UTC");
        let output = run(&mut command).unwrap();
        assert!(output.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs a program of mtools on `image`, with names in UTF-8.
    #[track_caller]
    fn mtools<const N: usize>(&self, image: &str, words: [&str; N]) {
        let [tool, words @ ..] = &words[..] else { panic!("which of them?") };
        let mut command = program(tool);
        command.current_dir(&self.folder).env("MTOOLS_SKIP_CHECK", "1").args(["-i", image]);
        run(command.args(words)).unwrap();
    }

    #[track_caller]
    fn judge(&self, image: &str) {
        call("fsck.fat", ["-n".as_ref(), self.at(image).as_os_str()]).unwrap();
    }

    /// Creates an empty folder for extracted files.
    fn back(&self) -> PathBuf {
        let back = self.at("back");
        let _ = fs::remove_dir_all(&back);
        fs::create_dir(&back).unwrap();
        back
    }
}

/// The tree below `root`.
fn listing(root: &Path) -> String {
    let output = run(program("sh").args(["-ec", LISTING]).current_dir(root)).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Panics with the lines that differ.
#[track_caller]
fn same(expected: &str, found: &str, who: &str) {
    let lines = |text: &str, other: &str| -> String {
        let missing = text.lines().filter(|line| other.lines().all(|other| other != *line));
        missing.map(|line| format!("\n  {line}")).collect()
    };
    let (missing, extra) = (lines(expected, found), lines(found, expected));
    assert!(expected == found, "{who} finds otherwise:{missing}\nin place of them:{extra}");
}

/// Creates a tree of names of each kind and of sizes around those of clusters. It has a deep folder and a folder of
/// many entries, and only times that FAT can store.
fn tree(root: &Path) -> String {
    let file = |path: &str, len: usize| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, (0..len).map(|at| (at / 7 + len) as u8).collect::<Vec<u8>>()).unwrap();
    };
    for (at, name) in NAMES.iter().enumerate() {
        file(&format!("Folder {at}/{name}"), 10 + at);
    }
    file(&format!("long/{}", "x".repeat(255)), 1);
    for len in [0, 1, 511, 512, 513, 2048, 4095, 4096, 4097, 32_768, 32_769, 300_000] {
        file(&format!("sizes/{len} bytes"), len);
    }
    (0..300).for_each(|n| file(&format!("many/entry number {n}"), n));
    file("d/e/e/p/e/r/file", 600);
    let all = walkdir(root);
    for (at, path) in all.iter().enumerate() {
        // From 2021-03-04 05:06:08 on, in steps of a little more than a day; the last are after the clock
        // changes of 2021.
        let time = UNIX_EPOCH + Duration::from_secs(1_614_834_368 + at as u64 * 90_002);
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
    listing(root)
}

/// Returns everything below `root`, the contents of a folder before the folder.
fn walkdir(root: &Path) -> Vec<PathBuf> {
    let mut below: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    below.sort();
    let inner = below.into_iter().flat_map(|path| {
        let mut found = if path.is_dir() { walkdir(&path) } else { Vec::new() };
        found.push(path);
        found
    });
    inner.collect()
}

/// Creates two images with the same tree, by copying and by building.
fn written(bench: &Bench, kind: &str, size: &str) -> [&'static str; 2] {
    bench.obento(&format!("mkfs -q -t {kind} copied.img {size}"));
    bench.obento("cp -r --preserve=timestamps tree/. copied.img:/");
    bench.obento(&format!("build -q -t {kind} --size {size} built.img --from tree --chmod 755"));
    ["copied.img", "built.img"]
}

#[test]
fn mtools_read_the_tree_that_obento_wrote_and_obento_the_one_of_mtools() {
    if !require(&[Oracle::Program("mcopy"), Oracle::Program("fsck.fat")]) {
        return;
    }
    let bench = Bench::new();
    tree(&bench.at("tree"));
    // mtools supports characters of 16 bits.
    fs::remove_dir_all(bench.at("tree").join(format!("Folder {}", NAMES.len() - 1))).unwrap();
    let expected = listing(&bench.at("tree"));
    // FAT12, FAT16 and FAT32, by size.
    for size in ["8M", "64M", "600M"] {
        for image in written(&bench, "vfat", size) {
            bench.judge(image);
            let back = bench.back();
            bench.mtools(image, ["mcopy", "-s", "-m", "-Q", "::/*", "back"]);
            same(&expected, &listing(&back), &format!("mcopy of {image}, {size}"));
            fs::remove_file(bench.at(image)).unwrap();
        }
        bench.obento(&format!("mkfs -q -t vfat theirs.img {size}"));
        for entry in fs::read_dir(bench.at("tree")).unwrap() {
            let path = entry.unwrap().path();
            bench.mtools("theirs.img", ["mcopy", "-s", "-m", "-Q", path.to_str().unwrap(), "::/"]);
        }
        let back = bench.back();
        bench.obento("cp -r --preserve=timestamps theirs.img:/. back");
        same(&expected, &listing(&back), &format!("obento of what mcopy wrote, {size}"));
        fs::remove_file(bench.at("theirs.img")).unwrap();
    }
}

#[test]
fn linux_reads_the_fat_that_obento_wrote_and_obento_the_one_of_linux() {
    if !second::has_linux() || !require(&[Oracle::Program("fsck.fat")]) {
        return;
    }
    let bench = Bench::new();
    let expected = tree(&bench.at("tree"));
    for image in written(&bench, "vfat", "64M") {
        let found = second::linux(&bench.at(image), LINUX, bench.folder.path(), LISTING).unwrap();
        same(&expected, &found, &format!("Linux in {image}"));
        bench.judge(image);
    }
    // mtools changes the image of obento: it removes the whole tree, and copies it again.
    let script = "rm -rf ./*; cp -r --preserve=timestamps $WORK/tree/. .";
    second::linux(&bench.at("copied.img"), LINUX, bench.folder.path(), script).unwrap();
    bench.obento("check copied.img -q");
    let back = bench.back();
    bench.obento("cp -r --preserve=timestamps copied.img:/. back");
    same(&expected, &listing(&back), "obento of what Linux wrote");
}

#[test]
fn linux_drops_dots_at_the_end_of_names_and_refuses_spaces_there_which_obento_does_with_both() {
    if !second::has_linux() {
        return;
    }
    let bench = Bench::new();
    bench.obento("mkfs -q -t vfat fat.img 4M");
    let script = "for name in dots.. 'space ' ' before' a:b; do touch \"$name\" 2> /dev/null || echo \"no '$name'\"; done; ls";
    let found = second::linux(&bench.at("fat.img"), LINUX, bench.folder.path(), script).unwrap();
    assert_eq!(found, "no 'space '\nno 'a:b'\n before\ndots\n");
    for name in ["dots..", "space "] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(&bench.folder).args(["touch", &format!("fat.img:/{name}")]).output();
        assert_eq!(output.unwrap().status.code(), Some(1), "{name}");
    }
}

#[test]
fn exfat_fuse_reads_the_tree_that_obento_wrote_and_obento_the_one_of_exfat_fuse() {
    if !second::has_exfat() {
        return;
    }
    let bench = Bench::new();
    let expected = tree(&bench.at("tree"));
    for image in written(&bench, "exfat", "64M") {
        second::exfat(&bench.at(image), 0, "ro", |at| {
            same(&expected, &listing(at), &format!("exfat-fuse in {image}"));
        });
    }
    bench.obento("mkfs -q -t exfat theirs.img 64M");
    second::exfat(&bench.at("theirs.img"), 0, "rw", |at| {
        let tree = bench.at("tree/.");
        call("cp", ["-r".as_ref(), "--preserve=timestamps".as_ref(), tree.as_os_str(), at.as_os_str()])
            .unwrap();
    });
    bench.obento("check theirs.img -q");
    let back = bench.back();
    bench.obento("cp -r --preserve=timestamps theirs.img:/. back");
    same(&expected, &listing(&back), "obento of what exfat-fuse wrote");
}
