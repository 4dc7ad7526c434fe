//! Bringing changes to the device.
//!
//! The order, each step on stable storage before the next begins:
//! 1. The mark that the volume is in use, data, and zeros in new clusters of directories.
//! 2. The FATs with what is new, all copies. What is freed says still what it said; what was the end of a chain says so until
//!    what follows it is there, which is a step of its own if they are written apart.
//! 3. Directories, where what moved is gone from its old place and not yet at its new one; then its new one.
//! 4. The FATs with what is free.
//!
//! A cut leaves, after 1 and 2, clusters in use that nobody names; after 3 those that were freed, or that moved. No entry
//! names a free cluster, because entries come after 2 and go before 4; no two name one, because a cluster is free on disk
//! before it is given out again, and what moves is nowhere before it is elsewhere. The files of step 3 that move are lost
//! clusters if the cut comes right there; one that replaces another does so in its entry, which is the old one until then.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, IntoBytes as _, le, to_usize};
use obento_base::{Error, Result, Timestamp};
use obento_block::BlockDevice as _;
use obento_clusters::sectors::{self, Sectors, current, with_entries};
use obento_clusters::{Allocator, Commit, Data as _, Volume as _};
use obento_env::Clock;

use super::{GRAIN, MARK, MAX_DIRTY, Writer};
use crate::info;
use crate::raw::RawFsInfo;
use crate::table::{Piece, pieces};
use crate::unit::Cluster;
use crate::volume::Volume;

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
        self.data_written || !self.fat_sectors.is_empty() || !self.dir_sectors.is_empty()
    }

    fn is_full(&self) -> bool {
        self.fat_sectors.len().saturating_add(self.dir_sectors.len()) > MAX_DIRTY
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
        let runs = self.promises.take_back_all();
        self.allocator.give_back_all(&runs);
        self.commit(volume)?;
        self.mark(volume, 0)?;
        volume.cache().device().flush()
    }
}

impl Writer {
    fn write_changes(&mut self, volume: &Volume) -> Result<()> {
        let device = volume.cache().device();
        if self.fat_sectors.is_empty() && self.dir_sectors.is_empty() {
            return if core::mem::take(&mut self.data_written) { device.flush() } else { Ok(()) };
        }
        self.mark(volume, info::DIRTY)?;
        if core::mem::take(&mut self.directory_grew) {
            device.flush()?;
        }
        let tables = current(volume.cache(), self.fat_sectors.iter().copied())?;
        let without = |tails: bool| {
            let tails = self.tails.iter().filter(move |_| tails);
            with_pieces(&tables, disk_pieces(volume, self.deferred.iter().chain(tails)))
        };
        // What is written at once is torn nowhere.
        let is_one = tables.len() == 1 && u64::from(volume.super_block().sector_size) == GRAIN;
        if !self.tails.is_empty() && !is_one {
            self.write_tables(volume, &without(true))?;
            device.flush()?;
            let touched = disk_pieces(volume, self.tails.iter()).map(|(number, ..)| number);
            let touched: BTreeSet<u64> = touched.collect();
            let mut tables = without(false);
            tables.retain(|number, _| touched.contains(number));
            self.write_tables(volume, &tables)?;
        } else {
            self.write_tables(volume, &without(false))?;
        }
        self.write_hint(volume)?;
        device.flush()?;
        let size = u64::from(volume.super_block().sector_size);
        let directories = current(volume.cache(), self.dir_sectors.iter().copied())?;
        sectors::write(volume.cache(), 0, &with_entries(directories, size, &self.late))?;
        device.flush()?;
        if !self.late.is_empty() {
            let numbers = self.late.keys().filter_map(|slot| slot.offset().checked_div(size));
            sectors::write(volume.cache(), 0, &current(volume.cache(), numbers)?)?;
            device.flush()?;
        }
        if !self.deferred.is_empty() {
            let pieces = disk_pieces(volume, self.deferred.iter());
            let touched: Vec<u64> = pieces.map(|(number, ..)| number).collect();
            self.write_tables(volume, &current(volume.cache(), touched.into_iter())?)?;
            device.flush()?;
        }
        for &number in self.fat_sectors.iter().chain(&self.dir_sectors) {
            volume.cache().unpin(number, MARK);
        }
        self.fat_sectors.clear();
        self.dir_sectors.clear();
        self.deferred.clear();
        self.tails.clear();
        self.late.clear();
        self.data_written = false;
        let freed = self.allocator.release();
        if volume.options().discard {
            freed.iter().try_for_each(|&piece| device.discard(volume.bytes_of(piece)?))?;
        }
        Ok(())
    }

