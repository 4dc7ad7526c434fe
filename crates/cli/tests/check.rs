//! `obento check` as a user or a script runs it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use tempfile::TempDir;

/// Byte offset of `s_free_inodes_count`.
const FREE_INODES: u64 = 1024 + 0x10;

/// Byte offset of `s_state`.
const STATE: u64 = 1024 + 0x3a;

/// A folder with `disk.img`, an ext2 volume.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        bench.run("mkfs -q -t ext2 disk.img 4M", 0);
        bench
    }

    /// Expects this exit code, and returns standard output and error.
    #[track_caller]
    fn run(&self, line: &str, code: i32) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(line.split(' ')).env_clear().output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        (out, err)
    }

    /// Decreases the number of free inodes in the super block by one.
    fn damage(&self) {
        let file = File::options().read(true).write(true).open(self.0.path().join("disk.img")).unwrap();
        let mut count = [0; 4];
        file.read_exact_at(&mut count, FREE_INODES).unwrap();
        file.write_all_at(&(u32::from_le_bytes(count) - 1).to_le_bytes(), FREE_INODES).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.0.path().join("disk.img")).unwrap()
    }
}

#[test]
fn a_sound_volume_has_nothing_wrong_and_exit_code_0() {
    let bench = Bench::new();
    let (out, err) = bench.run("check disk.img", 0);
    assert!(out.starts_with("disk.img: no problems; 11 of 1024 inodes (2 directories) and "), "{out}");
    assert_eq!(err, "");
    assert_eq!(bench.run("check -q disk.img", 0), (String::new(), String::new()));
}

#[test]
fn an_important_note_is_shown_unless_only_problems_are_printed() {
    let bench = Bench::new();
    let file = File::options().write(true).open(bench.0.path().join("disk.img")).unwrap();
    // Unmounted, and marked as having errors.
    file.write_all_at(&3_u16.to_le_bytes(), STATE).unwrap();
    let (out, _) = bench.run("check disk.img", 0);
    assert!(out.contains("arked as having errors"), "{out}");
    for quiet in ["check -q disk.img", "check -q -v disk.img"] {
        assert_eq!(bench.run(quiet, 0), (String::new(), String::new()));
    }
}

#[test]
fn a_format_without_a_fixed_number_of_inodes_shows_the_used_ones() {
    let bench = Bench::new();
    for fs_type in ["vfat", "exfat"] {
        bench.run(&format!("mkfs -q -t {fs_type} other.img 8M"), 0);
        let (out, _) = bench.run("check other.img", 0);
        assert!(out.starts_with("other.img: no problems; 1 inode (1 directory) and "), "{out}");
        bench.run("mkdir other.img:/d", 0);
        bench.run("write other.img:/d/f", 0);
        let (out, _) = bench.run("check other.img", 0);
        assert!(out.starts_with("other.img: no problems; 3 inodes (2 directories) and "), "{out}");
        fs::remove_file(bench.0.path().join("other.img")).unwrap();
    }
}

#[test]
fn findings_exit_with_code_4_and_nothing_is_written() {
    let bench = Bench::new();
    bench.damage();
    let before = bench.bytes();
    let (out, _) = bench.run("check -n disk.img", 4);
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("free inode count is 1012, should be 1013"));
    assert!(lines.next().is_some_and(|line| line.starts_with("disk.img: 1 error found; ")), "{out}");
    assert!(bench.bytes() == before);
}

#[test]
fn a_safe_repair_exits_with_code_1_and_leaves_no_finding() {
    let bench = Bench::new();
    bench.damage();
    let (out, _) = bench.run("check -p disk.img", 1);
    assert!(out.starts_with("free inode count is 1012, should be 1013: repaired\n"), "{out}");
    bench.run("check disk.img", 0);
}

/// Overwrites the first bytes of `wiped.img` with zeros.
fn wipe(bench: &Bench, len: usize) {
    let file = File::options().write(true).open(bench.0.path().join("wiped.img")).unwrap();
    file.write_all_at(&vec![0; len], 0).unwrap();
}

#[test]
fn a_wiped_super_block_is_bypassed_and_repaired_from_a_copy() {
    let bench = Bench::new();
    bench.run("mkfs -q -t ext4 -b 1024 wiped.img 16M", 0);
    bench.run("mkdir wiped.img:/kept", 0);
    wipe(&bench, 3072);
    let (out, err) = bench.run("ls wiped.img:/", 0);
    assert_eq!(out, "kept\nlost+found\n");
    assert!(
        !err.contains("damaged: super block")
            && err.contains(
                "wiped.img: note: the primary super block is damaged; the copy at block 8193 is used\n  \
             help: copy the files first: obento recover wiped.img DIR; then \
             'obento --fs-type ext4 check -y wiped.img' repairs all damage\n"
            ),
        "{err}"
    );
    let (_, err) = bench.run("mkdir wiped.img:/more", 1);
    assert!(
        err.contains("help: run 'obento check -y' to repair the volume with a copy of the super block"),
        "{err}"
    );
    let (out, _) = bench.run("check -y wiped.img", 1);
    assert!(out.contains("the copy at block 8193 is used: repaired\n"), "{out}");
    bench.run("check wiped.img", 0);
    bench.run("mkdir wiped.img:/more", 0);
}

