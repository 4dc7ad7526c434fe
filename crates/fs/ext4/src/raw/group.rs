//! `struct ext4_group_desc`.

use obento_base::wire::le::{U16, U32};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first 32 bytes, which every volume has.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawGroup32 {
    /// 0x0: block of the block bitmap.
    pub bg_block_bitmap_lo: U32,
    /// 0x4: block of the inode bitmap.
    pub bg_inode_bitmap_lo: U32,
    /// 0x8: first block of the inode table.
    pub bg_inode_table_lo: U32,
    /// 0xc: free blocks (clusters with bigalloc).
    pub bg_free_blocks_count_lo: U16,
    /// 0xe: free inodes.
    pub bg_free_inodes_count_lo: U16,
    /// 0x10: directories.
    pub bg_used_dirs_count_lo: U16,
    /// 0x12: `INODE_UNINIT` 1, `BLOCK_UNINIT` 2, `INODE_ZEROED` 4.
    pub bg_flags: U16,
    /// 0x14
    pub bg_exclude_bitmap_lo: U32,
    /// 0x18: crc32c of the block bitmap, low half.
    pub bg_block_bitmap_csum_lo: U16,
    /// 0x1a: crc32c of the inode bitmap, low half.
    pub bg_inode_bitmap_csum_lo: U16,
    /// 0x1c: inodes at the end of the table that were never used.
    pub bg_itable_unused_lo: U16,
    /// 0x1e: crc16 or low half of crc32c of UUID, group number and descriptor.
    pub bg_checksum: U16,
}
const _: () = assert!(size_of::<RawGroup32>() == 32);

/// The next 32 bytes, with feature `64bit`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawGroupHigh {
    /// 0x20
    pub bg_block_bitmap_hi: U32,
    /// 0x24
    pub bg_inode_bitmap_hi: U32,
    /// 0x28
    pub bg_inode_table_hi: U32,
    /// 0x2c
    pub bg_free_blocks_count_hi: U16,
    /// 0x2e
    pub bg_free_inodes_count_hi: U16,
    /// 0x30
    pub bg_used_dirs_count_hi: U16,
    /// 0x32
    pub bg_itable_unused_hi: U16,
    /// 0x34
    pub bg_exclude_bitmap_hi: U32,
    /// 0x38
    pub bg_block_bitmap_csum_hi: U16,
    /// 0x3a
    pub bg_inode_bitmap_csum_hi: U16,
    /// 0x3c
    pub bg_reserved: U32,
}
const _: () = assert!(size_of::<RawGroupHigh>() == 32);
