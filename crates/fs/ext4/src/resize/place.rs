//! The places of the bitmaps and inode tables of new groups.
//!
//! With `flex_bg`, the new groups of a flex group have their block bitmaps, inode bitmaps and tables in this order
//! from the first new group on. Otherwise, or if they do not fit, each group has its own.
//! Invariant: all places are in new groups, so that nothing of the old volume is overwritten before the volume grows.
//! Source: e2fsprogs `lib/ext2fs/alloc_tables.c`; Linux `fs/ext4/resize.c` `ext4_alloc_group_tables`.
#![allow(clippy::arithmetic_side_effects, reason = "the groups and their structures are in the grown volume")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::to_usize;

use crate::allocator::bits;
use crate::feature::Incompat;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::super_block::{Checksums, SuperBlock};
use crate::unit::VolBlock;

/// A run of blocks.
type Run = Range<u64>;

/// New groups that share their space for tables.
pub(super) struct NewGroups {
    /// The number of the first group.
    pub first: u32,
    /// The descriptors of the groups, with all counts and flags.
    pub descriptors: Vec<GroupDescriptor>,
    /// The blocks that are in use, sorted.
    used: Vec<Run>,
}

impl NewGroups {
    /// Returns the new groups from `first` on that share their space. Returns `None` if their tables do not fit.
    ///
    /// # Errors
    ///
    /// `NoMemory`.
    pub(super) fn place(sb: &SuperBlock, first: u32) -> Result<Option<Self>> {
        let end = shared_end(sb, first);
        let groups = first..end;
        let mut descriptors = Vec::new();
        descriptors.try_reserve_exact(groups.len())?;
        descriptors.resize(groups.len(), GroupDescriptor::EMPTY);
        let is_placed = pack(sb, groups.clone(), &mut descriptors)
            || groups
                .clone()
                .zip(descriptors.iter_mut())
                .all(|(group, descriptor)| pack(sb, group..group + 1, core::slice::from_mut(descriptor)));
        if !is_placed {
            return Ok(None);
        }
        let mut this = Self { first, used: used_runs(sb, groups.clone(), &descriptors), descriptors };
        for group in groups {
            this.count(sb, group)?;
        }
        Ok(Some(this))
    }

    /// Returns the number of the group after the last one.
    pub(super) fn end(&self) -> u32 {
        self.first + u32::try_from(self.descriptors.len()).unwrap_or(0)
    }

    /// Returns the block bitmap of a group.
    pub(super) fn block_bitmap(&self, sb: &SuperBlock, group: u32) -> Result<Vec<u8>> {
        let len = to_usize(sb.block_size.into());
        let mut bitmap = Vec::new();
        bitmap.try_reserve_exact(len)?;
        bitmap.resize(len, 0);
        for run in self.used_in(sb, group) {
            let len = run.end - run.start;
            bits::set(&mut bitmap, sb.clusters_in_group(group, VolBlock(run.start), len));
        }
        bits::set(&mut bitmap, sb.group_clusters(group)..sb.block_size.bits());
        Ok(bitmap)
    }

    /// Returns the used runs that are at least partly in `group`.
    fn used_in(&self, sb: &SuperBlock, group: u32) -> &[Run] {
        let blocks = sb.group_blocks(group);
        let from = self.used.partition_point(|run| run.end <= blocks.start);
        let to = self.used.partition_point(|run| run.start < blocks.end);
        self.used.get(from..to).unwrap_or_default()
    }

    /// Sets the counts and flags of a group.
    fn count(&mut self, sb: &SuperBlock, group: u32) -> Result<()> {
        let clusters = sb.group_clusters(group);
        let free = bits::count_clear(&self.block_bitmap(sb, group)?, 0..clusters);
        let own = used_head(sb, group);
        let has_only_copies = self.used_in(sb, group).iter().all(|run| *run == own);
        let is_alone = self.descriptors.len() == 1;
        let index = to_usize((group - self.first).into());
        let Some(descriptor) = self.descriptors.get_mut(index) else { return Ok(()) };
        descriptor.free_blocks = free;
        descriptor.free_inodes = sb.inodes_per_group;
        if sb.checksums != Checksums::None {
            descriptor.itable_unused = sb.inodes_per_group;
            descriptor.flags.insert(GroupFlags::INODE_UNINIT);
            // The bitmap can be computed if the group contains only its own structures. e2fsck expects the bitmap
            // of the last group.
            if (has_only_copies || is_alone) && group + 1 < sb.groups {
                descriptor.flags.insert(GroupFlags::BLOCK_UNINIT);
            }
        }
        Ok(())
    }
}

