//! Programs that create and check the types that only the kernel engine opens.

use std::fs;
use std::os::unix::fs::FileExt as _;

use obento_testkit::oracle::{Oracle, require};

use crate::support::{Bench, digest};

fn has(programs: &[&'static str]) -> bool {
    let programs: Vec<_> = programs.iter().map(|program| Oracle::Program(program)).collect();
    require(&programs)
}

/// Standard output, standard error, and the exit code.
fn all(bench: &Bench, line: &str) -> (String, String, Option<i32>) {
    let output = bench.obento(line);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Creates a volume in a new file, fills it, has it checked, and expects that the check changed nothing.
fn made_and_checked(kind: &str, size: &str, label: &str, maker: &'static str, checker: Option<&'static str>) {
    let programs: Vec<_> = ["linux.uml", maker].into_iter().chain(checker).collect();
    if !has(&programs) {
        return;
    }
    let bench = Bench::new();
    let option = if label.is_empty() { String::new() } else { format!(" -L {label}") };
    let (out, reported, code) = all(&bench, &format!("mkfs -t {kind}{option} image {size}"));
    assert_eq!(code, Some(0), "{reported}");
    assert!(reported.contains(&format!("running '{maker}")), "{reported}");
    assert!(out.starts_with(&format!("image: {kind}")) && out.contains(label), "{out}");
    bench.done("cp tree/five image:/");
    assert!(bench.done("info image").contains(&format!("file system             {kind}")));
    let (out, reported, code) = all(&bench, &format!("mkfs -t {kind} image"));
    assert_eq!(code, Some(2), "{out}");
    assert!(reported.contains("use --force (-f) to overwrite it"), "{reported}");
    let before = digest(&bench.path("image"));
    let (out, reported, code) = all(&bench, "check image");
    assert_eq!(digest(&bench.path("image")), before);
    match checker {
        Some(checker) => {
            assert_eq!(code, Some(0), "{out}{reported}");
            assert!(reported.contains(&format!("running '{checker}")), "{reported}");
            assert!(out.ends_with(&format!("image: no problems (checked by {checker})\n")), "{out}");
        }
        None => {
            assert_eq!(code, Some(8), "{out}{reported}");
            assert!(
                reported.contains(&format!("obento supports no program that checks {kind} volumes")),
                "{reported}"
            );
        }
    }
    assert_eq!(bench.done(&format!("mkfs -qF -t {kind} image")), "");
    bench.done("ls image:/");
}

#[test]
fn an_xfs_is_made_and_checked_by_its_programs() {
    made_and_checked("xfs", "310M", "box", "mkfs.xfs", Some("xfs_repair"));
}

#[test]
fn a_btrfs_is_made_and_checked_by_its_programs() {
    made_and_checked("btrfs", "130M", "box", "mkfs.btrfs", Some("btrfs"));
}

#[test]
fn an_f2fs_is_made_and_checked_by_its_programs() {
    made_and_checked("f2fs", "64M", "box", "mkfs.f2fs", Some("fsck.f2fs"));
}

#[test]
fn a_jfs_is_made_and_checked_by_its_programs() {
    made_and_checked("jfs", "32M", "box", "mkfs.jfs", Some("fsck.jfs"));
}

#[test]
fn a_reiserfs_is_made_and_checked_by_its_programs() {
    made_and_checked("reiserfs", "64M", "box", "mkfs.reiserfs", Some("reiserfsck"));
}

#[test]
fn a_gfs2_is_made_and_checked_by_its_programs() {
    made_and_checked("gfs2", "40M", "own:box", "mkfs.gfs2", Some("fsck.gfs2"));
}

#[test]
fn a_minix_is_made_and_checked_by_its_programs() {
    made_and_checked("minix", "16M", "", "mkfs.minix", Some("fsck.minix"));
}

#[test]
fn a_nilfs2_is_made_by_its_program_and_has_none_to_check_it() {
    made_and_checked("nilfs2", "140M", "box", "mkfs.nilfs2", None);
}

#[test]
fn a_udf_is_made_by_its_program_and_has_none_to_check_it() {
    made_and_checked("udf", "32M", "", "mkudffs", None);
}

#[test]
fn the_reason_of_a_program_that_fails_is_reported() {
    for (kind, program, size, reason) in [
        ("f2fs", "mkfs.f2fs", "64M", "Volume Label should be less than 512 characters"),
        ("xfs", "mkfs.xfs", "310M", "Invalid value"),
        ("btrfs", "mkfs.btrfs", "130M", "is too long"),
    ] {
        if !has(&[program]) {
            continue;
        }
        let bench = Bench::new();
        let label = "a".repeat(600);
        let (_, reported, code) = all(&bench, &format!("mkfs -t {kind} -L {label} image {size}"));
        assert_eq!(code, Some(2), "{reported}");
        assert!(reported.contains(reason), "{kind}: {reported}");
        assert!(!reported.contains("Usage"), "{kind}: {reported}");
    }
}

#[test]
fn damage_is_reported_repaired_if_possible_and_gone_afterwards() {
    if !has(&["mkfs.xfs", "xfs_repair", "xfs_db"]) {
        return;
    }
    let bench = Bench::new();
    bench.done("mkfs -q -t xfs image 310M");
    bench.shell("xfs_db -x -c 'sb 0' -c 'write -d icount 7' image");
    let (out, _, code) = all(&bench, "check image");
    assert_eq!(code, Some(4), "{out}");
    assert!(out.ends_with("image: problems were found (checked by xfs_repair)\n"), "{out}");
    let (_, reported, code) = all(&bench, "check -p image");
    assert_eq!(code, Some(16), "{reported}");
    assert!(reported.contains("xfs_repair repairs everything or nothing\n  help: use -y"), "{reported}");
    let (out, reported, code) = all(&bench, "check -y image");
    assert_eq!(code, Some(1), "{out}{reported}");
    let (out, reported, code) = all(&bench, "--json check image");
    assert_eq!(code, Some(0), "{out}{reported}");
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&line["clean"], &line["program"]), (&true.into(), &"xfs_repair".into()));
    let (_, reported, code) = all(&bench, "check -b 3 image");
    assert_eq!(code, Some(16), "{reported}");
}

