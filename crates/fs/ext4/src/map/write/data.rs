//! Writes in which the caller transfers the data: a place is reserved, and published once the data is there.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, Ino, Result, Timestamp};
use obento_driver::{Extent, Span, TimeChange};
use obento_journal::Credits;

use crate::inode::{Inode, InodeFlags};
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::State;
use crate::map::{Blocks, Run};
use crate::unit::{FileBlock, VolBlock};
use crate::writer::{InodeEdit, Writer};

/// Two overwrites within this many nanoseconds share one modification time, as within a tick of Linux' clock
/// (`CONFIG_HZ=250`), so that not each of them is a transaction.
const TICK: i128 = 4_000_000;
/// The maximum size without the feature `large_file`.
const SMALL_FILE: u64 = 0x7fff_ffff;

impl Writer {
    /// Implements `map_for_write` of the contract.
    pub(crate) fn map_for_write(&self, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let _lock = self.lock_one(ino);
        let mut inode = self.data_inode(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        let asked = range.end.saturating_sub(range.start);
        // The last block may reach past the maximum size.
        self.check_size(
            &inode,
            self.block_at(range.end.saturating_sub(1)).saturating_mul(self.block_bytes()).saturating_add(1),
        )?;
        if self.is_journalled(&inode) {
            return Ok(Extent { len: asked, span: Span::Driver });
        }
        if inode.has(InodeFlags::INLINE_DATA) {
            if range.end <= self.inline_max(&inode)? {
                return Ok(Extent { len: asked, span: Span::Driver });
            }
            self.move_out(&inode)?;
            inode = self.data_inode(ino)?;
        }
        self.map_blocks_for_write(&inode, &range)
    }

    fn map_blocks_for_write(&self, inode: &Inode, range: &Range<u64>) -> Result<Extent> {
        self.await_moves(inode.ino())?;
        let first = self.block_at(range.start);
        if let Some(found) = self.promised_before(inode, &(first..self.block_from(range.end)))? {
            return Ok(self.mapped(range, first, found.place, found.len.into()));
        }
        let run = self.run_at(inode, first)?;
        let (place, len) = match run.place {
            Blocks::Mapped(place) | Blocks::Unwritten(place) => (place, u64::from(run.len)),
            Blocks::Hole => {
                let nodes = Nodes { volume: self.volume(), inode };
                let mut map = FileMap::new(&nodes)?;
                let hole = first..first.saturating_add(run.len.into()).min(map.end());
                if hole.is_empty() {
                    return Err(Error::FileTooBig);
                }
                let found = self.promise(inode, &mut map, &hole, self.block_from(range.end))?;
                (found.place, u64::from(found.len))
            }
        };
        Ok(self.mapped(range, first, place, len))
    }

    /// Returns the extent of the `len` blocks at `place`, which are those of the file from `first` on, limited to
    /// `range`.
    fn mapped(&self, range: &Range<u64>, first: u64, place: VolBlock, len: u64) -> Extent {
        let skip = range.start.saturating_sub(first.saturating_mul(self.block_bytes()));
        let bytes = len.saturating_mul(self.block_bytes()).saturating_sub(skip);
        let at = place.0.saturating_mul(self.block_bytes()).saturating_add(skip);
        Extent { len: bytes.min(range.end.saturating_sub(range.start)), span: Span::Mapped(at) }
    }

    pub(super) fn run_at(&self, inode: &Inode, block: u64) -> Result<Run> {
        let block = u32::try_from(block).map_err(|_| Error::FileTooBig)?;
        self.volume().map_run(inode, FileBlock(block))
    }

    /// Implements `end_write` of the contract.
    pub(crate) fn end_write(&self, ino: Ino, written: Range<u64>, when: TimeChange) -> Result<()> {
        let _lock = self.lock_one(ino);
        self.publish_write(ino, &written, when).inspect_err(|_| self.give_back(ino, &written))
    }

    fn publish_write(&self, ino: Ino, written: &Range<u64>, when: TimeChange) -> Result<()> {
        let inode = self.data_inode(ino)?;
        if written.is_empty() {
            return Ok(());
        }
        let moment = match when {
            TimeChange::Now => self.now(),
            TimeChange::At(moment) => moment,
        };
        let blocks = self.block_at(written.start)..self.block_from(written.end);
        // Blocks past the end are not written yet, whatever their state.
        let is_there = written.start < inode.size() && self.is_written(&inode, &blocks)?;
        if is_there && written.end <= inode.size() && self.is_stamped(&inode, moment) {
            return Ok(());
        }
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        let mut gained = Vec::new();
        if !is_there {
            let (new, runs) = self.filled(&inode, &mut map, &blocks, State::Written)?;
            gained = runs;
            map.splice(blocks.clone(), &new, &mut Vec::new())?;
        }
        let change = self.plan_change(&inode, map, gained, Vec::new())?;
        self.commit_change(&inode, change, Credits(0), |_, edit| {
            self.grow_to(edit, written.end);
            match when {
                TimeChange::Now => edit.touch_data(moment),
                TimeChange::At(_) => edit.touch_data_delayed(moment),
            }
            Ok(())
        })?;
        if !is_there {
            self.promises().take_handed(ino, &self.whole_clusters(&blocks));
        }
        Ok(())
    }

    /// Increases the size to at least `size`.
    pub(super) fn grow_to(&self, edit: &mut InodeEdit, size: u64) {
        if size > edit.size() {
            if size > SMALL_FILE {
                self.need_large_file();
            }
            edit.set_size(size);
        }
    }

    /// Returns whether the modification time was set within this tick.
    pub(super) fn is_stamped(&self, inode: &Inode, now: Timestamp) -> bool {
        let attr = inode.attr(self.volume().super_block());
        let nanos = |time: Timestamp| {
            i128::from(time.secs()).saturating_mul(1_000_000_000).saturating_add(time.nanos().into())
        };
        let is_fresh = |time: Timestamp| (0..TICK).contains(&nanos(now).saturating_sub(nanos(time)));
        is_fresh(attr.mtime) && is_fresh(attr.ctime)
    }

    /// Returns whether all of `blocks` are mapped as written.
    fn is_written(&self, inode: &Inode, blocks: &Range<u64>) -> Result<bool> {
        let mut at = blocks.start;
        while at < blocks.end {
            let run = self.run_at(inode, at)?;
            if !matches!(run.place, Blocks::Mapped(_)) {
                return Ok(false);
            }
            at = at.saturating_add(u64::from(run.len).max(1));
        }
        Ok(true)
    }

    /// Implements `abandon` of the contract. The space stays ahead of the file, where it is available to files that
    /// need it.
    pub(crate) fn abandon(&self, ino: Ino, range: &Range<u64>) {
        let _lock = self.lock_one(ino);
        self.give_back(ino, range);
    }

    /// Ends the use of blocks of `range` that were returned to a caller and not published.
    pub(super) fn give_back(&self, ino: Ino, range: &Range<u64>) {
        let blocks = self.block_at(range.start)..self.block_from(range.end);
        self.release(self.promises().put_back(ino, &self.whole_clusters(&blocks)));
    }
}
