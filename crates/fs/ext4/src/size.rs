//! The sizes of blocks and clusters. Both are powers of two, so that rounding and division cannot fail.
//!
//! Invariant: only checked constructors create a size. A shift by the logarithm of a size is therefore in range.
//! Invariant: a volume has at most [`MAX_VOLUME_LEN`] bytes, and at least 1,024 bytes per block. Block numbers of a
//! volume are therefore below 2^53. The sum of a block number and a few numbers of up to 32 bits fits 64 bits.
//! Source: Linux `fs/ext4/super.c` `ext4_load_super`, `ext4_handle_clustersize`.
#![allow(clippy::arithmetic_side_effects, reason = "the constructors check the range of the logarithms")]

use core::fmt;

/// Maximum size of a volume in bytes: the maximum of `loff_t`, which limits files and devices of Linux.
pub const MAX_VOLUME_LEN: u64 = u64::MAX >> 1;

/// The size of a block: 1,024 to 65,536 bytes (`EXT4_MIN_BLOCK_LOG_SIZE` to `EXT4_MAX_BLOCK_LOG_SIZE`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockSize {
    /// Binary logarithm of the number of bytes.
    log: u32,
}

impl BlockSize {
    /// The minimum size.
    pub const MIN: Self = Self { log: Self::MIN_LOG };
    /// The size of most volumes: 4,096 bytes.
    pub const USUAL: Self = Self { log: 12 };
    const MIN_LOG: u32 = 10;
    const MAX_LOG: u32 = 16;

    /// Returns the size for the value of `s_log_block_size`, if it is valid.
    pub const fn from_log(log: u32) -> Option<Self> {
        if log <= Self::MAX_LOG - Self::MIN_LOG { Some(Self { log: log + Self::MIN_LOG }) } else { None }
    }

    /// Returns the size of `bytes` bytes, if it is valid.
    pub const fn new(bytes: u32) -> Option<Self> {
        let log = bytes.trailing_zeros();
        if bytes.is_power_of_two() && log >= Self::MIN_LOG && log <= Self::MAX_LOG {
            Some(Self { log })
        } else {
            None
        }
    }

    /// Returns the value for `s_log_block_size`.
    pub const fn log(self) -> u32 {
        self.log - Self::MIN_LOG
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.log
    }

    /// Returns the number of bits of a bitmap that fills a block: at most 2^19.
    pub const fn bits(self) -> u32 {
        self.bytes() * 8
    }

    /// Returns the number of block numbers in an indirect block.
    pub const fn pointers(self) -> u32 {
        self.bytes() / 4
    }

    /// Returns the number of sectors of 512 bytes.
    pub const fn sectors(self) -> u32 {
        self.bytes() / 512
    }

    /// Returns the binary logarithm of the number of records of `size` bytes per block. `size` is a power of two and at
    /// most a block.
    pub const fn log_of(self, size: u16) -> u32 {
        debug_assert!(size.is_power_of_two() && size.trailing_zeros() <= self.log);
        self.log - size.trailing_zeros()
    }

    /// Returns the number of whole blocks in `len` bytes, or the block that contains byte `len`.
    pub const fn whole(self, len: u64) -> u64 {
        len >> self.log
    }

    /// Returns the number of blocks that `len` bytes need.
    pub const fn needed(self, len: u64) -> u64 {
        self.whole(len) + if self.inside(len) == 0 { 0 } else { 1 }
    }

    /// Returns the offset of byte `offset` in its block.
    #[allow(clippy::as_conversions, reason = "the result is less than the size of a block")]
    pub const fn inside(self, offset: u64) -> u32 {
        (offset & ((1 << self.log) - 1)) as u32
    }

    /// Returns the number of bytes of `blocks` blocks, whose number is that of a volume or of a part of a volume.
    pub const fn len(self, blocks: u64) -> u64 {
        debug_assert!(blocks <= u64::MAX >> self.log, "more blocks than a volume has");
        blocks << self.log
    }

    /// Returns the number of bytes of `blocks` blocks, or `None` past 64 bits.
    pub const fn checked_len(self, blocks: u64) -> Option<u64> {
        blocks.checked_mul(1 << self.log)
    }
}

impl From<BlockSize> for u32 {
    fn from(size: BlockSize) -> Self {
        size.bytes()
    }
}

impl From<BlockSize> for u64 {
    fn from(size: BlockSize) -> Self {
        size.bytes().into()
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

/// The size of a cluster in blocks: 1 without bigalloc, at most 2^20.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClusterSize {
    /// Binary logarithm of the number of blocks.
    bits: u32,
}

impl ClusterSize {
    /// A cluster of one block.
    pub const ONE: Self = Self { bits: 0 };
    /// `EXT4_MAX_CLUSTER_LOG_SIZE` minus `EXT4_MIN_BLOCK_LOG_SIZE`.
    const MAX_LOG: u32 = 20;

