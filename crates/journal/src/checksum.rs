//! The checksums of jbd2.
//!
//! v1 (`COMPAT_CHECKSUM`): one CRC-32 over a transaction's descriptor and data blocks, in its commit block.
//! v2 and v3: CRC-32C, seeded by the journal's UUID, of every control block, and of every data block with the
//! transaction's number in its tag; v2 keeps 16 bits of the latter, v3 all.
//! Source: Linux `fs/jbd2/recovery.c`, `fs/jbd2/commit.c`, `include/linux/jbd2.h`.

use obento_base::crc::crc32c;

use crate::Tid;
use crate::raw::RawCommit;

/// Where `s_checksum` lies in the super block.
pub(crate) const SUPER_BLOCK_FIELD: usize = 0xfc;
/// Where `h_chksum[0]` lies in a commit block.
pub(crate) const COMMIT_FIELD: usize = 0x10;

/// The seed of a journal: its UUID.
pub fn seed(uuid: &[u8; 16]) -> u32 {
    crc32c(!0, uuid)
}

/// Of the 1024 bytes of a super block; the stored value counts as 0.
pub fn super_block(bytes: &[u8]) -> u32 {
    with_zeros(!0, bytes, SUPER_BLOCK_FIELD)
}

/// Of a commit block (v2, v3); the stored value counts as 0.
pub fn commit_block(seed: u32, block: &[u8]) -> u32 {
    with_zeros(seed, block, COMMIT_FIELD)
}

/// [`commit_block`] of a block that holds zeros after the fields.
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

/// Of a descriptor or revoke block (v2, v3), whose last four bytes hold the value and count as 0.
pub fn control_block(seed: u32, block: &[u8]) -> u32 {
    with_zeros(seed, block, block.len().saturating_sub(size_of::<u32>()))
}

/// Of a data block as it stands in the log, in its tag (v2, v3).
pub fn data_block(seed: u32, tid: Tid, block: &[u8]) -> u32 {
    crc32c(crc32c(seed, &tid.0.to_be_bytes()), block)
}

/// [`data_block`] of a block whose first four bytes are zeros in the log.
pub fn escaped_block(seed: u32, tid: Tid, block: &[u8]) -> u32 {
    let rest = block.get(size_of::<u32>()..).unwrap_or_default();
    crc32c(crc32c(crc32c(seed, &tid.0.to_be_bytes()), &[0; 4]), rest)
}

/// The checksum of `bytes` with the four at `at` taken as 0.
fn with_zeros(seed: u32, bytes: &[u8], at: usize) -> u32 {
    let before = bytes.get(..at).unwrap_or_default();
    let after = bytes.get(at.saturating_add(size_of::<u32>())..).unwrap_or_default();
    crc32c(crc32c(crc32c(seed, before), &[0; 4]), after)
}
