//! What waits for a commit, whatever the format.
//!
//! Changes are made to sectors in memory, where readers see them at once; a commit writes them in the order that the driver says.
//! Invariant: what is freed says on disk what it said ([`Waiting::deferred`]) until directories are written that do without it, and
//! an end of a chain that goes on says that it is one ([`Waiting::tails`]) until what follows it is there.
//! Locking: `Mounted` holds its lock exclusively around every method here.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::Cache;
use obento_env::Clock;

use crate::allocator::Allocator;
use crate::pieces::{Piece, last_of};
use crate::promises::Promises;
use crate::sectors::{self, current, with_entries};
use crate::unit::{Cluster, Slot};

/// The mark of changed sectors: there is one change at a time.
pub const MARK: u32 = 1;
/// How many changed sectors may wait in memory: 4 MiB of small ones.
pub(crate) const MAX_DIRTY: usize = 8192;

/// The changes that wait, and by which clock they are made.
pub struct Waiting {
    /// What changes are stamped by.
    pub clock: Arc<dyn Clock>,
    /// Which clusters are free.
    pub allocator: Allocator,
    /// Changed sectors of the FAT that is read.
    pub fat_sectors: BTreeSet<u64>,
    /// Changed sectors of directories.
    pub dir_sectors: BTreeSet<u64>,
    /// Entries of the FAT that say on disk what they said before, until directories are written that do without them.
    pub deferred: BTreeMap<Cluster, u32>,
    /// Entries of the FAT that ended a chain on disk, and go on to clusters that are new there: what they said.
    pub tails: BTreeMap<Cluster, u32>,
    /// Entries of directories that are shown on disk as something else until all others are written.
    pub late: BTreeMap<Slot, [u8; 32]>,
    /// Clusters that were promised to files and are not named.
    pub promises: Promises,
    /// Whether a directory grew since the last commit: its new clusters must be zeros before they are named.
    pub directory_grew: bool,
    /// Whether data may wait in the device.
    pub data_written: bool,
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

impl Waiting {
    /// Nothing waits on a volume that was, or was not, marked as in use.
    pub fn new(clock: Arc<dyn Clock>, allocator: Allocator, was_in_use: bool) -> Self {
        Self {
            clock,
            allocator,
            fat_sectors: BTreeSet::new(),
            dir_sectors: BTreeSet::new(),
            deferred: BTreeMap::new(),
            tails: BTreeMap::new(),
            late: BTreeMap::new(),
            promises: Promises::default(),
            directory_grew: false,
            data_written: false,
            state: State { was_in_use, is_marked: false, has_failed: false },
        }
    }

    /// Fails with `ReadOnly` after a write failed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.state.has_failed { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// A write failed: nothing is changed any more.
    pub(crate) fn fail(&mut self) {
        self.state.has_failed = true;
    }

    /// Marks the volume as in use or not, by what `change` does to its first sector, unless that is so already. Fails
    /// if the device fails.
    pub fn mark(
        &mut self,
        cache: &Cache,
        in_use: bool,
        sector_size: u32,
        change: impl FnOnce(&mut [u8], &Allocator),
    ) -> Result<()> {
        if self.state.was_in_use || self.state.is_marked == in_use {
            return Ok(());
        }
        // A whole sector: nothing else may tear.
        let mut sector = vec![0; to_usize(sector_size.into())];
        cache.device().read_at(0, &mut sector)?;
        change(&mut sector, &self.allocator);
        cache.device().write_at(0, &sector)?;
        cache.forget(0);
        self.state.is_marked = in_use;
        Ok(())
    }

    /// Returns how many sectors changed.
    pub fn sectors(&self) -> usize {
        self.fat_sectors.len().saturating_add(self.dir_sectors.len())
    }

    /// Changes entries of a directory that lie together in one sector.
    pub fn put(&mut self, cache: &Cache, slot: Slot, bytes: &[u8]) -> Result<()> {
        let size = u64::from(cache.block_size());
        let number = slot.offset().checked_div(size).unwrap_or(0);
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        let block = cache.get(number)?;
        let mut edit = cache.edit(&block);
        let target = edit.get_mut(within..).unwrap_or_default();
        target.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        edit.publish(MARK);
        self.dir_sectors.insert(number);
        Ok(())
    }

    /// Writes directories: first with what is shown late as it was, then as they are.
    pub fn write_directories(&self, cache: &Cache) -> Result<()> {
        let size = u64::from(cache.block_size());
        let directories = current(cache, self.dir_sectors.iter().copied())?;
        sectors::write(cache, 0, &with_entries(directories, size, &self.late))?;
        cache.device().flush()?;
        if self.late.is_empty() {
            return Ok(());
        }
        let numbers = self.late.keys().filter_map(|slot| slot.offset().checked_div(size));
        sectors::write(cache, 0, &current(cache, numbers)?)?;
        cache.device().flush()
    }

    /// Nothing waits any more, but what is promised.
    pub fn clear(&mut self, cache: &Cache) {
        for &number in self.fat_sectors.iter().chain(&self.dir_sectors) {
            cache.unpin(number, MARK);
        }
        self.fat_sectors.clear();
        self.dir_sectors.clear();
        self.deferred.clear();
        self.tails.clear();
        self.late.clear();
        self.data_written = false;
    }
}

/// What the FAT says of `pieces` that are one chain, whose last entry says `end`.
pub fn links(pieces: &[Piece], end: u32) -> impl Iterator<Item = (Cluster, u32)> {
    let nexts = pieces.iter().skip(1).map(|(start, _)| start.0).chain([end]);
    pieces.iter().zip(nexts).flat_map(|(piece, next)| {
        let last = last_of(piece);
        let inner = (piece.0.0..last.0).map(|cluster| (Cluster(cluster), cluster.saturating_add(1)));
        inner.chain([(last, next)])
    })
}
