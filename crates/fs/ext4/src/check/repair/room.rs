//! Free blocks for copies and for recreated structures.
//!
//! Invariant: bitmaps are right by then ([`Stage::Counts`] precedes everything that allocates blocks), so that a
//! group whose bitmap was never written contains only blocks of the volume itself.
//! Invariant: the bitmap and the descriptor of a group agree after each allocation, since the writer does not allocate
//! in a group where they differ. The next round corrects the count of the super block.
//!
//! [`Stage::Counts`]: super::super::issue::Stage

use obento_base::Result;
use obento_base::wire::to_usize;

use super::bitmaps::RepairedBitmap;
use super::edits::Edits;
use super::volume::halves;
use crate::allocator::{bits, fresh_block_bitmap};
use crate::group::GroupFlags;
use crate::unit::VolBlock;

impl Edits {
    /// Allocates `len` contiguous blocks within a group, from the start of a cluster on. Returns `None` if there are
    /// not so many.
    pub(super) fn take_run(&mut self, len: u64) -> Result<Option<u64>> {
        let Ok(wanted) = u32::try_from(self.view.sb.cluster.needed(len)) else {
            return Ok(None);
        };
        // Groups in use first, since an unused group needs a bitmap.
        for is_fresh in [false, true] {
            for group in self.full_groups..self.view.sb.groups {
                if self.is_fresh(group) != is_fresh || self.view.group(group).block_bitmap.0 == 0 {
                    continue;
                }
                if is_fresh {
                    self.begin_group(group)?;
                }
                if let Some(first) = self.take_in(group, wanted)? {
                    let inside = self.view.sb.cluster.len(first.into());
                    return Ok(Some(self.view.sb.group_start(group).0.saturating_add(inside)));
                }
            }
        }
        Ok(None)
    }

    /// Frees what [`Self::take_run`] allocated.
    pub(super) fn release_run(&mut self, start: u64, len: u64) -> Result<()> {
        let sb = &self.view.sb;
        let Some(group) = sb.group_of(VolBlock(start)) else { return Ok(()) };
        let first = sb.cluster.whole(start.saturating_sub(sb.group_start(group).0));
        let end = first.saturating_add(sb.cluster.needed(len));
        self.full_groups = self.full_groups.min(group);
        self.set_bits(RepairedBitmap::Blocks, group, first..end, false)?;
        let count = end.saturating_sub(first);
        self.change_free_blocks(group, |free| free.saturating_add(count))
    }

    /// Replaces the count of free clusters in the descriptor of a group.
    pub(super) fn change_free_blocks(&mut self, group: u32, change: impl FnOnce(u64) -> u64) -> Result<()> {
        self.descriptor(group, |low, high| {
            let stored = high.as_ref().map_or(0, |high| high.bg_free_blocks_count_hi.get());
            let free = change(u64::from(stored) << 16 | u64::from(low.bg_free_blocks_count_lo.get()));
            let (low_half, high_half) = halves(free);
            low.bg_free_blocks_count_lo.set(low_half);
            if let Some(high) = high {
                high.bg_free_blocks_count_hi.set(high_half);
            }
        })
    }

    /// Allocates `wanted` contiguous clusters of a group. Returns the first one.
    fn take_in(&mut self, group: u32, wanted: u32) -> Result<Option<u32>> {
        let Ok(bitmap) = self.view.read(self.view.group(group).block_bitmap, 1) else { return Ok(None) };
        let all = self.view.sb.group_clusters(group);
        let mut at = 0;
        let mut has_any = false;
        while at < all {
            let first = bits::next_clear(&bitmap, at..all);
            let end = bits::next_set(&bitmap, first..all);
            if end.saturating_sub(first) >= wanted {
                let end = first.saturating_add(wanted);
                self.set_bits(RepairedBitmap::Blocks, group, first.into()..end.into(), true)?;
                self.change_free_blocks(group, |free| free.saturating_sub(wanted.into()))?;
                return Ok(Some(first));
            }
            has_any |= first < all;
            at = end.max(first.saturating_add(1));
        }
        if !has_any && group == self.full_groups {
            self.full_groups = group.saturating_add(1);
        }
        Ok(None)
    }

    /// Returns whether the bitmap of a group was never written.
    fn is_fresh(&self, group: u32) -> bool {
        let flags = self.view.group(group).flags;
        self.view.has_descriptor_sums() && flags.contains(GroupFlags::BLOCK_UNINIT)
    }

    /// Writes the bitmap of an unused group.
    fn begin_group(&mut self, group: u32) -> Result<()> {
        let descriptor = *self.view.group(group);
        let bitmap = fresh_block_bitmap(&self.view.sb, group, &descriptor)?;
        self.put(descriptor.block_bitmap, &bitmap)?;
        let flag = GroupFlags::BLOCK_UNINIT;
        self.descriptor(group, |low, _| low.bg_flags.set(low.bg_flags.get() & !flag.bits()))?;
        if let Some(known) = self.view.groups.get_mut(to_usize(group.into())) {
            known.flags.remove(flag);
        }
        // Updates the checksum.
        self.set_bits(RepairedBitmap::Blocks, group, 0..0, true)
    }
}
