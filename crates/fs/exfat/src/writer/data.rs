//! Changing the contents of files.
//!
//! The format has no holes. Space by which a file grows is allocated at once. It is past the valid length, so that it
//! cannot be read before it is written. A write after a gap zeroes the gap first.

use core::ops::Range;

use obento_base::wire::{le, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result};
use obento_block::BlockDevice as _;
use obento_clusters::ops::stamp_data;
use obento_clusters::sectors::zero;
use obento_clusters::{
    Cluster, Commit as _, Data, Entries as _, InodeWrite, Piece, Reservation, Volume as _, last_of, split,
};
use obento_driver::{Extent, Span, TimeChange};

use super::Writer;
use crate::inode::Inode;
use crate::volume::Volume;

/// Maximum number of bytes of one write by the driver.
const MAX_STEP: u64 = 1 << 20;
/// Minimum size of a gap that is punched, if the device supports that.
const PUNCHED: u64 = 64 << 10;

/// Fails with `Corrupt` for a piece that belongs to a directory or a table.
fn check_data(volume: &Volume, ino: Ino, at: u32, (start, len): Piece) -> Result<()> {
    match volume.is_metadata(start, len) {
        true => Err(Corrupt::Chain { ino, at, what: "overlaps a directory or a table" }.into()),
        false => Ok(()),
    }
}

impl Data<Volume> for Writer {
    fn begin_write(&mut self, inode: &InodeWrite<'_, Volume>, range: Range<u64>) -> Result<(Extent, Span)> {
        let (volume, ino, sb) = (inode.volume(), inode.ino, inode.volume().super_block());
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        if range.end > volume.file_size_max() {
            return Err(Error::FileTooBig);
        }
        let by_driver = |was| Ok((Extent { len: asked, span: Span::Driver }, was));
        // A block in which the valid length ends, or that precedes it, has contents.
        let (valid, block) = (inode.entry.valid(), u64::from(sb.block_size()));
        let block_start = range.start.saturating_sub(range.start.checked_rem(block).unwrap_or(0));
        let is_new = block_start >= valid;
        // The bytes between the valid length and this place were never written. The caller zeroes the contents of a new
        // block.
        if (if is_new { block_start } else { range.start }) > valid {
            return by_driver(if is_new { Span::Unwritten } else { Span::Driver });
        }
        let valid_end = valid.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        let asked = match is_new || valid == inode.entry.size() {
            true => asked,
            false => asked.min(valid_end.saturating_sub(range.start)),
        };
        self.waiting.data_written = true;
        let size = u64::from(sb.cluster_size);
        let at =
            range.start.checked_div(size).and_then(|at| u32::try_from(at).ok()).ok_or(Error::FileTooBig)?;
        let linked = sb.clusters_for(inode.entry.size());
        let within = range.start.checked_rem(size).unwrap_or(0);
        if at < linked {
            let run = volume.run_at(inode, range.start, asked)?;
            let bytes = run.start.saturating_sub(within)..run.end;
            let (first, _) = sb.cluster_at(bytes.start).ok_or(Error::Invalid)?;
            let count = sb.clusters_for(bytes.end.saturating_sub(bytes.start));
            check_data(volume, ino, at, (first, count))?;
            let span = Span::Mapped(run.start);
            let place = range.start..range.start.saturating_add(run.end.saturating_sub(run.start));
            let (len, was_promised) = self.waiting.reservations.promise(ino, place, valid, block);
            return Ok((Extent { len, span }, if is_new || was_promised { Span::Unwritten } else { span }));
        }
        let want = sb.clusters_for(within.saturating_add(asked));
        let piece = match self.waiting.reservations.at(ino, at.saturating_sub(linked)) {
            Reservation::Has(start, len) => (start, len),
            Reservation::Next(after) => {
                let after = match after {
                    Some(after) => Some(after),
                    None => last_cluster(inode, linked)?,
                };
                let piece = self.take_with(volume, |allocator| allocator.take(after, want))?;
                self.waiting.reservations.push(ino, piece);
                piece
            }
            Reservation::Beyond => return by_driver(Span::Hole),
        };
        let bytes = volume.bytes_of(piece)?;
        let place = bytes.start.saturating_add(within);
        let len = asked.min(bytes.end.saturating_sub(place));
        let end = range.start.saturating_add(len);
        let (len, _) = self.waiting.reservations.promise(ino, range.start..end, valid, block);
        Ok((Extent { len, span: Span::Mapped(place) }, Span::Hole))
    }

