//! Volumes with more groups than small volumes have: read, changed and checked within bounded memory.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use obento_base::{DeviceNumber, Error, FileKind, Mode, Name, Result};
use obento_driver::{Access, CheckOptions, Driver as _, NewNode, OpenOptions, RepairMode};
use obento_env::NO_CLOCK;
use obento_ext4::{Ext4Driver, check_volume};
use obento_host::FileDevice;
use obento_testkit::oracle::{Oracle, call, require};
use obento_testkit::scratch::memory_folder;

const TIB: u64 = 1 << 40;
/// Maximum memory of a check.
const MOST_KIB: u64 = 256 << 10;

/// Returns the peak memory of this process in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns a folder in memory, where files may be long enough.
fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("obento-large-").tempdir_in(memory_folder()).unwrap()
}

/// Creates a sparse image, into which `mke2fs` writes the necessary parts.
fn make(image: &Path, len: u64, options: &str) {
    let _ = std::fs::remove_file(image);
    File::create(image).unwrap().set_len(len).unwrap();
    let fixed = "-q -F -t ext4 -J size=4 -i 67108864 -E lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    let arguments = fixed.split(' ').chain(options.split(' ')).chain([image.to_str().unwrap()]);
    call("mke2fs", arguments).unwrap();
}

fn add_directory(image: &Path) -> Result<()> {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs = Ext4Driver.open(device, &options)?;
    let (mode, rdev) = (Mode::new(0o755), DeviceNumber::default());
    let node = NewNode { kind: FileKind::Directory, mode, uid: 0, gid: 0, rdev, target: b"" };
    fs.writable().unwrap().create(fs.root(), Name::new(b"dir").unwrap(), &node)?;
    fs.writable().unwrap().close()
}

/// Returns the number of issues after a repair with `repair_mode`.
fn check(image: &Path, repair_mode: RepairMode) -> Result<u64> {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    let options = CheckOptions { repair_mode, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    check_volume(device, &options, &mut |_| {}).map(|report| report.found)
}

#[test]
fn volumes_of_many_groups_are_read_changed_and_checked_within_bounded_memory() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = folder();
    let image = folder.path().join("image");
    let volumes = [
        // 163,840 groups.
        (20 * TIB, "-b 4096 -O sparse_super2,^resize_inode"),
        // The maximum that is listed: 196,608.
        (TIB + TIB / 2, "-b 1024 -O sparse_super2,meta_bg,^resize_inode"),
    ];
    for (len, options) in volumes {
        make(&image, len, options);
        assert_eq!(check(&image, RepairMode::Nothing), Ok(0), "{options}");
        add_directory(&image).unwrap();
        // A wrong count of free inodes.
        let file = File::options().read(true).write(true).open(&image).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 2], 1024 + 0x34).unwrap();
        assert_ne!(check(&image, RepairMode::Nothing), Ok(0), "{options}");
        assert_ne!(check(&image, RepairMode::All), Ok(0), "{options}");
        assert_eq!(check(&image, RepairMode::Nothing), Ok(0), "{options}");
        call("e2fsck", ["-fn", image.to_str().unwrap()]).unwrap();
        println!("{options}: {} KiB", peak());
        assert!(peak() < MOST_KIB, "{options}: {} KiB", peak());
    }
}

#[test]
fn files_that_share_more_than_memory_holds_get_copies_within_bounded_memory() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = folder();
    let (image, script) = (folder.path().join("image"), folder.path().join("script"));
    make(&image, 2 << 30, "-b 4096");
    // 400 MiB that two files share.
    let lines = "write /dev/null one\nfallocate one 0 102399\nsif one size 419430400\nwrite /dev/null two\n\
        copy_inode one two\n";
    std::fs::write(&script, lines).unwrap();
    let (script, path) = (script.to_str().unwrap(), image.to_str().unwrap());
    call("debugfs", ["-w", "-f", script, path]).unwrap();
    assert_ne!(check(&image, RepairMode::Nothing), Ok(0));
    assert_ne!(check(&image, RepairMode::All), Ok(0));
    assert_eq!(check(&image, RepairMode::Nothing), Ok(0));
    call("e2fsck", ["-fn", path]).unwrap();
    let sizes = call("debugfs", ["-R", "stat two", path]).unwrap().stdout;
    assert!(String::from_utf8_lossy(&sizes).contains("Size: 419430400"));
    assert!(peak() < MOST_KIB, "{} KiB", peak());
}

#[test]
fn a_volume_of_one_group_too_many_is_refused_by_name() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = folder();
    let image = folder.path().join("image");
    make(&image, TIB + TIB / 2 + (32 << 20), "-b 1024 -O sparse_super2,meta_bg,^resize_inode");
    assert!(matches!(check(&image, RepairMode::Nothing), Err(Error::Unsupported(_))));
    assert!(matches!(add_directory(&image), Err(Error::Unsupported(_))));
}
