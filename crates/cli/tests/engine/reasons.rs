//! Why something failed, in the words of who knows: the kernel.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use obento_testkit::oracle::{LoopMount, Oracle, require};

use crate::support::Bench;

/// A bench, if the kernel and `programs` are installed.
fn bench(programs: &[&'static str]) -> Option<Bench> {
    let oracles: Vec<_> =
        ["linux.uml"].iter().chain(programs).map(|program| Oracle::Program(program)).collect();
    require(&oracles).then(Bench::new)
}

/// What `command` complains of; it fails.
#[track_caller]
fn complaint(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_volume_that_linux_does_not_mount_is_told_in_the_kernels_words() {
    let Some(bench) = bench(&["mkfs.btrfs", "mkfs.xfs", "xfs_db"]) else { return };
    bench.blank("one", 130);
    bench.blank("two", 130);
    bench.shell("mkfs.btrfs -q one two");
    let said = complaint(bench.command("ls one:/"));
    let begin = "obento: one: cannot open the btrfs file system: the kernel engine cannot mount it: invalid argument (BTRFS error";
    assert!(said.starts_with(begin) && said.contains("devid 2") && said.contains("is missing"), "{said}");

    bench.blank("new", 320);
    bench.shell("mkfs.xfs -q new && xfs_db -x -c 'sb 0' -c 'write -d features_incompat 0x80000003' new");
    let said = complaint(bench.command("ls new:/"));
    assert!(said.contains("XFS (vda): Superblock has unknown incompatible features (0x80000000)"), "{said}");
    // What it printed while it started is no reason.
    assert!(!said.contains("Failed to initialize"), "{said}");
}

#[test]
fn a_kernel_that_does_not_start_is_told_by_its_panic() {
    let Some(bench) = bench(&["mkfs.btrfs"]) else { return };
    bench.blank("image", 130);
    bench.shell("mkfs.btrfs -q image");
    let kernel = bench.path("kernel");
    let lines = r"Linux\nKernel panic - not syncing: \033[2Jno root\n [<6002>] function\n";
    fs::write(&kernel, format!("#!/bin/sh\nprintf '{lines}'\nexit 1\n")).unwrap();
    fs::set_permissions(&kernel, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = bench.command("ls image:/");
    command.env("OBENTO_LINUX", &kernel);
    let said = complaint(command);
    let end = "the kernel engine did not start: Kernel panic - not syncing: ?[2Jno root\n";
    assert!(said.ends_with(end), "{said}");
}

#[test]
fn a_process_that_may_open_too_few_files_is_told_that_and_nothing_else() {
    let Some(bench) = bench(&["mkfs.btrfs"]) else { return };
    bench.blank("image", 130);
    bench.shell("mkfs.btrfs -q image");
    let run = |files: u32| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" ls image:/");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_obento")]).current_dir(bench.path(""));
        command.output().unwrap()
    };
    let told = "the kernel engine did not start: no more files can be opened (`ulimit -n` says how many)";
    // Three are open before, and the image is a fourth.
    let failed = (4..40).map(run).take_while(|output| !output.status.success()).map(|output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(told), "{said}");
    });
    let failed = failed.count();
    assert!((1..36).contains(&failed), "{failed} limits were too low");
}

#[test]
fn a_full_disk_below_the_image_is_told_and_not_the_fullness_of_the_volume() {
    let Some(bench) = bench(&["mkfs.nilfs2", "mkfs.xfs", "mke2fs"]) else { return };
    if !require(&[Oracle::LoopMount, Oracle::Root]) {
        return;
    }
    // The disk has a third of what the image may take.
    bench.blank("disk", 128);
    bench.shell("mke2fs -q -m 0 disk");
    bench.shell("head -c 300000000 /dev/zero | tr '\\0' x > big");
    for make in ["mkfs.nilfs2 -q", "mkfs.xfs -q"] {
        let mount = LoopMount::new(&bench.path("disk"), "").unwrap();
        let image = mount.path().join("image");
        fs::File::create(&image).unwrap().set_len(384 << 20).unwrap();
        bench.shell(&format!("{make} {}", image.display()));
        let output = bench.command(&format!("cp big {}:/", image.display())).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{make}: {said}");
        assert!(said.contains("failed: no space left on the disk that the image lies on"), "{make}: {said}");
        assert!(said.contains("help: make room on the disk that the image lies on"), "{make}: {said}");
        fs::remove_file(image).unwrap();
        mount.unmount().unwrap();
    }
}
