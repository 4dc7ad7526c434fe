//! Allocating clusters, appending them to files, and freeing them.

use alloc::vec::Vec;

use obento_base::wire::{le, to_usize};
use obento_base::{Error, Ino, Result};
use obento_clusters::{
    Chain, Cluster, Commit as _, InodeWrite, Locked, MARK, Piece, Volume as _, last_of, links,
};

use super::Writer;
use crate::set::{ALLOCATION, EntrySet, NO_FAT_CHAIN};
use crate::table::{LAST, place};
use crate::volume::Volume;

impl Writer {
    /// Records that bits of the bitmap changed.
    pub(super) fn touch(&mut self, volume: &Volume, (start, len): Piece) {
        let bits = u64::from(volume.super_block().sector_size).saturating_mul(8);
        let sector = |cluster: Cluster| u64::from(cluster.0.saturating_sub(2)).checked_div(bits).unwrap_or(0);
        self.bitmap_sectors.extend(sector(start)..=sector(last_of(&(start, len))));
    }

    /// Sets entries of the FAT, adjacent ones together.
    fn set_entries(
        &mut self,
        volume: &Locked<'_, Volume>,
        entries: impl Iterator<Item = (Cluster, u32)>,
    ) -> Result<()> {
        let sb = volume.super_block();
        let size = u64::from(sb.sector_size);
        let mut held: Option<obento_block::Edit<'_>> = None;
        for (cluster, value) in entries {
            if !sb.has(cluster) {
                return Err(Error::Invalid);
            }
            let offset = place(sb, cluster);
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
            let within = to_usize(offset.checked_rem(size).unwrap_or(0));
            let target = edit.get_mut(within..).unwrap_or_default();
            target.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
            held = Some(edit);
        }
        held.map(|edit| edit.publish(MARK));
        Ok(())
    }

    /// Links pieces to one chain.
    fn chain_up(&mut self, volume: &Locked<'_, Volume>, pieces: &[Piece]) -> Result<()> {
        self.set_entries(volume, links(pieces, LAST))
    }

    /// Keeps the current FAT entry of `cluster` on disk until directories are written.
    fn defer(&mut self, volume: &Locked<'_, Volume>, cluster: Cluster) -> Result<()> {
        if !self.waiting.allocator.is_fresh(cluster) && !self.waiting.deferred.contains_key(&cluster) {
            let value = volume.table().value(cluster)?;
            self.waiting.deferred.insert(cluster, value);
        }
        Ok(())
    }

    /// Keeps the current FAT entry of `cluster` on disk until the clusters after it are written.
    fn join(&mut self, volume: &Locked<'_, Volume>, cluster: Cluster) -> Result<()> {
        if !self.waiting.allocator.is_fresh(cluster) && !self.waiting.tails.contains_key(&cluster) {
            let value = volume.table().value(cluster)?;
            self.waiting.tails.insert(cluster, value);
        }
        Ok(())
    }

    /// Ends a chain with `cluster`.
    pub(super) fn cut_after(&mut self, volume: &Locked<'_, Volume>, cluster: Cluster) -> Result<()> {
        self.defer(volume, cluster)?;
        self.set_entries(volume, [(cluster, LAST)].into_iter())
    }

    /// Appends allocated pieces to the clusters of `set`, which are the pieces `old`. Contiguous clusters stay
    /// contiguous; otherwise the whole file becomes a chain. The caller changes the lengths.
    pub(super) fn append(
        &mut self,
        volume: &Locked<'_, Volume>,
        set: &mut EntrySet,
        old: &[Piece],
        new: &[Piece],
    ) -> Result<()> {
        let Some(&(first, _)) = new.first() else { return Ok(()) };
        let after = old.last().map(last_of);
        let is_chain = !old.is_empty() && !set.is_contiguous();
        // If a truncated chain continued elsewhere, it would be shorter than its file until directories are written.
        if is_chain && after.is_some_and(|after| self.waiting.deferred.contains_key(&after)) {
            self.commit(volume)?;
        }
        for &(start, len) in new {
            self.waiting.allocator.name(start, len)?;
            self.touch(volume, (start, len));
        }
        let follows = after.is_none_or(|after| after.0.saturating_add(1) == first.0);
        let flags = &mut set.stream.GeneralSecondaryFlags;
        if is_chain {
            self.chain_up(volume, new)?;
            if let Some(after) = after {
                self.join(volume, after)?;
                self.set_entries(volume, [(after, first.0)].into_iter())?;
            }
        } else if follows && new.len() == 1 {
            *flags = ALLOCATION | NO_FAT_CHAIN;
        } else {
            let all: Vec<Piece> = old.iter().chain(new).copied().collect();
            self.chain_up(volume, &all)?;
            *flags = ALLOCATION;
        }
        if old.is_empty() {
            set.stream.FirstCluster = le::U32::new(first.0);
        }
        Ok(())
    }

    /// Frees clusters.
    pub(super) fn free(&mut self, volume: &Locked<'_, Volume>, pieces: &[Piece]) -> Result<()> {
        for &(start, len) in pieces {
            self.touch(volume, (start, len));
            for cluster in (start.0..start.0.saturating_add(len)).map(Cluster) {
                if self.waiting.allocator.is_fresh(cluster) {
                    self.waiting.deferred.remove(&cluster);
                    self.waiting.tails.remove(&cluster);
                    self.waiting.drop_entries(volume.cache(), volume.bytes_of((cluster, 1))?);
                    self.waiting.allocator.give_back(cluster);
                } else {
                    self.waiting.allocator.hold(cluster, 1)?;
                }
            }
        }
        Ok(())
    }

    /// Returns all clusters of a set. Fails with `Corrupt` for a chain that is damaged or shorter than the length in
    /// the set.
    pub(super) fn pieces_of(volume: &Volume, ino: Ino, set: &EntrySet) -> Result<Vec<Piece>> {
        let count = volume.super_block().clusters_for(set.stream.DataLength.get());
        Self::pieces(volume, ino, volume.chain_of(ino, set)?, count)
    }

    fn pieces(volume: &Volume, ino: Ino, mut chain: Chain, count: u32) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < count {
            let lost = obento_base::Corrupt::Chain { ino, at, what: "ends before the end of the file" };
            let want = count.saturating_sub(at);
            let run = chain.find(&mut volume.table(), ino, at, want)?.ok_or(lost)?;
            let len = run.len.min(want).max(1);
            pieces.push((run.start, len));
            at = at.saturating_add(len);
        }
        Ok(pieces)
    }

    /// Frees all clusters of an inode, including those of its vendor entries.
    pub(super) fn free_all(&mut self, inode: &InodeWrite<'_, Volume>) -> Result<()> {
        let (volume, ino, set) = (inode.volume(), inode.ino, &inode.entry);
        let mut pieces = Self::pieces_of(volume, ino, set)?;
        for (first, is_contiguous, len) in set.other_allocations() {
            let count = volume.super_block().clusters_for(len);
            let chain = match is_contiguous {
                true if volume.super_block().has_run(first, count) => Chain::contiguous(Some(first), count),
                true => continue,
                false => Chain::new(Some(first)),
            };
            pieces.extend(Self::pieces(volume, ino, chain, count)?);
        }
        // Clusters of directories and tables are not freed, even if a damaged set contains them.
        pieces.retain(|&(start, len)| !volume.is_metadata(start, len));
        self.free(volume, &pieces)
    }
}
