//! On-disk structures of extended attributes and POSIX ACLs.
//!
//! Source: Linux Documentation/filesystems/ext4/attributes.rst; fs/ext4/xattr.h, fs/ext4/acl.h.

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};

/// `struct ext4_xattr_header`: the start of a block of attributes. Attributes in an inode start with only the magic
/// number.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawXattrHeader {
    /// 0x0: 0xea020000.
    pub h_magic: le::U32,
    /// 0x4: number of inodes that share the block.
    pub h_refcount: le::U32,
    /// 0x8: 1.
    pub h_blocks: le::U32,
    /// 0xc: hash of all attributes.
    pub h_hash: le::U32,
    /// 0x10: checksum of the block's number and its bytes, with 0 here.
    pub h_checksum: le::U32,
    /// 0x14
    pub h_reserved: [le::U32; 3],
}
const _: () = assert!(size_of::<RawXattrHeader>() == 32);

/// `struct ext4_xattr_entry` without its name, which follows and is padded to a multiple of 4.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawXattrEntry {
    /// 0x0
    pub e_name_len: u8,
    /// 0x1: the prefix that the name lacks.
    pub e_name_index: u8,
    /// 0x2: offset from the block's start, or from an inode's first entry.
    pub e_value_offs: le::U16,
    /// 0x4: the inode that contains the value, if not 0.
    pub e_value_inum: le::U32,
    /// 0x8
    pub e_value_size: le::U32,
    /// 0xc: hash of name and value.
    pub e_hash: le::U32,
}
const _: () = assert!(size_of::<RawXattrEntry>() == 16);

/// `ext4_acl_entry_short`; in entries for a named user or group, the ID follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawAclEntry {
    /// 0x0: the kind of user or group.
    pub e_tag: le::U16,
    /// 0x2: the permissions.
    pub e_perm: le::U16,
}
const _: () = assert!(size_of::<RawAclEntry>() == 4);
