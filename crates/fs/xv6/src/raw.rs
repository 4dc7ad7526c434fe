//! The on-disk structures.
//!
//! Source: xv6-riscv `kernel/fs.h` (`struct superblock`, `struct dinode`, `struct dirent`); Bento
//! `xv6fs/src/xv6fs_utils.rs` for blocks of 4096 bytes and the double-indirect block. Fields marked `ours`
//! are in neither: see `docs/formats/xv6.md`. [`obento_inodes::RawLogHeader`] describes the log.

use obento_base::wire::le::{I64, U16, U32, U64};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Block size in bytes: `BSIZE` of Bento.
pub const BLOCK: usize = 4096;
/// Number of direct block numbers in an inode: `NDIRECT` of xv6, chosen to fill an inode of 256 bytes.
pub const DIRECT: usize = 36;
/// Numbers in a block of numbers: `NINDIRECT` of xv6.
pub const PER_TABLE: usize = BLOCK / 4;
/// Size of a directory slot in bytes.
pub const SLOT: usize = 64;
/// Block numbers in the header of the log.
pub const LOG_MAX: usize = obento_inodes::log_max(BLOCK);
/// `FSMAGIC` of xv6.
pub const MAGIC: u32 = 0x1020_3040;
/// Identifies this layout, which differs from MIT's: `obx6`.
pub const VARIANT: u32 = 0x3678_626f;

/// The super block, at the start of block 1.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the specification's names")]
pub struct RawSuperBlock {
    pub magic: U32,
    /// Number of blocks of the volume.
    pub size: U32,
    /// Number of blocks for files.
    pub nblocks: U32,
    /// Number of inodes, including number 0, which is not an inode.
    pub ninodes: U32,
    /// Length of the log in blocks, including its header.
    pub nlog: U32,
    pub logstart: U32,
    pub inodestart: U32,
    pub bmapstart: U32,
    /// Ours.
    pub variant: U32,
    /// Ours: seed of the name hash.
    pub hash_seed: U32,
    /// Ours.
    pub uuid: [u8; 16],
    /// Ours: padded with NULs.
    pub label: [u8; 32],
    /// Ours: CRC-32C of all preceding bytes.
    pub checksum: U32,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 92);

/// An inode. Free if `mode` is 0.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the specification's names")]
pub struct RawInode {
    /// Type and permissions as POSIX `st_mode`, where xv6 has `type`.
    pub mode: U16,
    pub reserved: U16,
    pub major: U32,
    pub minor: U32,
    pub nlink: U32,
    pub uid: U32,
    pub gid: U32,
    pub size: U64,
    /// Ours: number of times that the inode was freed.
    pub generation: U32,
    /// Ours: parent of a directory, where xv6 has an entry `..`.
    pub parent: U32,
    /// Ours: those of Linux `FS_IOC_GETFLAGS`.
    pub flags: U32,
    /// Ours: number of blocks in use, including blocks of numbers.
    pub blocks: U32,
    /// Ours: change counter.
    pub change: U64,
    /// Ours: seconds since 1970 of access, modification, change and birth.
    pub seconds: [I64; 4],
    /// Ours: nanoseconds of each time.
    pub nanos: [U32; 4],
    /// Blocks of data, a block of numbers, a block of numbers of such blocks; 0 is a hole.
    pub addrs: [U32; DIRECT + 2],
}
const _: () = assert!(size_of::<RawInode>() == 256);

/// The start of a directory entry; its name follows. It occupies as many slots of [`SLOT`] bytes as it
/// needs.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the specification's names")]
pub struct RawDirEntry {
    /// 0 marks a free slot.
    pub inum: U32,
    pub name_len: u8,
    /// Ours: the type bits of the inode's `mode`, shifted down by 12.
    pub kind: u8,
    pub reserved: U16,
}
const _: () = assert!(size_of::<RawDirEntry>() == 8);