#[test]
fn a_copy_in_a_group_of_an_odd_size_is_found_and_one_that_is_named_is_used() {
    let bench = Bench::new();
    bench.run("mkfs -q -t ext4 -b 1024 -g 4096 wiped.img 32M", 0);
    wipe(&bench, 3072);
    let (out, _) = bench.run("check wiped.img", 4);
    assert!(out.contains("the copy at block 4097 is used\n"), "{out}");
    let (out, _) = bench.run("check -b 12289 -B 1024 wiped.img", 4);
    assert!(out.contains("the copy at block 12289 is used\n"), "{out}");
    let (_, err) = bench.run("check -b 12289 -B 4096 wiped.img", 8);
    assert!(err.contains("no supported file system"), "{err}");
    bench.run("check -y -b 12289 wiped.img", 1);
    bench.run("check wiped.img", 0);
}

#[test]
fn findings_are_objects_for_programs() {
    let bench = Bench::new();
    bench.damage();
    let (out, _) = bench.run("check --json disk.img", 4);
    let mut lines = out.lines();
    assert_eq!(
        lines.next(),
        Some(
            "{\"schema\":\"obento/1\",\"kind\":\"finding\",\"code\":\"free-inodes\",\"severity\":\"safe\",\"mended\":false,\
             \"text\":\"free inode count is 1012, should be 1013\",\"found\":1012,\"expected\":1013}"
        )
    );
    let report = lines.next().unwrap();
    assert!(report.contains("\"kind\":\"checked\"") && report.contains("\"clean\":false"), "{report}");
}

/// Changes the file type in the entry `/dir/mistyped`.
fn mistype(bench: &Bench) {
    bench.run("mkdir disk.img:/dir", 0);
    bench.run("touch disk.img:/dir/mistyped", 0);
    let name = b"mistyped";
    let at = bench.bytes().windows(name.len()).position(|bytes| bytes == name).unwrap() as u64;
    let file = File::options().write(true).open(bench.0.path().join("disk.img")).unwrap();
    file.write_all_at(&[2], at - 1).unwrap();
}

#[test]
fn a_finding_about_a_file_names_its_path() {
    let bench = Bench::new();
    mistype(&bench);
    let (out, _) = bench.run("check disk.img", 4);
    let line = out.lines().next().unwrap();
    let finding = "the entry 'mistyped' has the type directory, but inode 13 has the type regular file";
    assert!(line.ends_with(&format!("{finding} (path '/dir/mistyped')")), "{out}");
    let (out, _) = bench.run("check --json disk.img", 4);
    assert!(out.lines().next().unwrap().ends_with(",\"path\":\"/dir/mistyped\"}"), "{out}");
    let (out, _) = bench.run("check -y disk.img", 1);
    assert!(out.lines().next().unwrap().ends_with(" (path '/dir/mistyped'): repaired"), "{out}");
    bench.run("check disk.img", 0);
}

#[test]
fn a_failed_check_exits_with_8_and_wrong_usage_with_16() {
    let bench = Bench::new();
    bench.run("check missing.img", 8);
    fs::write(bench.0.path().join("zeros.img"), vec![0; 1 << 20]).unwrap();
    bench.run("check zeros.img", 8);
    bench.run("check --nonsense disk.img", 16);
    let (_, err) = bench.run("check disk.img:/etc", 16);
    assert!(err.contains("name the image, or a partition: IMAGE@PART"), "{err}");
}

#[test]
fn the_option_for_lost_clusters_is_refused_for_types_that_would_ignore_it() {
    let bench = Bench::new();
    bench.run("mkfs -q -t exfat exfat.img 8M", 0);
    bench.run("mkfs -q -t vfat fat.img 8M", 0);
    for (image, fs_type) in [("disk.img", "ext2"), ("fat.img", "vfat")] {
        let before = fs::read(bench.0.path().join(image)).unwrap();
        let (out, err) = bench.run(&format!("check -y -s {image}"), 16);
        let expected =
            format!("obento: cannot check '{image}': -s is not supported for {fs_type} volumes\n  help: ");
        assert!(err.starts_with(&expected) && out.is_empty(), "{out}{err}");
        assert_eq!(fs::read(bench.0.path().join(image)).unwrap(), before);
    }
    bench.run("check -y -s exfat.img", 0);
}

#[test]
fn a_disk_is_checked_in_all_partitions_with_a_file_system() {
    let bench = Bench::new();
    let part = |kind: &str, content: &str| {
        format!("[[partition]]\ntype=\"{kind}\"\nsize=\"8M\"\ncontent=\"{content}\"\n")
    };
    let layout = [
        part("esp", "vfat"),
        part("swap", "swap"),
        part("linux-generic", "ext4"),
        part("linux-generic", "ext2"),
    ];
    fs::write(bench.0.path().join("layout.toml"), layout.concat()).unwrap();
    bench.run("build whole.img --disk layout.toml -q", 0);
    let (out, err) = bench.run("check whole.img", 0);
    assert_eq!(err, "");
    let starts: Vec<&str> = out.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(starts, ["whole.img@1", "whole.img@3", "whole.img@4"], "{out}");
    // One damaged volume of the disk: the others are checked all the same.
    let path = bench.0.path().join("whole.img");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let place = (17 << 20) + FREE_INODES;
    let mut count = [0; 4];
    file.read_exact_at(&mut count, place).unwrap();
    file.write_all_at(&(u32::from_le_bytes(count) - 1).to_le_bytes(), place).unwrap();
    let (out, _) = bench.run("check --json whole.img", 4);
    assert_eq!(out.matches("\"kind\":\"checked\"").count(), 3, "{out}");
    assert!(out.contains("\"path\":\"whole.img@3\""), "{out}");
    bench.run("check -y whole.img", 1);
    bench.run("check whole.img", 0);
    bench.run("check whole.img@2", 8);
}
