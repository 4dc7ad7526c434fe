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

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use obento_base::wire::{IntoBytes as _, to_usize};
use obento_base::{Error, Result};
use obento_clusters::{Allocator, Cluster, Promises, Slot};
use obento_env::Clock;

use crate::dir::Directory;
use crate::raw::RawEntry;
use crate::volume::Volume;

/// The mark of changed sectors: there is one change at a time.
const MARK: u32 = 1;
/// How many changed sectors may wait in memory: 4 MiB of small ones.
const MAX_DIRTY: usize = 8192;

/// The changes that wait, and who makes them.
pub struct Writer {
    clock: Arc<dyn Clock>,
    allocator: Allocator,
    /// Changed sectors of the bitmap, counted from its start.
    bitmap_sectors: BTreeSet<u64>,
    /// Changed sectors of the FAT.
    fat_sectors: BTreeSet<u64>,
    /// Changed sectors of directories.
    dir_sectors: BTreeSet<u64>,
    /// Entries of the FAT that say on disk what they said before, until directories are written that do without them.
    deferred: BTreeMap<Cluster, u32>,
    /// Ends of chains that go on now, with what their entries say on disk until what they go on with is whole.
    joins: BTreeMap<Cluster, u32>,
    /// Entries of directories that are shown on disk as something else until all others are written.
    late: BTreeMap<Slot, [u8; 32]>,
    /// Clusters that were promised to files and are not named.
    promises: Promises,
    /// Whether a directory grew since the last commit: its new clusters must be zeros before they are named.
    directory_grew: bool,
    /// Whether data may wait in the device.
    data_written: bool,
    state: State,
}

/// How the volume on disk is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    /// Whether it was marked as in use before it was opened: then it stays so.
    was_in_use: bool,
    /// Whether it was marked since.
    is_marked: bool,
    /// Whether a write failed: nothing is changed any more.
    has_failed: bool,
}

impl Writer {
    /// Changes 32 bytes of a directory.
    fn put(&mut self, volume: &Volume, slot: Slot, bytes: &[u8]) -> Result<()> {
        let size = u64::from(volume.super_block().sector_size);
        let number = slot.offset().checked_div(size).unwrap_or(0);
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        let block = volume.cache().get(number)?;
        let mut edit = volume.cache().edit(&block);
        let target = edit.get_mut(within..).unwrap_or_default();
        target.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        edit.publish(MARK);
        self.dir_sectors.insert(number);
        Ok(())
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
