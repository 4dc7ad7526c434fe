//! File data: where it is, and how data is written to holes.
//!
//! Data of allocated blocks is mapped: the caller transfers the data in both directions without this crate. Data that
//! is written to a hole is on the device before the inode refers to the new block.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_driver::{Extent, Span};

use crate::{Inode, LockedInode, Map, Op};

/// Maximum number of blocks that are examined for one result.
const RUN_MAX: u64 = 1024;

impl<F: Map> Op<'_, F> {
    /// Returns block `at` of a file and the number of blocks that follow it contiguously on the device. For a hole,
    /// returns `None` and the number of blocks of the hole there. The number is from 1 to `max`. Fails in the same
    /// cases as [`Map::walk`].
    fn run(&self, inode: &Inode<F::Map>, at: u64, max: u64) -> Result<(Option<u32>, u64)> {
        let (first, reach) = self.format().walk(self, inode, at)?;
        let (mut len, max) = (reach.min(max).max(1), max.min(RUN_MAX));
        while len < max {
            // Damage further on is reported when it is read.
            let Ok((next, reach)) = self.format().walk(self, inode, at.saturating_add(len)) else { break };
            let follows = match (first, next) {
                (Some(first), Some(next)) => u64::from(first).checked_add(len) == Some(next.into()),
                (first, next) => first == next,
            };
            if !follows {
                break;
            }
            len = len.saturating_add(reach).min(max);
        }
        Ok((first, len))
    }

    /// Returns the run of a file at `range.start`; `hole` is the span of a hole. Fails with `Invalid` for an empty
    /// range, with `Corrupt`, or if the device fails.
    pub(crate) fn extent(&self, inode: &Inode<F::Map>, range: &Range<u64>, hole: Span) -> Result<Extent> {
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        let geometry = self.geometry();
        let (at, within) = geometry.split(range.start);
        let (block, blocks) = self.run(inode, at, geometry.blocks_of(range.end).saturating_sub(at))?;
        let len = geometry.bytes_of(blocks).saturating_sub(within).min(length(range));
        let start = |block| geometry.offset_of(block).saturating_add(within);
        Ok(Extent { len, span: block.map_or(hole, |block| Span::Mapped(start(block))) })
    }

    /// Writes data to the blocks of a file, and allocates missing ones. Returns the number of bytes written. Fails
    /// with `Corrupt`, with `NoSpace` if not even the first block can be allocated, or if the device fails.
    pub(crate) fn write_data(
        &mut self,
        inode: &mut LockedInode<'_, F::Map>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize> {
        let (geometry, device) = (self.geometry(), self.volume.device());
        let (mut done, mut whole) = (0, Vec::new());
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let (at, within) = geometry.split(offset.saturating_add(to_u64(done)));
            let within = to_usize(within);
            let part = rest.get(..rest.len().min(geometry.block_size().saturating_sub(within)));
            let part = part.unwrap_or_default();
            let (block, is_new) = match self.format().fill(self, inode, at) {
                Err(Error::NoSpace) if done > 0 => break,
                filled => filled?,
            };
            if is_new {
                whole.clear();
                whole.resize(geometry.block_size(), 0);
                whole.iter_mut().skip(within).zip(part).for_each(|(to, from)| *to = *from);
                device.write_at(geometry.offset_of(block), &whole)?;
            } else {
                device.write_at(geometry.offset_of(block).saturating_add(to_u64(within)), part)?;
            }
            done = done.saturating_add(part.len());
        }
        Ok(done)
    }
}

pub(crate) fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}