    /// Writes sectors of the FAT to each copy that is kept.
    fn write_tables(&self, volume: &Volume, sectors: &Sectors) -> Result<()> {
        let sb = volume.super_block();
        let copies = match sb.active_fat {
            Some(active) => active..active.saturating_add(1),
            None => 0..sb.fats,
        };
        for copy in copies {
            let distance = sb.fat_offset(copy).saturating_sub(sb.fat_offset(sb.read_fat()));
            sectors::write(volume.cache(), distance, sectors)?;
        }
        Ok(())
    }

    /// Writes FSInfo: nothing depends on it.
    fn write_hint(&self, volume: &Volume) -> Result<()> {
        let sb = volume.super_block();
        let Some(offset) = sb.fs_info else { return Ok(()) };
        let mut bytes = [0; 512];
        volume.cache().device().read_at(offset, &mut bytes)?;
        let raw = RawFsInfo::mut_from_bytes(&mut bytes).map_err(|_| Error::Invalid)?;
        if !raw.is_valid() {
            return Ok(());
        }
        raw.FSI_Free_Count = le::U32::new(self.allocator.free());
        raw.FSI_Nxt_Free = le::U32::new(self.allocator.next().0);
        let written = volume.cache().device().write_at(offset, raw.as_bytes());
        volume.cache().forget(offset.checked_div(sb.sector_size.into()).unwrap_or(0));
        written
    }

    /// Marks the volume as in use, or with no bit as not in use, if it was not before it was opened.
    fn mark(&mut self, volume: &Volume, bit: u8) -> Result<()> {
        let marks = bit != 0;
        if self.state.was_in_use || self.state.is_marked == marks {
            return Ok(());
        }
        let (sb, device) = (volume.super_block(), volume.cache().device());
        // A whole sector: nothing else may tear.
        let mut sector = vec![0; to_usize(sb.sector_size.into())];
        device.read_at(0, &mut sector)?;
        if let Some(state) = sector.get_mut(to_usize(sb.state_offset())) {
            *state = *state & !info::DIRTY | bit;
        }
        device.write_at(0, &sector)?;
        volume.cache().forget(0);
        self.state.is_marked = marks;
        Ok(())
    }
}

/// What the FAT says on disk still: sector, place in it, bits to keep, bits to set.
fn disk_pieces<'a>(
    volume: &'a Volume,
    entries: impl Iterator<Item = (&'a Cluster, &'a u32)> + 'a,
) -> impl Iterator<Item = (u64, usize, u8, u8)> + 'a {
    let sb = volume.super_block();
    let (base, size) = (sb.fat_offset(sb.read_fat()), u64::from(sb.sector_size));
    let all = entries.flat_map(|(&cluster, &value)| pieces(sb.width, cluster, value));
    all.map(move |(at, keep, bits): Piece| {
        let offset = base.saturating_add(at);
        let (number, within) = (offset.checked_div(size), offset.checked_rem(size));
        (number.unwrap_or(0), to_usize(within.unwrap_or(0)), keep, bits)
    })
}

/// `sectors` with some bits changed.
fn with_pieces(sectors: &Sectors, pieces: impl Iterator<Item = (u64, usize, u8, u8)>) -> Sectors {
    let mut sectors = sectors.clone();
    for (number, within, keep, bits) in pieces {
        if let Some(byte) = sectors.get_mut(&number).and_then(|sector| sector.get_mut(within)) {
            *byte = *byte & keep | bits;
        }
    }
    sectors
}
