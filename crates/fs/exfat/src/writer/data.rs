//! Changing what files hold.
//!
//! The format has no holes. What a file grows by is allocated at once and lies past its valid length, so that nothing of it is
//! read before it was written; what is written behind a gap zeroes the gap first.

use core::ops::Range;

use obento_base::wire::{le, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result};
use obento_block::BlockDevice as _;
use obento_clusters::Cluster;
use obento_clusters::sectors::zero;
use obento_driver::{Extent, Span, TimeChange};

use super::Writer;
use super::space::Piece;
use crate::inode::Inode;
use crate::volume::Volume;

/// How much of a write that the driver makes goes in one call.
const MAX_STEP: u64 = 1 << 20;
/// Gaps of this length and more are punched, if the device can do that.
const PUNCHED: u64 = 64 << 10;

/// The bytes of a piece on the device.
fn bytes_of(volume: &Volume, (start, len): Piece) -> Result<Range<u64>> {
    let sb = volume.super_block();
    let offset = sb.offset_of(start).ok_or(Error::Invalid)?;
    Ok(offset..offset.saturating_add(u64::from(len).saturating_mul(sb.cluster_size.into())))
}

/// Errors: Corrupt for a piece that is a directory's or a table's.
fn check_data(volume: &Volume, ino: Ino, at: u32, (start, len): Piece) -> Result<()> {
    match volume.is_metadata(start, len) {
        true => Err(Corrupt::Chain { ino, at, what: "lies over a directory or a table" }.into()),
        false => Ok(()),
    }
}

impl Writer {
    /// Where to write from `range.start` on, as the contract's `map_for_write` has it.
    pub fn map_for_write(&mut self, volume: &Volume, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let inode = volume.file(ino)?;
        let sb = volume.super_block();
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        if range.end > sb.heap_len() {
            return Err(Error::FileTooBig);
        }
        // Between what is valid and this would be what nobody wrote.
        if range.start > inode.valid() {
            return Ok(Extent { len: asked, span: Span::Driver });
        }
        self.data_written = true;
        let size = u64::from(sb.cluster_size);
        let at =
            range.start.checked_div(size).and_then(|at| u32::try_from(at).ok()).ok_or(Error::FileTooBig)?;
        let linked = sb.clusters_for(inode.size());
        let within = range.start.checked_rem(size).unwrap_or(0);
        if at < linked {
            let run = volume.run_at(&inode, range.start, asked)?;
            let bytes = run.start.saturating_sub(within)..run.end;
            let (first, _) = sb.cluster_at(bytes.start).ok_or(Error::Invalid)?;
            let count = sb.clusters_for(bytes.end.saturating_sub(bytes.start));
            check_data(volume, ino, at, (first, count))?;
            return Ok(Extent { len: run.end.saturating_sub(run.start), span: Span::Mapped(run.start) });
        }
        let want = sb.clusters_for(within.saturating_add(asked));
        let piece = match self.promised(ino, at.saturating_sub(linked)) {
            Promise::Has(start, len) => (start, len),
            Promise::Next(after) => {
                let after = match after {
                    Some(after) => Some(after),
                    None => last_cluster(volume, &inode, linked)?,
                };
                let piece = self.take_piece(volume, after, want)?;
                self.reserved.entry(ino).or_default().push(piece);
                piece
            }
            Promise::Beyond => return Ok(Extent { len: asked, span: Span::Driver }),
        };
        let bytes = bytes_of(volume, piece)?;
        let place = bytes.start.saturating_add(within);
        Ok(Extent { len: asked.min(bytes.end.saturating_sub(place)), span: Span::Mapped(place) })
    }

    /// What was promised at cluster `at` behind the end of a file.
    fn promised(&self, ino: Ino, at: u32) -> Promise {
        let (mut left, mut after) = (at, None);
        for &(start, len) in self.reserved.get(&ino).into_iter().flatten() {
            if left < len {
                return Promise::Has(Cluster(start.0.saturating_add(left)), len.saturating_sub(left));
            }
            left = left.saturating_sub(len);
            after = Some(Cluster(start.0.saturating_add(len.saturating_sub(1))));
        }
        if left == 0 { Promise::Next(after) } else { Promise::Beyond }
    }

