//! Inodes that lost their last name while they were in use. They are freed when they are forgotten. After a crash, the
//! next program that opens the volume frees them: the kernel, e2fsck or obento.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::{DeviceError, Error, Ino, Name, Result, Timestamp};
use obento_block::{BlockDevice, Handoff, MemDevice};
use obento_driver::{
    Access, Driver, FileSystem, HandoverState, LayoutLock, Notice, OpenOptions, StatFs, XattrMode,
};
use obento_env::FixedClock;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::image::dirty_copy;
use obento_testkit::oracle::{LoopMount, Oracle, call, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];
const KERNEL: &[Oracle] =
    &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::LoopMount, Oracle::Root];
const FILES: usize = 6;
/// The byte of `s_state` with `EXT4_ERROR_FS`.
const ERROR_FLAG: u64 = 1024 + 0x3a;

/// With an orphan list, with an orphan file, without checksums, without extents.
const VOLUMES: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-O", "orphan_file", "-b", "1024"],
    &["-t", "ext4", "-O", "^metadata_csum,^64bit", "-b", "1024"],
    &["-t", "ext3", "-b", "1024"],
];

fn make(folder: &Path, options: &[&str]) -> PathBuf {
    let (image, source) = (folder.join("image"), folder.join("source"));
    std::fs::create_dir_all(&source).unwrap();
    for n in 0..FILES {
        std::fs::write(source.join(n.to_string()), vec![n as u8 + 1; 100_000]).unwrap();
    }
    let fill = ["-d", source.to_str().unwrap()];
    call("mke2fs", [&["-q", "-F"][..], &fill, options, &[image.to_str().unwrap(), "32M"]].concat()).unwrap();
    image
}

fn open(image: &Path) -> Arc<dyn FileSystem> {
    open_device(Arc::new(FileDevice::open_writable(image).unwrap())).unwrap()
}

