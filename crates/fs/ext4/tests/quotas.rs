//! Quota files: after any changes, they contain the usage that `e2fsck` counts.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::volumes::e2fsck_file;
use obento_base::{DeviceNumber, Error, FileFlags, FileKind, Ino, Mode, Name, NameBuf, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Access, Driver as _, FileSystem, LayoutLock, NewNode, OpenOptions, RemovalKind, SetAttr, Size, Usage,
    XattrMode,
};
use obento_env::FixedClock;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::crash::{self, SeenStates};
use obento_testkit::oracle::{call, program, run};
use obento_testkit::record::{Event, RecordDevice};
use obento_testkit::{Oracle, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Program("debugfs")];

fn make(folder: &Path, options: &[&str]) -> std::path::PathBuf {
    let image = folder.join("image");
    run(program("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-N", "2048"])
        .args(options)
        .arg(&image)
        .arg("32M"))
    .unwrap();
    image
}

fn open(image: &Path) -> obento_base::Result<Arc<dyn FileSystem>> {
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    Ext4Driver.open(Arc::new(FileDevice::open_writable(image).unwrap()), &options)
}

fn name(text: &str) -> NameBuf {
    Name::new(text.as_bytes()).unwrap().to_buf()
}

fn node(kind: FileKind, uid: u32, gid: u32) -> NewNode<'static> {
    let target: &[u8] = if kind == FileKind::Symlink { &[b'x'; 200] } else { b"" };
    NewNode { kind, mode: Mode::new(0o644), uid, gid, rdev: DeviceNumber::default(), target }
}

/// Returns the lines of `debugfs` about the owners of a kind: number, bytes, inodes.
fn usage(image: &Path, kind: &str) -> Vec<(u32, u64, u64)> {
    let args = ["-R", &format!("list_quota {kind}"), image.to_str().unwrap()];
    let text = String::from_utf8(call("debugfs", args).unwrap().stdout).unwrap();
    let lines = text.lines().filter_map(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some((u32::try_from(*numbers.first()?).ok()?, *numbers.get(1)?, *numbers.get(4)?))
    });
    lines.collect()
}

const VOLUMES: &[&[&str]] = &[
    &["-O", "quota,project,orphan_file", "-b", "1024"],
    &["-O", "quota,project", "-b", "4096"],
    &["-O", "quota,project,bigalloc,^resize_inode", "-b", "4096", "-C", "16384"],
    &["-O", "quota,project,^extents,^64bit", "-b", "2048"],
    &["-O", "quota,project,^has_journal,inline_data", "-b", "1024"],
    &["-E", "quotatype=usrquota", "-O", "quota", "-b", "1024"],
    &["-O", "quota,ea_inode", "-b", "1024", "-I", "128"],
    &["-O", "quota,project,ea_inode,inline_data,orphan_file", "-b", "4096"],
    &["-O", "quota,ea_inode,bigalloc,^resize_inode", "-b", "1024", "-C", "8192"],
];

/// Sets attributes. With `ea_inode`, some values are in inodes, in the inode or in the block of the file, and shared by
/// several files. Returns the number of values that were set and are longer than any block: they are in inodes.
fn change_attributes(fs: &dyn FileSystem, ino: Ino, n: u32) -> u32 {
    let xattrs = fs.xattrs().unwrap();
    let mut in_inodes = 0;
    let mut set = |name: &[u8], len: u32, byte: u32| {
        let value = vec![byte as u8; len as usize];
        match xattrs.set_xattr(ino, name, &value, XattrMode::Set) {
            Ok(()) => in_inodes += u32::from(len > 4096),
            Err(Error::NoSpace | Error::NotSupported) => {}
            Err(error) => panic!("{n}: {error}"),
        }
    };
    set(b"user.own", 2000 + n * 10, n);
    set(b"user.shared", 5000, 1);
    set(b"user.small", 60, n);
    set(b"user.other", 3000, n % 2);
    if n.is_multiple_of(3) {
        set(b"user.own", 9000, n);
        set(b"user.other", 30, n);
    }
    if n.is_multiple_of(4) {
        xattrs.remove_xattr(ino, b"user.shared").ok();
    }
    in_inodes
}

