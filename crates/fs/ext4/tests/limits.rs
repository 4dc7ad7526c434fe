//! Limits of users, groups and projects: no change exceeds them, no change within them fails, and no accepted byte is
//! lost.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::volumes::e2fsck_file;
use obento_base::{DeviceNumber, Error, FileFlags, FileKind, Ino, Mode, Name, NameBuf, Result, Timestamp};
use obento_driver::{
    Access, DataMode, Driver as _, FileSystem, Journalling, LayoutLock, NewNode, OpenOptions, QuotaLimits,
    RemovalKind, SetAttr, Size, Span, TimeChange, Usage, XattrMode,
};
use obento_env::FixedClock;
use obento_env::thread::without_limits;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::oracle::{program, run};
use obento_testkit::quota::{OwnerKind, OwnerLimits, limits, set_limits};
use obento_testkit::{Oracle, require};
use obento_vfs::Vfs;

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Program("debugfs")];
const NOW: i64 = 1_700_000_000;
const USER: u32 = 1000;
const GROUP: u32 = 2000;
const PROJECT: u32 = 3000;

fn name(text: &str) -> NameBuf {
    Name::new(text.as_bytes()).unwrap().to_buf()
}

fn node(kind: FileKind, uid: u32, gid: u32) -> NewNode<'static> {
    let target: &[u8] = if kind == FileKind::Symlink { &[b'x'; 200] } else { b"" };
    NewNode { kind, mode: Mode::new(0o644), uid, gid, rdev: DeviceNumber::default(), target }
}

/// An image whose owners have entries.
struct Disk {
    _folder: tempfile::TempDir,
    image: PathBuf,
}

impl Disk {
    fn new(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let features = ["-O", "quota,project", "-q", "-F", "-t", "ext4", "-N", "2048"];
        run(program("mke2fs").args(features).args(options).arg(&image).arg("16M")).unwrap();
        let disk = Self { _folder: folder, image };
        let fs = disk.open();
        let file = create(&*fs, fs.root(), "owners", FileKind::Regular).unwrap();
        let project = SetAttr { project: Some(PROJECT), ..SetAttr::default() };
        fs.writable().unwrap().set_attr(file, &project).unwrap();
        remove(&*fs, "owners");
        disk.close(fs);
        disk
    }

    fn set(&self, kind: OwnerKind, id: u32, new: OwnerLimits) -> &Self {
        set_limits(&self.image, kind, id, &new);
        self
    }

    fn open(&self) -> Arc<dyn FileSystem> {
        self.open_at(NOW, DataMode::Ordered)
    }

    fn open_at(&self, now: i64, mode: DataMode) -> Arc<dyn FileSystem> {
        self.try_open(now, mode).unwrap()
    }

    fn try_open(&self, now: i64, mode: DataMode) -> Result<Arc<dyn FileSystem>> {
        let clock = Arc::new(FixedClock(Timestamp::new(now, 0)));
        let journalling = Journalling { mode, ..Journalling::default() };
        let limits = QuotaLimits::all();
        let options =
            OpenOptions { access: Access::ReadWrite, limits, journalling, ..OpenOptions::new(clock) };
        Ext4Driver.open(Arc::new(FileDevice::open_writable(&self.image).unwrap()), &options)
    }

    fn close(&self, fs: Arc<dyn FileSystem>) {
        fs.writable().unwrap().close().unwrap();
        drop(fs);
        e2fsck_file(&self.image).unwrap();
    }

    fn bytes(&self, kind: OwnerKind, id: u32) -> u64 {
        limits(&self.image, kind, id).1[1]
    }
}

fn create(fs: &dyn FileSystem, dir: Ino, text: &str, kind: FileKind) -> Result<Ino> {
    fs.writable().unwrap().create(dir, &name(text), &node(kind, USER, GROUP)).map(|attr| attr.ino)
}