fn open_device(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>> {
    let clock = Arc::new(FixedClock(Timestamp::new(1_800_000_000, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    Ext4Driver.open(device, &options)
}

fn name(n: usize) -> Vec<u8> {
    n.to_string().into_bytes()
}

/// Removes the names of all files. Returns their inodes.
fn unlink_all(fs: &dyn FileSystem) -> Vec<Ino> {
    let unlink = |n| {
        let name = name(n);
        let name = Name::new(&name).unwrap();
        let ino = fs.lookup(fs.root(), name).unwrap();
        fs.writable().unwrap().unlink(fs.root(), name).unwrap();
        ino
    };
    (0..FILES).map(unlink).collect()
}

fn check(image: &Path) {
    call("e2fsck", ["-fn", image.to_str().unwrap()]).unwrap();
}

fn free(stat: StatFs) -> (u64, u64) {
    (stat.free, stat.free_inodes)
}

#[test]
fn an_unlinked_file_is_read_until_it_is_forgotten_and_then_its_space_is_free() {
    if !require(TOOLS) {
        return;
    }
    for options in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let fs = open(&image);
        let before = free(fs.statfs().unwrap());
        let inodes = unlink_all(&*fs);
        assert_eq!(free(fs.statfs().unwrap()), before, "{options:?}");
        let lock = LayoutLock::new();
        for (n, &ino) in inodes.iter().enumerate() {
            let attr = fs.getattr(ino).unwrap();
            assert_eq!((attr.nlink, attr.size), (0, 100_000));
            let extent = fs.map(&lock.shared(), ino, 0..100_000).unwrap();
            let obento_driver::Span::Mapped(at) = extent.span else { panic!("{extent:?}") };
            let mut byte = [99];
            fs.device().unwrap().read_at(at, &mut byte).unwrap();
            assert_eq!(byte, [n as u8 + 1]);
        }
        // From the middle of the list, at its head and at its end.
        for at in [2, 5, 0, 3, 1, 4] {
            fs.forget(inodes[at]);
            assert_eq!(fs.getattr(inodes[at]), Err(Error::Stale), "{options:?}");
        }
        let after = free(fs.statfs().unwrap());
        assert!(after.0 >= before.0 + FILES as u64 * 24 && after.1 == before.1 + FILES as u64, "{after:?}");
        fs.writable().unwrap().close().unwrap();
        check(&image);
    }
}

/// A device that fails to read one block of 1024 bytes a number of times.
struct BadBlock {
    below: Arc<MemDevice>,
    at: u64,
    failures: AtomicU32,
}

impl BlockDevice for BadBlock {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
        fn flush(&self) -> Result<()>;
        fn discard(&self, range: std::ops::Range<u64>) -> Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        let is_bad = offset < self.at + 1024 && self.at < offset + len;
        let one_less = |left: u32| left.checked_sub(1);
        if is_bad && self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(DeviceError::Read { offset, len, errno: 5 }.into());
        }
        self.below.read_at(offset, buf)
    }
}

/// Quota files count the values of attributes in inodes. The neighbour of an orphan on the list is counted before the
/// orphan is removed from the list.
#[test]
fn an_orphan_whose_attributes_cannot_be_read_stays_on_the_list_and_the_usage_stays_correct() {
    if !require(&[TOOLS, &[Oracle::Program("debugfs")]].concat()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = make(folder.path(), &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "quota,ea_inode"]);
    // mke2fs does not count the files that it copies: e2fsck does, and exits with 1.
    assert!(call("e2fsck", ["-fy", image.to_str().unwrap()]).is_err());
    let fs = open(&image);
    for n in 0..FILES {
        let ino = fs.lookup(fs.root(), Name::new(&name(n)).unwrap()).unwrap();
        fs.xattrs().unwrap().set_xattr(ino, b"user.a", &vec![n as u8; 3000], XattrMode::Create).unwrap();
    }
    fs.writable().unwrap().close().unwrap();
    drop(fs);
    // The neighbour of the orphan that is freed first.
    let stat = call("debugfs", ["-R", "stat 1", image.to_str().unwrap()]).unwrap().stdout;
    let stat = String::from_utf8(stat).unwrap();
    let number = stat.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let block: u64 = number.parse().unwrap();
    assert!(block > 0, "{stat}");
    let device = Arc::new(MemDevice::new(std::fs::read(&image).unwrap()));
    let fs = open_device(device.clone()).unwrap();
    unlink_all(&*fs);
    fs.writable().unwrap().sync().unwrap();
    let bytes = device.snapshot();
    drop(fs);
    for failures in [1, 2, u32::MAX] {
        let below = Arc::new(MemDevice::new(bytes.clone()));
        let bad = BadBlock { below: below.clone(), at: block * 1024, failures: AtomicU32::new(failures) };
        let fs = open_device(Arc::new(bad)).unwrap();
        let notices = fs.info().notices;
        let is_reported =
            |notice: &Notice| matches!(notice, Notice::Damaged(Error::Device(DeviceError::Read { .. })));
        assert!(notices.iter().any(is_reported), "{failures}: {notices:?}");
        assert_eq!(fs.writable().unwrap().sync(), Ok(()), "{failures}");
        let closed = fs.writable().unwrap().close();
        assert_eq!(closed.is_err(), failures == u32::MAX, "{closed:?}");
        drop(fs);
        if failures == u32::MAX {
            open_device(below.clone()).unwrap().writable().unwrap().close().unwrap();
        }
        std::fs::write(&image, below.snapshot()).unwrap();
        check(&image);
    }
}

#[test]
fn an_open_volume_passes_to_another_process_with_its_nameless_files() {
    if !require(TOOLS) {
        return;
    }
    for options in VOLUMES.iter().chain(&[&["-t", "ext2", "-b", "1024"][..]]) {
        let folder = tempfile::tempdir().unwrap();
        let base = std::fs::read(make(folder.path(), options)).unwrap();
        obento_testkit::trials::handover::passes_on(&Ext4Driver, &base, true);
    }
}

#[test]
fn nameless_files_pass_to_another_process_also_on_a_volume_with_errors() {
    if !require(TOOLS) {
        return;
    }
    for options in
        [&["-O", "^metadata_csum", "-t", "ext4"][..], &["-O", "^metadata_csum,orphan_file", "-t", "ext4"]]
    {
        let folder = tempfile::tempdir().unwrap();
        let device = Arc::new(MemDevice::new(std::fs::read(make(folder.path(), options)).unwrap()));
        let clock = Arc::new(FixedClock(Timestamp::new(1_800_000_000, 0)));
        let mut options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
        let first = Ext4Driver.open(device.clone(), &options).unwrap();
        let mut inodes = unlink_all(&*first);
        inodes.sort_unstable();
        let state = first.handover().unwrap().prepare().unwrap();
        let mut flags = [0];
        device.read_at(ERROR_FLAG, &mut flags).unwrap();
        device.write_at(ERROR_FLAG, &[flags[0] | 2]).unwrap();
        options.adopt = Some(Arc::new(HandoverState { inodes: inodes.clone(), state }));
        let handoff = Arc::new(Handoff::holding(device));
        let second = Ext4Driver.open(handoff.clone(), &options).unwrap();
        drop(first);
        handoff.release().unwrap();
        let before = free(second.statfs().unwrap());
        for &ino in &inodes {
            let attr = second.getattr(ino).unwrap();
            assert_eq!((attr.nlink, attr.size), (0, 100_000));
            second.forget(ino);
        }
        assert_eq!(free(second.statfs().unwrap()).1, before.1 + FILES as u64);
        second.writable().unwrap().close().unwrap();
    }
}

#[test]
fn a_crash_frees_inodes_without_names() {
    if !require(TOOLS) {
        return;
    }
    for options in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let fs = open(&image);
        let before = free(fs.statfs().unwrap());
        let inodes = unlink_all(&*fs);
        fs.forget(inodes[3]);
        fs.writable().unwrap().sync().unwrap();
        drop(fs);
        let by_e2fsck = folder.path().join("copy");
        std::fs::copy(&image, &by_e2fsck).unwrap();
        let fs = open(&image);
        let after = free(fs.statfs().unwrap());
        assert!(after.0 >= before.0 + FILES as u64 * 24 && after.1 == before.1 + FILES as u64, "{options:?}");
        fs.writable().unwrap().close().unwrap();
        check(&image);
        // e2fsck returns 1 if it repaired something, which includes orphans.
        let fixed = obento_testkit::oracle::program("e2fsck").arg("-fp").arg(&by_e2fsck).output().unwrap();
        assert!(matches!(fixed.status.code(), Some(0 | 1)), "{options:?} {fixed:?}");
        check(&by_e2fsck);
        let ours = common::open(&by_e2fsck).unwrap();
        assert_eq!(free(ours.statfs().unwrap()), after, "{options:?}");
    }
}

