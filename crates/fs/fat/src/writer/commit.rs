//! Writing changes to the device.
//!
//! A commit has these steps. Each is on stable storage before the next one begins:
//! 1. The mark that the volume is in use, data, and zeros in new clusters of directories.
//! 2. All FATs, with new clusters. Freed entries keep their old values. The old end of an extended chain stays an end
//!    until the clusters after it are written. This is a separate step if they are in different writes.
//! 3. Directories, in which moved entries are no longer at their old places and not yet at their new places. Then the
//!    moved entries at their new places.
//! 4. The FATs, with freed clusters.
//!
//! A power cut after 1 and 2 leaves clusters in use to which nothing refers. A power cut after 3 leaves clusters that
//! were freed, or that belong to files that moved. No entry refers to a free cluster, since entries are written after 2
//! and before
//! 4. No two entries refer to one cluster. A cluster is free on disk before it is allocated again, and a moved entry is
//! erased before it is written elsewhere. If the power cut comes within step 3, files that move are lost clusters. A
//! file that replaces another one takes over its entry, which has the old contents until then.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, IntoBytes as _, le, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice as _;
use obento_clusters::sectors::{self, Sectors, current};
use obento_clusters::{Commit, Locked, Piece, Volume as _, Waiting};
use obento_env::Clock;

use super::{GRAIN, Writer};
use crate::info;
use crate::raw::RawFsInfo;
use crate::table::{self, pieces};
use crate::unit::Cluster;
use crate::volume::Volume;

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

    fn give_back(&mut self, _: &Locked<'_, Volume>, pieces: &[Piece]) {
        self.waiting.allocator.give_back_all(pieces);
    }

    fn write_changes(&mut self, volume: &Locked<'_, Volume>) -> Result<()> {
        let device = volume.cache().device();
        self.mark(volume, true)?;
        if core::mem::take(&mut self.waiting.directory_grew) {
            device.flush()?;
        }
        let tables = current(volume.cache(), self.waiting.fat_sectors.iter().copied())?;
        let without = |tails: bool| {
            let tails = self.waiting.tails.iter().filter(move |_| tails);
            with_pieces(&tables, disk_pieces(volume, self.waiting.deferred.iter().chain(tails)))
        };
        // A single write of one grain cannot tear.
        let is_one = tables.len() == 1 && u64::from(volume.super_block().sector_size) == GRAIN;
        if !self.waiting.tails.is_empty() && !is_one {
            self.write_tables(volume, &without(true))?;
            device.flush()?;
            let mut touched = BTreeSet::new();
            touched.extend(disk_pieces(volume, self.waiting.tails.iter()).map(|(number, ..)| number));
            let mut tables = without(false);
            tables.retain(|number, _| touched.contains(number));
            self.write_tables(volume, &tables)?;
        } else {
            self.write_tables(volume, &without(false))?;
        }
        self.write_hint(volume)?;
        device.flush()?;
        self.waiting.write_directories(volume.cache())?;
        if !self.waiting.deferred.is_empty() {
            let pieces = disk_pieces(volume, self.waiting.deferred.iter());
            let touched: Vec<u64> = pieces.map(|(number, ..)| number).collect();
            self.write_tables(volume, &current(volume.cache(), touched.into_iter())?)?;
            device.flush()?;
        }
        self.waiting.clear(volume.cache());
        let freed = self.waiting.allocator.release();
        if volume.options().discard {
            freed.iter().try_for_each(|&piece| device.discard(volume.bytes_of(piece)?))?;
        }
        Ok(())
    }

    fn mark(&mut self, volume: &Locked<'_, Volume>, in_use: bool) -> Result<()> {
        let sb = volume.super_block();
        self.waiting.mark(volume.cache(), in_use, sb.sector_size, |sector, _| {
            if let Some(state) = sector.get_mut(to_usize(sb.state_offset())) {
                *state = *state & !info::DIRTY | if in_use { info::DIRTY } else { 0 };
            }
        })
    }
}

impl Writer {
    /// Writes sectors of the FAT to each maintained copy.
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

    /// Writes FSInfo, which contains only hints.
    fn write_hint(&self, volume: &Volume) -> Result<()> {
        let sb = volume.super_block();
        let Some(offset) = sb.fs_info else { return Ok(()) };
        let mut bytes = [0; 512];
        volume.cache().device().read_at(offset, &mut bytes)?;
        let raw = RawFsInfo::mut_from_bytes(&mut bytes).map_err(|_| Error::Invalid)?;
        if !raw.is_valid() {
            return Ok(());
        }
        raw.FSI_Free_Count = le::U32::new(self.waiting.allocator.free());
        raw.FSI_Nxt_Free = le::U32::new(self.waiting.allocator.next().0);
        let written = volume.cache().device().write_at(offset, raw.as_bytes());
        volume.cache().forget(offset.checked_div(sb.sector_size.into()).unwrap_or(0));
        written
    }
}

/// Returns the parts of the FAT that keep their value on disk: sector, offset, bits to keep, bits to set.
fn disk_pieces<'a>(
    volume: &'a Volume,
    entries: impl Iterator<Item = (&'a Cluster, &'a u32)> + 'a,
) -> impl Iterator<Item = (u64, usize, u8, u8)> + 'a {
    let sb = volume.super_block();
    let (base, size) = (sb.fat_offset(sb.read_fat()), u64::from(sb.sector_size));
    let all = entries.flat_map(|(&cluster, &value)| pieces(sb.width, cluster, value));
    all.map(move |(at, keep, bits): table::Piece| {
        let offset = base.saturating_add(at);
        let (number, within) = (offset.checked_div(size), offset.checked_rem(size));
        (number.unwrap_or(0), to_usize(within.unwrap_or(0)), keep, bits)
    })
}

/// Returns `sectors` with some bits changed.
fn with_pieces(sectors: &Sectors, pieces: impl Iterator<Item = (u64, usize, u8, u8)>) -> Sectors {
    let mut sectors = sectors::copy(sectors);
    for (number, within, keep, bits) in pieces {
        if let Some(byte) = sectors.get_mut(&number).and_then(|sector| sector.get_mut(within)) {
            *byte = *byte & keep | bits;
        }
    }
    sectors
}
