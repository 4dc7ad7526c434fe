//! The reasons of failures, as the kernel reports them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use obento_testkit::oracle::{LoopMount, Oracle, require};

use crate::support::Bench;

/// Returns a bench if the kernel and `programs` are installed.
fn bench(programs: &[&'static str]) -> Option<Bench> {
    let oracles: Vec<_> =
        ["linux.uml"].iter().chain(programs).map(|program| Oracle::Program(program)).collect();
    require(&oracles).then(Bench::new)
}

/// Returns the message of `command`, which fails.
#[track_caller]
fn complaint(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_volume_that_linux_does_not_mount_is_reported_with_the_kernels_message() {
    let Some(bench) = bench(&["mkfs.btrfs", "mkfs.xfs", "xfs_db"]) else { return };
    bench.blank("one", 130);
    bench.blank("two", 130);
    bench.shell("mkfs.btrfs -q one two");
    let said = complaint(bench.command("ls one:/"));
    let begin = "obento: cannot open the btrfs file system of 'one': the kernel engine cannot mount it: invalid argument (BTRFS error";
    assert!(said.starts_with(begin) && said.contains("devid 2") && said.contains("is missing"), "{said}");

    bench.blank("new", 320);
    bench.shell("mkfs.xfs -q new && xfs_db -x -c 'sb 0' -c 'write -d features_incompat 0x80000003' new");
    let said = complaint(bench.command("ls new:/"));
    assert!(said.contains("(Superblock has unknown incompatible features (0x80000000)"), "{said}");
    // Messages of the start of the kernel are not the reason.
    assert!(!said.contains("Failed to initialize"), "{said}");
}

#[test]
fn a_kernel_that_does_not_start_is_reported_with_its_panic() {
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
    let why = "the kernel engine did not start: Kernel panic - not syncing: ?[2Jno root\n";
    assert!(said.contains(why) && said.contains("unset OBENTO_LINUX"), "{said}");
}

#[test]
fn a_process_that_may_open_too_few_files_gets_that_error_only() {
    let Some(bench) = bench(&["mkfs.btrfs"]) else { return };
    bench.blank("image", 130);
    bench.shell("mkfs.btrfs -q image");
    let run = |files: u32| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" ls image:/");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_obento")]).current_dir(bench.path(""));
        command.output().unwrap()
    };
    let reported =
        "the kernel engine did not start: no more files can be opened (`ulimit -n` shows the limit)";
    // Three files are open before, and the image is the fourth.
    let failed = (4..40).map(run).take_while(|output| !output.status.success()).map(|output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(reported), "{said}");
    });
    let failed = failed.count();
    assert!((1..36).contains(&failed), "{failed} limits were too low");
}

#[test]
fn a_full_disk_below_the_image_is_reported_as_such_and_not_as_a_full_volume() {
    let Some(bench) = bench(&["mkfs.nilfs2", "mkfs.xfs", "mke2fs"]) else { return };
    if !require(&[Oracle::LoopMount, Oracle::Root]) {
        return;
    }
    // The disk has a third of the space that the image may take.
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
        assert!(said.contains("failed: no space left on the disk of the image"), "{make}: {said}");
        assert!(said.contains("help: free space on the disk of the image"), "{make}: {said}");
        fs::remove_file(image).unwrap();
        mount.unmount().unwrap();
    }
}

/// Returns standard error of `command`, which ends with `code`.
#[track_caller]
fn said(mut command: Command, code: i32) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[test]
fn a_name_that_a_udf_cannot_hold_is_refused_and_not_made_another() {
    let Some(bench) = bench(&["mkudffs"]) else { return };
    bench.blank("image", 64);
    bench.shell("mkudffs image >/dev/null; mkdir names; printf one > names/$(printf 'q\\377'); printf two > names/$(printf 'q\\376'); printf x > names/日");
    let reported = said(bench.command("cp -r names image:/"), 1);
    assert!(reported.contains("cannot create 2 entries with unsupported names"), "{reported}");
    assert_eq!(bench.done("ls image:/names").trim_end(), "日");
    let reported = said(bench.command("build -t udf other --from names"), 2);
    assert!(reported.contains("cannot store 2 files") && !bench.path("other").exists(), "{reported}");
}

#[test]
fn an_hfs_that_was_not_closed_is_not_changed_and_the_kernel_says_why() {
    let Some(bench) = bench(&["hformat"]) else { return };
    bench.blank("image", 8);
    bench.shell("hformat -l x image >/dev/null 2>&1; printf '\\000' | dd of=image bs=1 seek=1034 conv=notrunc status=none");
    let reported = said(bench.command("mkdir image:/new"), 1);
    assert!(reported.contains("read-only (hfs: filesystem was not cleanly unmounted"), "{reported}");
    bench.done("ls image:/");
}

#[test]
fn a_jfs_that_was_not_closed_is_changed_once_its_log_was_replayed() {
    let Some(bench) = bench(&["mkfs.jfs"]) else { return };
    bench.blank("image", 32);
    // `s_state`: `FM_DIRTY` (fs/jfs/jfs_superblock.h).
    bench.shell(
        "mkfs.jfs -q image >/dev/null; printf '\\002' | dd of=image bs=1 seek=32808 conv=notrunc status=none",
    );
    let reported = said(bench.command("mkdir image:/new"), 1);
    let reason = "cannot change 'image': the volume was not unmounted, and its log must be replayed first\n  \
                  help: run 'obento check -p' first, which replays the log\n";
    assert!(reported.ends_with(reason), "{reported}");
    bench.done("check -p -q image");
    bench.done("mkdir image:/new");
}