/// Creates files of many owners, changes owners, sizes and projects, and removes some of the files. Returns the sum of
/// [`change_attributes`].
fn change_all(fs: &dyn FileSystem) -> u32 {
    let mut in_inodes = 0;
    let (writable, lock, root) = (fs.writable().unwrap(), LayoutLock::new(), fs.root());
    let owner = |n: u32| n.wrapping_mul(0x0103_0507);
    let dir = writable.create(root, &name("projects"), &node(FileKind::Directory, 1, 1)).unwrap().ino;
    let flags = FileFlags::PROJECT_INHERIT;
    let inherit = SetAttr { project: Some(77), flags: Some(flags), ..SetAttr::default() };
    let has_projects = writable.set_attr(dir, &inherit).is_ok();
    for n in 0..400_u32 {
        let kind =
            [FileKind::Regular, FileKind::Regular, FileKind::Directory, FileKind::Symlink][n as usize % 4];
        let parent = if n % 3 == 0 { dir } else { root };
        let ino = writable.create(parent, &name(&n.to_string()), &node(kind, owner(n), n % 40)).unwrap().ino;
        if kind == FileKind::Regular
            && writable.allocate(&lock.shared(), ino, 0..u64::from(n) * 100 + 1, Size::Grow).is_err()
        {
            let bytes = vec![1; 3000];
            writable.write(&lock.shared(), ino, 0, &bytes).ok();
        }
        if n.is_multiple_of(5) {
            in_inodes += change_attributes(fs, ino, n);
        }
        match n % 7 {
            0 => drop(
                writable
                    .set_attr(ino, &SetAttr { uid: Some(owner(n / 2)), gid: Some(9), ..SetAttr::default() })
                    .unwrap(),
            ),
            1 if has_projects => {
                writable
                    .set_attr(ino, &SetAttr { project: Some(n), ..SetAttr::default() })
                    .map(|_| ())
                    .unwrap();
            }
            2 if kind == FileKind::Regular => writable.truncate(&lock.exclusive(), ino, 100).unwrap(),
            3 if kind != FileKind::Directory => {
                writable.unlink(parent, &name(&n.to_string())).unwrap();
                if n % 2 == 0 {
                    fs.forget(ino);
                }
            }
            _ => {}
        }
    }
    in_inodes
}

#[test]
fn quota_files_contain_the_usage_of_every_owner_after_any_changes() {
    if !require(TOOLS) {
        return;
    }
    for options in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let before = usage(&image, "user").len();
        let fs = open(&image).unwrap();
        let has_value_inodes = options.iter().any(|option| option.contains("ea_inode"));
        assert_eq!(change_all(&*fs) > 0, has_value_inodes, "{options:?}");
        fs.writable().unwrap().close().unwrap();
        drop(fs);
        e2fsck_file(&image).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let after = usage(&image, "user");
        assert!(after.len() > before + 250, "{options:?}: {after:?}");
        assert!(after.iter().filter(|(_, _, inodes)| *inodes > 0).count() > 250, "{options:?}: {after:?}");
        // A volume that already contains all entries.
        let fs = open(&image).unwrap();
        let root = fs.root();
        for n in (0..400_u32).step_by(10) {
            let Ok(ino) = fs.lookup(root, &name(&n.to_string())) else { continue };
            change_attributes(&*fs, ino, n + 2);
            let owner = SetAttr { uid: Some(n), gid: Some(n), ..SetAttr::default() };
            fs.writable().unwrap().set_attr(ino, &owner).unwrap();
        }
        for n in (0..400_u32).filter(|n| n % 3 != 0) {
            let Ok(ino) = fs.lookup(root, &name(&n.to_string())) else { continue };
            let kind = fs.getattr(ino).unwrap().kind;
            let kind =
                if kind == FileKind::Directory { RemovalKind::EmptyDirectory } else { RemovalKind::File };
            fs.writable()
                .unwrap()
                .remove(root, &name(&n.to_string()), kind, &mut |_| Ok(Usage::Unused))
                .unwrap();
        }
        fs.writable().unwrap().close().unwrap();
        drop(fs);
        e2fsck_file(&image).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    }
}

#[test]
fn a_defective_quota_file_is_refused_or_costs_only_its_counts() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = make(folder.path(), &["-O", "quota", "-b", "1024"]);
    let block = |at: u32| -> u64 {
        let args = ["-R", &format!("bmap <3> {at}"), image.to_str().unwrap()];
        String::from_utf8(call("debugfs", args).unwrap().stdout).unwrap().trim().parse().unwrap()
    };
    let sound = std::fs::read(&image).unwrap();
    let put = |at: u32, offset: u64, bytes: &[u8]| {
        let mut damaged = sound.clone();
        let start = usize::try_from(block(at) * 1024 + offset).unwrap();
        damaged[start..start + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&image, damaged).unwrap();
    };
    let (header, root, digit) = (block(0), block(1), 0_u64);
    assert!(header != root);
    put(0, 0, b"????");
    assert!(matches!(open(&image).err(), Some(Error::Corrupt(_))));
    // The root of the tree leads outside the file.
    put(1, digit, &9_999_u32.to_le_bytes());
    let fs = open(&image).unwrap();
    let writable = fs.writable().unwrap();
    let made = writable.create(fs.root(), &name("file"), &node(FileKind::Regular, 5, 5));
    assert!(matches!(made, Err(Error::Corrupt(_))), "{made:?}");
    let stamp = SetAttr { mode: Some(Mode::new(0o700)), ..SetAttr::default() };
    writable.set_attr(fs.root(), &stamp).unwrap();
    writable.close().unwrap();
    drop(fs);
    // The entry of the root's owner is missing: it is created again when its usage changes.
    put(1, digit, &[0; 4]);
    let fs = open(&image).unwrap();
    let (writable, root) = (fs.writable().unwrap(), fs.root());
    let found = fs.lookup(root, &name("lost+found")).unwrap();
    writable
        .remove(root, &name("lost+found"), RemovalKind::EmptyDirectory, &mut |_| Ok(Usage::Unused))
        .unwrap();
    fs.forget(found);
    writable.create(root, &name("file"), &node(FileKind::Regular, 0, 0)).unwrap();
    writable.close().unwrap();
    drop(fs);
    // The lost entry is still in its block.
    assert_eq!(usage(&image, "user").iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [0, 0]);
}