    fn end_write(
        &mut self,
        mut inode: InodeWrite<'_, Volume>,
        written: Range<u64>,
        when: TimeChange,
    ) -> Result<()> {
        let (ino, sb) = (inode.ino, inode.volume().super_block());
        let block = u64::from(sb.block_size());
        let linked = sb.clusters_for(inode.entry.size());
        let linked_end = u64::from(linked).saturating_mul(sb.cluster_size.into());
        let new = written.start.max(linked_end)..written.end;
        if !self.waiting.reservations.unpromised(ino, new).is_empty() {
            return Err(Error::Invalid);
        }
        let missing = sb.clusters_for(written.end).saturating_sub(linked);
        let pieces = self.waiting.reservations.redeem(ino, missing).ok_or(Error::Invalid)?;
        self.extend(&mut inode, &pieces)?;
        grow(&mut inode, written.end);
        // The clusters of writes that were abandoned.
        let start = written.start.saturating_sub(written.start.checked_rem(block).unwrap_or(0));
        let skipped = inode.entry.valid().checked_next_multiple_of(block).unwrap_or(u64::MAX)..start;
        self.zero_unpromised(&inode, skipped)?;
        self.waiting.reservations.fulfil(ino, &written, block);
        set_valid(&mut inode, written.end);
        stamp_data(self, &mut inode, when);
        self.put_inode(&inode)
    }

    fn abandon(&mut self, inode: &InodeWrite<'_, Volume>, range: &Range<u64>) {
        let (ino, sb) = (inode.ino, inode.volume().super_block());
        let linked = sb.clusters_for(inode.entry.size());
        let parts = self.waiting.reservations.fulfil(ino, range, sb.block_size().into());
        let shown = inode.entry.valid();
        for part in parts {
            let part = part.start..part.end.min(shown);
            if let Err(error) = self.each_run(inode, part.clone(), |volume, at, _| zero_gap(volume, at)) {
                // Readers must not see the arbitrary bytes in the file.
                self.waiting.reservations.restore(ino, part);
                self.waiting.fail(error);
            }
        }
        let given = self.waiting.reservations.trim(ino, linked, sb.cluster_size.into());
        self.give_back(inode.volume(), &given);
    }

    fn write(&mut self, mut inode: InodeWrite<'_, Volume>, offset: u64, bytes: &[u8]) -> Result<usize> {
        let (volume, ino) = (inode.volume(), inode.ino);
        let room =
            volume.file_size_max().checked_sub(offset).filter(|&room| room > 0).ok_or(Error::FileTooBig)?;
        let len = to_u64(bytes.len()).min(room).min(MAX_STEP);
        if len == 0 {
            return Ok(0);
        }
        let end = offset.saturating_add(len);
        self.waiting.data_written = true;
        self.fill(&mut inode, end)?;
        grow(&mut inode, end);
        // A block that another write was to fill, and that this one writes in part.
        let block = u64::from(volume.super_block().block_size());
        let parts = self.waiting.reservations.fulfil(ino, &(offset..end), block);
        let zeroed = parts.iter().try_for_each(|part| {
            self.each_run(&inode, part.clone(), |volume, place, _| zero_gap(volume, place))
        });
        if let Err(error) = zeroed {
            // As promises, they read as zeros.
            parts.into_iter().for_each(|part| self.waiting.reservations.restore(ino, part));
            return Err(error);
        }
        let valid = inode.entry.valid();
        self.zero_unpromised(&inode, valid..offset.max(valid))?;
        self.each_run(&inode, offset..end, |volume, place, at| {
            let from = to_usize(at.saturating_sub(offset));
            let len = to_usize(place.end.saturating_sub(place.start));
            let part = bytes.get(from..from.saturating_add(len)).unwrap_or_default();
            volume.cache().device().write_at(place.start, part)
        })?;
        set_valid(&mut inode, end);
        stamp_data(self, &mut inode, TimeChange::Now);
        self.put_inode(&inode)?;
        Ok(to_usize(len))
    }

    fn truncate(&mut self, mut inode: InodeWrite<'_, Volume>, size: u64) -> Result<()> {
        let (volume, ino, sb) = (inode.volume(), inode.ino, inode.volume().super_block());
        if size > volume.file_size_max() {
            return Err(Error::FileTooBig);
        }
        if size <= inode.entry.size() {
            let linked = sb.clusters_for(inode.entry.size());
            let block = u64::from(sb.block_size());
            self.waiting.reservations.fulfil(
                ino,
                &(size.checked_next_multiple_of(block).unwrap_or(u64::MAX)..u64::MAX),
                block,
            );
            let given = self.waiting.reservations.trim(ino, linked, sb.cluster_size.into());
            self.give_back(volume, &given);
        }
        if size > inode.entry.size() {
            self.fill(&mut inode, size)?;
        } else if sb.clusters_for(size) < sb.clusters_for(inode.entry.size()) {
            self.shorten(&mut inode, sb.clusters_for(size))?;
        }
        set_len(&mut inode, size);
        inode.entry.stream.ValidDataLength = le::U64::new(inode.entry.valid().min(size));
        stamp_data(self, &mut inode, TimeChange::Now);
        self.put_inode(&inode)
    }

    fn free_inode(&mut self, inode: InodeWrite<'_, Volume>) -> Result<()> {
        Volume::relearn(&inode.dir(), None)?;
        self.free_all(&inode)
    }
}

