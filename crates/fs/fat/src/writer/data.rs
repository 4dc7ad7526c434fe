//! Changing the contents of files.
//!
//! The format has no holes: space by which a file grows is zeroed and linked at once.

use core::ops::Range;

use obento_base::wire::{le, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result};
use obento_block::BlockDevice as _;
use obento_clusters::ops::stamp_data;
use obento_clusters::sectors::zero;
use obento_clusters::{
    Commit as _, Data, Entries as _, InodeWrite, Reservation, Volume as _, last_of, split,
};
use obento_driver::{Extent, Span, TimeChange};

use super::Writer;
use crate::contract::FILE_SIZE_MAX;
use crate::inode::Inode;
use crate::unit::Cluster;
use crate::volume::Volume;

/// Maximum number of bytes of one write by the driver.
const MAX_STEP: u64 = 1 << 20;

/// Returns the number of clusters for `bytes` bytes.
fn clusters_for(volume: &Volume, bytes: u64) -> u32 {
    u32::try_from(volume.super_block().clusters_for(bytes)).unwrap_or(u32::MAX)
}

/// Rounds `offset` down to the start of its block.
fn floor(offset: u64, block: u64) -> u64 {
    offset.saturating_sub(offset.checked_rem(block).unwrap_or(0))
}

/// Rounds `offset` up to the end of its block.
fn ceil(offset: u64, block: u64) -> u64 {
    offset.checked_next_multiple_of(block).unwrap_or(u64::MAX)
}

impl Data<Volume> for Writer {
    fn begin_write(&mut self, inode: &InodeWrite<'_, Volume>, range: Range<u64>) -> Result<(Extent, Span)> {
        let (volume, ino) = (inode.volume(), inode.ino);
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        let size = u64::from(volume.super_block().cluster_size);
        if range.end > ceil(FILE_SIZE_MAX, size) {
            return Err(Error::FileTooBig);
        }
        self.waiting.data_written = true;
        let at =
            range.start.checked_div(size).and_then(|at| u32::try_from(at).ok()).ok_or(Error::FileTooBig)?;
        let within = range.start.checked_rem(size).unwrap_or(0);
        let want = clusters_for(volume, within.saturating_add(asked));
        let chain = volume.chain(inode);
        let mut chain = chain.lock();
        let linked = chain.count(&mut volume.table(), ino)?;
        let is_linked = at < linked;
        let (start, len) = if is_linked {
            let lost = Corrupt::Chain { ino, at, what: "ends before the end of the file" };
            let run = chain.find(&mut volume.table(), ino, at, want)?.ok_or(lost)?;
            (run.start, run.len)
        } else {
            match self.waiting.reservations.at(ino, at.saturating_sub(linked)) {
                Reservation::Has(start, len) => (start, len),
                Reservation::Next(after) => {
                    let after = after.or(chain.last());
                    let (start, len) = self.take_with(volume, |allocator| allocator.take(after, want))?;
                    self.waiting.reservations.push(ino, (start, len));
                    (start, len)
                }
                // The clusters between the end of the file and this place were never written.
                Reservation::Beyond => return Ok((Extent { len: asked, span: Span::Driver }, Span::Hole)),
            }
        };
        let bytes = volume.bytes_of((start, len))?;
        let place = bytes.start.saturating_add(within);
        let len = asked.min(bytes.end.saturating_sub(place));
        let end = range.start.saturating_add(len);
        let shown = inode.entry.size();
        let (len, was_promised) = self.waiting.reservations.promise(ino, range.start..end, shown, size);
        let span = Span::Mapped(place);
        let was = match is_linked {
            true if was_promised => Span::Unwritten,
            true => span,
            false => Span::Hole,
        };
        Ok((Extent { len, span }, was))
    }

    fn end_write(
        &mut self,
        mut inode: InodeWrite<'_, Volume>,
        written: Range<u64>,
        when: TimeChange,
    ) -> Result<()> {
        let (volume, ino) = (inode.volume(), inode.ino);
        if written.end > FILE_SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        let block = u64::from(volume.super_block().cluster_size);
        let linked = volume.chain(&inode).lock().count(&mut volume.table(), ino)?;
        let new = written.start.max(u64::from(linked).saturating_mul(block))..written.end;
        if !self.waiting.reservations.unpromised(ino, new).is_empty() {
            return Err(Error::Invalid);
        }
        let missing = clusters_for(volume, written.end).saturating_sub(linked);
        let runs = self.waiting.reservations.redeem(ino, missing).ok_or(Error::Invalid)?;
        self.append(&mut inode, &runs)?;
        // The clusters of writes that were abandoned.
        let skipped = ceil(inode.entry.size(), block)..floor(written.start, block);
        let skipped = self.waiting.reservations.unpromised(ino, skipped);
        if let Err(error) = self.zero_parts(&inode, &skipped) {
            // The clusters are part of the file, and have arbitrary bytes that a larger size would show.
            self.waiting.fail(error);
            return Err(error);
        }
        self.waiting.reservations.fulfil(ino, &written, block);
        stamp_data(self, &mut inode, when);
        grow(&mut inode, written.end);
        self.put_inode(&inode)
    }

