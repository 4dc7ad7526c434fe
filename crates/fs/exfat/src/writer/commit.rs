//! Bringing changes to the device.
//!
//! The order, each step on stable storage before the next begins:
//! 1. The mark that the volume is in use, data, and zeros in new clusters of directories.
//! 2. FAT and bitmap with what is new; then the ends of chains that go on with it. What is freed is still taken, and a chain that
//!    was cut still whole.
//! 3. Directories, where what moved is gone from its old place and not yet at its new one; then its new one.
//! 4. FAT and bitmap with what is free.
//!
//! A cut leaves, after 1 and 2, clusters in use that nobody names, or a chain that goes on behind its file; after 3 those that were
//! freed, or that moved. No set names a free cluster, because sets come after 2 and go before 4; no two name one, because a
//! cluster is free on disk before it is given out again, and what moves is nowhere before it is elsewhere. The files of step 3
//! that move are lost clusters if the cut comes right there; one that replaces another does so in its set, which is the old one until
//! then. A set is whole, because it lies in one sector; one of more than a sector is begun last and ended first.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result, Timestamp};
use obento_block::BlockDevice as _;
use obento_clusters::sectors::{self, Sectors, current, with_entries};
use obento_clusters::{Allocator, Cluster, Commit, Data as _, Volume as _};
use obento_env::Clock;

use super::{MARK, MAX_DIRTY, Writer};
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

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn allocator(&mut self) -> &mut Allocator {
        &mut self.allocator
    }

    fn check(&self) -> Result<()> {
        if self.state.has_failed { Err(Error::ReadOnly) } else { Ok(()) }
    }

    fn has_changes(&self) -> bool {
        let sectors = [&self.fat_sectors, &self.dir_sectors, &self.bitmap_sectors];
        self.data_written || sectors.iter().any(|sectors| !sectors.is_empty())
    }

    fn is_full(&self) -> bool {
        let sectors = self.fat_sectors.len().saturating_add(self.dir_sectors.len());
        sectors.saturating_add(self.bitmap_sectors.len()) > MAX_DIRTY
    }

    fn commit(&mut self, volume: &Volume) -> Result<()> {
        self.check()?;
        let result = self.write_changes(volume);
        self.state.has_failed |= result.is_err();
        result
    }

    fn close(&mut self, volume: &Volume) -> Result<()> {
        let orphans = volume.numbers().read().orphans();
        for ino in orphans {
            self.forget(volume, ino)?;
        }
        let pieces = self.promises.take_back_all();
        self.give_back(volume, &pieces);
        self.commit(volume)?;
        self.mark(volume, false)?;
        volume.cache().device().flush()
    }
}

impl Writer {
    fn write_changes(&mut self, volume: &Volume) -> Result<()> {
        let (cache, device) = (volume.cache(), volume.cache().device());
        if self.fat_sectors.is_empty() && self.dir_sectors.is_empty() && self.bitmap_sectors.is_empty() {
            return if core::mem::take(&mut self.data_written) { device.flush() } else { Ok(()) };
        }
        self.mark(volume, true)?;
        if core::mem::take(&mut self.directory_grew) {
            device.flush()?;
        }
        let tables = current(cache, self.fat_sectors.iter().copied())?;
        let tables = with(volume, tables, &self.deferred);
        sectors::write(cache, 0, &with(volume, tables.clone(), &self.joins))?;
        self.write_bitmap(volume)?;
        device.flush()?;
        // The root directory has no entry that says how long it is: its chain goes nowhere before that is whole.
        if !self.joins.is_empty() {
            sectors::write(cache, 0, &tables)?;
            device.flush()?;
        }
        let size = u64::from(volume.super_block().sector_size);
        let directories = current(cache, self.dir_sectors.iter().copied())?;
        sectors::write(cache, 0, &with_entries(directories, size, &self.late))?;
        device.flush()?;
        if !self.late.is_empty() {
            let numbers = self.late.keys().filter_map(|slot| slot.offset().checked_div(size));
            sectors::write(cache, 0, &current(cache, numbers)?)?;
            device.flush()?;
        }
        let frees = self.allocator.holds_any();
        let freed = self.allocator.release();
        if !self.deferred.is_empty() || frees {
            sectors::write(cache, 0, &self.cut_chains(volume)?)?;
            self.write_bitmap(volume)?;
            device.flush()?;
        }
        if volume.options().discard {
            freed.iter().try_for_each(|&piece| device.discard(volume.bytes_of(piece)?))?;
        }
        for &number in self.fat_sectors.iter().chain(&self.dir_sectors) {
            cache.unpin(number, MARK);
        }
        self.fat_sectors.clear();
        self.dir_sectors.clear();
        self.bitmap_sectors.clear();
        self.deferred.clear();
        self.joins.clear();
        self.late.clear();
        self.data_written = false;
        Ok(())
    }

    /// The sectors of the FAT in which chains were cut.
    fn cut_chains(&self, volume: &Volume) -> Result<Sectors> {
        let (sb, size) = (volume.super_block(), u64::from(volume.super_block().sector_size));
        let numbers = self.deferred.keys().filter_map(|&cluster| place(sb, cluster).checked_div(size));
        current(volume.cache(), numbers)
    }

    /// Writes the changed sectors of the bitmap, with what is held as taken.
    fn write_bitmap(&self, volume: &Volume) -> Result<()> {
        let (sb, device) = (volume.super_block(), volume.cache().device());
        let size = u64::from(sb.sector_size);
        for &sector in &self.bitmap_sectors {
            let at = sector.saturating_mul(size);
            let (place, _) = volume.place_in(&volume.tables().bitmap, at).ok_or(Error::Invalid)?;
            let words = self.allocator.bits().iter().skip(to_usize(at >> 3)).take(to_usize(size >> 3));
            let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            // Past the last cluster there is nothing in use.
            let bits = u64::from(sb.clusters).saturating_sub(at.saturating_mul(8));
            for (byte, first) in bytes.iter_mut().zip((0_u64..).step_by(8)) {
                let left = bits.saturating_sub(first).min(8);
                *byte &= u8::try_from((1_u16 << left).saturating_sub(1)).unwrap_or(u8::MAX);
            }
            bytes.resize(to_usize(size), 0);
            device.write_at(place, &bytes)?;
            volume.cache().forget(place.checked_div(size).unwrap_or(0));
        }
        Ok(())
    }

    /// Marks the volume as in use, or as not in use, if it was not before it was opened.
    fn mark(&mut self, volume: &Volume, in_use: bool) -> Result<()> {
        if self.state.was_in_use || self.state.is_marked == in_use {
            return Ok(());
        }
        let (sb, device) = (volume.super_block(), volume.cache().device());
        // A whole sector: nothing else may tear.
        let mut sector = vec![0; to_usize(sb.sector_size.into())];
        device.read_at(0, &mut sector)?;
        let bit = u8::try_from(DIRTY).unwrap_or(0);
        if let Some(flags) = sector.get_mut(FLAGS_AT) {
            *flags = if in_use { *flags | bit } else { *flags & !bit };
        }
        if let Some(percent) = sector.get_mut(PERCENT_AT).filter(|_| !in_use) {
            let used = u64::from(sb.clusters.saturating_sub(self.allocator.free()));
            let share = used.saturating_mul(100).checked_div(sb.clusters.into()).unwrap_or(0);
            *percent = u8::try_from(share).unwrap_or(100);
        }
        device.write_at(0, &sector)?;
        volume.cache().forget(0);
        self.state.is_marked = in_use;
        Ok(())
    }
}

/// Sectors of the FAT in which some entries are as they were.
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