fn remove(fs: &dyn FileSystem, text: &str) {
    let ino = fs.lookup(fs.root(), &name(text)).unwrap();
    let ask = &mut |_: &_| Ok(Usage::Used);
    fs.writable().unwrap().remove(fs.root(), &name(text), RemovalKind::File, ask).unwrap();
    fs.forget(ino);
}

/// Writes `len` bytes of data, as the library does. Returns the number of accepted bytes, and the error.
fn write(fs: &dyn FileSystem, ino: Ino, start: u64, len: u64) -> (u64, Option<Error>) {
    let (lock, writable) = (LayoutLock::new(), fs.writable().unwrap());
    let layout = lock.shared();
    let mut at = start;
    while at < start + len {
        let ticket = match writable.begin_write(&layout, ino, at..start + len) {
            Ok(ticket) => ticket,
            Err(error) => return (at - start, Some(error)),
        };
        let step = match ticket.extent().span {
            Span::Mapped(_) => {
                let end = ticket.range().end;
                writable.end_write(ticket, TimeChange::Now).map(|()| end - at)
            }
            _ => {
                drop(ticket);
                let bytes = vec![7; (start + len - at) as usize];
                writable.write(&layout, ino, at, &bytes).map(|done| done as u64)
            }
        };
        match step {
            Ok(step) => at += step,
            Err(error) => return (at - start, Some(error)),
        }
    }
    (len, None)
}

const KIB: u64 = 1024;

fn space(hard_space: u64) -> OwnerLimits {
    OwnerLimits { hard_space, ..OwnerLimits::default() }
}

const SHAPES: &[(&[&str], DataMode)] = &[
    (&["-b", "1024"], DataMode::Ordered),
    (&["-b", "4096"], DataMode::Ordered),
    (&["-b", "1024"], DataMode::Journal),
    (&["-b", "1024", "-O", "^extents,^64bit"], DataMode::Ordered),
    (&["-b", "1024", "-O", "^has_journal,inline_data"], DataMode::Ordered),
];

#[test]
fn data_is_accepted_up_to_the_hard_limit_and_no_further() {
    if !require(TOOLS) {
        return;
    }
    for (options, mode) in SHAPES {
        for (kind, id) in [(OwnerKind::User, USER), (OwnerKind::Group, GROUP)] {
            let disk = Disk::new(options);
            disk.set(kind, id, space(100));
            let fs = disk.open_at(NOW, *mode);
            let file = create(&*fs, fs.root(), "f", FileKind::Regular).unwrap();
            let (done, error) = write(&*fs, file, 0, 300 * KIB);
            assert_eq!(error, Some(Error::QuotaExceeded), "{options:?}");
            // Index blocks are charged, but never refused.
            assert!((96 * KIB..=100 * KIB).contains(&done), "{options:?} {done}");
            assert_eq!(write(&*fs, file, 0, 90 * KIB), (90 * KIB, None), "data is overwritten");
            fs.writable().unwrap().sync().unwrap();
            disk.close(fs);
            let used = disk.bytes(kind, id);
            assert!((96 * KIB..=102 * KIB).contains(&used), "{options:?} {used}");
            // A process without limits, and another owner.
            let fs = disk.open_at(NOW, *mode);
            let file = fs.lookup(fs.root(), &name("f")).unwrap();
            assert_eq!(write(&*fs, file, 400 * KIB, 8 * KIB).1, Some(Error::QuotaExceeded));
            assert_eq!(without_limits(|| write(&*fs, file, 400 * KIB, 8 * KIB)), (8 * KIB, None));
            let other = fs.writable().unwrap().create(fs.root(), &name("o"), &node(FileKind::Regular, 1, 1));
            assert_eq!(write(&*fs, other.unwrap().ino, 0, 300 * KIB), (300 * KIB, None));
            // Removed data makes room.
            remove(&*fs, "f");
            let file = create(&*fs, fs.root(), "g", FileKind::Regular).unwrap();
            assert_eq!(write(&*fs, file, 0, 64 * KIB), (64 * KIB, None));
            disk.close(fs);
        }
    }
}

