//! The contract, kept by the kernel's own file systems.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use obento_base::{DeviceError, DeviceNumber, FileKind, Mode, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Driver, FileSystem, LayoutLock, NewNode, OpenOptions};
use obento_env::SystemClock;
use obento_linux::LinuxDriver;
use obento_testkit::conformance::writing_cases;
use obento_testkit::oracle::{Oracle, call, require};
use obento_testkit::trials::Judged;
use tempfile::NamedTempFile;

/// A file of the host, sparse: the smallest volume of some types is large.
struct Disk(File);

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_exact_at(buf, offset).map_err(|_| DeviceError::Read { offset, len: 0, errno: 5 }.into())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.0.write_all_at(buf, offset).map_err(|_| DeviceError::Write { offset, len: 0, errno: 5 }.into())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, _: Range<u64>) -> Result<()> {
        Ok(())
    }
}

/// How volumes of a type are made and judged.
struct Kind {
    name: &'static str,
    megabytes: u64,
    maker: (&'static str, &'static [&'static str]),
    judge: (&'static str, &'static [&'static str]),
}

const XFS: Kind =
    Kind { name: "xfs", megabytes: 310, maker: ("mkfs.xfs", &["-q"]), judge: ("xfs_repair", &["-n"]) };
const BTRFS: Kind =
    Kind { name: "btrfs", megabytes: 130, maker: ("mkfs.btrfs", &["-q"]), judge: ("btrfs", &["check"]) };
const F2FS: Kind =
    Kind { name: "f2fs", megabytes: 64, maker: ("mkfs.f2fs", &["-q"]), judge: ("fsck.f2fs", &[]) };

impl Kind {
    /// A new volume; `None` without its programs or the kernel.
    fn make(&self) -> Option<NamedTempFile> {
        let programs = [self.maker.0, self.judge.0, "linux.uml"].map(Oracle::Program);
        if !require(&programs) {
            return None;
        }
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(self.megabytes << 20).unwrap();
        run(self.maker, image.path());
        Some(image)
    }

    fn open(&self, image: &Path, access: Access) -> Arc<dyn FileSystem> {
        let file = File::options().read(true).write(true).open(image).unwrap();
        let driver = LinuxDriver::all().find(|driver| driver.names().contains(&self.name)).unwrap();
        let options = OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) };
        driver.open(Arc::new(Disk(file)), &options).unwrap()
    }

    /// A new volume that is open for changes, and judged by its own check in the end.
    fn empty(&'static self) -> Option<Judged> {
        let image = self.make()?;
        let fs = self.open(image.path(), Access::ReadWrite);
        Some(Judged::new(fs, move || run(self.judge, image.path())))
    }
}

fn run((program, arguments): (&str, &[&str]), image: &Path) {
    call(program, arguments.iter().map(AsRef::as_ref).chain([image.as_os_str()])).unwrap();
}

fn node(kind: FileKind) -> NewNode<'static> {
    let rdev = DeviceNumber::default();
    NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev, target: b"" }
}

/// Cases that Linux keeps no type of its own to, and why.
const EXCEPT: &[&str] = &[
    // The permissions of a symbolic link are 0777.
    "a_new_inode_is_what_was_asked_for_and_named",
    // The time of the last change cannot be set.
    "times_are_kept_to_the_granularity",
    // Names of attributes come in the order of their setting or hash.
    "an_attribute_is_kept_byte_for_byte_in_each_name_space",
    // Lengths are looked at before the attribute.
    "set_xattr_tests_its_errors_in_order",
    // Space is counted when it is written back.
    "punch_makes_a_hole_within_the_same_size",
];

/// Runs every case on a volume of its own, and tells all that fail.
fn conforms(kind: &'static Kind, except: &[&str]) {
    let is_asked = |name: &str| !EXCEPT.contains(&name) && !except.contains(&name);
    let cases = writing_cases().into_iter().filter(|(name, _)| is_asked(name));
    let mut failed = Vec::new();
    for (name, case) in cases {
        // Each case of a kernel that answers nothing takes a minute.
        if failed.len() == 5 {
            break;
        }
        let Some(volume) = kind.empty() else { return };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || case(&*volume)));
        failed.extend(ran.is_err().then_some(name));
    }
    assert_eq!(failed, Vec::<&str>::new(), "{}", kind.name);
}

