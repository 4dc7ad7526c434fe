//! Positions and sizes that follow from a checked super block.
//!
//! Invariant: no computation overflows, for any argument that a function permits. [`SuperBlock::decode`] checks that
//! a volume has at most [`MAX_VOLUME_LEN`](crate::size::MAX_VOLUME_LEN) bytes, so that the number of its blocks is
//! below 2^53. A group has at most 2^19 clusters and inodes, and fewer than 2^32 blocks. The sizes of inodes and
//! descriptors are powers of two and at most a block.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits the operands")]

use core::ops::Range;

use obento_base::wire::to_usize;

use crate::feature::{Incompat, RoCompat};
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// `EXT4_LINK_MAX`, `EXT2_LINK_MAX`.
const LINK_MAX: u32 = 65_000;
const OLD_LINK_MAX: u32 = 32_000;
/// `PATH_MAX` of Linux, including its NUL.
const PATH_MAX: u32 = 4096;

impl SuperBlock {
    /// Returns the number of blocks per cluster: 1 without bigalloc.
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster.blocks()
    }

    /// Returns the number of clusters of a group, except for a shorter last group.
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster.bits()
    }

    /// Returns the number of inodes per block.
    pub fn inodes_per_block(&self) -> u32 {
        1 << self.block_size.log_of(self.inode_size)
    }

    /// Returns the number of blocks of one group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Returns the block of the inode table that contains the record with index `index` in its group, counted from the
    /// first block of the table, and the byte offset of the record in the block.
    pub fn inode_place(&self, index: u32) -> (u32, u32) {
        let log = self.block_size.log_of(self.inode_size);
        (index >> log, (index & ((1 << log) - 1)) * u32::from(self.inode_size))
    }

    /// Returns the group of the inode with number `number`, and its index in the group. Returns `None` for 0 and for a
    /// number that no volume has.
    pub fn inode_index(&self, number: u64) -> Option<(u32, u32)> {
        let from_first = u32::try_from(number.checked_sub(1)?).ok()?;
        let group = from_first.checked_div(self.inodes_per_group)?;
        Some((group, from_first - group * self.inodes_per_group))
    }

    /// Returns the number of descriptors per block.
    pub fn descs_per_block(&self) -> u32 {
        1 << self.block_size.log_of(self.desc_size)
    }

    /// Returns the number of blocks of all descriptors.
    pub fn desc_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descs_per_block())
    }

    /// Returns the descriptor block that describes `group`, and the byte offset of the descriptor within it.
    pub fn desc_place(&self, group: u32) -> (u32, usize) {
        let log = self.block_size.log_of(self.desc_size);
        (group >> log, to_usize(u64::from(group & ((1 << log) - 1)) * u64::from(self.desc_size)))
    }

    /// Returns the first block of `group`.
    pub fn group_start(&self, group: u32) -> VolBlock {
        // The product of two numbers of 32 bits, and another one, fit 64 bits.
        VolBlock(u64::from(group) * u64::from(self.blocks_per_group) + u64::from(self.first_data_block))
    }

    /// Returns the blocks of `group`. The last group may have fewer than others, and later groups have none.
    pub fn group_blocks(&self, group: u32) -> Range<u64> {
        let start = self.group_start(group).0.min(self.blocks_count);
        start..(start + u64::from(self.blocks_per_group)).min(self.blocks_count)
    }

    /// Returns the group that contains `block`, or `None` if no group does.
    pub fn group_of(&self, block: VolBlock) -> Option<u32> {
        let inside = block.0.checked_sub(self.first_data_block.into())?;
        if block.0 >= self.blocks_count {
            return None;
        }
        u32::try_from(inside.checked_div(self.blocks_per_group.into())?).ok()
    }

    /// Returns the number of clusters of group `group`. The last group may be shorter.
    pub fn group_clusters(&self, group: u32) -> u32 {
        let blocks = self.group_blocks(group);
        u32::try_from(self.cluster.needed(blocks.end - blocks.start)).unwrap_or(0)
    }

    /// Returns the clusters of `group` that contain the blocks of the group among the `len` blocks from `start` on.
    pub fn clusters_in_group(&self, group: u32, start: VolBlock, len: u64) -> Range<u32> {
        let blocks = self.group_blocks(group);
        let end = start.0.saturating_add(len).min(blocks.end);
        let start = start.0.max(blocks.start);
        if start >= end {
            return 0..0;
        }
        let cluster =
            |block: u64| u32::try_from(self.cluster.whole(block - blocks.start)).unwrap_or(u32::MAX);
        cluster(start)..cluster(end - 1) + 1
    }

    /// Returns the first block of cluster `cluster` of `group`, which the volume has.
    pub fn cluster_start(&self, group: u32, cluster: u32) -> VolBlock {
        VolBlock(self.group_start(group).0 + self.cluster.len(cluster.into()))
    }

    /// Returns the size of the volume in bytes.
    pub fn volume_len(&self) -> u64 {
        self.block_size.len(self.blocks_count)
    }

    /// Returns whether the `len` blocks from `start` on are blocks of the volume after the primary super block, as in
    /// `ext4_sb_block_valid`.
    pub fn holds_blocks(&self, start: VolBlock, len: u64) -> bool {
        start.0 > self.first_data_block.into()
            && start.0.checked_add(len).is_some_and(|end| end <= self.blocks_count)
    }

    /// Returns the groups whose bitmaps and inode tables may be in `group`. These are the groups of its flex group, up
    /// to the number of groups that `mke2fs` puts into one.
    pub fn flex_groups(&self, group: u32) -> Range<u32> {
        const MAX_ASKED: u32 = 64;
        let log = u32::from(self.raw.s_log_groups_per_flex);
        if !self.incompat.contains(Incompat::FLEX_BG) || !(1..=31).contains(&log) {
            return group..group.saturating_add(1);
        }
        let first = group >> log << log;
        let len = (1_u32 << log).min(MAX_ASKED);
        first..first.saturating_add(len).min(self.groups)
    }

    /// Returns the maximum number of names of a file, and of counted subdirectories.
    pub fn link_max(&self) -> u32 {
        if self.incompat.contains(Incompat::EXTENT) { LINK_MAX } else { OLD_LINK_MAX }
    }

    /// Returns the maximum length of the target of a symbolic link in bytes.
    pub fn symlink_max(&self) -> u32 {
        self.block_size.bytes().min(PATH_MAX) - 1
    }

    /// Returns the maximum size of a file that is mapped by extents or by the block map of ext2.
    pub fn file_size_max(&self, extents: bool) -> u64 {
        let pointers = u64::from(self.block_size.pointers());
        // At most 2^14, 2^28 and 2^42 blocks.
        let indirect = pointers + pointers.pow(2) + pointers.pow(3);
        let blocks = if extents { u32::MAX.into() } else { (indirect + 12).min(u32::MAX.into()) };
        // Without huge_file, the allocated space is counted in sectors in 32 bits.
        let huge = self.ro_compat.contains(RoCompat::HUGE_FILE);
        let counted = if huge { u64::MAX } else { u64::from(u32::MAX) * 512 };
        self.block_size.len(blocks).min(counted)
    }
}

