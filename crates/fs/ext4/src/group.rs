//! Block groups: where descriptors are, and where each says its bitmaps and inode table are.
//!
//! On disk: an array of descriptors of [`SuperBlock::desc_size`] bytes, in the blocks after each copy of the super
//! block; with `meta_bg`, from descriptor block `s_first_meta_bg` on, each descriptor block lies in the groups it
//! describes. Source: Linux `Documentation/filesystems/ext4/group_descr.rst`, `blockgroup.rst`; `fs/ext4/super.c`
//! `descriptor_loc`.

use core::mem::offset_of;

use obento_base::wire::{FromBytes, join, to_usize};
use obento_base::{Corrupt, Result, Structure};

use crate::checksum::{Crc, gdt_crc16};
use crate::feature::{Compat, Incompat, RoCompat};
use crate::raw::{RawGroup32, RawGroupHigh};
use crate::super_block::{Checksums, SuperBlock};
use crate::unit::VolBlock;

bitflags::bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct GroupFlags: u16 {
        /// `EXT4_BG_INODE_UNINIT`: the inode bitmap was never written; no inode is in use.
        const INODE_UNINIT = 1;
        /// `EXT4_BG_BLOCK_UNINIT`: the block bitmap was never written; only metadata is in use.
        const BLOCK_UNINIT = 2;
        /// `EXT4_BG_INODE_ZEROED`: the inode table is zeroed.
        const INODE_ZEROED = 4;
        const _ = !0;
    }
}

/// A checked group descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupDescriptor {
    /// Block of the block bitmap.
    pub block_bitmap: VolBlock,
    /// Block of the inode bitmap.
    pub inode_bitmap: VolBlock,
    /// First block of the inode table.
    pub inode_table: VolBlock,
    /// Free blocks (clusters with bigalloc).
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// Flags.
    pub flags: GroupFlags,
}

impl GroupDescriptor {
    /// Reads the fields of `group`'s descriptor. `bytes` has `desc_size` bytes; `block` is where they were read.
    pub fn decode(bytes: &[u8], group: u32, block: VolBlock) -> Result<Self> {
        let truncated = Corrupt::Truncated {
            structure: Structure::GroupDescriptor(group.into()),
            block: block.0,
            offset: 0,
            len: 32,
        };
        let (low, rest) = RawGroup32::ref_from_prefix(bytes).map_err(|_| truncated)?;
        let high = RawGroupHigh::ref_from_prefix(rest).ok().map(|(high, _)| high);
        let join16 = |low: u16, high: Option<u16>| u32::from(low) | u32::from(high.unwrap_or(0)) << 16;
        let join32 = |low: u32, high: Option<u32>| VolBlock(join(low, high.unwrap_or(0)));
        Ok(Self {
            block_bitmap: join32(low.bg_block_bitmap_lo.get(), high.map(|h| h.bg_block_bitmap_hi.get())),
            inode_bitmap: join32(low.bg_inode_bitmap_lo.get(), high.map(|h| h.bg_inode_bitmap_hi.get())),
            inode_table: join32(low.bg_inode_table_lo.get(), high.map(|h| h.bg_inode_table_hi.get())),
            free_blocks: join16(
                low.bg_free_blocks_count_lo.get(),
                high.map(|h| h.bg_free_blocks_count_hi.get()),
            ),
            free_inodes: join16(
                low.bg_free_inodes_count_lo.get(),
                high.map(|h| h.bg_free_inodes_count_hi.get()),
            ),
            used_dirs: join16(low.bg_used_dirs_count_lo.get(), high.map(|h| h.bg_used_dirs_count_hi.get())),
            itable_unused: join16(low.bg_itable_unused_lo.get(), high.map(|h| h.bg_itable_unused_hi.get())),
            flags: GroupFlags::from_bits_retain(low.bg_flags.get()),
        })
    }
}

/// The checksum that `group`'s descriptor should carry; `None` where the volume has none.
pub fn descriptor_checksum(sb: &SuperBlock, group: u32, bytes: &[u8]) -> Option<u16> {
    let at = offset_of!(RawGroup32, bg_checksum);
    let (before, rest) = bytes.split_at_checked(at)?;
    let after = rest.get(2..)?;
    match sb.checksums {
        Checksums::None => None,
        Checksums::Descriptors => Some(gdt_crc16(&[&sb.raw.s_uuid, &group.to_le_bytes(), before, after])),
        Checksums::All => {
            let crc =
                Crc::new(sb.checksum_seed).add(&group.to_le_bytes()).add(before).add(&[0, 0]).add(after);
            u16::try_from(crc.low()).ok()
        }
    }
}