    fn abandon(&mut self, inode: &InodeWrite<'_, Volume>, range: &Range<u64>) {
        let (volume, ino) = (inode.volume(), inode.ino);
        let Ok(linked) = volume.chain(inode).lock().count(&mut volume.table(), ino) else { return };
        let block = u64::from(volume.super_block().cluster_size);
        // Bytes past the end of the file need not be zeros.
        let shown = inode.entry.size();
        let mut parts = self.waiting.reservations.fulfil(ino, range, block);
        parts.iter_mut().for_each(|part| part.end = part.end.min(shown));
        if let Err(error) = self.zero_parts(inode, &parts) {
            // Readers must not see the arbitrary bytes in the file.
            parts.into_iter().for_each(|part| self.waiting.reservations.restore(ino, part));
            self.waiting.fail(error);
        }
        let given = self.waiting.reservations.trim(ino, linked, block);
        self.waiting.allocator.give_back_all(&given);
    }

    fn write(&mut self, mut inode: InodeWrite<'_, Volume>, offset: u64, bytes: &[u8]) -> Result<usize> {
        let (volume, ino) = (inode.volume(), inode.ino);
        let room = FILE_SIZE_MAX.checked_sub(offset).filter(|&room| room > 0).ok_or(Error::FileTooBig)?;
        let len = to_u64(bytes.len()).min(room).min(MAX_STEP);
        if len == 0 {
            return Ok(0);
        }
        let end = offset.saturating_add(len);
        self.waiting.data_written = true;
        self.fill(&mut inode, end)?;
        let block = u64::from(volume.super_block().cluster_size);
        let parts = self.waiting.reservations.fulfil(ino, &(offset..end), block);
        if let Err(error) = self.zero_parts(&inode, &parts) {
            // As promises, they read as zeros.
            parts.into_iter().for_each(|part| self.waiting.reservations.restore(ino, part));
            return Err(error);
        }
        let mut done = 0;
        while done < len {
            let at = offset.saturating_add(done);
            let size = u64::from(volume.super_block().cluster_size);
            let cluster = at.checked_div(size).and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX);
            let chain = volume.chain(&inode);
            let lost = Corrupt::Chain { ino, at: cluster, what: "ends before the end of the file" };
            let want = clusters_for(volume, end.saturating_sub(at)).saturating_add(1);
            let run = chain.lock().find(&mut volume.table(), ino, cluster, want)?.ok_or(lost)?;
            let place = volume.bytes_of((run.start, run.len))?;
            let start = place.start.saturating_add(at.checked_rem(size).unwrap_or(0));
            let step = place.end.saturating_sub(start).min(len.saturating_sub(done));
            let part = bytes.get(to_usize(done)..to_usize(done.saturating_add(step))).unwrap_or_default();
            volume.cache().device().write_at(start, part)?;
            done = done.saturating_add(step.max(1));
        }
        stamp_data(self, &mut inode, TimeChange::Now);
        grow(&mut inode, end);
        self.put_inode(&inode)?;
        Ok(to_usize(len))
    }

    fn truncate(&mut self, mut inode: InodeWrite<'_, Volume>, size: u64) -> Result<()> {
        let (volume, ino) = (inode.volume(), inode.ino);
        let bits = u32::try_from(size).map_err(|_| Error::FileTooBig)?;
        let keep = clusters_for(volume, size);
        let linked = volume.chain(&inode).lock().count(&mut volume.table(), ino)?;
        if size <= inode.entry.size() {
            let block = u64::from(volume.super_block().cluster_size);
            self.waiting.reservations.fulfil(ino, &(ceil(size, block)..u64::MAX), block);
            let given = self.waiting.reservations.trim(ino, linked, block);
            self.waiting.allocator.give_back_all(&given);
        }
        if keep > linked {
            self.fill(&mut inode, size)?;
        } else if keep < linked {
            self.shorten(&mut inode, keep)?;
        }
        inode.entry.DIR_FileSize = le::U32::new(bits);
        stamp_data(self, &mut inode, TimeChange::Now);
        self.put_inode(&inode)
    }

    fn free_inode(&mut self, inode: InodeWrite<'_, Volume>) -> Result<()> {
        Volume::relearn(&inode.dir(), None)?;
        let runs = Self::runs_of(inode.volume(), inode.ino, &inode.entry)?;
        self.free(inode.volume(), &runs)
    }
}

