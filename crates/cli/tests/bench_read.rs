//! `obento bench` on existing images, directories and mounts: it reads their files, and changes nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use tempfile::TempDir;

fn obento(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns a folder with a tree of 5 files, of which 4 are regular and have 300,011 bytes, and an image of it.
fn lab() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("dir/large"), vec![7; 300_000]).unwrap();
    fs::write(tree.join("dir/empty"), "").unwrap();
    fs::write(tree.join("one"), "12345").unwrap();
    fs::write(tree.join("two"), "123456").unwrap();
    let made = obento(folder.path(), &["build", "-q", "-t", "ext4", "a.img", "--from", "tree"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    folder
}

const COLD: [&str; 3] = ["read-walk-cold,T=1", "read-files-cold,T=1", "read-small-cold,T=1"];

fn bench(folder: &TempDir, workloads: &[&str], targets: &[&str]) -> Output {
    let mut words = vec!["bench", "--repeat", "2", "--repeat-most", "2", "--run-time", "0.02"];
    words.extend(["--size", "64M", "--file-size", "1M", "--scale", "1000", "--output", "r.json"]);
    words.extend(workloads);
    words.extend(targets.iter().flat_map(|target| ["-T", target]));
    obento(folder.path(), &words)
}

/// Returns the number of operations and bytes of each sample of a workload on a target.
fn counts(folder: &TempDir, workload: &str, target: &str) -> Vec<(u64, u64)> {
    let csv = text(&obento(folder.path(), &["bench", "report", "r.json", "--format", "csv"]).stdout);
    let names = [format!(",{target},"), format!(",\"{target}\",")];
    let of_it = |line: &&str| line.contains(workload) && names.iter().any(|name| line.contains(name));
    let fields = csv.lines().filter(of_it).map(|line| line.rsplit(',').collect::<Vec<_>>());
    fields.map(|fields| (fields[8].parse().unwrap(), fields[7].parse().unwrap())).collect()
}

#[test]
fn a_driver_a_mount_and_the_kernel_read_the_same_files_of_an_image() {
    let lab = lab();
    let before = fs::read(lab.path().join("a.img")).unwrap();
    let mut targets = vec!["image:a.img"];
    if require(&[Oracle::Fuse]) {
        targets.push("fuse:./a.img,noatime");
    }
    if require(&[Oracle::LoopMount]) {
        targets.extend([
            "kernel:a.img",
            "kernel:a.img,fstype=ext4",
            "mount-cmd:mount -o ro,loop a.img $1 | cat",
        ]);
    }
    let done = bench(&lab, &COLD, &targets);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for target in &targets {
        // The tree in the image has a directory lost+found.
        for (workload, expected) in COLD.iter().zip([(6, 0), (4, 300_011), (3, 11)]) {
            assert_eq!(counts(&lab, workload, target), [expected; 2], "{workload} on {target}");
        }
    }
    assert!(fs::read(lab.path().join("a.img")).unwrap() == before, "the image was changed");
    let mut left: Vec<_> =
        fs::read_dir(lab.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a.img", "r.json", "tree"]);
    for target in &targets {
        let markdown =
            text(&obento(lab.path(), &["bench", "report", "r.json", "--format", "markdown"]).stdout);
        assert!(markdown.contains(&target.replace('|', "\\|")), "{markdown}");
    }
    let same = obento(lab.path(), &["bench", "compare", "r.json", "r.json"]);
    assert!(same.status.success() && text(&same.stdout).starts_with("0 slower"), "{}", text(&same.stdout));
}

#[test]
fn a_directory_is_read_where_it_is_and_stays_as_it_is() {
    let lab = lab();
    let done = bench(&lab, &["read-walk,T=N", "read-stat,T=1", "read-rand_4k,T=1"], &["path:tree"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("read-rand_4k,T=1"), "{}", text(&done.stdout));
    let names = |folder: &str| fs::read_dir(lab.path().join(folder)).unwrap().count();
    assert_eq!((names("tree"), names("tree/dir"), names("")), (3, 2, 3));
}

#[test]
fn a_workload_that_creates_files_is_refused_on_an_image_once_per_cell() {
    let lab = lab();
    let before = fs::read(lab.path().join("a.img")).unwrap();
    let done = bench(&lab, &["varmail", "read-walk,T=1"], &["image:a.img"]);
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert_eq!(
        said.matches("varmail creates files, and an existing image is only read").count(),
        1,
        "{said}"
    );
    assert!(fs::read(lab.path().join("a.img")).unwrap() == before, "the image was changed");
    fs::remove_file(lab.path().join("r.json")).unwrap();
    let aged = bench(&lab, &["read-walk,T=1", "--age", "5"], &["image:a.img", "path:tree"]);
    assert_eq!(text(&aged.stderr).matches("`--age` creates files").count(), 2, "{}", text(&aged.stderr));
    assert_eq!(fs::read_dir(lab.path().join("tree")).unwrap().count(), 3);
}

#[test]
fn a_type_gets_a_tree_for_the_workloads_that_read() {
    let lab = lab();
    let done = bench(&lab, &["read"], &["image:ext4", "image:vfat"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for target in ["image:ext4", "image:vfat"] {
        let cold = counts(&lab, "read-files-cold,T=1", target);
        // 10 files of the tree, and 4 large files of 1 MiB together.
        assert!(cold.len() == 2 && cold[0].0 == 14 && cold[0].1 > 1 << 20, "{cold:?}");
        for workload in ["read-stat,T=N", "read-rand_4k,T=N", "read-small,T=N"] {
            assert_eq!(counts(&lab, workload, target).len(), 2, "{workload} on {target}");
        }
    }
}

#[test]
fn a_partition_is_read_by_each_reader_and_a_wrong_image_is_reported_first() {
    let lab = lab();
    let image = fs::read(lab.path().join("a.img")).unwrap();
    let disk = lab.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(image.len() as u64 + (4 << 20)).unwrap();
    for words in [
        &["part", "disk", "create", "gpt"][..],
        &["part", "disk", "add"],
        &["convert", "-q", "a.img", "disk@1"],
    ] {
        let done = obento(lab.path(), words);
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
    }
    let before = fs::read(&disk).unwrap();
    let mut targets = vec!["image:disk@1"];
    if require(&[Oracle::Fuse]) {
        targets.push("fuse:disk@1");
    }
    if require(&[Oracle::LoopMount]) {
        targets.push("kernel:disk@1");
    }
    let done = bench(&lab, &COLD[1..2], &targets);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for target in targets {
        assert_eq!(counts(&lab, COLD[1], target), [(4, 300_011); 2], "{target}");
    }
    assert!(fs::read(&disk).unwrap() == before, "the disk was changed");
    fs::write(lab.path().join("a server"), "").unwrap();
    for (target, why) in [
        ("image:none.img", "cannot open 'none.img': no such file"),
        ("image:./tree", "'./tree'"),
        ("fuse:a.img:/dir", "this is a path inside an image"),
        ("image:disk", "write ./disk"),
        ("fuse:a server", "this is the name of a file"),
    ] {
        let done = bench(&lab, &["read-walk,T=1", "--resume"], &[target]);
        assert_eq!(done.status.code(), Some(2), "{target}");
        assert!(text(&done.stderr).contains(why), "{target}: {}", text(&done.stderr));
    }
}

#[test]
fn an_image_with_a_dirty_journal_is_read_and_not_replayed() {
    if !require(&[Oracle::LoopMount, Oracle::Program("debugfs"), Oracle::Program("mke2fs")]) {
        return;
    }
    let lab = lab();
    let image = lab.path().join("a.img");
    // The flag of a journal to replay is set in the super block.
    run(program("debugfs").args(["-w", "-R", "feature needs_recovery"]).arg(&image)).unwrap();
    let before = fs::read(&image).unwrap();
    let done = bench(&lab, &COLD[..1], &["image:a.img", "kernel:a.img,norecovery"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(fs::read(&image).unwrap() == before, "the journal was replayed");
}
