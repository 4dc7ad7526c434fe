//! Writing changes to the device.
//!
//! A commit has these steps. Each is on stable storage before the next one begins:
//! 1. The mark that the volume is in use, data, and zeros in new clusters of directories.
//! 2. FAT and bitmap with new clusters; then the ends of chains that continue in them. Freed clusters are still in
//!    use, and truncated chains still have their old length.
//! 3. Directories, in which moved entries are no longer at their old places and not yet at their new places. Then the
//!    moved entries at their new places.
//! 4. FAT and bitmap with freed clusters.
//!
//! A power cut after 1 and 2 leaves clusters in use without an owner, or a chain that continues after the end of its
//! file. A power cut after 3 leaves clusters that were freed, or that belong to files that moved. No set refers to a
//! free cluster, since sets are written after 2 and before 4. No two sets refer to one cluster. A cluster is free on
//! disk before it is allocated again, and a moved set is erased before it is written elsewhere. If the power cut comes
//! within step 3, files that move are lost clusters. A file that replaces another one takes over its set, which has the
//! old contents until then. A set is complete, since it is in one sector; the first sector of a longer set is written
//! last, and erased first.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::BlockDevice as _;
use obento_clusters::sectors::{self, Sectors, current};
use obento_clusters::{Cluster, Commit, Locked, Piece, Volume as _, Waiting};
use obento_env::Clock;

use super::Writer;
use crate::super_block::DIRTY;
use crate::table::place;
use crate::volume::Volume;

/// `VolumeFlags` in the boot sector.
const FLAGS_AT: usize = 106;
/// `PercentInUse` in the boot sector.
const PERCENT_AT: usize = 112;

impl Commit<Volume> for Writer {
    fn open(volume: &Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open(volume, clock)
    }

    fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    fn waiting_mut(&mut self) -> &mut Waiting {
        &mut self.waiting
    }

    fn give_back(&mut self, volume: &Locked<'_, Volume>, pieces: &[Piece]) {
        for &piece in pieces {
            // A commit may have written these bits as used.
            self.touch(volume, piece);
        }
        self.waiting.allocator.give_back_all(pieces);
    }

    fn sectors(&self) -> usize {
        self.waiting.sectors().saturating_add(self.bitmap_sectors.len())
    }

    fn write_changes(&mut self, volume: &Locked<'_, Volume>) -> Result<()> {
        let (cache, device) = (volume.cache(), volume.cache().device());
        self.mark(volume, true)?;
        if core::mem::take(&mut self.waiting.directory_grew) {
            device.flush()?;
        }
        let tables = current(cache, self.waiting.fat_sectors.iter().copied())?;
        let tables = with(volume, tables, &self.waiting.deferred);
        sectors::write(cache, 0, &with(volume, sectors::copy(&tables), &self.waiting.tails))?;
        self.write_bitmap(volume)?;
        device.flush()?;
        // No entry contains the length of the root directory, so its chain is extended only when the new clusters are
        // linked.
        if !self.waiting.tails.is_empty() {
            sectors::write(cache, 0, &tables)?;
            device.flush()?;
        }
        self.waiting.write_directories(volume.cache())?;
        let frees = self.waiting.allocator.holds_any();
        let freed = self.waiting.allocator.release();
        if !self.waiting.deferred.is_empty() || frees {
            sectors::write(cache, 0, &self.cut_chains(volume)?)?;
            self.write_bitmap(volume)?;
            device.flush()?;
        }
        if volume.options().discard {
            freed.iter().try_for_each(|&piece| device.discard(volume.bytes_of(piece)?))?;
        }
        self.bitmap_sectors.clear();
        self.waiting.clear(cache);
        Ok(())
    }

    fn mark(&mut self, volume: &Locked<'_, Volume>, in_use: bool) -> Result<()> {
        let sb = volume.super_block();
        self.waiting.mark(volume.cache(), in_use, sb.sector_size, |sector, allocator| {
            let bit = u8::try_from(DIRTY).unwrap_or(0);
            if let Some(flags) = sector.get_mut(FLAGS_AT) {
                *flags = if in_use { *flags | bit } else { *flags & !bit };
            }
            if let Some(percent) = sector.get_mut(PERCENT_AT).filter(|_| !in_use) {
                let used = u64::from(sb.clusters.saturating_sub(allocator.free()));
                let share = used.saturating_mul(100).checked_div(sb.clusters.into()).unwrap_or(0);
                *percent = u8::try_from(share).unwrap_or(100);
            }
        })
    }
}

impl Writer {
    /// Returns the sectors of the FAT in which chains were truncated.
    fn cut_chains(&self, volume: &Volume) -> Result<Sectors> {
        let (sb, size) = (volume.super_block(), u64::from(volume.super_block().sector_size));
        let numbers =
            self.waiting.deferred.keys().filter_map(|&cluster| place(sb, cluster).checked_div(size));
        current(volume.cache(), numbers)
    }

    /// Writes the changed sectors of the bitmap. Held clusters are marked as used.
    fn write_bitmap(&self, volume: &Volume) -> Result<()> {
        let (sb, device) = (volume.super_block(), volume.cache().device());
        let size = u64::from(sb.sector_size);
        for &sector in &self.bitmap_sectors {
            let at = sector.saturating_mul(size);
            let (place, _) = volume.place_in(&volume.tables().bitmap, at).ok_or(Error::Invalid)?;
            let first = u32::try_from(at.saturating_mul(8).saturating_add(2)).map_err(|_| Error::Invalid)?;
            let mut bytes = vec![0; to_usize(size)];
            self.waiting.allocator.used().store(Cluster(first), &mut bytes);
            // Bits past the last cluster are clear.
            let bits = u64::from(sb.clusters).saturating_sub(at.saturating_mul(8));
            for (byte, first) in bytes.iter_mut().zip((0_u64..).step_by(8)) {
                let left = bits.saturating_sub(first).min(8);
                *byte &= u8::try_from((1_u16 << left).saturating_sub(1)).unwrap_or(u8::MAX);
            }
            device.write_at(place, &bytes)?;
            volume.cache().forget(place.checked_div(size).unwrap_or(0));
        }
        Ok(())
    }
}

/// Returns `tables` with the old values of some FAT entries.
fn with(volume: &Volume, mut tables: Sectors, entries: &BTreeMap<Cluster, u32>) -> Sectors {
    let size = u64::from(volume.super_block().sector_size);
    for (&cluster, value) in entries {
        let offset = place(volume.super_block(), cluster);
        let within = to_usize(offset.checked_rem(size).unwrap_or(0));
        let sector = tables.get_mut(&offset.checked_div(size).unwrap_or(0));
        let target = sector.and_then(|sector| sector.get_mut(within..)).unwrap_or_default();
        target.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    tables
}
