//! What changes a volume.
//!
//! Changes are made to sectors in memory, where readers see them at once, and written by a commit (`commit.rs`) in an order in
//! which a cut leaves lost clusters at worst.
//! Invariant: a cluster that is named holds what it is to hold before the commit that names it begins: data goes to the
//! device at once, and new clusters of directories are zeroed there when they are taken.
//! Invariant: a set that this driver places lies in one sector, if it fits one, so that a cut leaves it whole or not there.
//! Locking: `Mounted` holds its lock exclusively around every method here.

mod commit;
mod data;
mod directory;
mod open;
mod space;

use alloc::collections::BTreeSet;

use obento_base::wire::IntoBytes as _;
use obento_base::{Error, Result};
use obento_clusters::{Slot, Volume as _, Waiting};

use crate::dir::Directory;
use crate::raw::RawEntry;
use crate::volume::Volume;

/// The changes that wait, and who makes them.
pub struct Writer {
    waiting: Waiting,
    /// Changed sectors of the bitmap, counted from its start.
    bitmap_sectors: BTreeSet<u64>,
}

impl Writer {
    /// Changes 32 bytes of a directory.
    fn put(&mut self, volume: &Volume, slot: Slot, bytes: &[u8]) -> Result<()> {
        self.waiting.put(volume.cache(), slot, bytes)
    }

    /// Writes the first two entries of the set at `index`: the others are as they were.
    fn put_head(&mut self, volume: &Volume, dir: &Directory, index: u32, entries: &[RawEntry]) -> Result<()> {
        for (index, entry) in (index..).zip(entries.iter().take(2)) {
            let slot = dir.slot(index).ok_or(Error::Stale)?;
            // A set that shows another one until the end is shown by the first of them.
            self.put(volume, slot, entry.as_bytes())?;
        }
        Ok(())
    }
}
