//! Inodes that lost their last name while they were in use. They are freed when they are forgotten. After a crash, the
//! next program that opens the volume frees them: the kernel, e2fsck or obento.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::{Error, Ino, Name, Timestamp};
use obento_block::{BlockDevice as _, Handoff, MemDevice};
use obento_driver::{Access, Driver, FileSystem, HandoverState, LayoutLock, OpenOptions, StatFs};
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
    let clock = Arc::new(FixedClock(Timestamp::new(1_800_000_000, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    Ext4Driver.open(Arc::new(FileDevice::open_writable(image).unwrap()), &options).unwrap()
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
