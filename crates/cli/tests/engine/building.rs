//! Images built from a tree, of types that other programs create and Linux fills.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use obento_testkit::oracle::{Oracle, require};

use crate::support::{ALL, Bench};

/// Runs `check` in the folder of the image.
fn builds(name: &str, maker: &'static str, check: Option<&str>) {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program(maker), Oracle::Root]) {
        return;
    }
    let bench = Bench::new();
    bench.shell("ln tree/five tree/dir/again && truncate -s 3M tree/sparse");
    bench.shell("find tree -exec touch --no-dereference --date='2020-02-03 04:05:06 UTC' {} +");
    let said = bench.done(&format!("build image -t {name} --from tree --owner keep --size auto"));
    assert!(said.contains(&format!("image: {name}")) && said.contains(maker), "{said}");
    fs::create_dir(bench.path("out")).unwrap();
    bench.done("cp -a image:/. out/");
    // Files that the programs themselves create.
    bench.shell("rm -rf out/lost+found out/.nilfs");
    bench.expect_equal("out", ALL);
    let inode = |name: &str| bench.shell(&format!("stat -c %i out/{name}"));
    assert_eq!(inode("five"), inode("dir/again"));
    if let Some(check) = check {
        bench.shell(check);
    }
    let again = bench.obento(&format!("build image -t {name} --from tree"));
    assert_eq!(again.status.code(), Some(2), "it has its name already");
}

#[test]
fn an_xfs() {
    builds("xfs", "mkfs.xfs", Some("xfs_repair -n image"));
}

#[test]
fn a_btrfs() {
    builds("btrfs", "mkfs.btrfs", Some("btrfs check image"));
}

#[test]
fn a_gfs2() {
    builds("gfs2", "mkfs.gfs2", Some("fsck.gfs2 -n image"));
}

#[test]
fn an_f2fs() {
    builds("f2fs", "mkfs.f2fs", Some("fsck.f2fs --dry-run image"));
}

#[test]
fn a_tree_of_nearly_nothing_gets_a_size_that_its_program_makes() {
    for (name, maker) in [
        ("xfs", "mkfs.xfs"),
        ("btrfs", "mkfs.btrfs"),
        ("f2fs", "mkfs.f2fs"),
        ("jfs", "mkfs.jfs"),
        ("reiserfs", "mkfs.reiserfs"),
        ("nilfs2", "mkfs.nilfs2"),
        ("gfs2", "mkfs.gfs2"),
        ("hfs", "hformat"),
        ("udf", "mkudffs"),
        ("minix", "mkfs.minix"),
        ("bfs", "mkfs.bfs"),
    ] {
        if !require(&[Oracle::Program("linux.uml"), Oracle::Program(maker)]) {
            continue;
        }
        let bench = Bench::new();
        bench.shell("mkdir few && echo word > few/word");
        bench.done(&format!("build image -t {name} --from few"));
        assert_eq!(bench.done("cat image:/word"), "word\n", "{name}");
    }
}

#[test]
fn an_archive_that_has_a_name_twice_leaves_the_later_one() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.xfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.shell("mkdir one two && echo first > one/name && echo other > one/other && echo second > two/name");
    bench.shell("ln one/other one/linked && tar cf twice.tar -C one . && tar rf twice.tar -C two .");
    let archive = || fs::File::open(bench.path("twice.tar")).unwrap();
    bench.blank("imported", 310);
    bench.shell("mkfs.xfs -q imported");
    let imported = bench.command("import imported:/").stdin(archive()).output().unwrap();
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let built = bench.command("build built -t xfs --from -").stdin(archive()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for image in ["imported", "built"] {
        assert_eq!(
            bench.done(&format!("cat {image}:/name {image}:/other {image}:/linked")),
            "second\nother\nother\n"
        );
        assert_eq!(bench.done(&format!("ls {image}:/")), "linked\nname\nother\n");
    }
}

