//! Free blocks below the new end, and the block bitmaps of all groups.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits blocks and clusters")]

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use obento_driver::ResizeResult;

use super::super::bitmaps::RepairedBitmap;
use super::super::edits::Edits;
use super::Shrinking;
use super::scan::at;
use crate::allocator::{bits, fresh_block_bitmap};
use crate::group::GroupFlags;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// Reads the block bitmaps of all groups.
pub(super) fn bitmaps(edits: &Edits) -> ResizeResult<Vec<Vec<u8>>> {
    let (view, mut bitmaps) = (&edits.view, Vec::new());
    for group in 0..view.sb.groups {
        let descriptor = view.group(group);
        let is_fresh = view.has_descriptor_sums() && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT);
        bitmaps.push(if is_fresh {
            fresh_block_bitmap(&view.sb, group, descriptor)?
        } else {
            view.read(descriptor.block_bitmap, 1)?
        });
    }
    Ok(bitmaps)
}

/// The free runs of a volume, by place and by length.
pub(super) struct FreeRuns {
    places: BTreeMap<u64, u64>,
    lengths: BTreeSet<(u64, u64)>,
}

impl FreeRuns {
    /// Returns the free runs before block `end`.
    pub(super) fn before(sb: &SuperBlock, bitmaps: &[Vec<u8>], end: u64) -> Self {
        let mut this = Self { places: BTreeMap::new(), lengths: BTreeSet::new() };
        let mut open: Option<(u64, u64)> = None;
        for (group, bitmap) in (0..sb.groups).zip(bitmaps) {
            let start = sb.group_start(group).0;
            let all =
                u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX).min(sb.group_clusters(group));
            let mut next = 0;
            while next < all {
                let first = bits::next_clear(bitmap, next..all);
                let last = bits::next_set(bitmap, first..all);
                let (from, len) = (start + u64::from(first), u64::from(last - first));
                open = match open {
                    Some((begin, count)) if begin + count == from => Some((begin, count + len)),
                    before => {
                        before.into_iter().for_each(|(begin, count)| this.add(begin, count));
                        Some((from, len))
                    }
                };
                next = last.max(first + 1);
            }
        }
        open.into_iter().for_each(|(begin, count)| this.add(begin, count));
        this
    }

    fn add(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.places.insert(start, len);
            self.lengths.insert((len, start));
        }
    }

    /// Takes `len` contiguous blocks from the shortest run that has so many, or else all blocks of the longest one.
    /// Returns `None` if no block is free.
    pub(super) fn take(&mut self, len: u64) -> Option<Range<u64>> {
        let fitting = self.lengths.range((len, 0)..).next().or_else(|| self.lengths.last());
        let (all, start) = *fitting?;
        self.lengths.remove(&(all, start));
        self.places.remove(&start);
        let len = len.min(all);
        self.add(start + len, all - len);
        Some(start..start + len)
    }
}

impl Shrinking<'_> {
    /// Sets or clears the bits of blocks.
    pub(super) fn set_blocks(&mut self, blocks: Range<u64>, is_used: bool) {
        let sb = &self.edits.view.sb;
        let mut next = blocks.start;
        while next < blocks.end {
            let Some(group) = sb.group_of(VolBlock(next)) else { return };
            let own = sb.group_blocks(group);
            let stop = own.end.min(blocks.end);
            let bit = |block: u64| u32::try_from(block - own.start).unwrap_or(u32::MAX);
            if let Some(bitmap) = self.bitmaps.get_mut(at(group)) {
                let range = bit(next)..bit(stop);
                if is_used {
                    bits::set(bitmap, range)
                } else {
                    bits::clear(bitmap, range)
                }
                self.changed.insert(group);
            }
            next = stop;
        }
    }

    /// Writes the changed bitmaps and the counts of free blocks to the copy.
    pub(super) fn write_bitmaps(&mut self) -> ResizeResult<()> {
        for group in core::mem::take(&mut self.changed) {
            let Some(bitmap) = self.bitmaps.get(at(group)) else { continue };
            let count = bits::count_clear(bitmap, 0..self.edits.view.sb.group_clusters(group));
            self.edits.put(self.edits.view.group(group).block_bitmap, bitmap)?;
            self.edits.mark_bitmap_written(group)?;
            if let Some(known) = self.edits.view.groups.get_mut(at(group)) {
                known.flags.remove(GroupFlags::BLOCK_UNINIT);
                known.free_blocks = count;
            }
            self.edits.change_free_blocks(group, |_| count.into())?;
            self.edits.seal_bitmap(RepairedBitmap::Blocks, group)?;
        }
        let free = self.edits.view.groups.iter().map(|group| u64::from(group.free_blocks)).sum();
        Ok(self.edits.set_all_free_blocks(free)?)
    }
}
