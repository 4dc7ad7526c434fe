//! The structures on disk, and nothing else.
//!
//! Source: xv6-riscv `kernel/fs.h` (`struct superblock`, `struct dinode`, `struct dirent`); Bento
//! `xv6fs/src/xv6fs_utils.rs` for blocks of 4096 bytes and the double-indirect block. The fields that are named `ours` are in
//! neither: `docs/formats/xv6.md`. What stands in the log tells [`obento_inodes::RawLogHeader`].

use obento_base::wire::le::{I64, U16, U32, U64};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes a block: Bento's `BSIZE`.
pub const BLOCK: usize = 4096;
/// Block numbers in an inode that name data: xv6's `NDIRECT`, as many as fill an inode of 256 bytes.
pub const DIRECT: usize = 36;
/// Numbers in a block of numbers: xv6's `NINDIRECT`.
pub const PER_TABLE: usize = BLOCK / 4;
/// Bytes of a slot of a directory.
pub const SLOT: usize = 64;
/// Block numbers in the header of the log.
pub const LOG_MAX: usize = obento_inodes::log_max(BLOCK);
/// xv6's `FSMAGIC`.
pub const MAGIC: u32 = 0x1020_3040;
/// Says that it is this layout and not MIT's: `obx6`.
pub const VARIANT: u32 = 0x3678_626f;

/// The super block, at the start of block 1.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the specification's names")]
pub struct RawSuperBlock {
    pub magic: U32,
    /// Blocks of the volume.
    pub size: U32,
    /// Blocks for files.
    pub nblocks: U32,
    /// Inodes, with number 0, which is none.
    pub ninodes: U32,
    /// Blocks of the log, with its header.
    pub nlog: U32,
    pub logstart: U32,
    pub inodestart: U32,
    pub bmapstart: U32,
    /// Ours.
    pub variant: U32,
    /// Ours: what names are hashed with.
    pub hash_seed: U32,
    /// Ours.
    pub uuid: [u8; 16],
    /// Ours: padded with NULs.
    pub label: [u8; 32],
    /// Ours: CRC-32C of all before.
    pub checksum: U32,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 92);

/// An inode. Free if `mode` is 0.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the specification's names")]
pub struct RawInode {
    /// Kind and permissions as POSIX `st_mode`, where xv6 has `type`.
    pub mode: U16,
    pub reserved: U16,
    pub major: U32,
    pub minor: U32,
    pub nlink: U32,
    pub uid: U32,
    pub gid: U32,
    pub size: U64,
    /// Ours: how often the inode was freed.
    pub generation: U32,
    /// Ours: the directory that a directory lies in, where xv6 has an entry `..`.
    pub parent: U32,
    /// Ours: those of Linux `FS_IOC_GETFLAGS`.
    pub flags: U32,
    /// Ours: blocks in use, those of numbers included.
    pub blocks: U32,
    /// Ours: counts changes.
    pub change: U64,
    /// Ours: seconds since 1970 of access, change of data, change, creation.
    pub seconds: [I64; 4],
    /// Ours: nanoseconds to each.
    pub nanos: [U32; 4],
    /// Blocks of data, a block of numbers, a block of numbers of such blocks; 0 is a hole.
    pub addrs: [U32; DIRECT + 2],
}
const _: () = assert!(size_of::<RawInode>() == 256);

/// What a directory entry starts with; its name follows. It takes as many slots of [`SLOT`] bytes as it needs.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the specification's names")]
pub struct RawDirEntry {
    /// 0: a slot that is free.
    pub inum: U32,
    pub name_len: u8,
    /// Ours: the kind bits of the inode's `mode`, shifted down by 12.
    pub kind: u8,
    pub reserved: U16,
}
const _: () = assert!(size_of::<RawDirEntry>() == 8);