impl Writer {
    /// Calls a function for each run of `range`, which is within the clusters of the file.
    fn each_run(
        &mut self,
        inode: &InodeWrite<'_, Volume>,
        range: Range<u64>,
        mut act: impl FnMut(&Volume, Range<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        let (volume, mut at) = (inode.volume(), range.start);
        while at < range.end {
            let place = volume.run_at(inode, at, range.end.saturating_sub(at))?;
            let len = place.end.saturating_sub(place.start).max(1);
            let (first, _) = volume.super_block().cluster_at(place.start).ok_or(Error::Invalid)?;
            check_data(volume, inode.ino, 0, (first, volume.super_block().clusters_for(len)))?;
            act(volume, place, at)?;
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Zeroes the parts of `range` that no open write fills. `range` is within the clusters of the file.
    fn zero_unpromised(&mut self, inode: &InodeWrite<'_, Volume>, range: Range<u64>) -> Result<()> {
        for part in self.waiting.reservations.unpromised(inode.ino, range) {
            self.waiting.data_written = true;
            self.each_run(inode, part, |volume, place, _| zero_gap(volume, place))?;
        }
        Ok(())
    }

    /// Makes the clusters for `size` bytes part of the file, first those that are reserved.
    fn fill(&mut self, inode: &mut InodeWrite<'_, Volume>, size: u64) -> Result<()> {
        let (volume, sb) = (inode.volume(), inode.volume().super_block());
        let linked = sb.clusters_for(inode.entry.size());
        let missing = sb.clusters_for(size).saturating_sub(linked);
        let (mut pieces, _) = split(self.waiting.reservations.pieces(inode.ino).to_vec(), missing);
        let reserved = pieces.iter().fold(0, |sum: u32, piece| sum.saturating_add(piece.1));
        let after = match pieces.last() {
            Some(last) => Some(last_of(last)),
            None => last_cluster(inode, linked)?,
        };
        pieces.extend(self.take(volume, after, missing.saturating_sub(reserved))?);
        self.waiting.reservations.redeem(inode.ino, reserved);
        self.extend(inode, &pieces)
    }

    /// Appends pieces to a file, whose set the caller writes.
    fn extend(&mut self, inode: &mut InodeWrite<'_, Volume>, pieces: &[Piece]) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let volume = inode.volume();
        let linked = volume.super_block().clusters_for(inode.entry.size());
        // The whole chain is needed only if all of it must be written to the FAT.
        let old = match (linked, last_cluster(inode, linked)?) {
            (0, _) | (_, None) => alloc::vec::Vec::new(),
            (_, Some(last)) if !inode.entry.is_contiguous() => alloc::vec::Vec::from([(last, 1)]),
            (_, Some(_)) => Self::pieces_of(volume, inode.ino, &inode.entry)?,
        };
        let was_contiguous = inode.entry.is_contiguous();
        if let Err(error) = self.append(volume, &mut inode.entry, &old, pieces) {
            // The new clusters are lost, and the known chain may be wrong.
            volume.forget(inode.ino);
            return Err(error);
        }
        let is_same_kind = linked > 0 && was_contiguous == inode.entry.is_contiguous();
        let chain = volume.chain(inode)?;
        let mut chain = chain.lock();
        if is_same_kind && chain.reached() == linked {
            pieces.iter().try_for_each(|&(start, len)| chain.push(start, len))
        } else {
            volume.forget(inode.ino);
            Ok(())
        }
    }

    /// Frees the clusters after the first `keep`.
    fn shorten(&mut self, inode: &mut InodeWrite<'_, Volume>, keep: u32) -> Result<()> {
        let volume = inode.volume();
        let (kept, mut pieces) = split(Self::pieces_of(volume, inode.ino, &inode.entry)?, keep);
        volume.forget(inode.ino);
        match kept.last().map(last_of) {
            Some(end) if !inode.entry.is_contiguous() => self.cut_after(volume, end)?,
            Some(_) => {}
            None => {
                inode.entry.stream.FirstCluster = le::U32::new(0);
                inode.entry.stream.GeneralSecondaryFlags = crate::set::ALLOCATION;
            }
        }
        pieces.retain(|&(start, len)| !volume.is_metadata(start, len));
        self.free(volume, &pieces)
    }
}

/// Returns the last of the `linked` clusters of a file.
fn last_cluster(inode: &InodeWrite<'_, Volume>, linked: u32) -> Result<Option<Cluster>> {
    let volume = inode.volume();
    let Some(at) = linked.checked_sub(1) else { return Ok(None) };
    let offset = u64::from(at).saturating_mul(volume.super_block().cluster_size.into());
    let place = volume.run_at(inode, offset, 1)?;
    Ok(volume.super_block().cluster_at(place.start).map(|(cluster, _)| cluster))
}

/// Zeroes a gap.
fn zero_gap(volume: &Volume, place: Range<u64>) -> Result<()> {
    let device = volume.cache().device();
    let is_long = place.end.saturating_sub(place.start) >= PUNCHED;
    if is_long && device.punch(place.clone())? {
        return Ok(());
    }
    zero(device, place)
}

fn grow(inode: &mut Inode, end: u64) {
    let len = inode.entry.size().max(end);
    set_len(inode, len);
}

fn set_len(inode: &mut Inode, len: u64) {
    inode.entry.stream.DataLength = le::U64::new(len);
}

fn set_valid(inode: &mut Inode, end: u64) {
    inode.entry.stream.ValidDataLength = le::U64::new(inode.entry.valid().max(end));
}
