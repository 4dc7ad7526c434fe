//! Changes of a volume.
//!
//! Changes are made to sectors in memory, where readers see them at once. A commit (`commit.rs`) writes them in an
//! order in which a power cut leaves at worst lost clusters.
//! Invariant: a cluster has its contents before the commit that refers to it begins. Data is written to the device at
//! once, and new clusters of directories are zeroed there when they are allocated.
//! Invariant: an entry set that this driver places is in one sector, if it fits, so that a power cut leaves it
//! complete or absent.
//! Locking: a change has a [`Locked`] volume, which owns the lock of the volume.

mod commit;
mod data;
mod directory;
mod open;
mod space;

use alloc::collections::BTreeSet;

use obento_base::wire::IntoBytes as _;
use obento_base::{Error, Result};
use obento_clusters::{Locked, Slot, Volume as _, Waiting};

use crate::dir::Directory;
use crate::raw::RawEntry;
use crate::volume::Volume;

/// The state of a volume that is open for changes.
pub struct Writer {
    waiting: Waiting,
    /// Changed sectors of the bitmap, counted from its start.
    bitmap_sectors: BTreeSet<u64>,
}

impl Writer {
    /// Changes one entry of a directory.
    fn put(&mut self, volume: &Locked<'_, Volume>, slot: Slot, bytes: &[u8]) -> Result<()> {
        self.waiting.put(volume.cache(), slot, bytes)
    }

    /// Writes the first two entries of the set at `index`. The others do not change.
    fn put_head(
        &mut self,
        volume: &Locked<'_, Volume>,
        dir: &Directory,
        index: u32,
        entries: &[RawEntry],
    ) -> Result<()> {
        for (index, entry) in (index..).zip(entries.iter().take(2)) {
            let slot = dir.slot(index).ok_or(Error::Stale)?;
            // While a delayed set has other contents on disk, these first entries hide it.
            self.put(volume, slot, entry.as_bytes())?;
        }
        Ok(())
    }
}
