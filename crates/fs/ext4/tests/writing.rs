//! A volume that is opened for changes, changed without names or data, and closed: clean to `e2fsck`, and as the
//! kernel would leave it.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::{Error, Feature, FileFlags, Ino, Mode, Name, Timestamp};
use obento_driver::{Access, Driver, FileSystem, OpenOptions, SetAttr, TimeChange};
use obento_env::FixedClock;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::fault::{FaultDevice, Request};
use obento_testkit::oracle::{Oracle, call, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Program("debugfs")];

/// The time at which these volumes are changed.
const NOW: Timestamp = Timestamp::new(1_800_000_000, 123_456_789);

fn make(folder: &Path, options: &[&str]) -> PathBuf {
    let image = folder.join("image");
    let source = folder.join("source");
    std::fs::create_dir_all(source.join("dir")).unwrap();
    std::fs::write(source.join("file"), vec![7; 10_000]).unwrap();
    let fill = ["-d", source.to_str().unwrap()];
    call("mke2fs", [&["-q", "-F"][..], &fill, options, &[image.to_str().unwrap(), "32M"]].concat()).unwrap();
    image
}

fn open(image: &Path) -> obento_base::Result<Arc<dyn FileSystem>> {
    Ext4Driver.open(Arc::new(FileDevice::open_writable(image).unwrap()), &to_write())
}

fn to_write() -> OpenOptions {
    OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(FixedClock(NOW))) }
}

fn check(image: &Path) {
    call("e2fsck", ["-fn", image.to_str().unwrap()]).unwrap();
}

fn super_block(image: &Path) -> String {
    let output = call("debugfs", ["-R", "stats -h", image.to_str().unwrap()]).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn find(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.lookup(fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap()
}

const VOLUMES: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext2"],
    &["-t", "ext3", "-b", "2048"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-O", "bigalloc,orphan_file", "-C", "16384"],
    &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024", "-g", "1024"],
    &["-t", "ext4", "-I", "128", "-O", "^64bit"],
];

#[test]
fn a_volume_that_was_opened_for_changes_and_closed_is_clean_and_counts_a_mount() {
    if !require(TOOLS) {
        return;
    }
    for options in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let fs = open(&image).unwrap();
        assert!(options.contains(&"ext2") || super_block(&image).contains("needs_recovery"), "{options:?}");
        fs.writable().unwrap().close().unwrap();
        assert!(fs.writable().is_none());
        drop(fs);
        check(&image);
        let stats = super_block(&image);
        assert!(!stats.contains("needs_recovery") && !stats.contains("orphan_present"), "{options:?}");
        assert!(stats.contains("Mount count:              1"), "{options:?} {stats}");
        assert!(stats.contains("Filesystem state:         clean"), "{options:?} {stats}");
    }
}

#[test]
fn attributes_that_were_set_are_there_in_the_next_mount() {
    if !require(TOOLS) {
        return;
    }
    for options in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let fs = open(&image).unwrap();
        let ino = find(&*fs, "file");
        let then = Timestamp::new(1_234_567_890, 0);
        let change = SetAttr {
            mode: Some(Mode::new(0o4711)),
            uid: Some(70_000),
            gid: Some(3),
            mtime: Some(TimeChange::At(then)),
            flags: Some(FileFlags::IMMUTABLE | FileFlags::NO_DUMP | FileFlags::INLINE_DATA),
            ..SetAttr::default()
        };
        let before = fs.getattr(ino).unwrap();
        let attr = fs.writable().unwrap().set_attr(ino, &change).unwrap();
        assert_eq!(attr, fs.getattr(ino).unwrap());
        assert!(attr.change > before.change && attr.ctime.secs() == NOW.secs());
        fs.writable().unwrap().sync_file(ino).unwrap();
        fs.writable().unwrap().close().unwrap();
        drop(fs);
        check(&image);
        let again = common::open(&image).unwrap().getattr(ino).unwrap();
        assert_eq!(again, attr);
        assert_eq!((again.mode, again.uid, again.mtime), (Mode::new(0o4711), 70_000, then));
        let kept = before.flags | FileFlags::IMMUTABLE | FileFlags::NO_DUMP;
        assert_eq!(again.flags, kept, "{options:?}");
    }
}

#[test]
fn a_dropped_volume_is_replayed_by_the_next_open() {
    if !require(TOOLS) {
        return;
    }
    for options in [VOLUMES[0], VOLUMES[1], VOLUMES[5]] {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let fs = open(&image).unwrap();
        let ino = find(&*fs, "file");
        let change = SetAttr { uid: Some(99), ..SetAttr::default() };
        fs.writable().unwrap().set_attr(ino, &change).unwrap();
        fs.writable().unwrap().sync_file(ino).unwrap();
        drop(fs);
        assert!(super_block(&image).contains("needs_recovery"));
        let fs = open(&image).unwrap();
        assert_eq!(fs.getattr(ino).unwrap().uid, 99, "{options:?}");
        fs.writable().unwrap().close().unwrap();
        check(&image);
    }
}

#[test]
fn many_who_sync_at_once_wait_for_one_commit() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = make(folder.path(), VOLUMES[0]);
    let device = Arc::new(FaultDevice::new(FileDevice::open_writable(&image).unwrap(), None));
    let fs = Ext4Driver.open(device.clone(), &to_write()).unwrap();
    let inos = [fs.root(), find(&*fs, "file"), find(&*fs, "lost+found")];
    let flushes = |inos: &[Ino], uid| {
        for &ino in inos {
            fs.writable().unwrap().set_attr(ino, &SetAttr { uid: Some(uid), ..SetAttr::default() }).unwrap();
        }
        let before = device.count(Request::Flush);
        fs.writable().unwrap().sync_files(inos).unwrap();
        device.count(Request::Flush) - before
    };
    // The first commit marks the volume as in use.
    flushes(&inos[..1], 1);
    assert_eq!([flushes(&inos, 2), flushes(&inos[..1], 3), flushes(&[], 4)], [2, 2, 1]);
    drop(fs);
    let fs = open(&image).unwrap();
    assert_eq!(inos.map(|ino| fs.getattr(ino).unwrap().uid), [3, 2, 2]);
    fs.writable().unwrap().close().unwrap();
    check(&image);
}

#[test]
fn volumes_that_cannot_be_written_are_refused_by_name_and_not_changed() {
    if !require(TOOLS) {
        return;
    }
    let cases: [(&[&str], &str); 1] =
        [(&["-t", "ext4", "-O", "mmp"], "writing with multiple mount protection (mmp)")];
    for (options, name) in cases {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let before = std::fs::read(&image).unwrap();
        assert_eq!(open(&image).err(), Some(Error::Unsupported(Feature::Named(name))));
        assert!(std::fs::read(&image).unwrap() == before);
    }
}
