//! Reads of data whose location is known: they ask no driver, and no change goes unnoticed.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Short, clock, volume_on_device};
use obento_base::{Attr, FileFlags, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, EntrySink, Extent, FileSystem, Layout, Limits, SetAttr, Size, StatFs, VolumeInfo,
    WritableFileSystem,
};
use obento_vfs::{Caller, Vfs};

/// A driver that counts the calls that a read makes.
struct Counting(Arc<dyn FileSystem>, AtomicU64);

impl Counting {
    fn count(&self) -> &dyn FileSystem {
        self.1.fetch_add(1, Ordering::Relaxed);
        &*self.0
    }
}

impl FileSystem for Counting {
    fn root(&self) -> Ino {
        self.0.root()
    }
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn info(&self) -> VolumeInfo {
        self.0.info()
    }
    fn statfs(&self) -> Result<StatFs> {
        self.0.statfs()
    }
    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.0.device()
    }
    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.0.lookup(dir, name)
    }
    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.0.parent(dir)
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.count().getattr(ino)
    }
    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.0.read_dir(dir, from, sink)
    }
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.0.read_link(ino)
    }
    fn map(&self, layout: &Layout<'_>, ino: Ino, range: std::ops::Range<u64>) -> Result<Extent> {
        self.count().map(layout, ino, range)
    }
    fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.count().read(layout, ino, offset, buf)
    }
    fn forget(&self, ino: Ino) {
        self.0.forget(ino);
    }
    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.0.writable()
    }
}

fn counting() -> (Arc<Counting>, Vfs) {
    let (fs, _) = volume_on_device();
    let fs = Arc::new(Counting(fs, AtomicU64::new(0)));
    (Arc::clone(&fs), Vfs::new(fs))
}

const BLOCK: u64 = 4096;

#[test]
fn a_read_of_data_that_was_read_before_asks_no_driver() {
    let (fs, vfs) = counting();
    let file = vfs.root().file("f");
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
    file.write_at(0, &bytes).unwrap();
    file.sync().unwrap();
    assert_eq!(file.bytes(), bytes);
    let before = fs.1.load(Ordering::Relaxed);
    let mut block = vec![0; BLOCK as usize];
    for at in (0..20_u64).map(|n| n * 7 % 20 * BLOCK + 5) {
        assert_eq!(file.read_at(at, &mut block).unwrap(), block.len());
        assert_eq!(block, bytes[at as usize..][..block.len()]);
    }
    assert_eq!(fs.1.load(Ordering::Relaxed), before);
    // The end of the file is not known without the driver.
    assert_eq!(file.read_at(99_990, &mut block).unwrap(), 10);
    assert!(fs.1.load(Ordering::Relaxed) > before);
}

#[test]
fn a_read_after_each_kind_of_change_returns_the_new_data() {
    let (_, vfs) = counting();
    let file = vfs.root().file("f");
    let mut expected = vec![7; 10 * BLOCK as usize];
    file.write_at(0, &expected).unwrap();
    let check = |expected: &[u8]| {
        assert_eq!(file.bytes(), expected);
        assert_eq!(file.bytes(), expected);
    };
    check(&expected);
    file.write_at(BLOCK + 9, &[1; 5000]).unwrap();
    expected[BLOCK as usize + 9..][..5000].fill(1);
    check(&expected);
    file.punch(3 * BLOCK..5 * BLOCK).unwrap();
    expected[3 * BLOCK as usize..5 * BLOCK as usize].fill(0);
    check(&expected);
    file.truncate(6 * BLOCK + 3).unwrap();
    expected.truncate(6 * BLOCK as usize + 3);
    check(&expected);
    file.truncate(9 * BLOCK).unwrap();
    expected.resize(9 * BLOCK as usize, 0);
    check(&expected);
    file.append(&[4; 100]).unwrap();
    expected.extend([4; 100]);
    check(&expected);
    if file.zero_range(0..2 * BLOCK, Size::Keep).is_ok() {
        expected[..2 * BLOCK as usize].fill(0);
    }
    check(&expected);
    if file.collapse(BLOCK..2 * BLOCK).is_ok() {
        expected.drain(BLOCK as usize..2 * BLOCK as usize);
    }
    check(&expected);
}

#[test]
fn a_file_whose_flags_change_is_mapped_again() {
    let (fs, vfs) = counting();
    let file = vfs.root().file("f");
    file.write_at(0, &[7; 9000]).unwrap();
    let _ = (file.bytes(), clock());
    let flags = Some(file.attr().unwrap().flags | FileFlags::NO_DUMP);
    vfs.set_attr(&Caller::Owner, &file, &SetAttr { flags, ..SetAttr::default() }).unwrap();
    let before = fs.1.load(Ordering::Relaxed);
    file.read_at(0, &mut [0; 10]).unwrap();
    assert!(fs.1.load(Ordering::Relaxed) > before);
}
