//! Moving a file's blocks within it: collapse and insert.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "ranges are not empty, and blocks of a file have numbers of 32 bits"
)]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, Ino, Result};
use obento_journal::Txn;

use super::expect_extents;
use super::remove::Removal;
use super::steps::{Job, Progress, StepPosition};
use crate::map::change::{FileMap, Nodes};
use crate::map::reservation::Run;
use crate::map::tree::Shift;
use crate::writer::{InodeEdit, Writer};

/// Removes a range, then moves everything after it down, leaf by leaf from its start.
struct Collapse {
    size: u64,
    removal: Removal,
    from: u64,
    at: u64,
    by: u32,
}

impl Job for Collapse {
    fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, lost: &mut Vec<Run>) -> Result<Progress> {
        if !self.removal.range.is_empty() {
            self.removal.step(map, lost)?;
            return Ok(Progress::More);
        }
        self.at = map.shift_leaf(self.at, self.from, Shift::Down(self.by))?.end.max(self.at + 1);
        // Moved mappings must not be moved again: the next leaf starts where this one ended.
        self.from = self.at;
        Ok(if self.at >= 1 << 32 { Progress::Done } else { Progress::More })
    }

    fn finish(
        &mut self,
        writer: &Writer,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        place: StepPosition,
    ) -> Result<()> {
        writer.note_moved(txn, edit);
        if place.last {
            edit.set_size(self.size);
        }
        edit.touch_data(writer.now());
        Ok(())
    }
}

/// Moves everything at and after a block up, leaf by leaf from the end.
struct Insert {
    size: u64,
    from: u64,
    at: u64,
    by: u32,
}

impl Job for Insert {
    fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, _: &mut Vec<Run>) -> Result<Progress> {
        let last = self.at - 1;
        self.at = map.shift_leaf(last, self.from, Shift::Up(self.by))?.start.min(last);
        Ok(if self.at <= self.from { Progress::Done } else { Progress::More })
    }

    fn finish(
        &mut self,
        writer: &Writer,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        _place: StepPosition,
    ) -> Result<()> {
        writer.note_moved(txn, edit);
        // Before the first block moves, so that no block is ever past the end.
        writer.grow_to(edit, self.size);
        edit.touch_data(writer.now());
        Ok(())
    }
}

impl Writer {
    /// Implements `collapse` of the contract.
    pub(crate) fn collapse(&self, ino: Ino, range: Range<u64>) -> Result<()> {
        let mut inode = self.lock_file(ino)?;
        let blocks = self.whole_units(&range)?;
        if range.end >= inode.size() {
            return Err(Error::Invalid);
        }
        expect_extents(&inode)?;
        self.without_inline(&mut inode)?;
        self.forget_space(ino);
        let by = u32::try_from(blocks.end - blocks.start).map_err(|_| Error::Invalid)?;
        let size = inode.size() - (range.end - range.start);
        let (removal, from) = (self.removal(blocks.clone()), blocks.end);
        self.run(&mut inode, &mut Collapse { size, removal, from, at: from, by })
    }

    /// Implements `insert` of the contract.
    pub(crate) fn insert(&self, ino: Ino, range: Range<u64>) -> Result<()> {
        let mut inode = self.lock_file(ino)?;
        let blocks = self.whole_units(&range)?;
        if range.start >= inode.size() {
            return Err(Error::Invalid);
        }
        expect_extents(&inode)?;
        self.without_inline(&mut inode)?;
        self.forget_space(ino);
        let len = range.end - range.start;
        let size = inode.size().checked_add(len).ok_or(Error::FileTooBig)?;
        self.check_size(&inode, size)?;
        let by = u32::try_from(blocks.end - blocks.start).map_err(|_| Error::FileTooBig)?;
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        let end = map.before(u64::MAX >> 32)?.map_or(0, |last| last.end());
        // Space that was allocated past the end of the file moves, too.
        if end + u64::from(by) > map.end() {
            return Err(Error::FileTooBig);
        }
        self.run(&mut inode, &mut Insert { size, from: blocks.start, at: 1 << 32, by })
    }

    fn note_moved(&self, txn: &Txn<'_>, edit: &InodeEdit) {
        self.moved().note(edit.ino(), txn.tid(), self.txns().durable());
    }

    /// Waits until no power cut can restore the places of blocks of `ino` before they moved.
    pub(super) fn await_moves(&self, ino: Ino) -> Result<()> {
        if let Some(tid) = self.moved().waits_for(ino) {
            self.txns().wait_durable(tid)?;
            self.moved().end(ino);
        }
        Ok(())
    }

    /// Returns the blocks of a range of whole clusters. Fails with `Invalid`.
    fn whole_units(&self, range: &Range<u64>) -> Result<Range<u64>> {
        let unit = self.cluster().len(self.block_bytes());
        let is_whole = |offset: u64| offset.checked_rem(unit) == Some(0);
        if range.is_empty() || !is_whole(range.start) || !is_whole(range.end) {
            return Err(Error::Invalid);
        }
        Ok(self.block_at(range.start)..self.block_at(range.end))
    }
}
