//! `struct ext4_extent_header`, `ext4_extent`, `ext4_extent_idx`, `ext4_extent_tail`.

use obento_base::wire::le::{U16, U32};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The start of every node of an extent tree.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExtentHeader {
    /// 0x0: 0xf30a.
    pub eh_magic: U16,
    /// 0x2: number of entries in use.
    pub eh_entries: U16,
    /// 0x4: maximum number of entries.
    pub eh_max: U16,
    /// 0x6: 0 for a leaf.
    pub eh_depth: U16,
    /// 0x8: unused by Linux.
    pub eh_generation: U32,
}
const _: () = assert!(size_of::<RawExtentHeader>() == 12);

/// An entry of an inner node.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExtentIndex {
    /// 0x0: first file block that the node below covers.
    pub ei_block: U32,
    /// 0x4: block number of the node below, low 32 bits.
    pub ei_leaf_lo: U32,
    /// 0x8: the same, high 16 bits.
    pub ei_leaf_hi: U16,
    /// 0xa
    pub ei_unused: U16,
}
const _: () = assert!(size_of::<RawExtentIndex>() == 12);

/// An entry of a leaf.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExtent {
    /// 0x0: first file block.
    pub ee_block: U32,
    /// 0x4: number of blocks; above 32768, an unwritten extent of `ee_len` - 32768 blocks.
    pub ee_len: U16,
    /// 0x6: first block of the volume, high 16 bits.
    pub ee_start_hi: U16,
    /// 0x8: the same, low 32 bits.
    pub ee_start_lo: U32,
}
const _: () = assert!(size_of::<RawExtent>() == 12);

/// Follows the space for entries in a node that fills a block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExtentTail {
    /// 0x0: crc32c of UUID, inode number, generation and the node before the tail.
    pub et_checksum: U32,
}
const _: () = assert!(size_of::<RawExtentTail>() == 4);