#[test]
fn a_truncated_image_is_reported_and_not_changed() {
    let makers = [
        "mkfs.minix",
        "mkfs.f2fs",
        "mkfs.jfs",
        "mkfs.xfs",
        "hformat",
        "mkudffs",
        "mkfs.nilfs2",
        "mkfs.reiserfs",
        "mkfs.bfs",
    ];
    let Some(bench) = bench(&makers) else { return };
    // The number of free MiB, and the total.
    for (make, all, left) in [
        ("mkfs.minix -1", 60, 1),
        ("mkfs.minix -2", 60, 1),
        ("mkfs.minix -3", 60, 1),
        ("mkfs.f2fs -q", 64, 48),
        ("mkfs.jfs -q", 64, 30),
        ("mkfs.xfs -q", 320, 200),
        ("hformat -l x", 16, 8),
        ("mkudffs", 64, 32),
        ("mkfs.nilfs2 -q", 140, 90),
        ("mkfs.reiserfs -q -f -f", 40, 20),
        ("mkfs.bfs", 8, 5),
    ] {
        bench.blank("full", all);
        bench.shell(&format!("{make} full >/dev/null 2>&1; head -c {left}M full > cut"));
        assert_eq!(complained(&bench, "ls full:/"), "", "{make}: it is whole");
        let reported = complained(&bench, "ls cut:/");
        // All others are mounted in spite of that: they read the end of the device.
        let is_shown = !["xfs", "reiserfs", "bfs"].iter().any(|kind| make.contains(kind));
        assert_eq!(reported.contains("note: the image is truncated"), is_shown, "{make}: {reported}");
        let is_past = reported.contains("cannot open the") && reported.contains("is truncated: it has");
        assert!(is_shown || is_past, "{make}: {reported}");
        let reported = said(bench.command("mkdir cut:/x"), 1);
        assert!(reported.contains("the image or its partition is truncated"), "{make}: {reported}");
    }
}

/// A request that crosses the end of a disk is shortened by the kernel, and the rest of it reads as zeros.
#[test]
fn missing_bytes_of_a_truncated_image_are_reported_and_never_read_as_zeros() {
    let makers =
        ["genisoimage", "mkfs.erofs", "genromfs", "mkfs.cramfs", "mksquashfs", "mkudffs", "mkfs.jfs"];
    let Some(bench) = bench(&makers) else { return };
    bench.shell("mkdir small; head -c 3000000 /dev/urandom > small/f");
    let whole = fs::read(bench.path("small/f")).unwrap();
    for make in [
        "genisoimage -quiet -R -o image small",
        "mkfs.erofs image small >/dev/null 2>&1",
        "genromfs -d small -f image",
        "mkfs.cramfs small image",
        "truncate -s 8M image; mkudffs image >/dev/null; $OBENTO cp small/f image:/",
        "truncate -s 16M image; mkfs.jfs -q image >/dev/null; $OBENTO cp small/f image:/",
    ] {
        bench.shell(&format!("rm -f image; OBENTO={}; {make}", env!("CARGO_BIN_EXE_obento")));
        let at = fs::read(bench.path("image"))
            .unwrap()
            .windows(64)
            .position(|bytes| *bytes == whole[1 << 20..][..64]);
        // In the middle of a read request of the kernel, and at no block boundary.
        let end = at.unwrap() + 333_001;
        bench.shell(&format!("head -c {end} image > cut"));
        let output = bench.command("cat cut:/f").output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{make}: {reported}");
        assert!(reported.contains("is truncated: it has"), "{make}: {reported}");
        assert!(whole.starts_with(&output.stdout), "{make}: {} bytes", output.stdout.len());
    }
    bench.shell("mksquashfs small image -quiet -no-progress -noappend >/dev/null; head -c 2M image > cut");
    let reported = said(bench.command("ls cut:/"), 2);
    assert!(reported.contains("is truncated: it has"), "{reported}");
}

/// The newest table is in the last block, and the partition is as long as the disc.
#[test]
fn a_udf_that_is_written_once_ends_with_its_image() {
    let Some(bench) = bench(&["mkudffs"]) else { return };
    bench.blank("disc", 64);
    bench.shell("mkudffs --media-type=cdr disc > made");
    let made = fs::read_to_string(bench.path("made")).unwrap();
    let table = made.lines().find_map(|line| line.strip_prefix("vatblock=")).unwrap();
    let blocks: u64 = table.parse::<u64>().unwrap() + 1;
    bench.shell(&format!("head -c {} disc > image", blocks * 2048));
    assert_eq!(complained(&bench, "ls image:/"), "");
    bench.done("ls image:/");
}

/// Returns the message of a command with any exit code.
fn complained(bench: &Bench, line: &str) -> String {
    String::from_utf8_lossy(&bench.command(line).output().unwrap().stderr).into_owned()
}

#[test]
fn types_that_linux_only_reads_are_mounted_read_only_and_a_file_may_have_the_number_of_the_fuse_root() {
    let Some(bench) = bench(&["mksquashfs"]) else { return };
    if !require(&[Oracle::Fuse]) {
        return;
    }
    bench.shell(
        "mkdir small mnt; printf hi > small/first; mksquashfs small image -quiet -no-progress >/dev/null",
    );
    let reported = said(bench.command("mkdir image:/new"), 1);
    assert!(reported.contains("obento reads squashfs, but does not write it\n"), "{reported}");
    bench.done("mount image mnt");
    let found = fs::read(bench.path("mnt/first"));
    bench.shell("umount mnt");
    assert_eq!(found.unwrap(), b"hi");
}