    /// Names what was written, as the contract's `end_write` has it.
    pub fn end_write(
        &mut self,
        volume: &Volume,
        ino: Ino,
        written: Range<u64>,
        when: TimeChange,
    ) -> Result<()> {
        let mut inode = volume.file(ino)?;
        let sb = volume.super_block();
        let mut missing = sb.clusters_for(written.end).saturating_sub(sb.clusters_for(inode.size()));
        let mut pieces = alloc::vec::Vec::new();
        let promised = self.reserved.entry(ino).or_default();
        while missing > 0 && !promised.is_empty() {
            let Some((start, len)) = promised.first_mut() else { break };
            let taken = missing.min(*len);
            pieces.push((*start, taken));
            (*start, *len) = (Cluster(start.0.saturating_add(taken)), len.saturating_sub(taken));
            missing = missing.saturating_sub(taken);
            if *len == 0 {
                promised.remove(0);
            }
        }
        if promised.is_empty() {
            self.reserved.remove(&ino);
        }
        if missing > 0 {
            self.give_back(volume, &pieces);
            return Err(Error::Invalid);
        }
        self.extend(volume, &mut inode, &pieces)?;
        grow(&mut inode, written.end);
        set_valid(&mut inode, written.end);
        self.stamp_data(&mut inode, volume, when);
        self.put_inode(volume, &inode)
    }

    /// Gives back what was promised from `range` on.
    pub fn abandon(&mut self, volume: &Volume, ino: Ino, range: &Range<u64>) {
        let Ok(inode) = volume.file(ino) else { return };
        let sb = volume.super_block();
        let linked = sb.clusters_for(inode.size());
        let first = sb.clusters_for(range.start.saturating_add(1)).saturating_sub(1);
        // What lies before the end of the file is not promised but there.
        let mut keep = first.saturating_sub(linked);
        if first < linked && sb.clusters_for(range.end) <= linked {
            return;
        }
        let mut given = alloc::vec::Vec::new();
        if let Some(promised) = self.reserved.get_mut(&ino) {
            promised.retain_mut(|(start, len)| {
                let kept = keep.min(*len);
                keep = keep.saturating_sub(kept);
                given.push((Cluster(start.0.saturating_add(kept)), len.saturating_sub(kept)));
                *len = kept;
                kept > 0
            });
        }
        given.retain(|&(_, len)| len > 0);
        self.give_back(volume, &given);
        self.reserved.retain(|_, promised| !promised.is_empty());
    }

    /// Writes bytes that lie behind what is valid; what is between becomes zeros.
    pub fn write(&mut self, volume: &Volume, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut inode = volume.file(ino)?;
        let most = volume.super_block().heap_len();
        let room = most.checked_sub(offset).filter(|&room| room > 0).ok_or(Error::FileTooBig)?;
        let len = to_u64(bytes.len()).min(room).min(MAX_STEP);
        if len == 0 {
            return Ok(0);
        }
        let end = offset.saturating_add(len);
        self.data_written = true;
        self.drop_promises(volume, ino);
        self.fill(volume, &mut inode, end)?;
        grow(&mut inode, end);
        let valid = inode.valid();
        self.each_run(volume, &inode, valid..offset.max(valid), |volume, place, _| zero_gap(volume, place))?;
        self.each_run(volume, &inode, offset..end, |volume, place, at| {
            let from = to_usize(at.saturating_sub(offset));
            let len = to_usize(place.end.saturating_sub(place.start));
            let part = bytes.get(from..from.saturating_add(len)).unwrap_or_default();
            volume.cache().device().write_at(place.start, part)
        })?;
        set_valid(&mut inode, end);
        self.stamp_data(&mut inode, volume, TimeChange::Now);
        self.put_inode(volume, &inode)?;
        Ok(to_usize(len))
    }