#[test]
fn a_partition_is_created_checked_and_repaired_and_its_neighbours_stay() {
    if !has(&["linux.uml", "mkfs.jfs", "fsck.jfs", "sfdisk"]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 64);
    bench.shell("printf 'start=2048,size=16384\\nstart=18432,size=65536\\nstart=83968,size=40960\\n' | sfdisk -q image");
    let image = fs::File::options().read(true).write(true).open(bench.path("image")).unwrap();
    let (start, end) = (18432 * 512, 83968 * 512);
    image.write_all_at(b"before", start - 6).unwrap();
    image.write_all_at(&[0xa5; 5 << 20], start).unwrap();
    image.write_all_at(b"after", end).unwrap();
    bench.done("mkfs -qF -t jfs -L inner image@2");
    bench.done("cp -r tree/many image@2:/");
    let (out, reported, code) = all(&bench, "check image@2");
    assert_eq!(code, Some(0), "{out}{reported}");
    assert!(reported.contains("on a copy of it"), "{reported}");
    // `s_state` of the super block: `FM_DIRTY`, it was not unmounted (fs/jfs/jfs_superblock.h).
    image.write_all_at(&[4, 0, 0, 0], start + 0x8000 + 40).unwrap();
    let (out, reported, code) = all(&bench, "check -y image@2");
    assert!(matches!(code, Some(0 | 1)), "{out}{reported}");
    let mut state = [9; 4];
    image.read_exact_at(&mut state, start + 0x8000 + 40).unwrap();
    assert_eq!(state, [0; 4], "fsck.jfs marks it clean, and that came back");
    assert_eq!(bench.done("ls image@2:/many").lines().count(), 400);
    let mut neighbours = [[0; 6], [0; 6]];
    image.read_exact_at(&mut neighbours[0], start - 6).unwrap();
    image.read_exact_at(&mut neighbours[1][..5], end).unwrap();
    assert_eq!(neighbours, [*b"before", *b"after\0"]);
}

#[test]
fn a_gfs2_whose_program_asks_for_a_name_is_made_in_a_partition() {
    if !has(&["linux.uml", "mkfs.gfs2", "fsck.gfs2", "sfdisk"]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 64);
    bench.shell("echo start=2048,size=98304 | sfdisk -q image");
    bench.done("mkfs -qF -t gfs2 image@1");
    bench.done("cp -r tree/many image@1:/");
    assert_eq!(bench.done("diff -r tree/many image@1:/many"), "");
    assert_eq!(all(&bench, "check image@1").2, Some(0));
}

#[test]
fn a_program_that_fails_says_why_and_leaves_no_file() {
    if !has(&["mkfs.xfs"]) {
        return;
    }
    let bench = Bench::new();
    let (out, reported, code) = all(&bench, "mkfs -t xfs image 10M");
    assert_eq!(code, Some(2), "{out}");
    assert!(reported.contains("xfs requires at least 300 MiB, but the size is 10 MiB"), "{reported}");
    assert!(!reported.contains("Usage"), "{reported}");
    assert!(!bench.path("image").exists());
    let (_, reported, code) = all(&bench, "mkfs -t xfs -L more-than-twelve-bytes image 310M");
    assert!(code == Some(2) && reported.contains("mkfs.xfs ended with exit status 1: "), "{reported}");
    assert!(!reported.contains("Usage") && !bench.path("image").exists(), "{reported}");
    // Options that the program would not get are refused by name.
    let (_, reported, _) = all(&bench, "mkfs -t xfs -b 4096 image 310M");
    assert!(reported.contains("-b is not available"), "{reported}");
    let (_, reported, _) = all(&bench, "mkfs -t squashfs image 310M");
    assert!(reported.contains("obento supports no program that creates this type"), "{reported}");
    let (out, reported, code) = all(&bench, "mkfs -n -t xfs image 310M");
    assert_eq!((out.as_str(), code), ("", Some(0)), "{reported}");
    assert!(
        reported.contains("would run `mkfs.xfs -q -f image`") && !bench.path("image").exists(),
        "{reported}"
    );
}

