//! What changes a volume.
//!
//! Changes are made to sectors in memory, where readers see them at once, and written by a commit (`commit.rs`) in an order in
//! which a cut leaves lost clusters at worst.
//! Invariant: a cluster that is linked holds what it is to hold before the commit that names it begins: data goes to the
//! device at once, and new clusters of directories are zeroed there when they are taken.
//! Locking: `Mounted` holds its lock exclusively around every method here.

mod commit;
mod data;
mod directory;
mod open;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Ino, Result};
use obento_clusters::{Allocator, Chain, Commit as _, Promises};
use obento_env::Clock;

use crate::raw::RawEntry;
use crate::table::{last, pieces};
use crate::unit::{Cluster, Slot};
use crate::volume::Volume;

/// The mark of changed sectors: there is one change at a time.
const MARK: u32 = 1;
/// The grain at which a device may tear a write.
const GRAIN: u64 = 512;
/// How many changed sectors may wait in memory: 4 MiB of small ones.
const MAX_DIRTY: usize = 8192;

/// The changes that wait, and who makes them.
pub struct Writer {
    clock: Arc<dyn Clock>,
    allocator: Allocator,
    /// Changed sectors of the FAT that is read.
    fat_sectors: BTreeSet<u64>,
    /// Changed sectors of directories.
    dir_sectors: BTreeSet<u64>,
    /// Entries of the FAT that say on disk what they said before, until directories are written that do without them.
    deferred: BTreeMap<Cluster, u32>,
    /// Entries of the FAT that ended a chain on disk, and go on to clusters that are new there: what they said.
    tails: BTreeMap<Cluster, u32>,
    /// Entries of directories that moved here, with what is shown until the places that they left are written.
    late: BTreeMap<Slot, [u8; 32]>,
    /// Clusters that were promised to files and are not linked.
    promises: Promises,
    /// Whether a directory grew since the last commit: its new clusters must be zeros before they are linked.
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
    /// Changes a sector in memory.
    fn edit(volume: &Volume, number: u64, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let block = volume.cache().get(number)?;
        let mut edit = volume.cache().edit(&block);
        change(&mut edit);
        edit.publish(MARK);
        Ok(())
    }

    /// Sets entries of the FAT, those that lie together at once.
    fn set_entries(&mut self, volume: &Volume, entries: impl Iterator<Item = (Cluster, u32)>) -> Result<()> {
        let sb = volume.super_block();
        let (base, size) = (sb.fat_offset(sb.read_fat()), u64::from(sb.sector_size));
        let mut held: Option<obento_block::Edit<'_>> = None;
        for (cluster, value) in entries {
            if !sb.has(cluster) {
                return Err(Error::Invalid);
            }
            for (at, keep, bits) in pieces(sb.width, cluster, value) {
                let offset = base.saturating_add(at);
                let number = offset.checked_div(size).unwrap_or(0);
                let mut edit = match held.take() {
                    Some(edit) if edit.number() == number => edit,
                    other => {
                        other.map(|edit| edit.publish(MARK));
                        let block = volume.cache().get(number)?;
                        self.fat_sectors.insert(number);
                        volume.cache().edit(&block)
                    }
                };
                if let Some(byte) = edit.get_mut(to_usize(offset.checked_rem(size).unwrap_or(0))) {
                    *byte = *byte & keep | bits;
                }
                held = Some(edit);
            }
        }
        held.map(|edit| edit.publish(MARK));
        Ok(())
    }

    /// Links runs behind `after`, or as a chain of their own.
    fn link(&mut self, volume: &Volume, after: Option<Cluster>, runs: &[(Cluster, u32)]) -> Result<()> {
        // A chain that was cut and goes on elsewhere would be shorter, until directories are written, than its file says.
        if after.is_some_and(|after| self.deferred.contains_key(&after)) {
            self.commit(volume)?;
        }
        for &(start, len) in runs {
            self.allocator.name(start, len)?;
        }
        let end = last(volume.super_block().width);
        let nexts = runs.iter().skip(1).map(|(start, _)| start.0).chain([end]);
        let entries = runs.iter().zip(nexts).flat_map(|(&(start, len), next)| {
            let last = start.0.saturating_add(len.saturating_sub(1));
            let inner = (start.0..last).map(|cluster| (Cluster(cluster), cluster.saturating_add(1)));
            inner.chain([(Cluster(last), next)])
        });
        self.set_entries(volume, entries)?;
        if let (Some(after), Some((first, _))) = (after, runs.first()) {
            if !self.allocator.is_fresh(after) && !self.tails.contains_key(&after) {
                let said = volume.table().value(after)?;
                self.tails.insert(after, said);
            }
            self.set_entries(volume, [(after, first.0)].into_iter())?;
        }
        Ok(())
    }

    /// Ends a chain with `cluster`.
    fn cut_after(&mut self, volume: &Volume, cluster: Cluster) -> Result<()> {
        self.defer(volume, cluster)?;
        self.set_entries(volume, [(cluster, last(volume.super_block().width))].into_iter())
    }

    /// Frees clusters of a chain.
    fn free(&mut self, volume: &Volume, runs: &[(Cluster, u32)]) -> Result<()> {
        for &(start, len) in runs {
            for cluster in (start.0..start.0.saturating_add(len)).map(Cluster) {
                if self.allocator.is_fresh(cluster) {
                    self.deferred.remove(&cluster);
                    self.allocator.give_back(cluster);
                } else {
                    self.defer(volume, cluster)?;
                    self.allocator.hold(cluster, 1)?;
                }
            }
            let freed = (start.0..start.0.saturating_add(len)).map(|cluster| (Cluster(cluster), 0));
            self.set_entries(volume, freed)?;
        }
        Ok(())
    }

    /// What the entry of `cluster` says now stays on disk for a while.
    fn defer(&mut self, volume: &Volume, cluster: Cluster) -> Result<()> {
        if !self.allocator.is_fresh(cluster) && !self.deferred.contains_key(&cluster) {
            let value = match self.tails.remove(&cluster) {
                Some(said) => said,
                None => volume.table().value(cluster)?,
            };
            self.deferred.insert(cluster, value);
        }
        Ok(())
    }

    /// Changes entries of a directory that lie together in one sector.
    pub(crate) fn put(&mut self, volume: &Volume, slot: Slot, bytes: &[u8]) -> Result<()> {
        let size = u64::from(volume.super_block().sector_size);
        let number = slot.offset().checked_div(size).unwrap_or(0);
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        Self::edit(volume, number, |sector| {
            let target = sector.get_mut(within..).unwrap_or_default();
            target.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        })?;
        self.dir_sectors.insert(number);
        Ok(())
    }

    /// All clusters of a file. Errors: Corrupt for a chain that is damaged.
    fn runs_of(volume: &Volume, ino: Ino, raw: &RawEntry) -> Result<Vec<(Cluster, u32)>> {
        let mut chain = Chain::new(raw.first(volume.super_block().width));
        chain.count(&mut volume.table(), ino)?;
        let mut runs: Vec<_> = chain.runs().iter().map(|run| (run.start, run.len)).collect();
        // More pieces than are kept: the rest is gone through one by one.
        let mut known = runs.iter().fold(0, |sum: u32, run| sum.saturating_add(run.1));
        while known < chain.reached() {
            let lost = Corrupt::Chain { ino, at: known, what: "ends before the file does" };
            let run = chain.find(&mut volume.table(), ino, known, 1)?.ok_or(lost)?;
            runs.push((run.start, run.len));
            known = known.saturating_add(run.len.max(1));
        }
        Ok(runs)
    }
}