#[test]
fn reserved_space_counts_until_it_is_given_back() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(OwnerKind::User, USER, space(64));
    let fs = disk.open();
    let (lock, writable) = (LayoutLock::new(), fs.writable().unwrap());
    let layout = lock.shared();
    let [a, b] = ["a", "b"].map(|text| create(&*fs, fs.root(), text, FileKind::Regular).unwrap());
    let ticket = writable.begin_write(&layout, a, 0..60 * KIB).unwrap();
    assert_eq!(ticket.range(), 0..60 * KIB);
    assert_eq!(write(&*fs, b, 0, 8 * KIB), (4 * KIB, Some(Error::QuotaExceeded)));
    drop(ticket);
    assert_eq!(write(&*fs, b, 4 * KIB, 8 * KIB), (8 * KIB, None));
    // Space ahead of an append is not charged.
    assert_eq!(write(&*fs, a, 0, 70 * KIB), (52 * KIB, Some(Error::QuotaExceeded)));
    disk.close(fs);
    assert_eq!(disk.bytes(OwnerKind::User, USER), 64 * KIB);
}

#[test]
fn a_file_that_gets_a_new_owner_counts_with_the_blocks_that_are_being_written() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(OwnerKind::User, USER, OwnerLimits { hard_inodes: 2, ..space(64) });
    let fs = disk.open();
    let (lock, writable, root) = (LayoutLock::new(), fs.writable().unwrap(), fs.root());
    let layout = lock.shared();
    // The first owner has no limits.
    let [a, b, c] = ["a", "b", "c"]
        .map(|text| writable.create(root, &name(text), &node(FileKind::Regular, 1, GROUP)).unwrap().ino);
    let owner = SetAttr { uid: Some(USER), ..SetAttr::default() };
    let ticket = writable.begin_write(&layout, a, 0..65 * KIB).unwrap();
    assert_eq!(ticket.range(), 0..65 * KIB);
    assert_eq!(writable.set_attr(a, &owner), Err(Error::QuotaExceeded));
    drop(ticket);
    let ticket = writable.begin_write(&layout, a, 0..60 * KIB).unwrap();
    writable.set_attr(a, &owner).unwrap();
    writable.set_attr(b, &owner).unwrap();
    assert_eq!(write(&*fs, b, 0, 8 * KIB), (4 * KIB, Some(Error::QuotaExceeded)));
    writable.end_write(ticket, TimeChange::Now).unwrap();
    assert_eq!(write(&*fs, b, 4 * KIB, 4 * KIB), (0, Some(Error::QuotaExceeded)));
    // A file without a name counts until it is forgotten.
    let ask = &mut |_: &_| Ok(Usage::Used);
    writable.remove(root, &name("c"), RemovalKind::File, ask).unwrap();
    assert_eq!(writable.set_attr(c, &owner), Err(Error::QuotaExceeded));
    fs.forget(c);
    disk.close(fs);
    assert_eq!(disk.bytes(OwnerKind::User, USER), 64 * KIB);
}

#[test]
fn allocated_ranges_directories_links_and_attributes_are_within_the_limit() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(OwnerKind::User, USER, space(32));
    let fs = disk.open();
    let (lock, writable, root) = (LayoutLock::new(), fs.writable().unwrap(), fs.root());
    let file = create(&*fs, root, "f", FileKind::Regular).unwrap();
    let refused = writable.allocate(&lock.shared(), file, 0..40 * KIB, Size::Grow);
    assert_eq!(refused, Err(Error::QuotaExceeded));
    writable.truncate(&lock.exclusive(), file, 0).unwrap();
    writable.allocate(&lock.shared(), file, 0..30 * KIB, Size::Grow).unwrap();
    let dir = create(&*fs, root, "d", FileKind::Directory).unwrap();
    create(&*fs, root, "l", FileKind::Symlink).unwrap();
    // 32 KiB are used.
    assert_eq!(create(&*fs, root, "e", FileKind::Directory), Err(Error::QuotaExceeded));
    assert_eq!(create(&*fs, root, "k", FileKind::Symlink), Err(Error::QuotaExceeded));
    let xattrs = fs.xattrs().unwrap();
    let value = [1; 900];
    assert_eq!(xattrs.set_xattr(file, b"user.x", &value, XattrMode::Set), Err(Error::QuotaExceeded));
    xattrs.set_xattr(file, b"user.y", b"small", XattrMode::Set).unwrap();
    let full = (0..200).map(|n| create(&*fs, dir, &format!("{n:0>60}"), FileKind::Regular));
    let full: Vec<_> = full.take_while(Result::is_ok).collect();
    assert!((10..16).contains(&full.len()), "{}", full.len());
    assert_eq!(create(&*fs, dir, &"x".repeat(60), FileKind::Regular), Err(Error::QuotaExceeded));
    without_limits(|| create(&*fs, dir, &"x".repeat(60), FileKind::Regular)).unwrap();
    disk.close(fs);
    // A directory of two blocks is one of three blocks with its index.
    assert_eq!(disk.bytes(OwnerKind::User, USER), 34 * KIB);
}