/// Creates an image of `kind` and a substitute for its `checker`, which returns the next exit code of the
/// file `codes` in each run.
fn checked_by_codes(kind: &str, size: u64, checker: &str) -> Bench {
    let bench = Bench::new();
    bench.blank("image", size);
    bench.shell(&format!("mkfs.{kind} -q image"));
    let script = "#!/bin/sh\ncd ${0%/*}; read code rest < codes; echo $rest > codes; exit $code\n";
    fs::write(bench.path(checker), script).unwrap();
    bench.shell(&format!("chmod +x {checker}"));
    bench
}

#[test]
fn a_log_is_to_be_replayed_where_a_checker_needs_that_and_the_kernel_does_it() {
    if !has(&["mkfs.jfs", "mkfs.xfs"]) {
        return;
    }
    for (kind, size, checker, code, helps) in
        [("xfs", 320, "xfs_repair", "2", true), ("jfs", 32, "fsck.jfs", "8", false)]
    {
        let bench = checked_by_codes(kind, size, checker);
        fs::write(bench.path("codes"), code).unwrap();
        let output = bench.command("check -y image").env("PATH", bench.path("")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{said}");
        assert!(said.contains(&format!("{checker} failed with exit status {code}")), "{said}");
        assert_eq!(said.contains("help: run 'obento sync image' first"), helps, "{said}");
    }
}

#[test]
fn fsck_jfs_repairs_until_nothing_is_left_or_three_times_and_the_last_result_counts() {
    if !has(&["mkfs.jfs"]) {
        return;
    }
    let bench = checked_by_codes("jfs", 32, "fsck.jfs");
    for (codes, status) in
        [("0", 0), ("1 0", 1), ("4 1 0", 1), ("1 1 1", 1), ("1 1 4", 4), ("4 4 4", 4), ("4 8", 8)]
    {
        fs::write(bench.path("codes"), format!("{codes} 9\n")).unwrap();
        let output = bench.command("check -p image").env("PATH", bench.path("")).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{codes}: {output:?}");
        assert_eq!(fs::read_to_string(bench.path("codes")).unwrap(), "9\n", "{codes}: so often");
    }
}

#[test]
fn a_folder_for_files_of_a_program_that_is_not_there_is_named() {
    if !has(&["mkfs.jfs", "fsck.jfs"]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 64);
    bench.shell("echo start=2048,size=98304 | sfdisk -q image");
    for line in ["mkfs -qF -t jfs image@1", "mkfs -q -t hfs other 8M", "-t jfs check image@1"] {
        if line.contains("hfs") && !has(&["hformat"]) {
            continue;
        }
        let output = bench.command(line).env("TMPDIR", "/nowhere").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{line}: {said}");
        let named = "cannot create a file in '/nowhere': no such file or directory\n  \
                     help: set TMPDIR to another directory\n";
        assert!(said.contains(named), "{line}: {said}");
    }
}

#[test]
fn without_the_program_a_line_installs_it() {
    // If the program is installed, the other branch is taken.
    let bench = Bench::new();
    let (_, reported, code) = all(&bench, "mkfs -t hfs image 4M");
    match code {
        Some(0) => assert!(reported.contains("running 'hformat"), "{reported}"),
        code => {
            assert_eq!(code, Some(1));
            assert!(reported.contains("this command requires hformat, which is not installed"), "{reported}");
            assert!(reported.contains("help: apt-get install hfsutils"), "{reported}");
            assert!(!bench.path("image").exists());
        }
    }
}

#[test]
fn an_xfs_of_one_allocation_group_is_sound() {
    if !has(&["linux.uml", "mkfs.xfs", "xfs_repair"]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 300);
    // The program creates such a volume only with these variables of its own tests.
    bench.shell("TEST_DIR=. TEST_DEV=. QA_CHECK_FS=yes mkfs.xfs -q -d agcount=1 image");
    let (out, reported, code) = all(&bench, "check image");
    assert_eq!(code, Some(0), "{out}{reported}");
    let (out, reported, code) = all(&bench, "check -y image");
    assert_eq!(code, Some(0), "{out}{reported}");
    // Damage is still found: the root directory is missing.
    let file = fs::File::options().write(true).open(bench.path("image")).unwrap();
    file.write_all_at(&[0; 8], 56).unwrap();
    let (out, reported, code) = all(&bench, "check image");
    assert_eq!(code, Some(4), "{out}{reported}");
}
