//! An open volume that one process passes to another. Every file that is in use in the first process is found in the
//! second, also without a name. Nothing is written before the second process is the only one.
//!
//! [`passes_on`] tests a driver that changes volumes, [`passes_on_reading`] a driver that reads them, and [`refuses`] a
//! driver without the capability.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{Attr, DeviceNumber, FileKind, Ino, Mode, Name};
use obento_block::{BlockDevice, Handoff, MemDevice};
use obento_driver::{Access, Cookie, Driver, FileSystem, HandoverState, NewNode, OpenOptions, RenameFlags};
use obento_env::NO_CLOCK;
use obento_vfs::{Caller, Node, Vfs};

const OWNER: &Caller = &Caller::Owner;

fn options(access: Access, adopt: Option<HandoverState>) -> OpenOptions {
    OpenOptions { access, adopt: adopt.map(Arc::new), ..OpenOptions::new(Arc::new(NO_CLOCK)) }
}

fn open(driver: &dyn Driver, device: Arc<dyn BlockDevice>, adopt: Option<HandoverState>) -> Vfs {
    Vfs::new(driver.open(device, &options(Access::ReadWrite, adopt)).expect("it opens"))
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
    /// Created in the root directory and moved, so that its entry is elsewhere.
    moved: Node,
    /// Created after the move, perhaps at the former place of that entry.
    later: Node,
    /// The directory that contains the moved file.
    folder: Node,
    /// Removed, as the directory is.
    nameless: Node,
    directory: Option<Node>,
}

impl Files {
    fn all(&self) -> impl Iterator<Item = &Node> {
        let named = [&self.named, &self.moved, &self.later, &self.folder];
        named.into_iter().chain([&self.nameless]).chain(&self.directory)
    }

    fn inodes(&self) -> Vec<Ino> {
        let inodes: BTreeSet<_> = self.all().map(Node::ino).collect();
        assert_eq!(inodes.len(), self.all().count(), "each file has a number of its own");
        inodes.into_iter().collect()
    }
}

fn prepare(vfs: &Vfs, keeps_directories: bool) -> Files {
    let root = vfs.root();
    let file = |name: &str, byte: u8| {
        let file = create(vfs, &root, name, FileKind::Regular);
        file.write_at(0, &[byte; 20_000]).expect("there is room");
        file
    };
    // A number that was used before has another generation.
    drop(file("before", 0));
    vfs.unlink(OWNER, &root, named("before")).expect("it exists");
    let (named_file, nameless, moved) = (file("named", 1), file("nameless", 2), file("moved", 5));
    vfs.unlink(OWNER, &root, named("nameless")).expect("it exists");
    let folder = create(vfs, &root, "folder", FileKind::Directory);
    let (from, to) = ((&root, named("moved")), (&folder, named("moved")));
    vfs.rename(OWNER, from, to, RenameFlags::empty()).expect("it exists");
    let later = file("later", 6);
    let directory = keeps_directories.then(|| {
        let directory = create(vfs, &root, "dir", FileKind::Directory);
        vfs.rmdir(OWNER, &root, named("dir")).expect("it is empty");
        directory
    });
    Files { named: named_file, moved, later, folder, nameless, directory }
}

/// Returns the attributes of all files, and the contents of regular files, in the order of their numbers.
fn observed<'a>(nodes: impl Iterator<Item = &'a Node>) -> Vec<(Attr, Vec<u8>)> {
    let observe = |node: &Node| {
        let attr = node.attr().expect("a file that is in use");
        let bytes = if attr.kind == FileKind::Regular { contents(node) } else { Vec::new() };
        (attr, bytes)
    };
    let mut observed: Vec<_> = nodes.map(observe).collect();
    observed.sort_by_key(|(attr, _)| attr.ino);
    observed
}

/// Panics if the driver accepts a state that is cut, and therefore not its own.
fn refuses_other_states(driver: &dyn Driver, device: &Arc<MemDevice>, adoption: &HandoverState) {
    let Some((_, cut)) = adoption.state.split_last() else { return };
    let adopt = HandoverState { state: cut.to_vec(), ..adoption.clone() };
    let opened =
        driver.open(Arc::new(Handoff::holding(device.clone())), &options(Access::ReadWrite, Some(adopt)));
    assert_eq!(opened.err(), Some(obento_base::Error::Invalid));
}

