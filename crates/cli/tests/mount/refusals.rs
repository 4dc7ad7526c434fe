//! Volumes whose changes are refused: by their features, and after an error has made them read-only. Volumes with quota
//! files.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;

use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text, wait_until};

#[test]
fn a_volume_with_a_feature_that_cannot_be_written_is_mounted_read_only_and_the_message_names_it() {
    let Some(disk) = Disk::new(&["-I", "256", "-O", "mmp"]) else { return };
    let mounted = disk.obento(&["mount", "disk.img", "mnt"]);
    let said = text(&mounted.stderr);
    assert_eq!(mounted.status.code(), Some(0), "{said}");
    assert!(said.contains("(mmp) is not supported; mounted read-only"), "{said}");
    assert!(fs::metadata(disk.path("lost+found")).unwrap().is_dir());
    let refused = fs::write(disk.path("f"), "x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    disk.umount();
    let refused = disk.obento(&["mount", "-o", "rw", "disk.img", "mnt"]);
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("writing with multiple mount protection (mmp)"),
        "{said}"
    );
}

#[test]
fn a_mount_at_a_missing_directory_does_not_change_the_volume() {
    for options in [&["-O", "^has_journal"][..], &[]] {
        let Some(disk) = Disk::new(options) else { return };
        let before = fs::read(disk.image()).unwrap();
        let mounted = disk.obento(&["mount", "disk.img", "missing"]);
        let said = text(&mounted.stderr);
        assert!(!mounted.status.success() && said.contains("missing': no such file or directory"), "{said}");
        assert!(fs::read(disk.image()).unwrap() == before, "{options:?}");
    }
}

#[test]
fn an_image_that_a_mount_or_a_loop_device_uses_is_not_replaced() {
    let Some(disk) = Disk::new(&[]) else { return };
    fs::create_dir(disk.folder().join("tree")).unwrap();
    disk.obento(&["mkfs", "-q", "other.img", "4M"]);
    let refused = || {
        for args in [
            &["convert", "-q", "--force", "other.img", "disk.img"][..],
            &["convert", "-q", "--force", "--backing", "--format", "qcow2", "other.img", "disk.img"],
            &["build", "-q", "--force", "disk.img", "--from", "tree"],
        ] {
            let output = disk.obento(args);
            let said = text(&output.stderr);
            assert!(
                !output.status.success() && said.contains("cannot replace 'disk.img': it is in use"),
                "{said}"
            );
        }
    };
    disk.mount("rw");
    fs::write(disk.path("precious"), "kept").unwrap();
    refused();
    disk.umount();
    if require(&[Oracle::LoopMount]) {
        let mounted = LoopMount::new(&disk.image(), "").unwrap();
        refused();
        assert_eq!(fs::read(mounted.path().join("precious")).unwrap(), b"kept");
        mounted.unmount().unwrap();
    }
    assert!(disk.obento(&["build", "-q", "--force", "disk.img", "--from", "tree"]).status.success());
}