impl Writer {
    /// Makes the clusters for `size` bytes part of the file, first those that are reserved. Zeroes the new clusters
    /// except the parts that open writes fill.
    fn fill(&mut self, inode: &mut InodeWrite<'_, Volume>, size: u64) -> Result<()> {
        let volume = inode.volume();
        let (linked, after) = {
            let chain = volume.chain(inode);
            let mut chain = chain.lock();
            (chain.count(&mut volume.table(), inode.ino)?, chain.last())
        };
        let missing = clusters_for(volume, size).saturating_sub(linked);
        let (mut runs, _) = split(self.waiting.reservations.pieces(inode.ino).to_vec(), missing);
        let reserved = runs.iter().fold(0, |sum: u32, piece| sum.saturating_add(piece.1));
        let after = runs.last().map(last_of).or(after);
        let taken = self.take(volume, after, missing.saturating_sub(reserved))?;
        self.waiting.data_written = true;
        runs.extend_from_slice(&taken);
        if let Err(error) = self.zero_new(volume, inode.ino, linked, &runs) {
            self.waiting.allocator.give_back_all(&taken);
            return Err(error);
        }
        self.waiting.reservations.redeem(inode.ino, reserved);
        self.append(inode, &runs)
    }

    /// Zeroes the parts of `runs` that no open write fills. `runs` will follow the first `linked` clusters of the file.
    fn zero_new(&self, volume: &Volume, ino: Ino, linked: u32, runs: &[(Cluster, u32)]) -> Result<()> {
        let mut at = u64::from(linked).saturating_mul(volume.super_block().cluster_size.into());
        for &piece in runs {
            let place = volume.bytes_of(piece)?;
            let end = at.saturating_add(place.end.saturating_sub(place.start));
            for part in self.waiting.reservations.unpromised(ino, at..end) {
                let to = |offset: u64| place.start.saturating_add(offset.saturating_sub(at));
                zero(volume.cache().device(), to(part.start)..to(part.end))?;
            }
            at = end;
        }
        Ok(())
    }

    /// Zeroes parts of a file, all of which are in its clusters.
    fn zero_parts(&mut self, inode: &InodeWrite<'_, Volume>, parts: &[Range<u64>]) -> Result<()> {
        let volume = inode.volume();
        let size = u64::from(volume.super_block().cluster_size);
        for part in parts {
            let mut at = part.start;
            while at < part.end {
                let cluster =
                    at.checked_div(size).and_then(|at| u32::try_from(at).ok()).ok_or(Error::FileTooBig)?;
                let want = clusters_for(volume, part.end.saturating_sub(at)).saturating_add(1);
                let chain = volume.chain(inode);
                let lost =
                    Corrupt::Chain { ino: inode.ino, at: cluster, what: "ends before the end of the file" };
                let run = chain.lock().find(&mut volume.table(), inode.ino, cluster, want)?.ok_or(lost)?;
                let place = volume.bytes_of((run.start, run.len))?;
                let start = place.start.saturating_add(at.checked_rem(size).unwrap_or(0));
                let len = place.end.saturating_sub(start).min(part.end.saturating_sub(at)).max(1);
                self.waiting.data_written = true;
                zero(volume.cache().device(), start..start.saturating_add(len))?;
                at = at.saturating_add(len);
            }
        }
        Ok(())
    }

    /// Links runs to the end of a file, whose entry the caller writes.
    fn append(&mut self, inode: &mut InodeWrite<'_, Volume>, runs: &[(Cluster, u32)]) -> Result<()> {
        let Some((first, _)) = runs.first() else { return Ok(()) };
        let volume = inode.volume();
        let chain = volume.chain(inode);
        let mut chain = chain.lock();
        let linked = self
            .link(volume, chain.last(), runs)
            .and_then(|()| runs.iter().try_for_each(|&(start, len)| chain.push(start, len)));
        if let Err(error) = linked {
            // The new clusters are lost, and the known chain may be wrong.
            volume.forget(inode.ino);
            return Err(error);
        }
        if inode.entry.first(volume.super_block().width).is_none() {
            set_first(inode, Some(*first));
        }
        Ok(())
    }

    /// Frees the clusters after the first `keep`.
    fn shorten(&mut self, inode: &mut InodeWrite<'_, Volume>, keep: u32) -> Result<()> {
        let volume = inode.volume();
        let (kept, runs) = split(Self::runs_of(volume, inode.ino, &inode.entry)?, keep);
        volume.forget(inode.ino);
        match kept.last().map(last_of) {
            Some(end) => self.cut_after(volume, end)?,
            None => set_first(inode, None),
        }
        self.free(volume, &runs)
    }
}

pub(super) fn set_first(inode: &mut Inode, first: Option<Cluster>) {
    inode.entry.set_first(first);
}

fn grow(inode: &mut Inode, end: u64) {
    let size = inode.entry.size().max(end);
    inode.entry.DIR_FileSize = le::U32::new(u32::try_from(size).unwrap_or(u32::MAX));
}
