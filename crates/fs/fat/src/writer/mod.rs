//! Changes of a volume.
//!
//! Changes are made to sectors in memory, where readers see them at once. A commit (`commit.rs`) writes them in an
//! order in which a power cut leaves at worst lost clusters.
//! Invariant: a linked cluster has its contents before the commit that links it begins. Data is written to the device
//! at once, and new clusters of directories are zeroed there when they are allocated.
//! Locking: a change has a [`Locked`] volume, which owns the lock of the volume.

mod commit;
mod data;
mod directory;
mod open;

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Ino, Result};
use obento_clusters::{Chain, Commit as _, Locked, MARK, Volume as _, Waiting, links};

use crate::raw::RawEntry;
use crate::table::{last, pieces};
use crate::unit::{Cluster, Slot};
use crate::volume::Volume;

/// Size of the units in which a device may tear a write.
const GRAIN: u64 = 512;

/// The state of a volume that is open for changes.
pub struct Writer {
    waiting: Waiting,
}

impl Writer {
    /// Sets entries of the FAT, adjacent ones together.
    fn set_entries(
        &mut self,
        volume: &Locked<'_, Volume>,
        entries: impl Iterator<Item = (Cluster, u32)>,
    ) -> Result<()> {
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
                        self.waiting.fat_sectors.insert(number);
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

    /// Links runs after `after`, or as a new chain.
    fn link(
        &mut self,
        volume: &Locked<'_, Volume>,
        after: Option<Cluster>,
        runs: &[(Cluster, u32)],
    ) -> Result<()> {
        // If a truncated chain continued elsewhere, it would be shorter than its file until directories are written.
        if after.is_some_and(|after| self.waiting.deferred.contains_key(&after)) {
            self.commit(volume)?;
        }
        for &(start, len) in runs {
            self.waiting.allocator.name(start, len)?;
        }
        self.set_entries(volume, links(runs, last(volume.super_block().width)))?;
        if let (Some(after), Some((first, _))) = (after, runs.first()) {
            if !self.waiting.allocator.is_fresh(after) && !self.waiting.tails.contains_key(&after) {
                let said = volume.table().value(after)?;
                self.waiting.tails.insert(after, said);
            }
            self.set_entries(volume, [(after, first.0)].into_iter())?;
        }
        Ok(())
    }

    /// Ends a chain with `cluster`.
    fn cut_after(&mut self, volume: &Locked<'_, Volume>, cluster: Cluster) -> Result<()> {
        self.defer(volume, cluster)?;
        self.set_entries(volume, [(cluster, last(volume.super_block().width))].into_iter())
    }

    /// Frees clusters of a chain.
    fn free(&mut self, volume: &Locked<'_, Volume>, runs: &[(Cluster, u32)]) -> Result<()> {
        for &(start, len) in runs {
            for cluster in (start.0..start.0.saturating_add(len)).map(Cluster) {
                if self.waiting.allocator.is_fresh(cluster) {
                    self.waiting.deferred.remove(&cluster);
                    self.waiting.drop_entries(volume.cache(), volume.bytes_of((cluster, 1))?);
                    self.waiting.allocator.give_back(cluster);
                } else {
                    self.defer(volume, cluster)?;
                    self.waiting.allocator.hold(cluster, 1)?;
                }
            }
            let freed = (start.0..start.0.saturating_add(len)).map(|cluster| (Cluster(cluster), 0));
            self.set_entries(volume, freed)?;
        }
        Ok(())
    }

    /// Keeps the current FAT entry of `cluster` on disk until directories are written.
    fn defer(&mut self, volume: &Locked<'_, Volume>, cluster: Cluster) -> Result<()> {
        if !self.waiting.allocator.is_fresh(cluster) && !self.waiting.deferred.contains_key(&cluster) {
            let value = match self.waiting.tails.remove(&cluster) {
                Some(said) => said,
                None => volume.table().value(cluster)?,
            };
            self.waiting.deferred.insert(cluster, value);
        }
        Ok(())
    }

    /// Changes adjacent entries of a directory in one sector.
    fn put(&mut self, volume: &Locked<'_, Volume>, slot: Slot, bytes: &[u8]) -> Result<()> {
        self.waiting.put(volume.cache(), slot, bytes)
    }

    /// Returns all clusters of a file. Fails with `Corrupt` for a chain that is damaged.
    fn runs_of(volume: &Volume, ino: Ino, raw: &RawEntry) -> Result<Vec<(Cluster, u32)>> {
        let mut chain = Chain::new(raw.first(volume.super_block().width));
        chain.count(&mut volume.table(), ino)?;
        let mut runs: Vec<_> = chain.runs().iter().map(|run| (run.start, run.len)).collect();
        // The chain has more pieces than are stored: read the rest entry by entry.
        let mut known = runs.iter().fold(0, |sum: u32, run| sum.saturating_add(run.1));
        while known < chain.reached() {
            let lost = Corrupt::Chain { ino, at: known, what: "ends before the end of the file" };
            let run = chain.find(&mut volume.table(), ino, known, 1)?.ok_or(lost)?;
            runs.push((run.start, run.len));
            known = known.saturating_add(run.len.max(1));
        }
        Ok(runs)
    }
}