/// Asserts that after a power failure at any write the volume opens, and `e2fsck` accepts it and its quota files.
#[track_caller]
fn expect_consistent(base: &Arc<[u8]>, mut events: Vec<Event>, options: &OpenOptions, seed: u64) {
    events.push(Event::Flush);
    // Without torn writes: one of the super block requires a check.
    let limits = crash::Options { whole: 64..128, samples: 2, torn: 0, ..crash::Options::new(seed) };
    let summary = crash::explore(base, &events, &limits, &SeenStates::default(), &mut |state| {
        let device: Arc<dyn BlockDevice> = state.device.clone();
        let fs = Ext4Driver.open(device.clone(), options).map_err(|error| error.to_string())?;
        fs.writable().unwrap().close().map_err(|error| error.to_string())?;
        drop(fs);
        common::volumes::e2fsck(&*device)
    });
    assert_eq!(summary.failures, []);
    assert!(summary.judged > 24, "{summary:?}");
}

/// A new entry and the inode that is charged to it are in transactions of their own. Commits between them, and power
/// failures at any write, leave files that `e2fsck` accepts.
#[test]
fn a_commit_between_a_new_entry_and_its_first_inode_leaves_correct_files() {
    if !require(TOOLS) {
        return;
    }
    let base: Arc<[u8]> = common::volumes::QUOTAS.bytes();
    let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = Ext4Driver.open(device.clone(), &options).unwrap();
    let is_done = AtomicBool::new(false);
    let (mut events, mut flushes) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                fs.writable().unwrap().sync().unwrap();
            }
        });
        // The other thread may get no time for a while.
        for n in 0..400_u32 {
            if n >= 24 && flushes >= 24 {
                break;
            }
            // Each owner needs other nodes of the trees.
            let (uid, gid) = (n.wrapping_mul(0x0107_0301), n.wrapping_mul(0x0001_0901));
            let new = node(FileKind::Regular, uid, gid);
            fs.writable().unwrap().create(fs.root(), &name(&n.to_string()), &new).unwrap();
            std::thread::yield_now();
            let since = device.take_events();
            flushes += since.iter().filter(|event| matches!(event, Event::Flush)).count();
            events.extend(since);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    fs.writable().unwrap().close().unwrap();
    drop(fs);
    assert!(flushes >= 24, "{flushes}");
    events.extend(device.take_events());
    expect_consistent(&base, events, &options, 5);
}

/// The owner of a file is charged for the values of its attributes in the transaction that changes them: `e2fsck` accepts
/// the quota files after a power failure at any write.
#[test]
fn values_in_inodes_are_charged_in_the_transaction_that_changes_them() {
    if !require(TOOLS) {
        return;
    }
    let base: Arc<[u8]> = common::volumes::VALUES_WITH_QUOTAS.bytes();
    let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = Ext4Driver.open(device.clone(), &options).unwrap();
    let (writable, xattrs, root) = (fs.writable().unwrap(), fs.xattrs().unwrap(), fs.root());
    let files = [5, 6].map(|uid| {
        let new = node(FileKind::Regular, uid, uid);
        writable.create(root, &name(&uid.to_string()), &new).unwrap().ino
    });
    let set = |file: usize, name: &[u8], len: usize| {
        xattrs.set_xattr(files[file], name, &vec![1; len], XattrMode::Set).unwrap();
        writable.sync().unwrap();
    };
    set(0, b"user.a", 3000);
    set(1, b"user.a", 3000);
    set(0, b"user.b", 700);
    set(0, b"user.a", 9000);
    writable.set_attr(files[0], &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    writable.sync().unwrap();
    set(0, b"user.a", 10);
    set(0, b"user.b", 3000);
    xattrs.remove_xattr(files[1], b"user.a").unwrap();
    writable.unlink(root, &name("5")).unwrap();
    writable.sync().unwrap();
    fs.forget(files[0]);
    writable.close().unwrap();
    drop(fs);
    expect_consistent(&base, device.take_events(), &options, 6);
}