#[test]
fn inodes_are_created_up_to_the_hard_limit_and_names_of_them_further() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(OwnerKind::User, USER, OwnerLimits { hard_inodes: 4, ..OwnerLimits::default() });
    let fs = disk.open();
    let (writable, root) = (fs.writable().unwrap(), fs.root());
    let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Fifo];
    let made: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(n, &kind)| create(&*fs, root, &n.to_string(), kind).unwrap())
        .collect();
    for (n, kind) in kinds.into_iter().enumerate() {
        assert_eq!(create(&*fs, root, &format!("more{n}"), kind), Err(Error::QuotaExceeded));
    }
    let nameless = fs.nameless().unwrap().create_nameless(root, &node(FileKind::Regular, USER, GROUP));
    assert_eq!(nameless.map(|attr| attr.ino), Err(Error::QuotaExceeded));
    writable.link(made[0], root, &name("again")).unwrap();
    let theirs = writable.create(root, &name("theirs"), &node(FileKind::Regular, 5, GROUP)).unwrap().ino;
    let given = SetAttr { uid: Some(USER), ..SetAttr::default() };
    assert_eq!(writable.set_attr(theirs, &given), Err(Error::QuotaExceeded));
    assert_eq!(fs.getattr(theirs).unwrap().uid, 5);
    without_limits(|| writable.set_attr(theirs, &given)).unwrap();
    // The owner keeps what exceeds the limit, and may give it away.
    let same = SetAttr { uid: Some(USER), mode: Some(Mode::new(0o600)), ..SetAttr::default() };
    writable.set_attr(theirs, &same).unwrap();
    writable.set_attr(theirs, &SetAttr { uid: Some(6), ..SetAttr::default() }).unwrap();
    remove(&*fs, "again");
    remove(&*fs, "0");
    create(&*fs, root, "room", FileKind::Regular).unwrap();
    disk.close(fs);
    assert_eq!(limits(&disk.image, OwnerKind::User, USER).1[0], 4);
}

