//! The bytes of files: where they are, and how those come there that have no block yet.
//!
//! Blocks that a file has are mapped: their bytes move without this crate, both ways. A write to a hole is put on the device
//! before its block is named.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_driver::{Extent, Span};

use crate::{Inode, Map, Op};

/// The most blocks that are looked at for one answer.
const RUN_MAX: u64 = 1024;

impl<F: Map> Op<'_, F> {
    /// Block `at` of a file and how many blocks follow it on the device as they do in the file, or how many are a
    /// hole there; at most `max`, at least 1. Fails in the same cases as [`Map::walk`].
    fn run(&self, inode: &Inode<F::Map>, at: u64, max: u64) -> Result<(Option<u32>, u64)> {
        let (first, reach) = self.format().walk(self, inode, at)?;
        let (mut len, max) = (reach.min(max).max(1), max.min(RUN_MAX));
        while len < max {
            // Damage further on is for whoever asks there.
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

    /// The run of a file that `range` starts in; a hole is called `hole`. Fails with `Corrupt`, with `Invalid` for an
    /// empty range, or if the device fails.
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

    /// Writes bytes of a file to its blocks, taking those that are missing; answers how many. Fails with `Corrupt`,
    /// with `NoSpace`, if not even the first can be had, or if the device fails.
    pub(crate) fn write_data(
        &mut self,
        inode: &mut Inode<F::Map>,
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
