//! A file system for tests that forgets the numbers of its files, as a driver may do at any time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use obento_base::{Attr, Error, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{Cookie, EntrySink, Extent, FileSystem, Layout, Limits, StatFs, VolumeInfo};
use obento_tmpfs::Tmpfs;

/// A read-only tmpfs that knows only the number of its root until it has looked up some names.
pub struct Forgetful {
    fs: Tmpfs,
    lookups_left: AtomicUsize,
}

impl Forgetful {
    /// Wraps `fs`, which forgets the number of a file after all but the last of these lookups.
    pub fn new(fs: Tmpfs, lookups: usize) -> Self {
        Self { fs, lookups_left: AtomicUsize::new(lookups) }
    }

    /// Returns the number of lookups after which a number stays known.
    pub fn lookups_left(&self) -> usize {
        self.lookups_left.load(Ordering::Relaxed)
    }
}

impl FileSystem for Forgetful {
    obento_base::forward! { self.fs;
        fn root(&self) -> Ino;
        fn limits(&self) -> Limits;
        fn info(&self) -> VolumeInfo;
        fn statfs(&self) -> Result<StatFs>;
        fn device(&self) -> Option<&Arc<dyn BlockDevice>>;
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()>;
        fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;
        fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;
        fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
        fn forget(&self, ino: Ino);
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.lookups_left.store(self.lookups_left().saturating_sub(1), Ordering::Relaxed);
        self.fs.lookup(dir, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let is_known = ino == self.root() || self.lookups_left() == 0;
        if is_known { self.fs.getattr(ino) } else { Err(Error::Stale) }
    }

    fn acquire(&self, _ino: Ino) -> bool {
        self.lookups_left() == 0
    }
}