#[test]
fn a_soft_limit_binds_when_its_grace_period_has_ended() {
    if !require(TOOLS) {
        return;
    }
    const WEEK: i64 = 7 * 24 * 60 * 60;
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(
        OwnerKind::User,
        USER,
        OwnerLimits { soft_space: 10, hard_space: 100, soft_inodes: 2, ..OwnerLimits::default() },
    );
    let fs = disk.open();
    let file = create(&*fs, fs.root(), "f", FileKind::Regular).unwrap();
    assert_eq!(write(&*fs, file, 0, 10 * KIB), (10 * KIB, None));
    disk.close(fs);
    assert_eq!(limits(&disk.image, OwnerKind::User, USER).0.space_deadline, 0);
    let fs = disk.open_at(NOW + 10, DataMode::Ordered);
    assert_eq!(write(&*fs, file, 10 * KIB, 10 * KIB), (10 * KIB, None));
    disk.close(fs);
    let found = limits(&disk.image, OwnerKind::User, USER).0;
    assert_eq!((found.space_deadline as i64, found.inode_deadline), (NOW + 10 + WEEK, 0));
    // The period starts once.
    let fs = disk.open_at(NOW + 10 + WEEK - 1, DataMode::Ordered);
    assert_eq!(write(&*fs, file, 20 * KIB, KIB), (KIB, None));
    disk.close(fs);
    assert_eq!(limits(&disk.image, OwnerKind::User, USER).0.space_deadline as i64, NOW + 10 + WEEK);
    let fs = disk.open_at(NOW + 10 + WEEK, DataMode::Ordered);
    assert_eq!(write(&*fs, file, 21 * KIB, KIB), (0, Some(Error::QuotaExceeded)));
    assert_eq!(without_limits(|| write(&*fs, file, 21 * KIB, KIB)), (KIB, None));
    // Below the soft limit, the period ends.
    fs.writable().unwrap().truncate(&LayoutLock::new().exclusive(), file, 4 * KIB).unwrap();
    assert_eq!(write(&*fs, file, 4 * KIB, 10 * KIB), (10 * KIB, None));
    disk.close(fs);
    let found = limits(&disk.image, OwnerKind::User, USER).0;
    assert_eq!(found.space_deadline as i64, NOW + 10 + 2 * WEEK);
}

#[test]
fn a_grace_period_goes_on_if_a_file_replaces_another_in_one_commit() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&[]);
    let fs = disk.open();
    let old = create(&*fs, fs.root(), "old", FileKind::Regular).unwrap();
    assert_eq!(write(&*fs, old, 0, 32 * KIB), (32 * KIB, None));
    disk.close(fs);
    let soft = OwnerLimits { soft_space: 20, space_deadline: 12_345, ..OwnerLimits::default() };
    disk.set(OwnerKind::User, USER, soft);
    // Limits are not enforced, so no deadline is set again.
    let clock = Arc::new(FixedClock(Timestamp::new(NOW, 0)));
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let device = Arc::new(FileDevice::open_writable(&disk.image).unwrap());
    let fs = Ext4Driver.open(device, &options).unwrap();
    remove(&*fs, "old");
    let new = create(&*fs, fs.root(), "new", FileKind::Regular).unwrap();
    assert_eq!(write(&*fs, new, 0, 32 * KIB), (32 * KIB, None));
    disk.close(fs);
    assert_eq!(limits(&disk.image, OwnerKind::User, USER).0, soft);
}

#[test]
fn the_limits_of_a_project_bind_its_directory_and_are_the_size_that_users_see_there() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(
        OwnerKind::Project,
        PROJECT,
        OwnerLimits { hard_space: 50, hard_inodes: 5, ..OwnerLimits::default() },
    );
    let fs = disk.open();
    let (writable, root) = (fs.writable().unwrap(), fs.root());
    let dir = create(&*fs, root, "d", FileKind::Directory).unwrap();
    let whole = fs.statfs().unwrap();
    assert_eq!(fs.statfs_at(dir).unwrap(), whole);
    let member =
        SetAttr { project: Some(PROJECT), flags: Some(FileFlags::PROJECT_INHERIT), ..SetAttr::default() };
    writable.set_attr(dir, &member).unwrap();
    let file = create(&*fs, dir, "f", FileKind::Regular).unwrap();
    assert_eq!(write(&*fs, file, 0, 9 * KIB), (9 * KIB, None));
    let seen = fs.statfs_at(dir).unwrap();
    let found = (seen.blocks, seen.free, seen.available, seen.inodes, seen.free_inodes);
    assert_eq!(found, (50, 40, 40, 5, 3));
    assert_eq!(write(&*fs, file, 9 * KIB, 60 * KIB), (40 * KIB, Some(Error::QuotaExceeded)));
    assert_eq!(fs.statfs_at(dir).unwrap().free, 0);
    // Only directories that pass on their project.
    assert_eq!(fs.statfs_at(file).unwrap(), fs.statfs().unwrap());
    let outside = create(&*fs, root, "o", FileKind::Regular).unwrap();
    assert_eq!(write(&*fs, outside, 0, 60 * KIB), (60 * KIB, None));
    assert_eq!(writable.link(outside, dir, &name("in")).map(|_| ()), Err(Error::CrossDevice));
    let into = SetAttr { project: Some(PROJECT), ..SetAttr::default() };
    assert_eq!(writable.set_attr(outside, &into), Err(Error::QuotaExceeded));
    let names = (0..).map_while(|n| create(&*fs, dir, &n.to_string(), FileKind::Regular).ok()).count();
    assert_eq!(names, 3);
    disk.close(fs);
}

