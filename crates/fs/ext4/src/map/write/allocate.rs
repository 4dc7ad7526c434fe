//! Allocating and zeroing ranges without data.
//!
//! Source: Linux `fs/ext4/extents.c` `ext4_alloc_file_blocks`, `ext4_zero_range`.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, Ino, Result};
use obento_driver::Size;
use obento_journal::Credits;

use super::expect_extents;
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::{ExtentState, Mapping};
use crate::writer::{InodeGuard, InodeWrite, Writer};

impl Writer {
    /// Implements `allocate` of the contract.
    pub(crate) fn allocate(&self, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        let mut inode = self.lock_file(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        expect_extents(&inode)?;
        self.check_size(&inode, range.end)?;
        self.without_inline(&mut inode)?;
        let blocks = self.block_at(range.start)..self.block_from(range.end);
        self.fill(&mut inode, &blocks, Fill::Space)?;
        self.finish_space(&inode, &range, size)
    }

    /// Implements `zero_range` of the contract.
    pub(crate) fn zero_range(&self, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        let mut inode = self.lock_file(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        let blocks = self.whole_blocks(&inode, &range)?;
        expect_extents(&inode)?;
        self.check_size(&inode, range.end)?;
        self.forget_space(ino);
        self.without_inline(&mut inode)?;
        self.fill(&mut inode, &blocks, Fill::Zeros)?;
        self.finish_space(&inode, &range, size)
    }

    /// Maps the first `blocks` of a file of the format itself as written. New blocks keep their old contents. The size
    /// does not change. Fails with `FileTooBig`, or with `NoSpace` after mapping some of them.
    pub(crate) fn fill_own(&self, ino: Ino, blocks: u64) -> Result<()> {
        self.fill(&mut self.lock_inode(ino)?, &(0..blocks), Fill::Garbage)
    }

    /// Maps every block of a range, in a transaction for each run.
    fn fill(&self, inode: &mut InodeGuard<'_>, blocks: &Range<u64>, how: Fill) -> Result<()> {
        let mut at = blocks.start;
        while at < blocks.end {
            let nodes = Nodes { volume: self.volume(), inode };
            let mut map = FileMap::new(&nodes)?;
            let rest = at..blocks.end.min(map.end());
            // A mapping after the range may own the cluster in which the range ends.
            let found = map.first_in(&(at..map.end()))?;
            let part = match found.and_then(|found| found.within(&rest)) {
                Some(found) if found.range().start == at => {
                    at = found.end();
                    if how == Fill::Space || found.state == how.state() {
                        continue;
                    }
                    found
                }
                _ => {
                    let hole = at..found.map_or(map.end(), |found| found.range().start);
                    let part = self.reservation(inode, &mut map, &hole, rest.end)?;
                    at = part.end();
                    part
                }
            };
            let bytes = |block: u64| block.saturating_mul(self.block_bytes());
            self.fill_part(inode.view(), map, &part, how.state()).inspect_err(|_| {
                self.give_back(inode.ino(), &(bytes(part.range().start)..bytes(part.end())));
            })?;
            self.refresh(inode)?;
        }
        Ok(())
    }

    fn fill_part(
        &self,
        inode: InodeWrite<'_>,
        mut map: FileMap<'_, Nodes<'_>>,
        part: &Mapping,
        state: ExtentState,
    ) -> Result<()> {
        let range = part.range();
        let (new, gained) = self.filled(&inode, &mut map, &range, state)?;
        map.splice(range.clone(), &new, &mut Vec::new())?;
        let change = self.plan_change(&inode, map, gained, Vec::new())?;
        self.commit_change(inode, change, Credits(0), |_, edit| {
            edit.touch(self.now());
            Ok(())
        })?;
        self.end_holding(inode.ino(), &self.whole_clusters(&range));
        Ok(())
    }

    /// Sets the size once all space is allocated.
    fn finish_space(&self, inode: &InodeGuard<'_>, range: &Range<u64>, size: Size) -> Result<()> {
        self.set_size(inode.view(), size.after(inode.size(), range))
    }
}

/// The contents of the blocks of a range afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fill {
    /// Written data; new blocks read as zeros.
    Space,
    /// Zeros.
    Zeros,
    /// Whatever is in the blocks.
    Garbage,
}

impl Fill {
    /// Returns the state in which new blocks are mapped.
    fn state(self) -> ExtentState {
        match self {
            Self::Space | Self::Zeros => ExtentState::Unwritten,
            Self::Garbage => ExtentState::Written,
        }
    }
}
