//! An open volume that one process passes to another. Every file that is in use in the first process is found in the
//! second, also without a name. Nothing is written before the second process is the only one.

use std::sync::Arc;

use obento_base::{DeviceNumber, FileKind, Ino, Mode, Name};
use obento_block::{BlockDevice, Handoff, MemDevice};
use obento_driver::{Access, Driver, FileSystem, HandoverState, NewNode, OpenOptions};
use obento_env::NO_CLOCK;
use obento_vfs::{Caller, Node, Vfs};

const OWNER: &Caller = &Caller::Owner;

fn open(driver: &dyn Driver, device: Arc<dyn BlockDevice>, adopt: Option<HandoverState>) -> Vfs {
    let options = OpenOptions {
        access: Access::ReadWrite,
        adopt: adopt.map(Arc::new),
        ..OpenOptions::new(Arc::new(NO_CLOCK))
    };
    Vfs::new(driver.open(device, &options).expect("it opens"))
}

fn create(vfs: &Vfs, dir: &Node, name: &str, kind: FileKind) -> Node {
    let (mode, rdev, target) = (Mode::new(0o755), DeviceNumber::default(), &b""[..]);
    let new = NewNode { kind, mode, uid: 0, gid: 0, rdev, target };
    vfs.create(OWNER, dir, named(name), &new).expect("there is room")
}

fn named(name: &str) -> &Name {
    Name::new(name.as_bytes()).expect("a name")
}

fn contents(node: &Node) -> Vec<u8> {
    let mut bytes = vec![0; 70_000];
    let len = node.read_at(0, &mut bytes).expect("a file that is in use");
    bytes.truncate(len);
    bytes
}

fn space(vfs: &Vfs) -> (u64, u64) {
    let stat = vfs.flushed_file_system().statfs().expect("a count");
    (stat.free, stat.free_inodes)
}

/// The files of the trial, each in use.
struct Files {
    named: Node,
    /// Removed, as the directory is.
    nameless: Node,
    directory: Option<Node>,
}

fn prepare(vfs: &Vfs, keeps_directories: bool) -> Files {
    let root = vfs.root();
    let named_file = create(vfs, &root, "named", FileKind::Regular);
    named_file.write_at(0, &[1; 20_000]).expect("there is room");
    let nameless = create(vfs, &root, "nameless", FileKind::Regular);
    nameless.write_at(0, &[2; 20_000]).expect("there is room");
    vfs.unlink(OWNER, &root, named("nameless")).expect("it exists");
    let directory = keeps_directories.then(|| {
        let directory = create(vfs, &root, "dir", FileKind::Directory);
        vfs.rmdir(OWNER, &root, named("dir")).expect("it is empty");
        directory
    });
    Files { named: named_file, nameless, directory }
}

fn inodes(files: &Files) -> Vec<Ino> {
    let mut inodes: Vec<_> =
        [&files.named, &files.nameless].into_iter().chain(&files.directory).map(Node::ino).collect();
    inodes.sort_unstable();
    inodes
}

/// Passes the volume in `base` from one open of `driver` to another, twice without and once with success. Panics if a
/// file is not as it was, if a byte is written too early, or if the driver's check finds something afterwards.
pub fn passes_on(driver: &dyn Driver, base: &[u8], keeps_directories: bool) {
    let device = Arc::new(MemDevice::new(base.to_vec()));
    let first = open(driver, device.clone(), None);
    let before = space(&first);
    let files = prepare(&first, keeps_directories);
    let mut adoption = HandoverState { inodes: inodes(&files), state: Vec::new() };
    for _ in 0..2 {
        adoption.state = first.prepare_handover().expect("the driver passes volumes on");
        let snapshot = device.snapshot();
        let failed = open(driver, Arc::new(Handoff::holding(device.clone())), Some(adoption.clone()));
        assert_eq!(contents(&failed.adopt(files.nameless.ino())), contents(&files.nameless));
        drop(failed);
        assert!(device.snapshot() == snapshot, "a process that fails has written nothing");
        // The first process continues.
        files.nameless.write_at(20_000, &[3; 20_000]).expect("there is room");
    }
    adoption.state = first.prepare_handover().expect("the driver passes volumes on");
    let expected: Vec<_> = [&files.named, &files.nameless].map(|file| (file.attr(), contents(file))).into();
    let snapshot = device.snapshot();
    let handoff = Arc::new(Handoff::holding(device.clone()));
    let second = open(driver, handoff.clone(), Some(adoption.clone()));
    let nodes: Vec<_> = adoption.inodes.iter().map(|&ino| second.adopt(ino)).collect();
    assert!(device.snapshot() == snapshot, "nothing is written before the first process has ended");
    // The first process ends without closing the volume.
    std::mem::forget((files.named.clone(), files.nameless.clone(), files.directory.clone()));
    let (named_ino, nameless_ino) = (files.named.ino(), files.nameless.ino());
    std::mem::forget((first, files));
    handoff.release().expect("memory can be written");
    let (named_file, nameless) = (second.adopt(named_ino), second.adopt(nameless_ino));
    let found: Vec<_> = [&named_file, &nameless].map(|file| (file.attr(), contents(file))).into();
    assert_eq!(found, expected);
    assert_eq!(nameless.attr().expect("it is in use").nlink, 0);
    nameless.write_at(40_000, &[4; 5000]).expect("there is room");
    named_file.write_at(20_000, &[4; 5000]).expect("there is room");
    second.sync().expect("memory can be written");
    assert_eq!(contents(&nameless).len(), 45_000);
    drop((nodes, nameless));
    second.unlink(OWNER, &second.root(), named("named")).expect("it exists");
    drop(named_file);
    second.drop_names();
    second.sync().expect("memory can be written");
    let after = space(&second);
    assert!(after.0 + 64 >= before.0 && after.1 == before.1, "{before:?} {after:?}");
    second.close().expect("memory can be written");
    let closed: Arc<dyn BlockDevice> = device;
    super::check(driver, &closed).expect("a consistent volume");
}

/// Panics unless `fs` refuses the handover.
pub fn refuses(fs: Arc<dyn FileSystem>) {
    let vfs = Vfs::new(fs);
    assert!(!vfs.can_be_passed_on());
    assert_eq!(vfs.prepare_handover(), Err(obento_base::Error::NotSupported));
}