/// Passes the volume in `base` from one open of `driver` to another, twice without and once with success. Panics if a
/// file is not as it was, if a byte is written too early, or if the driver's check finds something afterwards.
pub fn passes_on(driver: &dyn Driver, base: &[u8], keeps_directories: bool) {
    let device = Arc::new(MemDevice::new(base.to_vec()));
    let first = open(driver, device.clone(), None);
    let before = space(&first);
    let files = prepare(&first, keeps_directories);
    let mut adoption = HandoverState { inodes: files.inodes(), state: Vec::new() };
    for _ in 0..2 {
        adoption.state = first.prepare_handover().expect("the driver passes volumes on");
        let snapshot = device.snapshot();
        let failed = open(driver, Arc::new(Handoff::holding(device.clone())), Some(adoption.clone()));
        assert_eq!(contents(&failed.adopt(files.nameless.ino())), contents(&files.nameless));
        drop(failed);
        refuses_other_states(driver, &device, &adoption);
        assert!(device.snapshot() == snapshot, "a process that fails has written nothing");
        // The first process continues.
        files.nameless.write_at(20_000, &[3; 20_000]).expect("there is room");
    }
    adoption.state = first.prepare_handover().expect("the driver passes volumes on");
    let expected = observed(files.all());
    let snapshot = device.snapshot();
    let handoff = Arc::new(Handoff::holding(device.clone()));
    let second = open(driver, handoff.clone(), Some(adoption.clone()));
    let nodes: Vec<_> = adoption.inodes.iter().map(|&ino| second.adopt(ino)).collect();
    assert!(device.snapshot() == snapshot, "nothing is written before the first process has ended");
    // The first process ends without closing the volume.
    files.all().for_each(|node| std::mem::forget(node.clone()));
    let [named_ino, moved_ino, nameless_ino] = [&files.named, &files.moved, &files.nameless].map(Node::ino);
    std::mem::forget((first, files));
    handoff.release().expect("memory can be written");
    assert_eq!(observed(nodes.iter()), expected);
    let (named_file, nameless) = (second.adopt(named_ino), second.adopt(nameless_ino));
    let folder = second.root().lookup(named("folder")).expect("it has a name");
    let moved = folder.lookup(named("moved")).expect("it has a name");
    assert_eq!(moved.ino(), moved_ino, "a number stays that of the file");
    assert_eq!(nameless.attr().expect("it is in use").nlink, 0);
    nameless.write_at(40_000, &[4; 5000]).expect("there is room");
    named_file.write_at(20_000, &[4; 5000]).expect("there is room");
    second.sync().expect("memory can be written");
    assert_eq!(contents(&nameless).len(), 45_000);
    drop((nodes, nameless, moved));
    second.unlink(OWNER, &folder, named("moved")).expect("it exists");
    drop(folder);
    second.rmdir(OWNER, &second.root(), named("folder")).expect("it is empty");
    for name in ["named", "later"] {
        second.unlink(OWNER, &second.root(), named(name)).expect("it exists");
    }
    drop(named_file);
    second.drop_names();
    second.sync().expect("memory can be written");
    let after = space(&second);
    assert!(after.0 + 64 >= before.0 && after.1 == before.1, "{before:?} {after:?}");
    second.close().expect("memory can be written");
    let closed: Arc<dyn BlockDevice> = device;
    super::check(driver, &closed).expect("a consistent volume");
}

/// Passes the volume in `base`, which is only read, from one open of `driver` to another. Panics if the second open does
/// not find every file by its number, or if a byte is written.
pub fn passes_on_reading(driver: &dyn Driver, base: &[u8]) {
    let device = Arc::new(MemDevice::new(base.to_vec()));
    let open = |adopt| {
        let device = Arc::new(Handoff::holding(device.clone()));
        driver.open(device, &options(Access::ReadOnly, adopt)).expect("it opens")
    };
    let first = open(None);
    let inodes = tree_inodes(&*first);
    assert!(inodes.len() > 2, "the volume contains files");
    let attrs = |fs: &dyn FileSystem| -> Vec<_> {
        inodes.iter().map(|&ino| fs.getattr(ino).expect("a file that is in use")).collect()
    };
    let expected = attrs(&*first);
    let state = first.handover().expect("the driver passes volumes on").prepare().expect("nothing to write");
    let second = open(Some(HandoverState { inodes: inodes.clone(), state }));
    assert_eq!(attrs(&*second), expected);
    assert!(device.snapshot() == base, "a reader writes nothing");
}

/// Returns the numbers of all files of a volume, sorted.
fn tree_inodes(fs: &dyn FileSystem) -> Vec<Ino> {
    let (mut found, mut left) = (BTreeSet::from([fs.root()]), vec![fs.root()]);
    while let Some(dir) = left.pop() {
        fs.read_dir(dir, Cookie::START, &mut |entry| {
            let entry = entry.expect("a sound directory");
            if found.insert(entry.ino) && fs.getattr(entry.ino).expect("a file").kind == FileKind::Directory {
                left.push(entry.ino);
            }
            ControlFlow::Continue(())
        })
        .expect("a sound directory");
    }
    found.into_iter().collect()
}

/// Panics unless `fs` refuses the handover.
pub fn refuses(fs: Arc<dyn FileSystem>) {
    let vfs = Vfs::new(fs);
    assert!(!vfs.can_be_passed_on());
    assert_eq!(vfs.prepare_handover(), Err(obento_base::Error::NotSupported));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StepClock;
    use obento_driver::FormatOptions;
    use obento_env::FixedRandom;
    use obento_tmpfs::{Options, Tmpfs};

    #[test]
    fn every_native_driver_that_changes_volumes_passes_them_on() {
        let registry = obento::Registry::default();
        let mut types = Vec::new();
        for driver in registry.natives() {
            let Some(format) = driver.format().filter(|_| driver.access() == Access::ReadWrite) else {
                continue;
            };
            let fs_type = format.types()[0];
            let device = MemDevice::new(vec![0; 16 << 20]);
            let (clock, random) = (Arc::new(StepClock::default()), Arc::new(FixedRandom(7)));
            format.format(&device, &FormatOptions::new(fs_type, clock, random)).expect("a volume");
            passes_on(&**driver, &device.snapshot(), true);
            types.push(fs_type);
        }
        assert!(types.len() >= 4, "{types:?}");
    }

    #[test]
    fn a_file_system_without_a_device_is_refused() {
        refuses(Arc::new(Tmpfs::new(Options::new(Arc::new(StepClock::default())))));
    }
}