/// Tests the checksum of a descriptor that was read from `block`.
pub fn verify_descriptor(sb: &SuperBlock, group: u32, bytes: &[u8], block: VolBlock) -> Result<()> {
    let Some(expected) = descriptor_checksum(sb, group, bytes) else { return Ok(()) };
    let found = RawGroup32::ref_from_prefix(bytes).map_or(0, |(raw, _)| raw.bg_checksum.get());
    if found == expected {
        return Ok(());
    }
    Err(Corrupt::Checksum {
        structure: Structure::GroupDescriptor(group.into()),
        block: block.0,
        found: found.into(),
        expected: expected.into(),
    }
    .into())
}

impl SuperBlock {
    /// Whether `group` holds a copy of the super block: `ext4_bg_has_super`.
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
        [3, 5, 7].iter().any(|&base| is_power_of(group, base))
    }

    /// Whether descriptor block `index` is laid out by `meta_bg`.
    fn is_meta(&self, index: u32) -> bool {
        self.incompat.contains(Incompat::META_BG) && index >= self.raw.s_first_meta_bg.get()
    }

    /// The block that holds descriptor block `index`, counted from the copy of the super block in group `copy`. For
    /// `meta_bg` the copies lie in the second and last group that the block describes; there `copy` 0 means the first.
    pub fn desc_block(&self, index: u32, copy: u32) -> VolBlock {
        if !self.is_meta(index) {
            // Group 0 starts with the block that holds byte 1024, which is not block 0 with 1 KiB blocks.
            let start = match copy {
                0 => VolBlock(u64::from(self.block_size == 1024)),
                _ => self.group_start(copy),
            };
            return VolBlock(start.0.saturating_add(1).saturating_add(index.into()));
        }
        let first = index.saturating_mul(self.descs_per_block());
        let group = match copy {
            0 => first,
            _ => first.saturating_add(1),
        };
        let mut skip = u64::from(self.has_copy(group));
        if self.block_size == 1024 && group == 0 && self.first_data_block == 0 {
            skip = skip.saturating_add(1);
        }
        VolBlock(self.group_start(group).0.saturating_add(skip))
    }

    /// What `group` holds of copies of the super block and the descriptors: first block and how many.
    pub fn copy_blocks(&self, group: u32) -> (VolBlock, u64) {
        let start = match group {
            // The boot sector's block is nobody's data either.
            0 => VolBlock(0),
            _ => self.group_start(group),
        };
        let boot = if group == 0 { self.desc_block(0, 0).0.max(1).saturating_sub(1) } else { 0 };
        let len =
            boot.saturating_add(u64::from(self.has_copy(group))).saturating_add(self.desc_copies(group));
        (start, len)
    }

    /// How many descriptor blocks lie in `group`: `ext4_bg_num_gdb`.
    fn desc_copies(&self, group: u32) -> u64 {
        if self.is_meta(self.desc_place(group).0) {
            let inside = group.checked_rem(self.descs_per_block()).unwrap_or(0);
            return u64::from(inside < 2 || inside == self.descs_per_block().saturating_sub(1));
        }
        let all = self.desc_blocks();
        let meta = self.incompat.contains(Incompat::META_BG);
        let copied = if meta { all.min(self.raw.s_first_meta_bg.get()) } else { all };
        if self.has_copy(group) { copied.into() } else { 0 }
    }

    /// The descriptor block that describes `group`, and the byte offset of the descriptor within it.
    pub fn desc_place(&self, group: u32) -> (u32, usize) {
        let per_block = self.descs_per_block();
        let index = group.checked_div(per_block).unwrap_or(0);
        let inside = group.checked_rem(per_block).unwrap_or(0);
        (index, to_usize(u64::from(inside).saturating_mul(self.desc_size.into())))
    }
}

/// Whether `n` is `base` raised to a power of at least 1.
fn is_power_of(n: u32, base: u32) -> bool {
    let mut power = base;
    while power < n {
        power = power.saturating_mul(base);
    }
    power == n
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
