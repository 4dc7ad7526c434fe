//! The contract's cases on the existing drivers.

use std::sync::Arc;

use obento::tmpfs::{Options, Tmpfs};
use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};
use obento_block::MemDevice;
use obento_driver::{FileSystem, NewNode};
use obento_env::FixedClock;

fn options() -> Options {
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 1)));
    Options { size: 32 << 20, inodes: 500, ..Options::new(clock) }
}

fn in_memory() -> Option<Arc<dyn FileSystem>> {
    Some(Arc::new(Tmpfs::new(options())))
}

fn on_a_device() -> Option<Arc<dyn FileSystem>> {
    let device = Arc::new(MemDevice::new(vec![0xdd; 32 << 20]));
    Some(Arc::new(Tmpfs::new(Options { device: Some(device), ..options() })))
}

/// Returns a volume with one file of each kind, a directory with many entries, and a file with holes.
fn with_a_tree() -> Option<Arc<dyn FileSystem>> {
    let fs = on_a_device()?;
    let writable = fs.writable()?;
    let kinds = [
        FileKind::Directory,
        FileKind::Regular,
        FileKind::Symlink,
        FileKind::CharDevice,
        FileKind::BlockDevice,
        FileKind::Fifo,
        FileKind::Socket,
    ];
    let create = |dir, name: &str, kind| {
        let rdev = DeviceNumber { major: 1, minor: 2 };
        let node = NewNode { kind, mode: Mode::new(0o644), uid: 1, gid: 2, rdev, target: b"to" };
        writable.create(dir, Name::new(name.as_bytes()).unwrap(), &node).unwrap().ino
    };
    for (n, kind) in kinds.into_iter().enumerate() {
        create(fs.root(), &format!("kind {n}"), kind);
    }
    let dir = create(fs.root(), "many", FileKind::Directory);
    let file = create(dir, "0", FileKind::Regular);
    (1..300_u32).for_each(|n| {
        writable.link(file, dir, Name::new(n.to_string().as_bytes()).unwrap()).unwrap();
    });
    let vfs = obento::vfs::Vfs::new(Arc::clone(&fs));
    let node = vfs.node(file).unwrap();
    node.write_at(10_000, &[7; 20_000]).unwrap();
    node.truncate(100_001).unwrap();
    let whole = vfs.node(create(fs.root(), "whole", FileKind::Regular)).unwrap();
    whole.write_at(0, &[8; 9001]).unwrap();
    Some(fs)
}

mod tmpfs_in_memory {
    obento_testkit::writing_conformance!(super::in_memory());
}

mod tmpfs_on_a_device {
    obento_testkit::writing_conformance!(super::on_a_device());
}

mod tmpfs_with_a_tree {
    obento_testkit::reading_conformance!(super::with_a_tree());
}

/// The sample of the repository: ext4, created by `mke2fs`.
fn sample() -> Option<Arc<dyn FileSystem>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst");
    let image = obento::Image::open(path);
    let volume = image.unwrap().volume(None).unwrap();
    Some(Arc::clone(volume.vfs().flushed_file_system()))
}

mod ext4_sample {
    obento_testkit::reading_conformance!(super::sample());
}

mod an_empty_tmpfs {
    obento_testkit::reading_conformance!(super::in_memory());
}