#[test]
fn the_kernel_and_obento_free_the_orphans_of_each_other() {
    if !require(KERNEL) {
        return;
    }
    for options in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let left_by_the_kernel = folder.path().join("copy");
        dirty_copy(&image, "", &left_by_the_kernel, |mount| {
            let files: Vec<_> = (0..FILES).map(|n| File::open(mount.join(n.to_string())).unwrap()).collect();
            (0..FILES).for_each(|n| std::fs::remove_file(mount.join(n.to_string())).unwrap());
            call("sync", ["-f", mount.to_str().unwrap()])?;
            let mut byte = [9];
            files[2].read_exact_at(&mut byte, 0)?;
            anyhow::ensure!(byte == [3]);
            Ok(())
        })
        .unwrap();
        let fs = open(&left_by_the_kernel);
        let ours = free(fs.statfs().unwrap());
        fs.writable().unwrap().close().unwrap();
        check(&left_by_the_kernel);

        let image = make(folder.path(), options);
        let fs = open(&image);
        unlink_all(&*fs);
        fs.writable().unwrap().sync().unwrap();
        drop(fs);
        LoopMount::new(&image, "").unwrap().unmount().unwrap();
        check(&image);
        let theirs = free(common::open(&image).unwrap().statfs().unwrap());
        assert_eq!(ours, theirs, "{options:?}");
    }
}
