//! `struct ext4_inode`.

use obento_base::wire::le::{U16, U32};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first 128 bytes, which every inode has. The unions that depend on the operating system have Linux' fields.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawInode {
    /// 0x0: `st_mode`.
    pub i_mode: U16,
    /// 0x2: owner, low 16 bits.
    pub i_uid: U16,
    /// 0x4: size in bytes, low 32 bits.
    pub i_size_lo: U32,
    /// 0x8: access time.
    pub i_atime: U32,
    /// 0xc: change time.
    pub i_ctime: U32,
    /// 0x10: modification time.
    pub i_mtime: U32,
    /// 0x14: deletion time, or the next orphan.
    pub i_dtime: U32,
    /// 0x18: group, low 16 bits.
    pub i_gid: U16,
    /// 0x1a: link count.
    pub i_links_count: U16,
    /// 0x1c: allocated space, low 32 bits.
    pub i_blocks_lo: U32,
    /// 0x20: flags.
    pub i_flags: U32,
    /// 0x24: `osd1.linux1.l_i_version`: version, low 32 bits.
    pub l_i_version: U32,
    /// 0x28: block map, extent tree, symlink target or inline data.
    pub i_block: [u8; 60],
    /// 0x64: generation.
    pub i_generation: U32,
    /// 0x68: block of extended attributes, low 32 bits.
    pub i_file_acl_lo: U32,
    /// 0x6c: size, high 32 bits.
    pub i_size_high: U32,
    /// 0x70: address of a fragment; obsolete.
    pub i_obso_faddr: U32,
    /// 0x74: allocated space, high 16 bits.
    pub l_i_blocks_high: U16,
    /// 0x76: block of extended attributes, high 16 bits.
    pub l_i_file_acl_high: U16,
    /// 0x78: owner, high 16 bits.
    pub l_i_uid_high: U16,
    /// 0x7a: group, high 16 bits.
    pub l_i_gid_high: U16,
    /// 0x7c: checksum, low 16 bits.
    pub l_i_checksum_lo: U16,
    /// 0x7e
    pub l_i_reserved: U16,
}
const _: () = assert!(size_of::<RawInode>() == 128);

/// The fields of larger inodes, up to `i_extra_isize`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawInodeExtra {
    /// 0x80: number of bytes after the first 128 that contain fields.
    pub i_extra_isize: U16,
    /// 0x82: checksum, high 16 bits.
    pub i_checksum_hi: U16,
    /// 0x84: change time: 2 bits of epoch, 30 bits of nanoseconds.
    pub i_ctime_extra: U32,
    /// 0x88: modification time, likewise.
    pub i_mtime_extra: U32,
    /// 0x8c: access time, likewise.
    pub i_atime_extra: U32,
    /// 0x90: creation time.
    pub i_crtime: U32,
    /// 0x94: creation time, epoch and nanoseconds.
    pub i_crtime_extra: U32,
    /// 0x98: version, high 32 bits.
    pub i_version_hi: U32,
    /// 0x9c: project.
    pub i_projid: U32,
}
const _: () = assert!(size_of::<RawInodeExtra>() == 32);
