//! Volumes of the file system for tests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use obento_base::{Attr, Error, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, EntrySink, Extent, FileSystem, Layout, Limits, StatFs, VolumeInfo, XattrMode, Xattrs,
};
use obento_open::Volume;
pub use obento_testkit::toy::{Toy, ToyFs, ToyPiece as Piece, dir, text};

/// Returns a volume with these inodes.
pub fn toy(nodes: impl IntoIterator<Item = (u64, Toy)>) -> Volume {
    Volume::new(Arc::new(ToyFs::new(nodes)))
}

/// The length of each value of a [`Laden`] volume.
pub const VALUE: usize = 60_000;

/// A volume with one file, which has many extended attributes.
pub struct Laden {
    toy: ToyFs,
    count: usize,
    /// The number of values that were read.
    pub reads: AtomicUsize,
}

impl Laden {
    /// Creates a volume whose file has `count` attributes.
    pub fn new(count: usize) -> Arc<Self> {
        let toy = ToyFs::new([(2, dir(&[("file", 3)])), (3, text("abc"))]);
        Arc::new(Self { toy, count, reads: AtomicUsize::new(0) })
    }
}

impl FileSystem for Laden {
    obento_base::forward! { self.toy;
        fn root(&self) -> Ino;
        fn limits(&self) -> Limits;
        fn info(&self) -> VolumeInfo;
        fn statfs(&self) -> Result<StatFs>;
        fn device(&self) -> Option<&Arc<dyn BlockDevice>>;
        fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino>;
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn getattr(&self, ino: Ino) -> Result<Attr>;
        fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()>;
        fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;
        fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;
        fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
        fn forget(&self, ino: Ino);
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        Some(self)
    }
}

impl Xattrs for Laden {
    fn get_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<Vec<u8>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(vec![b'v'; VALUE])
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let count = if ino == self.root() { 0 } else { self.count };
        (0..count).for_each(|number| sink(format!("user.{number}").as_bytes()));
        Ok(())
    }

    fn set_xattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}
