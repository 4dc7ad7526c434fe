//! Changes that wait for a commit, whatever the format.
//!
//! Changes are made to sectors in memory, where readers see them at once. A commit writes them in the order that the
//! driver defines.
//! Invariant: a FAT entry of a freed cluster keeps its old value on disk ([`Waiting::deferred`]) until directories
//! are written that do not need it. The last entry of a chain that is extended stays a last entry on disk
//! ([`Waiting::tails`]) until the new clusters are written.
//! Invariant: no directory entry of a free cluster is pending, since a file may write its data to the cluster at once.
//! Locking: `Mounted` holds its lock exclusively around every method here.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::Cache;
use obento_env::Clock;

use crate::allocator::Allocator;
use crate::late::LateEntries;
use crate::mount_state::FirstMark;
use crate::pieces::{Piece, last_of};
use crate::reservations::Reservations;
use crate::sectors::{self, current, with_entries};
use crate::unit::{Cluster, Slot};

/// The mark of changed sectors. Only one change is active at a time.
pub const MARK: u32 = 1;
/// Maximum number of changed sectors in memory: 4 MiB with sectors of 512 bytes.
pub(crate) const MAX_DIRTY: usize = 8192;

/// The pending changes, and the clock for their timestamps.
pub struct Waiting {
    /// The clock for timestamps.
    pub clock: Arc<dyn Clock>,
    /// The free clusters.
    pub allocator: Allocator,
    /// Changed sectors of the active FAT.
    pub fat_sectors: BTreeSet<u64>,
    /// Changed sectors of directories.
    pub dir_sectors: BTreeSet<u64>,
    /// FAT entries that keep their old value on disk until directories are written that do not need them.
    pub deferred: BTreeMap<Cluster, u32>,
    /// FAT entries that end a chain on disk and now continue in new clusters: their old values.
    pub tails: BTreeMap<Cluster, u32>,
    /// Directory entries that have other contents on disk until all other entries are written.
    pub late: LateEntries,
    /// Clusters that are reserved for files.
    pub reservations: Reservations,
    /// Whether a directory grew since the last commit: its new clusters must be zeroed before anything refers to
    /// them.
    pub directory_grew: bool,
    /// Whether the device may hold unflushed data.
    pub data_written: bool,
    state: State,
}

/// The mark of the volume on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    /// Whether the volume was marked as in use when it was opened. The mark then stays.
    was_in_use: bool,
    /// Whether this driver has marked the volume.
    is_marked: bool,
    /// The error of the first write that failed. All further changes are then refused.
    failure: Option<Error>,
}

impl Waiting {
    /// Creates the state without pending changes. `was_in_use` is the mark that the volume had.
    pub fn new(clock: Arc<dyn Clock>, allocator: Allocator, was_in_use: bool) -> Self {
        Self {
            clock,
            allocator,
            fat_sectors: BTreeSet::new(),
            dir_sectors: BTreeSet::new(),
            deferred: BTreeMap::new(),
            tails: BTreeMap::new(),
            late: LateEntries::default(),
            reservations: Reservations::default(),
            directory_grew: false,
            data_written: false,
            state: State { was_in_use, is_marked: false, failure: None },
        }
    }

    /// Returns the mark that the volume had when the first process opened it.
    pub(crate) fn first_mark(&self) -> FirstMark {
        if self.state.was_in_use { FirstMark::InUse } else { FirstMark::Unused }
    }

    /// Continues the use of a volume that another process has opened, and perhaps marked as in use. Before, the volume
    /// had the mark `first`.
    pub(crate) fn continue_use(&mut self, first: FirstMark) {
        self.state.is_marked = self.state.was_in_use && first == FirstMark::Unused;
        self.state.was_in_use = first == FirstMark::InUse;
    }

    /// Fails with `ReadOnly` if a write has failed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.state.failure.is_some() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Fails with the error of the first write that failed.
    pub(crate) fn check_written(&self) -> Result<()> {
        self.state.failure.map_or(Ok(()), Err)
    }

    /// Records that a write failed with `error`: all further changes are refused.
    pub fn fail(&mut self, error: Error) {
        self.state.failure.get_or_insert(error);
    }

    /// Marks the volume as in use or not, unless it already is, by applying `change` to its first sector. Fails if
    /// the device fails.
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
        // Write a whole sector, so that no other field can tear.
        let mut sector = vec![0; to_usize(sector_size.into())];
        cache.device().read_at(0, &mut sector)?;
        change(&mut sector, &self.allocator);
        cache.device().write_at(0, &sector)?;
        cache.forget(0);
        self.state.is_marked = in_use;
        Ok(())
    }

    /// Returns the number of changed sectors.
    pub fn sectors(&self) -> usize {
        self.fat_sectors.len().saturating_add(self.dir_sectors.len())
    }

    /// Changes adjacent directory entries in one sector.
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

    /// Drops the changes of directory entries in `range` of the device, whose clusters are free.
    pub fn drop_entries(&mut self, cache: &Cache, range: Range<u64>) {
        let size = u64::from(cache.block_size());
        let sector = |offset: u64| offset.checked_div(size).unwrap_or(0);
        let sectors = sector(range.start)..sector(range.end);
        while let Some(&number) = self.dir_sectors.range(sectors.clone()).next() {
            self.dir_sectors.remove(&number);
            cache.forget(number);
        }
        self.late.forget(&range);
    }

    /// Writes directories: first with the old contents of the entries of `late`, then with the new ones.
    pub fn write_directories(&self, cache: &Cache) -> Result<()> {
        let size = u64::from(cache.block_size());
        let directories = current(cache, self.dir_sectors.iter().copied())?;
        sectors::write(cache, 0, &with_entries(directories, size, self.late.iter()))?;
        cache.device().flush()?;
        if self.late.is_empty() {
            return Ok(());
        }
        let numbers = self.late.iter().filter_map(|(slot, _)| slot.offset().checked_div(size));
        sectors::write(cache, 0, &current(cache, numbers)?)?;
        cache.device().flush()
    }

    /// Drops all pending changes except reservations.
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

/// Returns the FAT entries that link `pieces` to one chain whose last entry is `end`.
pub fn links(pieces: &[Piece], end: u32) -> impl Iterator<Item = (Cluster, u32)> {
    let nexts = pieces.iter().skip(1).map(|(start, _)| start.0).chain([end]);
    pieces.iter().zip(nexts).flat_map(|(piece, next)| {
        let last = last_of(piece);
        let inner = (piece.0.0..last.0).map(|cluster| (Cluster(cluster), cluster.saturating_add(1)));
        inner.chain([(last, next)])
    })
}