/// Returns the end of the new groups that share their space with `first`.
fn shared_end(sb: &SuperBlock, first: u32) -> u32 {
    let log = u32::from(sb.raw.s_log_groups_per_flex);
    let next = first + 1;
    if !sb.incompat.contains(Incompat::FLEX_BG) || !(1..=31).contains(&log) {
        return next;
    }
    let end = ((u64::from(first) >> log) + 1) << log;
    u32::try_from(end).unwrap_or(u32::MAX).clamp(next, sb.groups)
}

/// Returns the blocks at the start of `group` for copies of the super block and the descriptors.
fn used_head(sb: &SuperBlock, group: u32) -> Run {
    let (start, len) = sb.reserved_start(group);
    start.0..start.0 + len
}

/// Returns the field with the place of one structure of a group.
type PlaceField = fn(&mut GroupDescriptor) -> &mut VolBlock;

/// Places the structures of `groups` one after the other. Returns false if they do not fit.
fn pack(sb: &SuperBlock, groups: Range<u32>, descriptors: &mut [GroupDescriptor]) -> bool {
    let mut gaps = Gaps::between(groups.map(|group| {
        let blocks = sb.group_blocks(group);
        (used_head(sb, group).end.max(blocks.start), blocks.end)
    }));
    let table = u64::from(sb.inode_table_blocks());
    let places: [(u64, PlaceField); 3] = [
        (1, |descriptor| &mut descriptor.block_bitmap),
        (1, |descriptor| &mut descriptor.inode_bitmap),
        (table, |descriptor| &mut descriptor.inode_table),
    ];
    for (len, place) in places {
        for descriptor in descriptors.iter_mut() {
            let Some(start) = gaps.take(len) else { return false };
            *place(descriptor) = VolBlock(start);
        }
    }
    true
}

/// Returns all runs that the structures of `groups` use, sorted.
fn used_runs(sb: &SuperBlock, groups: Range<u32>, descriptors: &[GroupDescriptor]) -> Vec<Run> {
    let table = u64::from(sb.inode_table_blocks());
    let mut runs: Vec<Run> = groups.map(|group| used_head(sb, group)).filter(|run| !run.is_empty()).collect();
    for descriptor in descriptors {
        let [blocks, inodes, start] =
            [descriptor.block_bitmap, descriptor.inode_bitmap, descriptor.inode_table].map(|block| block.0);
        runs.push(blocks..blocks + 1);
        runs.push(inodes..inodes + 1);
        runs.push(start..start + table);
    }
    runs.sort_unstable_by_key(|run| run.start);
    runs
}

/// The free runs of blocks, in order.
struct Gaps {
    runs: alloc::collections::VecDeque<Run>,
}

impl Gaps {
    /// Joins the free parts of adjacent groups, which are given by their first and last blocks.
    fn between(parts: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut runs = alloc::collections::VecDeque::<Run>::new();
        for (start, end) in parts {
            match runs.back_mut() {
                Some(last) if last.end == start => last.end = end,
                _ if start < end => runs.push_back(start..end),
                _ => {}
            }
        }
        Self { runs }
    }

    /// Takes `len` blocks from the first gap that has them, and leaves out the gaps before it.
    fn take(&mut self, len: u64) -> Option<u64> {
        loop {
            let gap = self.runs.front_mut()?;
            let start = gap.start;
            let next = start.checked_add(len)?;
            if next <= gap.end {
                gap.start = next;
                return Some(start);
            }
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_taken_in_order_and_joined_across_groups() {
        let mut gaps = Gaps::between([(5, 10), (10, 20), (23, 30)].into_iter());
        assert_eq!(gaps.take(12), Some(5));
        assert_eq!(gaps.take(3), Some(17));
        assert_eq!(gaps.take(7), Some(23));
        assert_eq!(gaps.take(1), None);
    }
}
