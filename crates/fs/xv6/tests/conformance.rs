//! The contract's cases.

mod common;

use std::sync::Arc;

use common::{clock, format, judged, open};
use obento_base::FileKind::{self, BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
use obento_base::{DeviceNumber, Mode, Name};
use obento_block::MemDevice;
use obento_driver::{FileSystem, NewNode, WritableFileSystem};
use obento_testkit::conformance::renames;
use obento_testkit::trials::Judged;
use obento_vfs::Vfs;

fn empty() -> Option<Judged> {
    Some(judged(format(32 << 20, 512)))
}

mod writing {
    obento_testkit::writing_conformance!(super::empty());
}

mod an_empty_volume {
    obento_testkit::reading_conformance!(super::empty());
}

/// The volumes of the other cases have no room for as many.
#[test]
fn a_directory_has_no_more_subdirectories_than_its_link_count_allows() {
    let volume = judged(format(192 << 20, 40_000));
    renames::a_directory_has_no_more_subdirectories_than_its_link_count_allows(&*volume).unwrap();
}

fn create(
    writable: &dyn WritableFileSystem,
    dir: obento_base::Ino,
    name: &str,
    kind: FileKind,
) -> obento_base::Ino {
    let rdev = DeviceNumber { major: 1, minor: 2 };
    let node = NewNode { kind, mode: Mode::new(0o644), uid: 1, gid: 2, rdev, target: b"to" };
    writable.create(dir, Name::new(name.as_bytes()).unwrap(), &node).unwrap().ino
}

/// One file of each kind, a directory of many entries, and a file with holes.
fn with_a_tree() -> Option<Arc<dyn FileSystem>> {
    let fs = open(Arc::new(MemDevice::new(format(32 << 20, 512))), clock()).unwrap();
    let writable = fs.writable()?;
    for kind in [Directory, Regular, Symlink, CharDevice, BlockDevice, Fifo, Socket] {
        create(writable, fs.root(), &format!("{kind:?}"), kind);
    }
    let dir = create(writable, fs.root(), "many", Directory);
    let file = create(writable, dir, "0", Regular);
    for n in 1..300_usize {
        let name = format!("{n:0>width$}", width = 1 + n % 255);
        writable.link(file, dir, Name::new(name.as_bytes()).unwrap()).unwrap();
    }
    let vfs = Vfs::new(Arc::clone(&fs));
    let node = vfs.node(file).unwrap();
    node.write_at(10_000, &[7; 20_000]).unwrap();
    node.write_at(9 << 20, &[8; 20_000]).unwrap();
    node.truncate(100 << 20).unwrap();
    let whole = vfs.node(create(writable, fs.root(), "whole", Regular)).unwrap();
    whole.write_at(0, &[8; 9001]).unwrap();
    Some(fs)
}

mod a_tree {
    obento_testkit::reading_conformance!(super::with_a_tree());
}
