//! On-disk structures of directory blocks and of the nodes of a directory index.
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
    /// 0x7: file type, with the feature `filetype`. Without it, the high byte of a 16-bit `name_len`, which is always
    /// 0.
    pub file_type: u8,
}
const _: () = assert!(size_of::<RawDirEntry>() == 8);

/// `struct ext4_dir_entry_tail`: the checksum of a block of entries, in the form of an unused record.
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
    /// 0x8: checksum of the block up to this record.
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

/// `struct dx_entry`. The first entry of a node has a `RawDxCountLimit` in place of its hash.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDxEntry {
    /// 0x0: the lowest hash in the block below; bit 0 is set if the previous block ends with the same hash.
    pub hash: le::U32,
    /// 0x4: block of the directory, in the low 28 bits.
    pub block: le::U32,
}
const _: () = assert!(size_of::<RawDxEntry>() == 8);

/// `struct dx_countlimit`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDxCountLimit {
    /// 0x0: maximum number of entries, including this one.
    pub limit: le::U16,
    /// 0x2: number of entries in use, including this one.
    pub count: le::U16,
}
const _: () = assert!(size_of::<RawDxCountLimit>() == 4);

/// `struct dx_tail`, after the space for entries.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawDxTail {
    /// 0x0
    pub dt_reserved: le::U32,
    /// 0x4: checksum of the node up to its last used entry, then of this structure with 0 here.
    pub dt_checksum: le::U32,
}
const _: () = assert!(size_of::<RawDxTail>() == 8);
