//! Where the parts of a volume lie.
//!
//! Invariant: the driver has checked it against the device's bytes, so that every number here is inside the volume.

use core::ops::Range;

use obento_base::Ino;
use obento_base::wire::{to_u64, to_usize};

/// The parts of a volume, in blocks. What is before the tables is the format's own.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Bytes a block, as a power of two: 12 for 4096.
    pub block_bits: u32,
    /// Bytes an inode takes in its table, as a power of two.
    pub inode_bits: u32,
    /// Blocks of the volume.
    pub size: u32,
    /// The log: its header, and then as many blocks as one commit can change.
    pub log: Range<u32>,
    /// The first block of the table of inodes.
    pub inode_start: u32,
    /// Inodes, with number 0, which is none.
    pub inodes: u32,
    /// The first block of the bitmap, which has a bit for each block of the volume, its own included.
    pub bitmap_start: u32,
    /// The first block for files; all that follow are for them.
    pub data_start: u32,
}

impl Geometry {
    /// Bytes a block.
    pub fn block_size(&self) -> usize {
        1_usize.checked_shl(self.block_bits).unwrap_or(0)
    }

    /// Bits that a block of the bitmap has.
    pub fn bits_per_block(&self) -> u32 {
        8_u32.checked_shl(self.block_bits).unwrap_or(0)
    }

    /// Where `block` starts on the device.
    pub fn offset_of(&self, block: u32) -> u64 {
        u64::from(block).checked_shl(self.block_bits).unwrap_or(u64::MAX)
    }

    /// The block of a file that has its byte `at`, and where in it.
    pub fn split(&self, at: u64) -> (u64, u64) {
        let within = at & to_u64(self.block_size()).saturating_sub(1);
        (at.checked_shr(self.block_bits).unwrap_or(0), within)
    }

    /// How many blocks `len` bytes take.
    pub fn blocks_of(&self, len: u64) -> u64 {
        let (whole, rest) = self.split(len);
        whole.saturating_add(u64::from(rest > 0))
    }

    /// How many bytes `blocks` of a file are.
    pub fn bytes_of(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(to_u64(self.block_size()))
    }

    /// Whether `block` can belong to a file.
    pub fn is_data(&self, block: u32) -> bool {
        (self.data_start..self.size).contains(&block)
    }

    /// How many blocks one commit can hold.
    pub fn log_room(&self) -> usize {
        self.log.len().saturating_sub(1)
    }

    /// The block of inode `ino` and its bytes there. `None` if there is no such number.
    pub fn inode_place(&self, ino: Ino) -> Option<(u32, Range<usize>)> {
        let number = u32::try_from(ino.0).ok().filter(|number| (1..self.inodes).contains(number))?;
        let per_block = self.block_bits.saturating_sub(self.inode_bits);
        let block = self.inode_start.saturating_add(number.checked_shr(per_block)?);
        let at = number & !u32::MAX.checked_shl(per_block)?;
        let start = to_usize(u64::from(at).checked_shl(self.inode_bits)?);
        Some((block, start..start.saturating_add(1_usize.checked_shl(self.inode_bits)?)))
    }

    /// The block of the bitmap that has the bit of `block`, and which of its bits that is.
    pub(crate) fn bit_place(&self, block: u32) -> (u32, u32) {
        let bits = self.block_bits.saturating_add(3);
        let bitmap = self.bitmap_start.saturating_add(block.checked_shr(bits).unwrap_or(0));
        (bitmap, block & self.bits_per_block().saturating_sub(1))
    }
}