#[test]
fn a_btrfs_keeps_the_contract() {
    // Space is freed in the background; the flags that a file inherits are Linux's choice.
    conforms(
        &BTRFS,
        &[
            "forget_frees_what_has_no_name_and_nothing_else",
            "what_is_made_in_a_directory_gets_the_flags_that_it_hands_on",
        ],
    );
}

#[test]
fn an_xfs_keeps_the_contract() {
    // Space is freed in the background.
    let late = [
        "what_nobody_uses_is_free_once_its_last_name_is_gone",
        "forget_frees_what_has_no_name_and_nothing_else",
    ];
    conforms(&XFS, &late);
}

#[test]
fn requests_without_a_pause_are_all_answered() {
    let Some(image) = F2FS.make() else { return };
    let fs = F2FS.open(image.path(), Access::ReadOnly);
    // Many times what a line holds whose bells nobody took.
    for _ in 0..20_000 {
        fs.statfs().unwrap();
    }
}

#[test]
fn what_was_synced_is_there_after_the_kernel_was_killed() {
    for kind in [XFS, BTRFS, F2FS] {
        let Some(image) = kind.make() else { return };
        let (file, lock) = (Name::new(b"file").unwrap(), LayoutLock::new());
        let fs = kind.open(image.path(), Access::ReadWrite);
        let writable = fs.writable().unwrap();
        let ino = writable.create(fs.root(), file, &node(FileKind::Regular)).unwrap().ino;
        assert_eq!(writable.write(&lock.shared(), ino, 0, b"kept").unwrap(), 4);
        writable.sync_file(ino).unwrap();
        // Without a close, the kernel is killed.
        drop(fs);
        let fs = kind.open(image.path(), Access::ReadOnly);
        let ino = fs.lookup(fs.root(), file).unwrap();
        let mut found = [0; 8];
        assert_eq!(fs.read(&lock.shared(), ino, 0, &mut found).unwrap(), 4, "{}", kind.name);
        assert_eq!(&found[..4], b"kept", "{}", kind.name);
    }
}

#[test]
fn reading_a_dirty_volume_replays_its_log_and_writes_nothing() {
    let Some(image) = XFS.make() else { return };
    let name = Name::new(b"new").unwrap();
    let fs = XFS.open(image.path(), Access::ReadWrite);
    let writable = fs.writable().unwrap();
    writable.create(fs.root(), name, &node(FileKind::Directory)).unwrap();
    writable.sync().unwrap();
    drop(fs);
    let before = fs::read(image.path()).unwrap();
    let fs = XFS.open(image.path(), Access::ReadOnly);
    assert!(fs.lookup(fs.root(), name).is_ok());
    drop(fs);
    assert!(before == fs::read(image.path()).unwrap(), "the log was replayed onto the image");
}

#[test]
fn more_inodes_are_in_use_than_a_process_has_descriptors() {
    let Some(image) = XFS.make() else { return };
    let fs = XFS.open(image.path(), Access::ReadWrite);
    let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
    let names: Vec<String> = (0..6000).map(|number| format!("file{number}")).collect();
    let made: Vec<_> = names
        .iter()
        .map(|name| {
            let name = Name::new(name.as_bytes()).unwrap();
            let ino = writable.create(fs.root(), name, &node(FileKind::Regular)).unwrap().ino;
            assert_eq!(
                writable.write(&lock.shared(), ino, 0, name.as_bytes()).unwrap(),
                name.as_bytes().len()
            );
            ino
        })
        .collect();
    // The first have lost their names since, and keep their bytes as long as they are in use.
    for name in &names[..50] {
        writable.unlink(fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap();
    }
    for (ino, name) in made.iter().zip(&names) {
        let mut found = [0; 16];
        let len = fs.read(&lock.shared(), *ino, 0, &mut found).unwrap();
        assert_eq!(&found[..len], name.as_bytes());
    }
    made.into_iter().for_each(|ino| fs.forget(ino));
    writable.sync().unwrap();
}
