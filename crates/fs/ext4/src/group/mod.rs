//! Block groups: the places of the descriptors, and of the bitmaps and inode tables that they describe.
//!
//! On disk: an array of descriptors of [`SuperBlock::desc_size`] bytes, in the blocks after each copy of the super
//! block. With `meta_bg`, from descriptor block `s_first_meta_bg` on, each descriptor block is in the groups that it
//! describes. Source: Linux `Documentation/filesystems/ext4/group_descr.rst`, `blockgroup.rst`; `fs/ext4/super.c`
//! `descriptor_loc`.

mod place;
mod table;

use core::mem::offset_of;

use obento_base::wire::{FromBytes, join, split};
use obento_base::{Corrupt, Result, Structure};

use crate::checksum::{Crc, gdt_crc16};
use crate::feature::Incompat;
use crate::raw::{RawGroup32, RawGroupHigh};
use crate::super_block::{Checksums, SuperBlock};
use crate::unit::VolBlock;

pub(crate) use place::is_sparse_copy;
pub use table::{Groups, Totals};

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
    /// Number of free blocks (clusters with bigalloc).
    pub free_blocks: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Number of directories.
    pub used_dirs: u32,
    /// Number of inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// Flags.
    pub flags: GroupFlags,
}

impl GroupDescriptor {
    /// A group of which nothing is known.
    pub const EMPTY: Self = Self {
        block_bitmap: VolBlock(0),
        inode_bitmap: VolBlock(0),
        inode_table: VolBlock(0),
        free_blocks: 0,
        free_inodes: 0,
        used_dirs: 0,
        itable_unused: 0,
        flags: GroupFlags::empty(),
    };

    /// Decodes the descriptor of `group`. `bytes` has `desc_size` bytes, which were read from `block`.
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

/// Returns the expected checksum of `group`'s descriptor, or `None` if the volume has no checksums.
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

/// Verifies the checksum of a descriptor that was read from `block`.
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

impl GroupDescriptor {
    /// Writes the places of the bitmaps and the inode table into the bytes of a descriptor.
    pub(crate) fn encode_places(&self, bytes: &mut [u8]) {
        let Ok((low, rest)) = RawGroup32::mut_from_prefix(bytes) else { return };
        let [blocks, inodes, table] =
            [self.block_bitmap, self.inode_bitmap, self.inode_table].map(|block| split(block.0));
        low.bg_block_bitmap_lo.set(blocks.0);
        low.bg_inode_bitmap_lo.set(inodes.0);
        low.bg_inode_table_lo.set(table.0);
        if let Ok((high, _)) = RawGroupHigh::mut_from_prefix(rest) {
            high.bg_block_bitmap_hi.set(blocks.1);
            high.bg_inode_bitmap_hi.set(inodes.1);
            high.bg_inode_table_hi.set(table.1);
        }
    }

    /// Checks whether the bitmaps and the inode table are on the volume, which suffices for reading.
    pub fn check_places(&self, sb: &SuperBlock, group: u32) -> Result<()> {
        self.check_each_place(sb, group, |start, len| sb.holds_blocks(start, len))
    }

    fn check_each_place(
        &self,
        sb: &SuperBlock,
        group: u32,
        holds: impl Fn(VolBlock, u64) -> bool,
    ) -> Result<()> {
        let table = u64::from(sb.inode_table_blocks());
        for (start, len) in [(self.block_bitmap, 1), (self.inode_bitmap, 1), (self.inode_table, table)] {
            if !holds(start, len) {
                let structure = Structure::GroupDescriptor(group.into());
                return Err(Corrupt::BlockRange { structure, at: 0, start: start.0, len }.into());
            }
        }
        Ok(())
    }

    /// Checks whether the bitmaps and the inode table are where Linux accepts them: on the volume, and without
    /// `flex_bg` in the group itself.
    pub(crate) fn check_group(&self, sb: &SuperBlock, group: u32) -> Result<()> {
        self.check_each_place(sb, group, |start, len| sb.group_holds(group, start, len))
    }
}

impl SuperBlock {
    /// Returns whether the `len` blocks from `start` on may contain the bitmaps or the inode table of `group`:
    /// `ext4_check_descriptors`.
    pub(crate) fn group_holds(&self, group: u32, start: VolBlock, len: u64) -> bool {
        let own = self.group_blocks(group);
        let is_inside = || start.0 >= own.start && start.0.saturating_add(len) <= own.end;
        self.holds_blocks(start, len) && (self.incompat.contains(Incompat::FLEX_BG) || is_inside())
    }
}
