//! Changing what files hold.
//!
//! The format has no holes: what a file grows by is zeroed and linked at once.

use core::ops::Range;

use obento_base::wire::{le, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result};
use obento_block::BlockDevice as _;
use obento_clusters::sectors::zero;
use obento_driver::{Extent, Span, TimeChange};

use super::Writer;
use crate::contract::FILE_SIZE_MAX;
use crate::inode::Inode;
use crate::unit::Cluster;
use crate::volume::Volume;

/// How much of a write that the driver makes goes in one call.
const MAX_STEP: u64 = 1 << 20;

/// Clusters that `bytes` take.
fn clusters_for(volume: &Volume, bytes: u64) -> u32 {
    u32::try_from(volume.super_block().clusters_for(bytes)).unwrap_or(u32::MAX)
}

/// The bytes of a run on the device.
fn bytes_of(volume: &Volume, start: Cluster, len: u32) -> Result<Range<u64>> {
    let sb = volume.super_block();
    let offset = sb.offset_of(start).ok_or(Error::Invalid)?;
    Ok(offset..offset.saturating_add(u64::from(len).saturating_mul(sb.cluster_size.into())))
}

impl Writer {
    /// Where to write from `range.start` on, as the contract's `map_for_write` has it.
    pub fn map_for_write(&mut self, volume: &Volume, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let inode = volume.file(ino)?;
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        let size = u64::from(volume.super_block().cluster_size);
        if range.end > FILE_SIZE_MAX.next_multiple_of(size) {
            return Err(Error::FileTooBig);
        }
        self.data_written = true;
        let at =
            range.start.checked_div(size).and_then(|at| u32::try_from(at).ok()).ok_or(Error::FileTooBig)?;
        let within = range.start.checked_rem(size).unwrap_or(0);
        let want = clusters_for(volume, within.saturating_add(asked));
        let chain = volume.chain(&inode);
        let mut chain = chain.lock();
        let linked = chain.count(&mut volume.table(), ino)?;
        let (start, len) = if at < linked {
            let lost = Corrupt::Chain { ino, at, what: "ends before the file does" };
            let run = chain.find(&mut volume.table(), ino, at, want)?.ok_or(lost)?;
            (run.start, run.len)
        } else {
            match self.promised(ino, at.saturating_sub(linked)) {
                Promise::Has(start, len) => (start, len),
                Promise::Next(after) => {
                    let (start, len) = self.take_run(volume, after.or(chain.last()), want)?;
                    self.reserved.entry(ino).or_default().push((start, len));
                    (start, len)
                }
                // Between the file and this would be what nobody wrote.
                Promise::Beyond => return Ok(Extent { len: asked, span: Span::Driver }),
            }
        };
        let bytes = bytes_of(volume, start, len)?;
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

    /// Links what was written, as the contract's `end_write` has it.
    pub fn end_write(
        &mut self,
        volume: &Volume,
        ino: Ino,
        written: Range<u64>,
        when: TimeChange,
    ) -> Result<()> {
        let mut inode = volume.file(ino)?;
        if written.end > FILE_SIZE_MAX {
            self.abandon(volume, ino, &written);
            return Err(Error::FileTooBig);
        }
        let linked = volume.chain(&inode).lock().count(&mut volume.table(), ino)?;
        let mut missing = clusters_for(volume, written.end).saturating_sub(linked);
        let mut runs = alloc::vec::Vec::new();
        let promised = self.reserved.entry(ino).or_default();
        while missing > 0 && !promised.is_empty() {
            let Some((start, len)) = promised.first_mut() else { break };
            let taken = missing.min(*len);
            runs.push((*start, taken));
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
            self.give_back(&runs);
            return Err(Error::Invalid);
        }
        self.append(volume, &mut inode, &runs)?;
        self.stamp_data(&mut inode, volume, when);
        grow(&mut inode, written.end);
        self.put_entry(volume, &inode)
    }

    /// Gives back what was promised from `range` on.
    pub fn abandon(&mut self, volume: &Volume, ino: Ino, range: &Range<u64>) {
        let Ok(inode) = volume.file(ino) else { return };
        let Ok(linked) = volume.chain(&inode).lock().count(&mut volume.table(), ino) else { return };
        let first = clusters_for(volume, range.start.saturating_add(1)).saturating_sub(1);
        // What lies before the end of the file is not promised but there.
        let mut keep = first.saturating_sub(linked);
        if first < linked && clusters_for(volume, range.end) <= linked {
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
        self.give_back(&given);
        self.reserved.retain(|_, promised| !promised.is_empty());
    }

    /// Writes bytes that lie past a gap, which becomes zeros.
    pub fn write(&mut self, volume: &Volume, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut inode = volume.file(ino)?;
        let room = FILE_SIZE_MAX.checked_sub(offset).filter(|&room| room > 0).ok_or(Error::FileTooBig)?;
        let len = to_u64(bytes.len()).min(room).min(MAX_STEP);
        if len == 0 {
            return Ok(0);
        }
        let end = offset.saturating_add(len);
        self.data_written = true;
        self.drop_promises(ino);
        self.fill(volume, &mut inode, end)?;
        let mut done = 0;
        while done < len {
            let at = offset.saturating_add(done);
            let size = u64::from(volume.super_block().cluster_size);
            let cluster = at.checked_div(size).and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX);
            let chain = volume.chain(&inode);
            let lost = Corrupt::Chain { ino, at: cluster, what: "ends before the file does" };
            let want = clusters_for(volume, end.saturating_sub(at)).saturating_add(1);
            let run = chain.lock().find(&mut volume.table(), ino, cluster, want)?.ok_or(lost)?;
            let place = bytes_of(volume, run.start, run.len)?;
            let start = place.start.saturating_add(at.checked_rem(size).unwrap_or(0));
            let step = place.end.saturating_sub(start).min(len.saturating_sub(done));
            let part = bytes.get(to_usize(done)..to_usize(done.saturating_add(step))).unwrap_or_default();
            volume.cache().device().write_at(start, part)?;
            done = done.saturating_add(step.max(1));
        }
        self.stamp_data(&mut inode, volume, TimeChange::Now);
        grow(&mut inode, end);
        self.put_entry(volume, &inode)?;
        Ok(to_usize(len))
    }

    /// Sets the size, as the contract's `truncate` has it; what is added is zeroed. Errors: NoSpace.
    pub fn truncate(&mut self, volume: &Volume, ino: Ino, size: u64) -> Result<()> {
        let mut inode = volume.file(ino)?;
        let bits = u32::try_from(size).map_err(|_| Error::FileTooBig)?;
        self.drop_promises(ino);
        let keep = clusters_for(volume, size);
        let linked = volume.chain(&inode).lock().count(&mut volume.table(), ino)?;
        if keep > linked {
            self.fill(volume, &mut inode, size)?;
        } else if keep < linked {
            self.shorten(volume, &mut inode, keep)?;
        }
        inode.raw.DIR_FileSize = le::U32::new(bits);
        self.stamp_data(&mut inode, volume, TimeChange::Now);
        self.put_entry(volume, &inode)
    }

    /// Sees to it that the clusters for `size` bytes are there; new ones are zeros.
    pub fn fill(&mut self, volume: &Volume, inode: &mut Inode, size: u64) -> Result<()> {
        let (linked, after) = {
            let chain = volume.chain(inode);
            let mut chain = chain.lock();
            (chain.count(&mut volume.table(), inode.ino)?, chain.last())
        };
        let missing = clusters_for(volume, size).saturating_sub(linked);
        let runs = self.take(volume, after, missing)?;
        self.data_written = true;
        for &(start, len) in &runs {
            let zeroed = bytes_of(volume, start, len).and_then(|range| zero(volume.cache().device(), range));
            if let Err(error) = zeroed {
                self.give_back(&runs);
                return Err(error);
            }
        }
        self.append(volume, inode, &runs)
    }

    /// Links runs at the end of a file, whose entry the caller writes.
    fn append(&mut self, volume: &Volume, inode: &mut Inode, runs: &[(Cluster, u32)]) -> Result<()> {
        let Some((first, _)) = runs.first() else { return Ok(()) };
        let chain = volume.chain(inode);
        let mut chain = chain.lock();
        let linked = self
            .link(volume, chain.last(), runs)
            .and_then(|()| runs.iter().try_for_each(|&(start, len)| chain.push(start, len)));
        if let Err(error) = linked {
            // What was linked is lost, and known to nobody.
            volume.forget(inode.ino);
            return Err(error);
        }
        if inode.raw.first(volume.super_block().width).is_none() {
            set_first(inode, Some(*first));
        }
        Ok(())
    }

    /// Frees what lies past `keep` clusters.
    fn shorten(&mut self, volume: &Volume, inode: &mut Inode, keep: u32) -> Result<()> {
        let mut runs = Self::runs_of(volume, inode.ino, &inode.raw)?;
        let (mut left, mut end) = (keep, None);
        runs.retain_mut(|(start, len)| {
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
            Some(end) => self.cut_after(volume, end)?,
            None => set_first(inode, None),
        }
        self.free(volume, &runs)
    }

    fn drop_promises(&mut self, ino: Ino) {
        if let Some(runs) = self.reserved.remove(&ino) {
            self.give_back(&runs);
        }
    }

    /// What has no name and no user is freed.
    pub fn forget(&mut self, volume: &Volume, ino: Ino) -> Result<()> {
        self.drop_promises(ino);
        volume.forget(ino);
        let Some((raw, _)) = volume.numbers().read().orphan(ino) else { return Ok(()) };
        let runs = Self::runs_of(volume, ino, &raw);
        volume.relearn(ino, None)?;
        volume.numbers().write().forget(ino);
        self.free(volume, &runs?)
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

pub(super) fn set_first(inode: &mut Inode, first: Option<Cluster>) {
    inode.raw.set_first(first);
}

fn grow(inode: &mut Inode, end: u64) {
    let size = inode.size().max(end);
    inode.raw.DIR_FileSize = le::U32::new(u32::try_from(size).unwrap_or(u32::MAX));
}