#[test]
fn the_usage_is_seen_in_a_damaged_directory_with_and_without_limits() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    let fs = disk.open();
    let dir = create(&*fs, fs.root(), "d", FileKind::Directory).unwrap();
    disk.close(fs);
    let damage = format!("set_inode_field <{dir}> mode 0");
    run(program("debugfs").args(["-w", "-R", &damage]).arg(&disk.image)).unwrap();
    for hard_space in [0, 64] {
        disk.set(OwnerKind::User, USER, space(hard_space));
        let fs = disk.open();
        assert!(fs.getattr(dir).is_err());
        assert_eq!(fs.statfs_at(dir), fs.statfs());
        fs.writable().unwrap().close().unwrap();
    }
}

#[test]
fn gathered_appends_are_accepted_only_with_room_for_them() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(OwnerKind::User, USER, space(300));
    let fs = disk.open();
    let file = create(&*fs, fs.root(), "f", FileKind::Regular).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs));
    let node = vfs.node(file).unwrap();
    let mut accepted = 0;
    let error = loop {
        match node.write_at(accepted, &[3; 100]) {
            Ok(len) => accepted += len as u64,
            Err(error) => break error,
        }
    };
    assert_eq!((error, accepted), (Error::QuotaExceeded, 300 * KIB));
    node.sync().unwrap();
    drop(node);
    vfs.sync().unwrap();
    drop(vfs);
    assert_eq!(fs.getattr(file).unwrap().size, accepted);
    disk.close(fs);
    assert_eq!(disk.bytes(OwnerKind::User, USER), 300 * KIB);
}

#[test]
fn threads_never_exceed_a_limit_together() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    disk.set(
        OwnerKind::Group,
        GROUP,
        OwnerLimits { hard_space: 200, hard_inodes: 40, ..OwnerLimits::default() },
    );
    let fs = disk.open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                for n in 0..30 {
                    let text = format!("{thread}-{n}");
                    match create(&**fs, fs.root(), &text, FileKind::Regular) {
                        Ok(file) => drop(write(&**fs, file, 0, 7 * KIB)),
                        Err(error) => assert_eq!(error, Error::QuotaExceeded),
                    }
                    if n % 5 == 4 && fs.lookup(fs.root(), &name(&text)).is_ok() {
                        remove(&**fs, &text);
                    }
                }
            });
        }
    });
    // The rest is available.
    let file = create(&*fs, fs.root(), "rest", FileKind::Regular);
    if let Ok(file) = file {
        write(&*fs, file, 0, 300 * KIB);
    }
    disk.close(fs);
    let [inodes, bytes] = limits(&disk.image, OwnerKind::Group, GROUP).1;
    assert!(inodes <= 40 && bytes <= 200 * KIB, "{inodes} {bytes}");
    assert!(file.is_err() || bytes == 200 * KIB, "{inodes} {bytes}");
}

