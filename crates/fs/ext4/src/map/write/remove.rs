//! Removing blocks: truncating, punching, and freeing all blocks of a file.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, FileKind, Ino, Result};
use obento_journal::Txn;

use super::steps::{Job, Progress, StepPosition};
use crate::inode::{Inode, InodeFlags};
use crate::map::change::{FileMap, Nodes};
use crate::map::reservation::Run;
use crate::size::ClusterSize;
use crate::writer::{InodeEdit, InodeGuard, InodeWrite, Writer, cost};

/// Number of mappings that a step removes: a few nodes, so that a full transaction is noticed in time.
const STEP: usize = 32;

/// Removes the mappings of a range, from its end.
pub(super) struct Removal {
    /// The rest of the range.
    pub range: Range<u64>,
    /// Blocks per cluster as a power of two.
    pub cluster: ClusterSize,
}

impl Removal {
    pub fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, lost: &mut Vec<Run>) -> Result<Progress> {
        let range = &mut self.range;
        range.end = range.end.min(map.end());
        if range.is_empty() {
            return Ok(Progress::Done);
        }
        let (found, from) = map.last_in(range, STEP)?;
        if !found.is_empty() {
            let mut removed = Vec::new();
            map.splice(from..range.end, &[], &mut removed)?;
            // Now, before new mappings are in the place of the removed ones.
            lost.append(&mut map.set_free(&removed, self.cluster)?);
        }
        range.end = from.min(range.end.saturating_sub(1));
        Ok(if range.is_empty() { Progress::Done } else { Progress::More })
    }
}

/// Reduces the size. Meanwhile the inode is an orphan with the new size, so that an open after a crash completes it.
struct Truncation {
    size: u64,
    removal: Removal,
}

impl Job for Truncation {
    fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, lost: &mut Vec<Run>) -> Result<Progress> {
        self.removal.step(map, lost)
    }

    fn finish(
        &mut self,
        writer: &Writer,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        place: StepPosition,
    ) -> Result<()> {
        match place {
            StepPosition { first: true, last: true } => {}
            StepPosition { first: true, .. } => writer.add_orphan(edit.ino())?,
            StepPosition { last: true, .. } => writer.remove_orphan(txn, edit)?,
            StepPosition { .. } => {}
        }
        if place.first {
            edit.set_size(self.size);
            edit.touch_data(writer.now());
        }
        Ok(())
    }
}

/// Punches a hole.
struct Punch(Removal);

impl Job for Punch {
    fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, lost: &mut Vec<Run>) -> Result<Progress> {
        self.0.step(map, lost)
    }

    fn finish(
        &mut self,
        writer: &Writer,
        _txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        _place: StepPosition,
    ) -> Result<()> {
        edit.touch_data(writer.now());
        Ok(())
    }
}

/// Removes all blocks of an inode on the orphan list, or its blocks past its size.
struct Trim(Removal);

impl Job for Trim {
    fn step(&mut self, map: &mut FileMap<'_, Nodes<'_>>, lost: &mut Vec<Run>) -> Result<Progress> {
        self.0.step(map, lost)
    }

    fn finish(&mut self, _: &Writer, _: &mut Txn<'_>, _: &mut InodeEdit, _: StepPosition) -> Result<()> {
        Ok(())
    }
}

impl Writer {
    pub(super) fn removal(&self, range: Range<u64>) -> Removal {
        Removal { range, cluster: self.volume().super_block().cluster }
    }

    /// Implements `truncate` of the contract.
    pub(crate) fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        let mut inode = self.lock_file(ino)?;
        self.check_size(&inode, size)?;
        self.forget_space(ino);
        if inode.has(InodeFlags::INLINE_DATA) {
            return self.truncate_inline(&mut inode, size);
        }
        if size > inode.size() {
            return self.set_size(inode.view(), size);
        }
        let removal = self.removal(self.block_from(size)..u64::MAX);
        self.run(&mut inode, &mut Truncation { size, removal })
    }

    /// Increases the size to `size`.
    pub(super) fn set_size(&self, inode: InodeWrite<'_>, size: u64) -> Result<()> {
        if size > inode.size() {
            self.zero_journalled_tail(&inode)?;
        }
        let mut txn = self.begin(cost::INODE)?;
        let mut edit = self.edit_inode(&mut txn, inode)?;
        self.grow_to(&mut edit, size);
        edit.touch_data(self.now());
        self.store_inode(&mut txn, &edit);
        txn.commit();
        Ok(())
    }

    /// Implements `punch` of the contract.
    pub(crate) fn punch(&self, ino: Ino, range: Range<u64>) -> Result<()> {
        let mut inode = self.lock_file(ino)?;
        let blocks = self.whole_blocks(&inode, &range)?;
        if blocks.is_empty() {
            return Ok(());
        }
        self.forget_space(ino);
        self.without_inline(&mut inode)?;
        self.run(&mut inode, &mut Punch(self.removal(blocks)))
    }

    /// Returns the blocks of `range`, which consists of whole blocks or ends at the end of the file. Fails with
    /// `Invalid`.
    pub(super) fn whole_blocks(&self, inode: &Inode, range: &Range<u64>) -> Result<Range<u64>> {
        let is_whole = |offset: u64| self.volume().block_size().inside(offset) == 0;
        if !is_whole(range.start) || !is_whole(range.end) && range.end < inode.size() {
            return Err(Error::Invalid);
        }
        Ok(self.block_at(range.start)..self.block_from(range.end))
    }

    /// Removes every block of an inode of any type that will be freed. It is on the orphan list. Its size does not
    /// change.
    pub(crate) fn drop_blocks(&self, inode: &mut InodeGuard<'_>) -> Result<()> {
        self.forget_space(inode.ino());
        if !has_blocks(inode) {
            return Ok(());
        }
        self.run(inode, &mut Trim(self.removal(0..u64::MAX)))
    }

    /// Completes a truncation that a crash interrupted: removes blocks past the size.
    pub(crate) fn trim_blocks(&self, inode: &mut InodeGuard<'_>) -> Result<()> {
        if !has_blocks(inode) {
            return Ok(());
        }
        let from = self.block_from(inode.size());
        self.run(inode, &mut Trim(self.removal(from..u64::MAX)))
    }
}

/// Returns whether `i_block` is a map of blocks, as in `ext4_can_truncate` and `ext4_inode_is_fast_symlink`, and not
/// empty.
pub(super) fn has_blocks(inode: &Inode) -> bool {
    let is_empty = match inode.i_block() {
        // `eh_entries` of the root.
        [_, _, low, high, ..] if inode.has(InodeFlags::EXTENTS) => (*low, *high) == (0, 0),
        pointers => pointers.iter().all(|&byte| byte == 0),
    };
    let mapped = !is_empty
        && match inode.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => inode.size() >= 60 || inode.has(InodeFlags::EXTENTS),
            _ => false,
        };
    mapped && !inode.has(InodeFlags::INLINE_DATA)
}