    /// Returns the size for the value of `s_log_cluster_size`, if it is valid with blocks of size `block`.
    pub const fn from_log(log: u32, block: BlockSize) -> Option<Self> {
        if log <= Self::MAX_LOG && log >= block.log() { Some(Self { bits: log - block.log() }) } else { None }
    }

    /// Returns the size of `bytes` bytes with blocks of size `block`, if it is valid.
    pub const fn new(bytes: u32, block: BlockSize) -> Option<Self> {
        let log = bytes.trailing_zeros();
        if bytes.is_power_of_two() && log >= 10 { Self::from_log(log - 10, block) } else { None }
    }

    /// Returns the value for `s_log_cluster_size` with blocks of size `block`.
    pub const fn log(self, block: BlockSize) -> u32 {
        self.bits + block.log()
    }

    /// Returns the binary logarithm of the number of blocks.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the number of blocks.
    pub const fn blocks(self) -> u32 {
        1 << self.bits
    }

    /// Returns the number of whole clusters in `blocks` blocks, or the cluster that contains block `blocks`.
    pub const fn whole(self, blocks: u64) -> u64 {
        blocks >> self.bits
    }

    /// Returns the number of clusters that `blocks` blocks need.
    pub const fn needed(self, blocks: u64) -> u64 {
        self.whole(blocks) + if self.inside(blocks) == 0 { 0 } else { 1 }
    }

    /// Returns the index of block `block` in its cluster.
    pub const fn inside(self, block: u64) -> u64 {
        block & ((1 << self.bits) - 1)
    }

    /// Returns the first block of the cluster of `block`.
    pub const fn round_down(self, block: u64) -> u64 {
        block - self.inside(block)
    }

    /// Returns the number of blocks of `clusters` clusters, whose number is that of a volume or of a part of a volume.
    pub const fn len(self, clusters: u64) -> u64 {
        debug_assert!(clusters <= u64::MAX >> self.bits, "more clusters than a volume has");
        clusters << self.bits
    }

    /// Returns `blocks` rounded up to whole clusters. `blocks` is a number of blocks of a volume or of a file.
    pub const fn round_up(self, blocks: u64) -> u64 {
        self.len(self.needed(blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_size_is_a_power_of_two_from_1024_to_65536() {
        let valid = |bytes| BlockSize::new(bytes).map(BlockSize::bytes);
        for log in 0..32 {
            let bytes = 1 << log;
            assert_eq!(valid(bytes), Some(bytes).filter(|_| (10..=16).contains(&log)), "{bytes}");
            assert_eq!(valid(bytes + 3), None);
        }
        assert_eq!(valid(0), None);
        let by_log = [0, 6, 7, u32::MAX].map(|log| BlockSize::from_log(log).map(BlockSize::bytes));
        assert_eq!(by_log, [Some(1024), Some(65_536), None, None]);
        assert_eq!(BlockSize::from_log(3).map(BlockSize::log), Some(3));
    }

    #[test]
    fn a_cluster_has_at_least_a_block_and_at_most_a_gibibyte() {
        let block = BlockSize::new(4096).unwrap();
        let by_log = [0, 1, 2, 6, 20, 21, u32::MAX].map(|log| ClusterSize::from_log(log, block));
        let blocks = by_log.map(|size| size.map(ClusterSize::blocks));
        assert_eq!(blocks, [None, None, Some(1), Some(16), Some(1 << 18), None, None]);
    }

    #[test]
    fn rounding_and_division_agree_with_those_of_integers() {
        for log in 0..=6 {
            let block = BlockSize::from_log(log).unwrap();
            let size = u64::from(block);
            for len in [0, 1, size - 1, size, size + 1, 7 * size + 5, MAX_VOLUME_LEN, u64::MAX] {
                assert_eq!(block.whole(len), len / size);
                assert_eq!(block.needed(len), len.div_ceil(size));
                assert_eq!(u64::from(block.inside(len)), len % size);
                assert_eq!(block.checked_len(len), len.checked_mul(size));
            }
            assert_eq!(block.len(3), 3 * size);
        }
        for log in [0, 1, 4, 20] {
            let cluster = ClusterSize::from_log(log, BlockSize::MIN).unwrap();
            let size = u64::from(cluster.blocks());
            for blocks in [0, 1, size - 1, size, size + 1, 7 * size + 5, 1 << 53] {
                assert_eq!(cluster.whole(blocks), blocks / size);
                assert_eq!(cluster.needed(blocks), blocks.div_ceil(size));
                assert_eq!(cluster.inside(blocks), blocks % size);
                assert_eq!(cluster.round_down(blocks), blocks / size * size);
                assert_eq!(cluster.round_up(blocks), blocks.next_multiple_of(size));
            }
        }
    }

    #[test]
    #[should_panic(expected = "more blocks than a volume has")]
    fn a_length_past_64_bits_fails_in_tests() {
        BlockSize::MIN.len(1 << 54);
    }
}