#[test]
fn a_value_in_an_inode_counts_as_an_inode_and_as_space_of_the_owner_of_the_file() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024", "-O", "quota,project,ea_inode"]);
    let limit = OwnerLimits { hard_space: 30, hard_inodes: 5, ..OwnerLimits::default() };
    disk.set(OwnerKind::User, USER, limit);
    let group = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
    // An owner gets limits once it has an entry.
    let fs = disk.open();
    let entry = create(&*fs, fs.root(), "entry", FileKind::Regular).unwrap();
    fs.writable().unwrap().set_attr(entry, &group(GROUP + 1)).unwrap();
    remove(&*fs, "entry");
    disk.close(fs);
    disk.set(OwnerKind::Group, GROUP + 1, OwnerLimits { hard_inodes: 3, ..OwnerLimits::default() });
    let fs = disk.open();
    let (xattrs, writable) = (fs.xattrs().unwrap(), fs.writable().unwrap());
    let file = create(&*fs, fs.root(), "f", FileKind::Regular).unwrap();
    let set = |name: &str, len| xattrs.set_xattr(file, name.as_bytes(), &vec![7; len], XattrMode::Set);
    set("user.a", 5000).unwrap();
    assert_eq!(set("user.b", 26_000), Err(Error::QuotaExceeded), "5 KiB are used");
    assert_eq!(xattrs.get_xattr(file, b"user.b"), Err(Error::NoData));
    // The value is shared, and counts for each attribute.
    set("user.b", 5000).unwrap();
    set("user.c", 6000).unwrap();
    set("user.d", 5000).unwrap();
    assert_eq!(set("user.e", 5000), Err(Error::QuotaExceeded), "5 inodes are used");
    assert_eq!(create(&*fs, fs.root(), "g", FileKind::Regular), Err(Error::QuotaExceeded));
    // As in Linux, a new value is charged before the old one is released, and a new inode counts by itself at first.
    assert_eq!(set("user.a", 6000), Err(Error::QuotaExceeded));
    set("user.a", 10).unwrap();
    assert_eq!(set("user.a", 5500), Err(Error::QuotaExceeded));
    xattrs.remove_xattr(file, b"user.d").unwrap();
    set("user.a", 5500).unwrap();
    // The group may have three inodes.
    assert_eq!(writable.set_attr(file, &group(GROUP + 1)).err(), Some(Error::QuotaExceeded));
    xattrs.remove_xattr(file, b"user.b").unwrap();
    writable.set_attr(file, &group(GROUP + 1)).unwrap();
    create(&*fs, fs.root(), "g", FileKind::Regular).unwrap();
    disk.close(fs);
    // Values of 5500 and 6000 bytes.
    assert_eq!(limits(&disk.image, OwnerKind::User, USER).1, [4, 12 * KIB]);
    assert_eq!(limits(&disk.image, OwnerKind::Group, GROUP + 1).1, [3, 12 * KIB]);
    let fs = disk.open();
    remove(&*fs, "f");
    disk.close(fs);
    assert_eq!(limits(&disk.image, OwnerKind::User, USER).1, [1, 0]);
}

