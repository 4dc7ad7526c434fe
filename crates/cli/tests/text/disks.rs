//! Disks with several file systems: commands that read trees read all of them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `line` in `folder`, and returns the standard output. Panics if the exit status is another one.
#[track_caller]
fn run(folder: &Path, line: &str, code: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    let output = command.current_dir(folder).args(line.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Creates `disk.img` with ext4 in partition 1, nothing in 2, and FAT in 3.
fn disk(folder: &Path) {
    for line in [
        "part disk.img create gpt --size 24M",
        "part disk.img add --size 6M",
        "part disk.img add --size 6M",
        "part disk.img add --size 6M",
        "mkfs -q disk.img@1",
        "mkfs -q -t vfat disk.img@3",
    ] {
        run(folder, line, 0);
    }
    fs::write(folder.join("one"), "a needle\n").unwrap();
    fs::write(folder.join("three"), "hay\nneedle three\n").unwrap();
    run(folder, "cp one disk.img@1:/", 0);
    run(folder, "cp three disk.img@3:/", 0);
}

#[test]
fn commands_that_read_trees_read_all_file_systems_of_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk(folder);
    let found = run(folder, "grep -r needle disk.img", 0);
    assert_eq!(found, "disk.img@1:/one:a needle\ndisk.img@3:/three:needle three\n");
    let found = run(folder, "find disk.img -type f", 0);
    assert_eq!(found, "disk.img@1:/one\ndisk.img@3:/three\n");
    let sums = run(folder, "sha256sum -r disk.img", 0);
    assert_eq!(
        sums.lines().map(|line| &line[66..]).collect::<Vec<_>>(),
        ["disk.img@1:/one", "disk.img@3:/three"]
    );
    fs::write(folder.join("sums"), sums).unwrap();
    run(folder, "sha256sum --quiet -c sums", 0);
    let listed = run(folder, "ls disk.img", 0);
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(lines, ["disk.img@1:/:", "lost+found", "one", "", "disk.img@3:/:", "three"]);
    // A path selects one file system, so the partition must be named.
    run(folder, "cat disk.img:/one", 1);
    // A change concerns one file system.
    run(folder, "mkdir disk.img:/d", 1);
}

#[test]
fn a_list_of_a_disk_verifies_its_copy_partition_by_partition() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk(folder);
    for tool in ["sha256sum", "b3sum"] {
        fs::write(folder.join("sums"), run(folder, &format!("{tool} -r disk.img"), 0)).unwrap();
        fs::copy(folder.join("disk.img"), folder.join("copy.img")).unwrap();
        for root in ["copy.img", "copy.img:/"] {
            let checked = run(folder, &format!("{tool} -c sums --root {root}"), 0);
            assert_eq!(checked, "disk.img@1:/one: OK\ndisk.img@3:/three: OK\n", "{tool} {root}");
        }
        run(folder, "rm copy.img@3:/three", 0);
        let checked = run(folder, &format!("{tool} -c sums --root copy.img"), 1);
        assert_eq!(checked, "disk.img@1:/one: OK\n", "{tool}");
    }
}

/// Runs `line`, and returns the standard error.
fn said(folder: &Path, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    let output = command.current_dir(folder).args(line.split(' ')).output().unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn partitions_that_are_not_read_are_named() {
    use std::os::unix::fs::FileExt as _;

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk(folder);
    let listed = run(folder, "part disk.img list --json", 0);
    let start = |number: usize| {
        let line = listed.lines().find(|line| line.contains(&format!("\"number\":{number},"))).unwrap();
        let from = line.find("\"start\":").unwrap() + 8;
        line[from..].split([',', '}']).next().unwrap().parse::<u64>().unwrap()
    };
    let (first, second) = (start(1), start(2));
    let disk = fs::OpenOptions::new().write(true).open(folder.join("disk.img")).unwrap();
    // Zeros are no file system.
    assert_eq!(said(folder, "grep -r needle disk.img"), "");
    disk.write_all_at(&[7; 4096], second).unwrap();
    let note = "obento: disk.img@2: note: this partition was skipped: no supported file system; the data looks \
                like unrecognised format";
    for line in ["grep -r needle disk.img", "find disk.img", "sha256sum -r disk.img", "ls disk.img"] {
        let said = said(folder, line);
        assert!(said.starts_with(note) && said.lines().count() == 1, "{line}: {said}");
    }
    // The only file system of a disk is searched, too.
    disk.write_all_at(b"LUKS\xba\xbe\0\x01", second).unwrap();
    disk.write_all_at(&[0; 4096], first).unwrap();
    assert_eq!(run(folder, "grep -r needle disk.img", 0), "disk.img:/three:needle three\n");
    let said = said(folder, "grep -r needle disk.img");
    assert!(said.contains("disk.img@2: note: this partition was skipped") && said.contains("LUKS"), "{said}");
}

#[test]
fn attributes_of_all_file_systems_of_a_disk_are_restored_from_one_list() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk(folder);
    run(folder, "mkfs -q disk.img@2", 0);
    run(folder, "cp one disk.img@2:/", 0);
    for part in [1, 2] {
        run(folder, &format!("setfattr -n user.part -v {part} disk.img@{part}:/one"), 0);
        run(folder, &format!("setfacl -m u:{part}:r disk.img@{part}:/one"), 0);
    }
    let attributes = run(folder, "getfattr -d -R disk.img", 0);
    let wanted = "# file: disk.img@1:/one\nuser.part=\"1\"\n\n# file: disk.img@2:/one\nuser.part=\"2\"\n\n";
    assert_eq!(attributes, wanted);
    fs::write(folder.join("attributes"), &attributes).unwrap();
    let lists = run(folder, "getfacl -R disk.img", 0);
    assert!(
        lists.contains("# file: disk.img@1:/one\n") && lists.contains("# file: disk.img@2:/one\n"),
        "{lists}"
    );
    fs::write(folder.join("lists"), &lists).unwrap();
    for part in [1, 2] {
        run(folder, &format!("setfattr -x user.part disk.img@{part}:/one"), 0);
        run(folder, &format!("setfacl -b disk.img@{part}:/one"), 0);
    }
    assert_eq!(run(folder, "getfattr -d -R disk.img", 0), "");
    run(folder, "setfattr --restore attributes disk.img@1:/ disk.img@2:/", 0);
    run(folder, "setfacl --restore lists disk.img@1:/ disk.img@2:/", 0);
    assert_eq!(run(folder, "getfattr -d -R disk.img", 0), attributes);
    assert_eq!(run(folder, "getfacl -R disk.img", 0), lists);
    // The names of one partition are relative to its root.
    assert!(run(folder, "getfattr -d -R disk.img@1", 0).starts_with("# file: one\n"));
}
