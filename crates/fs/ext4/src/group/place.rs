//! The places of the backups of the super block and the descriptors.
//!
//! On disk: group 0 and the groups for which [`SuperBlock::has_copy`] is true start with a copy of the super block
//! and of all descriptor blocks. With `meta_bg`, from descriptor block `s_first_meta_bg` on, each is instead in the
//! first, second and last of the groups that it describes.
//! Source: Linux `Documentation/filesystems/ext4/blockgroup.rst`, `fs/ext4/balloc.c` `ext4_bg_has_super`,
//! `ext4_bg_num_gdb`, `fs/ext4/super.c` `descriptor_loc`.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits groups and descriptors")]

use alloc::vec::Vec;

use crate::feature::{Compat, Incompat, RoCompat};
use crate::size::BlockSize;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

impl SuperBlock {
    /// Returns whether `group` contains a copy of the super block: `ext4_bg_has_super`.
    pub fn has_copy(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.compat.contains(Compat::SPARSE_SUPER2) {
            return self.raw.s_backup_bgs.iter().any(|backup| backup.get() == group);
        }
        if group == 1 || !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            return true;
        }
        is_sparse_copy(group)
    }

    /// Returns whether the place of descriptor block `index` is defined by `meta_bg`.
    pub(crate) fn is_meta(&self, index: u32) -> bool {
        self.incompat.contains(Incompat::META_BG) && index >= self.raw.s_first_meta_bg.get()
    }

    /// Returns the place of descriptor block `index` after the copy of the super block in group `copy`. With
    /// `meta_bg`, the copies are in the second and last group that the block describes, and `copy` 0 means the first.
    pub fn desc_block(&self, index: u32, copy: u32) -> VolBlock {
        if !self.is_meta(index) {
            // Group 0 starts with the block that contains byte 1024, which is not block 0 with 1 KiB blocks.
            let start = match copy {
                0 => VolBlock(u64::from(self.block_size == BlockSize::MIN)),
                _ => self.group_start(copy),
            };
            return VolBlock(start.0 + 1 + u64::from(index));
        }
        let first = index * self.descs_per_block();
        let group = match copy {
            0 => first,
            _ => first + 1,
        };
        let mut skip = u64::from(self.has_copy(group));
        if self.block_size == BlockSize::MIN && group == 0 && self.first_data_block == 0 {
            skip += 1;
        }
        VolBlock(self.group_start(group).0 + skip)
    }

    /// Returns all places of descriptor block `index`. With `meta_bg`, these are the first, second and last group that
    /// it describes. Otherwise, these are the groups with copies of the super block that `meta_bg` does not lay out.
    pub(crate) fn desc_homes(&self, index: u32) -> Vec<VolBlock> {
        if !self.is_meta(index) {
            let has_copies = |&group: &u32| self.has_copy(group) && self.has_plain_copies(group);
            let copies = (1..self.groups).filter(has_copies);
            return core::iter::once(0).chain(copies).map(|group| self.desc_block(index, group)).collect();
        }
        let first = index * self.descs_per_block();
        let last = first + self.descs_per_block() - 1;
        let mut homes = Vec::from([self.desc_block(index, 0)]);
        if first + 1 < self.groups {
            homes.push(self.desc_block(index, 1));
        }
        if last < self.groups && last > first + 1 {
            let start = self.group_start(last).0;
            homes.push(VolBlock(start + u64::from(self.has_copy(last))));
        }
        homes
    }

    /// Returns the blocks of `group` that contain copies of the super block and the descriptors: the first one, and
    /// their number.
    pub fn copy_blocks(&self, group: u32) -> (VolBlock, u64) {
        let start = match group {
            // The block of the boot sector contains no data, either.
            0 => VolBlock(0),
            _ => self.group_start(group),
        };
        let boot = if group == 0 { self.desc_block(0, 0).0.max(1) - 1 } else { 0 };
        let len = boot + u64::from(self.has_copy(group)) + self.desc_copies(group);
        (start, len)
    }

    /// Returns the blocks at the start of `group` that contain no files: the blocks of [`Self::copy_blocks`] and the
    /// reserved descriptor blocks after them.
    pub(crate) fn reserved_start(&self, group: u32) -> (VolBlock, u64) {
        let (start, len) = self.copy_blocks(group);
        let has_reserved = len > 0 && self.has_copy(group) && self.has_plain_copies(group);
        let reserved = if has_reserved { u64::from(self.raw.s_reserved_gdt_blocks.get()) } else { 0 };
        (start, len + reserved)
    }

    /// Returns the number of descriptor blocks in `group`: `ext4_bg_num_gdb`.
    fn desc_copies(&self, group: u32) -> u64 {
        if self.is_meta(self.desc_place(group).0) {
            let last = self.descs_per_block() - 1;
            let inside = group & last;
            return u64::from(inside < 2 || inside == last);
        }
        let all = self.desc_blocks();
        let meta = self.incompat.contains(Incompat::META_BG);
        let copied = if meta { all.min(self.raw.s_first_meta_bg.get()) } else { all };
        if self.has_copy(group) { copied.into() } else { 0 }
    }

    /// Returns whether the copies in `group` are laid out without `meta_bg`, with reserved descriptor blocks after
    /// them.
    pub fn has_plain_copies(&self, group: u32) -> bool {
        !self.is_meta(self.desc_place(group).0)
    }
}

/// Returns whether `sparse_super` puts a copy into `group`, which must not be group 0 or 1.
pub(crate) fn is_sparse_copy(group: u32) -> bool {
    [3, 5, 7].iter().any(|&base| is_power_of(group, base))
}

/// Returns whether `n` is `base` raised to a power of at least 1.
fn is_power_of(n: u32, base: u32) -> bool {
    core::iter::successors(Some(base), |power| power.checked_mul(base)).any(|power| power == n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_copies_are_in_powers_of_three_five_and_seven() {
        let groups: std::vec::Vec<u32> =
            (2..130).filter(|&g| [3, 5, 7].iter().any(|&base| is_power_of(g, base))).collect();
        assert_eq!(groups, [3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert!(!is_power_of(u32::MAX, 3));
    }
}
