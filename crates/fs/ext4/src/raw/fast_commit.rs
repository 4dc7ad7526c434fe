//! The records of the fast-commit area: `struct ext4_fc_tl` and the values that follow it.
//!
//! Source: Linux `fs/ext4/fast_commit.h`.

use obento_base::wire::le::{U16, U32};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::RawExtent;

/// `ext4_fc_tl`: type and length of the value that follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFcTl {
    /// 0x0
    pub fc_tag: U16,
    /// 0x2
    pub fc_len: U16,
}
const _: () = assert!(size_of::<RawFcTl>() == 4);

/// `ext4_fc_head`: the start of the fast commits of a transaction.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFcHead {
    /// 0x0: features that a reader must support; none exist.
    pub fc_features: U32,
    /// 0x4: the transaction.
    pub fc_tid: U32,
}
const _: () = assert!(size_of::<RawFcHead>() == 8);

/// `ext4_fc_add_range`
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFcAddRange {
    /// 0x0
    pub fc_ino: U32,
    /// 0x4: an extent as in a leaf.
    pub fc_ex: RawExtent,
}
const _: () = assert!(size_of::<RawFcAddRange>() == 16);

/// `ext4_fc_del_range`
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFcDelRange {
    /// 0x0
    pub fc_ino: U32,
    /// 0x4: first file block.
    pub fc_lblk: U32,
    /// 0x8: number of blocks.
    pub fc_len: U32,
}
const _: () = assert!(size_of::<RawFcDelRange>() == 12);

/// `ext4_fc_dentry_info`, before the name that fills the rest of the value.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFcDentryInfo {
    /// 0x0: the directory.
    pub fc_parent_ino: U32,
    /// 0x4: the inode of the entry.
    pub fc_ino: U32,
}
const _: () = assert!(size_of::<RawFcDentryInfo>() == 8);

/// `ext4_fc_inode`, before the record of the inode that fills the rest of the value.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFcInode {
    /// 0x0
    pub fc_ino: U32,
}
const _: () = assert!(size_of::<RawFcInode>() == 4);

/// `ext4_fc_tail`: the end of one fast commit; its value fills the block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFcTail {
    /// 0x0: the transaction.
    pub fc_tid: U32,
    /// 0x4: crc32c, from 0, of all records of this fast commit up to this field.
    pub fc_crc: U32,
}
const _: () = assert!(size_of::<RawFcTail>() == 8);
