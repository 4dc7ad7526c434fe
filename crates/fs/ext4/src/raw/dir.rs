//! Directory blocks and the nodes of a directory's index as they lie on disk.
//!
//! Source: Linux Documentation/filesystems/ext4/directory.rst; fs/ext4/ext4.h, fs/ext4/namei.c.

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// `struct ext4_dir_entry_2` without its name, which follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDirEntry {
    /// 0x0: 0 for an unused record.
    pub inode: le::U32,
    /// 0x4: distance to the next record.
    pub rec_len: le::U16,
    /// 0x6
    pub name_len: u8,
    /// 0x7: with the feature `filetype`; the high byte of a 16-bit `name_len`, always 0, without.
    pub file_type: u8,
}
const _: () = assert!(size_of::<RawDirEntry>() == 8);

/// `struct ext4_dir_entry_tail`: the checksum of a block of entries, dressed as an unused record.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDirTail {
    /// 0x0: 0.
    pub det_reserved_zero1: le::U32,
    /// 0x4: 12.
    pub det_rec_len: le::U16,
    /// 0x6: 0.
    pub det_reserved_zero2: u8,
    /// 0x7: 0xde.
    pub det_reserved_ft: u8,
    /// 0x8: over the block up to this record.
    pub det_checksum: le::U32,
}
const _: () = assert!(size_of::<RawDirTail>() == 12);

/// `struct dx_root_info`, at byte 0x18 of an indexed directory's first block, after its `.` and `..`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDxRootInfo {
    /// 0x0: 0.
    pub reserved_zero: le::U32,
    /// 0x4
    pub hash_version: u8,
    /// 0x5: 8.
    pub info_length: u8,
    /// 0x6: levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
    /// 0x7
    pub unused_flags: u8,
}
const _: () = assert!(size_of::<RawDxRootInfo>() == 8);

/// `struct dx_entry`. The first of a node holds a `RawDxCountLimit` where the others have their hash.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDxEntry {
    /// 0x0: the lowest hash below; bit 0 set if the block before ends with the same hash.
    pub hash: le::U32,
    /// 0x4: block of the directory, in the low 28 bits.
    pub block: le::U32,
}
const _: () = assert!(size_of::<RawDxEntry>() == 8);

/// `struct dx_countlimit`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDxCountLimit {
    /// 0x0: entries that fit, this one included.
    pub limit: le::U16,
    /// 0x2: entries in use, this one included.
    pub count: le::U16,
}
const _: () = assert!(size_of::<RawDxCountLimit>() == 4);

/// `struct dx_tail`, after the last entry that fits.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDxTail {
    /// 0x0
    pub dt_reserved: le::U32,
    /// 0x4: over the node up to its last used entry, then this structure with 0 here.
    pub dt_checksum: le::U32,
}
const _: () = assert!(size_of::<RawDxTail>() == 8);