    /// Does something with each run of `range`, which is within the clusters of the file.
    fn each_run(
        &mut self,
        volume: &Volume,
        inode: &Inode,
        range: Range<u64>,
        mut act: impl FnMut(&Volume, Range<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        let mut at = range.start;
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

    /// Sets the size, as the contract's `truncate` has it. Errors: FileTooBig; NoSpace.
    pub fn truncate(&mut self, volume: &Volume, ino: Ino, size: u64) -> Result<()> {
        let mut inode = volume.file(ino)?;
        let sb = volume.super_block();
        if size > sb.heap_len() {
            return Err(Error::FileTooBig);
        }
        self.drop_promises(volume, ino);
        if size > inode.size() {
            self.fill(volume, &mut inode, size)?;
        } else if sb.clusters_for(size) < sb.clusters_for(inode.size()) {
            self.shorten(volume, &mut inode, sb.clusters_for(size))?;
        }
        set_len(&mut inode, size);
        inode.set.stream.ValidDataLength = le::U64::new(inode.valid().min(size));
        self.stamp_data(&mut inode, volume, TimeChange::Now);
        self.put_inode(volume, &inode)
    }

    /// Sees to it that the clusters for `size` bytes are there.
    pub fn fill(&mut self, volume: &Volume, inode: &mut Inode, size: u64) -> Result<()> {
        let sb = volume.super_block();
        let linked = sb.clusters_for(inode.size());
        let missing = sb.clusters_for(size).saturating_sub(linked);
        let after = last_cluster(volume, inode, linked)?;
        let pieces = self.take(volume, after, missing)?;
        self.extend(volume, inode, &pieces)
    }

    /// Puts pieces at the end of a file, whose set the caller writes.
    fn extend(&mut self, volume: &Volume, inode: &mut Inode, pieces: &[Piece]) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let linked = volume.super_block().clusters_for(inode.size());
        // The whole chain is needed only if all of it is to be written.
        let old = match (linked, last_cluster(volume, inode, linked)?) {
            (0, _) | (_, None) => alloc::vec::Vec::new(),
            (_, Some(last)) if !inode.set.is_contiguous() => alloc::vec::Vec::from([(last, 1)]),
            (_, Some(_)) => Self::pieces_of(volume, inode.ino, &inode.set)?,
        };
        let was_contiguous = inode.set.is_contiguous();
        if let Err(error) = self.append(volume, &mut inode.set, &old, pieces) {
            // What was linked is lost, and known to nobody.
            volume.forget(inode.ino);
            return Err(error);
        }
        let is_same_kind = linked > 0 && was_contiguous == inode.set.is_contiguous();
        let chain = volume.chain(inode)?;
        let mut chain = chain.lock();
        if is_same_kind && chain.reached() == linked {
            pieces.iter().try_for_each(|&(start, len)| chain.push(start, len))
        } else {
            volume.forget(inode.ino);
            Ok(())
        }
    }

    /// Frees what lies past `keep` clusters.
    fn shorten(&mut self, volume: &Volume, inode: &mut Inode, keep: u32) -> Result<()> {
        let mut pieces = Self::pieces_of(volume, inode.ino, &inode.set)?;
        let (mut left, mut end) = (keep, None);
        pieces.retain_mut(|(start, len)| {
            let kept = left.min(*len);
            if kept > 0 {
                end = Some(Cluster(start.0.saturating_add(kept.saturating_sub(1))));
            }
            left = left.saturating_sub(kept);
            (*start, *len) = (Cluster(start.0.saturating_add(kept)), len.saturating_sub(kept));
            *len > 0
        });
        volume.forget(inode.ino);
        match end {
            Some(end) if !inode.set.is_contiguous() => self.cut_after(volume, end)?,
            Some(_) => {}
            None => {
                inode.set.stream.FirstCluster = le::U32::new(0);
                inode.set.stream.GeneralSecondaryFlags = crate::set::ALLOCATION;
            }
        }
        pieces.retain(|&(start, len)| !volume.is_metadata(start, len));
        self.free(volume, &pieces)
    }

    fn drop_promises(&mut self, volume: &Volume, ino: Ino) {
        if let Some(pieces) = self.reserved.remove(&ino) {
            self.give_back(volume, &pieces);
        }
    }

    /// What has no name and no user is freed.
    pub fn forget(&mut self, volume: &Volume, ino: Ino) -> Result<()> {
        self.drop_promises(volume, ino);
        volume.forget(ino);
        let Some((set, _)) = volume.numbers().read().orphan(ino) else { return Ok(()) };
        volume.relearn(ino, None)?;
        volume.numbers().write().forget(ino);
        self.free_all(volume, ino, &set)
    }
}

/// What was promised at a place.
enum Promise {
    /// These clusters.
    Has(Cluster, u32),
    /// Nothing, but all before it: the last of that.
    Next(Option<Cluster>),
    /// Nothing, nor what lies before it.
    Beyond,
}

/// The last of the `linked` clusters of a file.
fn last_cluster(volume: &Volume, inode: &Inode, linked: u32) -> Result<Option<Cluster>> {
    let Some(at) = linked.checked_sub(1) else { return Ok(None) };
    let offset = u64::from(at).saturating_mul(volume.super_block().cluster_size.into());
    let place = volume.run_at(inode, offset, 1)?;
    Ok(volume.super_block().cluster_at(place.start).map(|(cluster, _)| cluster))
}

/// Makes a gap zeros.
fn zero_gap(volume: &Volume, place: Range<u64>) -> Result<()> {
    let device = volume.cache().device();
    let is_long = place.end.saturating_sub(place.start) >= PUNCHED;
    if is_long && device.punch(place.clone())? {
        return Ok(());
    }
    zero(device, place)
}

fn grow(inode: &mut Inode, end: u64) {
    let len = inode.size().max(end);
    set_len(inode, len);
}

fn set_len(inode: &mut Inode, len: u64) {
    inode.set.stream.DataLength = le::U64::new(len);
}

fn set_valid(inode: &mut Inode, end: u64) {
    inode.set.stream.ValidDataLength = le::U64::new(inode.valid().max(end));
}
