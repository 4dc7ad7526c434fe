//! The on-disk structures of jbd2. All numbers are big-endian.
//!
//! Source: Linux `include/linux/jbd2.h`; Documentation/filesystems/ext4/journal.rst.

use obento_base::wire::be::{U16, U32, U64};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `JBD2_MAGIC_NUMBER`: the first four bytes of each control block of the log.
pub const MAGIC: u32 = 0xc03b_3998;

/// `JBD2_DESCRIPTOR_BLOCK`.
pub const DESCRIPTOR_BLOCK: u32 = 1;
/// `JBD2_COMMIT_BLOCK`.
pub const COMMIT_BLOCK: u32 = 2;
/// `JBD2_SUPERBLOCK_V1`.
pub const SUPER_BLOCK_V1: u32 = 3;
/// `JBD2_SUPERBLOCK_V2`.
pub const SUPER_BLOCK_V2: u32 = 4;
/// `JBD2_REVOKE_BLOCK`.
pub const REVOKE_BLOCK: u32 = 5;

/// `JBD2_CRC32_CHKSUM`: the checksum type in a commit block with `COMPAT_CHECKSUM`.
pub const CRC32_CHKSUM: u8 = 1;
/// `JBD2_CRC32_CHKSUM_SIZE`.
pub const CRC32_CHKSUM_SIZE: u8 = 4;
/// `JBD2_CRC32C_CHKSUM`: the only checksum type for `CSUM_V2` and `CSUM_V3`.
pub const CRC32C_CHKSUM: u8 = 4;

/// `JBD2_MIN_JOURNAL_BLOCKS`: the minimum length of a journal.
pub const MIN_BLOCKS: u32 = 1024;
/// `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`: the meaning of 0 in `s_num_fc_blks`.
pub const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// `journal_header_s`: the header of each control block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawHeader {
    /// 0x0
    pub h_magic: U32,
    /// 0x4
    pub h_blocktype: U32,
    /// 0x8: transaction number.
    pub h_sequence: U32,
}
const _: () = assert!(size_of::<RawHeader>() == 12);

/// `journal_superblock_s`, at the start of block 0 of the journal (on a journal device, of the block after
/// the ext4 super block).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawSuperBlock {
    /// 0x0
    pub s_header: RawHeader,
    /// 0xC
    pub s_blocksize: U32,
    /// 0x10: length of the journal in blocks, including this one.
    pub s_maxlen: U32,
    /// 0x14: first block of the log.
    pub s_first: U32,
    /// 0x18: first transaction expected in the log.
    pub s_sequence: U32,
    /// 0x1C: start of the log; 0 if there is nothing to replay.
    pub s_start: U32,
    /// 0x20: error that aborted the journal.
    pub s_errno: U32,
    /// 0x24: this and the following fields exist in version 2 only.
    pub s_feature_compat: U32,
    /// 0x28
    pub s_feature_incompat: U32,
    /// 0x2C
    pub s_feature_ro_compat: U32,
    /// 0x30
    pub s_uuid: [u8; 16],
    /// 0x40: number of file systems that share the journal.
    pub s_nr_users: U32,
    /// 0x44
    pub s_dynsuper: U32,
    /// 0x48
    pub s_max_transaction: U32,
    /// 0x4C
    pub s_max_trans_data: U32,
    /// 0x50
    pub s_checksum_type: u8,
    /// 0x51
    pub s_padding2: [u8; 3],
    /// 0x54
    pub s_num_fc_blks: U32,
    /// 0x58: head of the log, valid only while `s_start` is 0.
    pub s_head: U32,
    /// 0x5C
    pub s_padding: [U32; 40],
    /// 0xFC: CRC-32C of these 1024 bytes with this field set to 0.
    pub s_checksum: U32,
    /// 0x100: UUIDs of the file systems.
    pub s_users: [[u8; 16]; 48],
}
const _: () = assert!(size_of::<RawSuperBlock>() == 1024);

/// `commit_header`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawCommit {
    /// 0x0
    pub header: RawHeader,
    /// 0xC: used with `COMPAT_CHECKSUM` only.
    pub h_chksum_type: u8,
    /// 0xD
    pub h_chksum_size: u8,
    /// 0xE
    pub h_padding: [u8; 2],
    /// 0x10: with `COMPAT_CHECKSUM`, CRC-32 of the descriptors and the data of the transaction; with v2 and
    /// v3, CRC-32C of this block.
    pub h_chksum: [U32; 8],
    /// 0x30
    pub h_commit_sec: U64,
    /// 0x38
    pub h_commit_nsec: U32,
}
const _: () = assert!(size_of::<RawCommit>() == 60);

/// `journal_block_tag_s` without `t_blocknr_high`, which follows with `INCOMPAT_64BIT`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawTag {
    /// 0x0
    pub t_blocknr: U32,
    /// 0x4: with v2, low half of the CRC-32C of the transaction number and the block.
    pub t_checksum: U16,
    /// 0x6
    pub t_flags: U16,
}
const _: () = assert!(size_of::<RawTag>() == 8);

/// `journal_block_tag3_s`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawTag3 {
    /// 0x0
    pub t_blocknr: U32,
    /// 0x4
    pub t_flags: U32,
    /// 0x8: used with `INCOMPAT_64BIT` only.
    pub t_blocknr_high: U32,
    /// 0xC
    pub t_checksum: U32,
}
const _: () = assert!(size_of::<RawTag3>() == 16);

/// `jbd2_journal_revoke_header_s`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRevokeHeader {
    /// 0x0
    pub r_header: RawHeader,
    /// 0xC: number of bytes used in the block, including this header.
    pub r_count: U32,
}
const _: () = assert!(size_of::<RawRevokeHeader>() == 16);

/// `jbd2_journal_block_tail`: the end of descriptor and revoke blocks with v2 and v3.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawBlockTail {
    /// 0x0
    pub t_checksum: U32,
}
const _: () = assert!(size_of::<RawBlockTail>() == 4);