/// Pseudo-random numbers from a seed.
fn next(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

/// One random change by the user or by a process without limits. `values` are lengths of attributes.
fn change(fs: &dyn FileSystem, state: &mut u64, values: &[usize]) -> Result<()> {
    let (lock, writable, root) = (LayoutLock::new(), fs.writable().unwrap(), fs.root());
    let text = next(state, 12).to_string();
    let Ok(ino) = fs.lookup(root, &name(&text)) else {
        let kind = [FileKind::Regular, FileKind::Regular, FileKind::Symlink][next(state, 3) as usize];
        return create(fs, root, &text, kind).map(drop);
    };
    let is_file = fs.getattr(ino)?.kind == FileKind::Regular;
    let (start, len) = (next(state, 40) * KIB, next(state, 27) * KIB + KIB);
    match next(state, 8) {
        0..=2 if is_file => write(fs, ino, start, len).1.map_or(Ok(()), Err),
        3 if is_file => writable.allocate(&lock.shared(), ino, start..start + len, Size::Grow),
        4 if is_file => writable.truncate(&lock.exclusive(), ino, start),
        5 if is_file => writable.punch(&lock.exclusive(), ino, start..start + len),
        6 => {
            let uid = [USER, 1][next(state, 2) as usize];
            writable.set_attr(ino, &SetAttr { uid: Some(uid), ..SetAttr::default() }).map(drop)
        }
        7 => {
            remove(fs, &text);
            Ok(())
        }
        _ => {
            let (len, name) = (next(state, values.len() as u64), next(state, 2));
            let (value, name) = (vec![1; values[len as usize]], [b"user.x", b"user.y"][name as usize]);
            fs.xattrs().unwrap().set_xattr(ino, name, &value, XattrMode::Set)
        }
    }
}

#[test]
fn after_random_changes_the_usage_is_within_the_limits_and_all_of_the_room_is_available() {
    if !require(TOOLS) {
        return;
    }
    for seed in 1..=6_u64 {
        println!("seed {seed}");
        let (features, values): (&str, &[usize]) = match seed % 2 {
            0 => ("quota,project,ea_inode", &[300, 2000, 5000, 2000]),
            _ => ("quota,project", &[300]),
        };
        let disk = Disk::new(&["-b", "1024", "-O", features]);
        disk.set(
            OwnerKind::User,
            USER,
            OwnerLimits { hard_space: 90, hard_inodes: 9, ..OwnerLimits::default() },
        );
        let mut state = seed;
        for round in 0..3 {
            let fs = disk.open();
            let mut refused = 0;
            for _ in 0..150 {
                match change(&*fs, &mut state, values) {
                    Err(Error::QuotaExceeded) => refused += 1,
                    Ok(()) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            assert!(refused > 0, "seed {seed} round {round}");
            // Every reservation is charged or given back.
            let file = create(&*fs, fs.root(), &format!("rest{round}"), FileKind::Regular);
            let is_full = file.is_ok_and(|file| write(&*fs, file, 0, 200 * KIB).1.is_some());
            disk.close(fs);
            let [inodes, bytes] = limits(&disk.image, OwnerKind::User, USER).1;
            assert!(inodes <= 9 && bytes <= 92 * KIB, "seed {seed}: {inodes} {bytes}");
            assert!(!is_full || bytes >= 90 * KIB, "seed {seed}: {inodes} {bytes}");
            let fs = disk.open();
            if is_full {
                remove(&*fs, &format!("rest{round}"));
            }
            disk.close(fs);
        }
    }
}

#[test]
fn a_damaged_tree_of_a_quota_file_is_an_error_of_opening_with_limits() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    let place = block_of(&disk.image, 3, 1);
    let mut bytes = std::fs::read(&disk.image).unwrap();
    bytes[place * 1024..][..4].copy_from_slice(&9_999_u32.to_le_bytes());
    std::fs::write(&disk.image, bytes).unwrap();
    let device = Arc::new(FileDevice::open_writable(&disk.image).unwrap());
    let clock = Arc::new(FixedClock(Timestamp::new(NOW, 0)));
    let options =
        OpenOptions { access: Access::ReadWrite, limits: QuotaLimits::USERS, ..OpenOptions::new(clock) };
    assert!(matches!(Ext4Driver.open(device, &options).err(), Some(Error::Corrupt(_))));
}

#[test]
fn a_quota_file_that_is_larger_than_the_volume_is_an_error_of_opening_with_limits() {
    if !require(TOOLS) {
        return;
    }
    let disk = Disk::new(&["-b", "1024"]);
    let size = ["-w", "-R", "set_inode_field <3> size 0x200000000"];
    run(program("debugfs").args(size).arg(&disk.image)).unwrap();
    let place = block_of(&disk.image, 3, 0);
    let mut bytes = std::fs::read(&disk.image).unwrap();
    // The number of blocks of the file in its header.
    bytes[place * 1024 + 0x14..][..4].copy_from_slice(&(8_u32 << 20).to_le_bytes());
    std::fs::write(&disk.image, bytes).unwrap();
    assert!(matches!(disk.try_open(NOW, DataMode::Ordered), Err(Error::Corrupt(_))));
}

fn block_of(image: &Path, inode: u32, at: u32) -> usize {
    let request = format!("bmap <{inode}> {at}");
    let found = run(program("debugfs").args(["-R", &request]).arg(image)).unwrap();
    String::from_utf8(found.stdout).unwrap().trim().parse().unwrap()
}