#[test]
fn a_mount_counts_files_and_space_in_the_quota_files() {
    if !require(&["debugfs", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    for features in ["quota", "quota,project"] {
        let Some(disk) = Disk::new(&["-I", "256", "-O", features]) else { return };
        disk.mount("rw");
        for n in 0..40_u32 {
            let path = disk.path(&format!("f{n}"));
            fs::write(&path, vec![1; 10_000]).unwrap();
            std::os::unix::fs::chown(&path, Some(1000 + n % 5), Some(n)).unwrap();
        }
        fs::remove_file(disk.path("f39")).unwrap();
        // The kernel still reads from a file without a name.
        let open = File::open(disk.path("f0")).unwrap();
        fs::remove_file(disk.path("f0")).unwrap();
        drop(open);
        disk.umount();
        // Counts the usage again.
        run(program("e2fsck").arg("-fn").arg(disk.image())).unwrap();
        let listed = run(program("debugfs").args(["-R", "list_quota user"]).arg(disk.image())).unwrap();
        let listed = text(&listed.stdout).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let of =
            |id: &str| listed.iter().position(|word| word == id).map(|at| listed[at + 1..][..4].to_vec());
        // Bytes, limits, number of files.
        assert_eq!(of("1001").unwrap(), ["81920", "0", "0", "8"]);
        assert_eq!(of("1000").unwrap(), ["71680", "0", "0", "7"]);
    }
}

/// Quota files of the old format are ordinary files. The kernel updates them only with the option `usrjquota`.
#[test]
fn visible_quota_files_are_not_updated_as_by_the_kernel_without_an_option() {
    if !require(&[Oracle::LoopMount]) {
        return;
    }
    let [Some(disk), Some(other)] = [Disk::new(&[]), Disk::new(&[])] else { return };
    let contents = [0xd9; 8192];
    let change = |at: &std::path::Path| {
        fs::write(at.join("aquota.user"), contents).unwrap();
        fs::write(at.join("f"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::chown(at.join("f"), Some(1007), Some(1007)).unwrap();
        fs::read(at.join("aquota.user")).unwrap()
    };
    disk.mount("rw");
    let ours = change(&disk.at());
    disk.umount();
    let kernel = LoopMount::new(&other.image(), "").unwrap();
    let kernels = change(kernel.path());
    kernel.unmount().unwrap();
    assert!(ours == kernels && ours == contents);
    let refused = disk.obento(&["mount", "-o", "usrjquota=aquota.user,jqfmt=vfsv0", "disk.img", "mnt"]);
    assert!(text(&refused.stderr).contains("usrjquota"), "{refused:?}");
}

/// Creates a file with a damaged block of extents, which a truncation reads.
pub fn damaged(disk: &Disk) {
    disk.mount("rw");
    let file = File::create(disk.path("damaged")).unwrap();
    (0..8).for_each(|at| file.write_all_at(&[7; 4096], at * 12288).unwrap());
    drop(file);
    disk.umount();
    let shown = run(program("debugfs").args(["-R", "dump_extents -n /damaged"]).arg(disk.image())).unwrap();
    // The line of the root: level, entries, logical blocks, and the physical block.
    let block =
        text(&shown.stdout).lines().nth(1).and_then(|line| line.split_whitespace().nth(7)?.parse().ok());
    let block: u64 = block.unwrap();
    let image = File::options().write(true).open(disk.image()).unwrap();
    image.write_all_at(&[0xa5; 4], block * 4096 + 4).unwrap();
}

#[test]
fn writes_fail_in_the_call_after_an_error_has_made_a_volume_read_only() {
    if !require(&[Oracle::Program("debugfs")]) {
        return;
    }
    for options in ["rw", "no_writeback_cache"] {
        let made = ["-b", "4096", "-e", "remount-ro", "-O", "metadata_csum"];
        let Some(disk) = Disk::sized("400M", &made) else { return };
        damaged(&disk);
        disk.mount(options);
        let mut file = OpenOptions::new().append(true).create(true).open(disk.path("f")).unwrap();
        file.write_all(b"before").unwrap();
        file.sync_all().unwrap();
        let damaged = File::options().write(true).open(disk.path("damaged")).unwrap();
        damaged.set_len(5000).unwrap_err();
        drop(damaged);
        // Without a request that fails, the kernel would accept data until it writes some of it back, after 30 seconds.
        let begin = std::time::Instant::now();
        wait_until("the refusal of a write", || (&file).write_all(b"after").is_err());
        assert!(begin.elapsed().as_secs() < 10, "{options}: {:?}", begin.elapsed());
        let refused = (&file).write_all(b"after").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{options}: {refused}");
        drop(file);
        let script =
            "echo line >> f 2>/dev/null && echo accepted; echo line > new 2>/dev/null && echo accepted";
        let output = program("sh").args(["-c", script]).current_dir(disk.at()).output().unwrap();
        assert_eq!(text(&output.stdout), "", "{options}");
        let status = text(&disk.obento(&["mount", "--status", "mnt"]).stdout);
        assert!(status.contains("read-only after an error"), "{options}: {status}");
        // umount reports the error.
        disk.obento(&["umount", "mnt"]);
        wait_until("the unmount", || !disk.is_mounted());
        disk.obento(&["check", "-y", "disk.img"]);
        let shown = disk.obento(&["cat", "disk.img:/f"]);
        assert_eq!(text(&shown.stdout), "before", "{options}");
    }
}