#[cfg(test)]
mod tests {
    use obento_base::wire::{FromZeros, IntoBytes, split};
    use obento_base::{Corrupt, Error, Result};

    use super::*;
    use crate::raw::RawSuperBlock;
    use crate::super_block::MAGIC;

    const PER_GROUP: u32 = 1 << 19;

    /// Returns the super block of a volume with blocks of 64 KiB and two inodes per group.
    fn volume(blocks: u64) -> Result<SuperBlock> {
        let mut raw = RawSuperBlock::new_zeroed();
        raw.s_magic.set(MAGIC);
        raw.s_rev_level.set(1);
        raw.s_first_ino.set(11);
        raw.s_inode_size.set(32_768);
        raw.s_log_block_size.set(6);
        raw.s_log_cluster_size.set(6);
        raw.s_feature_incompat.set(Incompat::SIXTY_FOUR_BIT.bits());
        raw.s_desc_size.set(64);
        raw.s_blocks_per_group.set(PER_GROUP);
        raw.s_clusters_per_group.set(PER_GROUP);
        raw.s_inodes_per_group.set(2);
        raw.s_inodes_count.set(u32::try_from(blocks.div_ceil(PER_GROUP.into()) * 2).unwrap());
        let (low, high) = split(blocks);
        raw.s_blocks_count_lo.set(low);
        raw.s_blocks_count_hi.set(high);
        SuperBlock::decode(raw.as_bytes(), VolBlock(0))
    }

    #[test]
    fn a_volume_with_2_to_the_63_bytes_is_damaged() {
        let error = volume(1 << 47).unwrap_err();
        assert!(
            matches!(error, Error::Corrupt(Corrupt::Field { field: "s_blocks_count_lo", .. })),
            "{error}"
        );
        assert_eq!(volume((1 << 47) - 1).unwrap().volume_len(), (1 << 63) - (1 << 16));
    }

    #[test]
    fn no_position_overflows_in_the_largest_volume() {
        let sb = volume((1 << 47) - 5).unwrap();
        let last = sb.groups - 1;
        assert_eq!(sb.group_clusters(last), PER_GROUP - 5);
        assert_eq!(sb.group_blocks(last), (1 << 47) - u64::from(PER_GROUP)..(1 << 47) - 5);
        assert!(sb.group_blocks(u32::MAX).is_empty() && sb.group_clusters(u32::MAX) == 0);
        assert_eq!(sb.clusters_in_group(last, VolBlock(3), u64::MAX), 0..PER_GROUP - 5);
        assert_eq!(sb.clusters_in_group(u32::MAX, VolBlock(u64::MAX), u64::MAX), 0..0);
        assert_eq!(sb.inode_index(0), None);
        assert_eq!(sb.inode_index(u64::from(u32::MAX) + 1), Some((u32::MAX / 2, 1)));
        assert_eq!(sb.inode_index(u64::from(u32::MAX) + 2), None);
        assert_eq!((sb.inode_place(3), sb.desc_place(1025)), ((1, 32_768), (1, 64)));
        assert!(!sb.holds_blocks(VolBlock(u64::MAX), u64::MAX));
    }
}
