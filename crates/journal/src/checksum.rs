//! The checksums of jbd2.
//!
//! - v1 (`COMPAT_CHECKSUM`): the commit block of a transaction contains a CRC-32 of its descriptor and data blocks.
//! - v2 and v3: each control block contains a CRC-32C, seeded with the UUID of the journal. The tag of each data block
//!   contains a CRC-32C of the transaction number and the block. v2 stores the low 16 bits, v3 all 32 bits.
//!
//! Source: Linux `fs/jbd2/recovery.c`, `fs/jbd2/commit.c`, `include/linux/jbd2.h`.

use obento_base::crc::crc32c;

use crate::Tid;
use crate::raw::RawCommit;

/// Offset of `s_checksum` in the super block.
pub(crate) const SUPER_BLOCK_FIELD: usize = 0xfc;
/// Offset of `h_chksum[0]` in a commit block.
pub(crate) const COMMIT_FIELD: usize = 0x10;

/// Returns the seed of a journal, derived from its UUID.
pub fn seed(uuid: &[u8; 16]) -> u32 {
    crc32c(!0, uuid)
}

/// Returns the checksum of the 1024 bytes of a super block, computed with 0 in place of the stored checksum.
pub fn super_block(bytes: &[u8]) -> u32 {
    with_zeros(!0, bytes, SUPER_BLOCK_FIELD)
}

/// Returns the checksum of a commit block (v2, v3), computed with 0 in place of the stored checksum.
pub fn commit_block(seed: u32, block: &[u8]) -> u32 {
    with_zeros(seed, block, COMMIT_FIELD)
}

/// Returns the checksum of a [commit block](commit_block) that contains zeros after its fields.
pub fn partial_commit_block(seed: u32, block: &[u8]) -> u32 {
    let fields = block.get(..size_of::<RawCommit>()).unwrap_or(block);
    let mut sum = with_zeros(seed, fields, COMMIT_FIELD);
    let mut left = block.len().saturating_sub(fields.len());
    while left > 0 {
        let zeros = [0; 64];
        let some = zeros.get(..left).unwrap_or(&zeros);
        sum = crc32c(sum, some);
        left = left.saturating_sub(some.len());
    }
    sum
}

/// Returns the checksum of a descriptor or revoke block (v2, v3), computed with 0 in place of the stored checksum in
/// the last four bytes.
pub fn control_block(seed: u32, block: &[u8]) -> u32 {
    with_zeros(seed, block, block.len().saturating_sub(size_of::<u32>()))
}

/// Returns the checksum of a data block in the log, as its tag stores it (v2, v3).
pub fn data_block(seed: u32, tid: Tid, block: &[u8]) -> u32 {
    crc32c(crc32c(seed, &tid.0.to_be_bytes()), block)
}

/// Returns the checksum of a [data block](data_block) whose first four bytes are zeroed in the log.
pub fn escaped_block(seed: u32, tid: Tid, block: &[u8]) -> u32 {
    let rest = block.get(size_of::<u32>()..).unwrap_or_default();
    crc32c(crc32c(crc32c(seed, &tid.0.to_be_bytes()), &[0; 4]), rest)
}

/// Returns the checksum of `bytes` with the four bytes at `at` replaced by zeros.
fn with_zeros(seed: u32, bytes: &[u8], at: usize) -> u32 {
    let before = bytes.get(..at).unwrap_or_default();
    let after = bytes.get(at.saturating_add(size_of::<u32>())..).unwrap_or_default();
    crc32c(crc32c(crc32c(seed, before), &[0; 4]), after)
}