/// Copies, imports and builds files with present times into the image of `make`. The type cannot store `lost`
/// of them.
fn counts_times(kind: &str, make: &str, days: &[&str], lost: usize) {
    let bench = Bench::new();
    bench.shell("mkdir old && touch -d 2001-02-03T04:05:06.123456789 old/kept");
    for (at, day) in days.iter().enumerate() {
        // Large enough to be sent alone, and small enough to be sent with others.
        let size = if at % 2 == 0 { "3M" } else { "3" };
        bench.shell(&format!("truncate -s {size} old/f{at} && touch -d {day} old/f{at}"));
    }
    bench.shell("touch -d 2001-02-03 old && tar cf old.tar -C old .");
    let words = match lost {
        0 => None,
        1 => Some("1 file whose times are not preserved".to_owned()),
        lost => Some(format!("{lost} files whose times are not preserved")),
    };
    let expect = |output: std::process::Output, what: &str| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{what}: {said}");
        match &words {
            Some(words) => assert!(said.contains(words), "{kind}, {what}: {said}"),
            None => assert!(!said.contains("times"), "{kind}, {what}: {said}"),
        }
    };
    bench.shell(make);
    expect(bench.obento("cp -a old image:/copied"), "cp");
    let archive = fs::File::open(bench.path("old.tar")).unwrap();
    bench.done("mkdir image:/imported");
    expect(bench.command("import image:/imported").stdin(archive).output().unwrap(), "import");
    expect(bench.obento(&format!("build built -t {kind} --from old")), "build");
    // The time is rounded to the nearest one that the type can store, as in Linux.
    let times = |path: &str| bench.done(&format!("stat -c %Y {path}"));
    let all = |folder: &str| (0..days.len()).map(|at| times(&format!("{folder}/f{at}"))).collect::<String>();
    assert_eq!(all("image:/copied"), all("image:/imported"));
}

#[test]
fn times_that_a_type_cannot_hold_are_counted() {
    if require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.jfs")]) {
        let days = ["1965-01-01", "1965-01-02", "2040-01-01"];
        counts_times("jfs", "truncate -s 32M image && mkfs.jfs -q image", &days, 2);
    }
    if require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.minix")]) {
        // A format with whole seconds loses the fractions, which are not reported.
        let days = ["1965-01-01", "2040-01-01T00:00:00.5"];
        counts_times("minix", "truncate -s 16M image && mkfs.minix image", &days, 1);
    }
}

#[test]
fn a_time_that_one_volume_holds_and_another_of_its_type_does_not_is_counted_there() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.xfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.shell("mkdir old && echo a > old/a && echo b > old/b");
    bench.shell("touch -d 2040-01-01 old/a && touch -d 1965-01-01 old/b && touch -d 2001-02-03 old");
    for (bigtime, words) in [(0, "1 file whose times are not preserved"), (1, "")] {
        bench.shell(&format!("rm -f image; truncate -s 310M image; mkfs.xfs -q -m bigtime={bigtime} image"));
        let output = bench.obento("cp -a old image:/");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(words), "{said}");
        assert_eq!(said.is_empty(), words.is_empty(), "{said}");
    }
}

#[test]
fn rights_are_given_up_before_an_archive_is_read() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.minix")]) {
        return;
    }
    let bench = Bench::new();
    bench.shell("tar cf tree.tar -C tree .");
    let archive = fs::read(bench.path("tree.tar")).unwrap();
    let mut command = bench.command("build image -t minix --from -");
    let mut build = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut pipe = build.stdin.take().unwrap();
    // A pipe has room for 64 KiB. If more was written, the other side is reading.
    let (first, rest) = archive.split_at(200 << 10);
    pipe.write_all(first).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", build.id())).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{status}");
    }
    pipe.write_all(rest).unwrap();
    drop(pipe);
    assert!(build.wait().unwrap().success());
    assert_eq!(bench.done("cat image:/many/f399"), "399");
}

#[test]
fn a_failed_build_leaves_nothing_and_reports_the_reason() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.xfs"), Oracle::Program("mkfs.minix")]) {
        return;
    }
    let bench = Bench::new();
    let refused = |line: &str, why: &str| {
        let output = bench.obento(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{line}: {said}");
        assert!(!bench.path("image").exists(), "{line}");
    };
    refused("build image -t xfs --from tree --size 1M", "mkfs.xfs ended with exit status");
    refused("build image -t minix --from tree --size 300k", "the files do not fit in ");
    refused("build image -t xfs --from tree --verify", "--verify is not supported");
    refused("build image -t xfs --from tree --minimize", "--minimize is not available for XFS\n");
    refused(
        "build image -t xfs --from tree --uuid 00000000-0000-0000-0000-000000000001",
        "--uuid is not available for",
    );
    refused("build image -t minix --from tree -L name", "--label is not available for");
    refused("build image -t erofs --from tree", "obento supports no program that creates erofs volumes");
    fs::write(bench.path(&format!("tree/{}", "n".repeat(61))), "").unwrap();
    refused("build image -t minix --from tree", "name too long");
    let left = fs::read_dir(bench.path(".")).unwrap().count();
    assert_eq!(left, 1, "the tree alone");
}
