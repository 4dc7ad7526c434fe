//! The locations of the parts of a volume.
//!
//! Invariant: the driver has checked the numbers against the size of the device, so every block is on the
//! volume.

use core::ops::Range;

use obento_base::Ino;
use obento_base::wire::{to_u64, to_usize};

/// The parts of a volume, in blocks. Blocks before the tables belong to the format.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Size of a block as a power of two: 12 for 4096.
    pub block_bits: u32,
    /// Size of an inode in the table as a power of two.
    pub inode_bits: u32,
    /// Number of blocks of the volume.
    pub size: u32,
    /// The log: its header, and as many blocks as one commit can change.
    pub log: Range<u32>,
    /// First block of the inode table.
    pub inode_start: u32,
    /// Number of inodes, including number 0, which is unused.
    pub inodes: u32,
    /// First block of the bitmap, which has a bit for each block of the volume, its own blocks included.
    pub bitmap_start: u32,
    /// First block for files. All following blocks are for files.
    pub data_start: u32,
}

impl Geometry {
    /// Returns the size of a block in bytes.
    pub fn block_size(&self) -> usize {
        1_usize.checked_shl(self.block_bits).unwrap_or(0)
    }

    /// Returns the number of bits of a bitmap block.
    pub fn bits_per_block(&self) -> u32 {
        8_u32.checked_shl(self.block_bits).unwrap_or(0)
    }

    /// Returns the byte offset of `block` on the device.
    pub fn offset_of(&self, block: u32) -> u64 {
        u64::from(block).checked_shl(self.block_bits).unwrap_or(u64::MAX)
    }

    /// Returns the block of a file that contains its byte `at`, and the offset in that block.
    pub fn split(&self, at: u64) -> (u64, u64) {
        let within = at & to_u64(self.block_size()).saturating_sub(1);
        (at.checked_shr(self.block_bits).unwrap_or(0), within)
    }

    /// Returns the number of blocks for `len` bytes.
    pub fn blocks_of(&self, len: u64) -> u64 {
        let (whole, rest) = self.split(len);
        whole.saturating_add(u64::from(rest > 0))
    }

    /// Returns the number of bytes of `blocks` blocks.
    pub fn bytes_of(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(to_u64(self.block_size()))
    }

    /// Returns whether `block` can belong to a file.
    pub fn is_data(&self, block: u32) -> bool {
        (self.data_start..self.size).contains(&block)
    }

    /// Returns the number of blocks that one commit can contain.
    pub fn log_room(&self) -> usize {
        self.log.len().saturating_sub(1)
    }

    /// Returns the block of inode `ino` and its bytes in that block, or `None` if there is no such inode.
    pub fn inode_place(&self, ino: Ino) -> Option<(u32, Range<usize>)> {
        let number = u32::try_from(ino.0).ok().filter(|number| (1..self.inodes).contains(number))?;
        let per_block = self.block_bits.saturating_sub(self.inode_bits);
        let block = self.inode_start.saturating_add(number.checked_shr(per_block)?);
        let at = number & !u32::MAX.checked_shl(per_block)?;
        let start = to_usize(u64::from(at).checked_shl(self.inode_bits)?);
        Some((block, start..start.saturating_add(1_usize.checked_shl(self.inode_bits)?)))
    }

    /// Returns the bitmap block that contains the bit of `block`, and the number of the bit.
    pub(crate) fn bit_place(&self, block: u32) -> (u32, u32) {
        let bits = self.block_bits.saturating_add(3);
        let bitmap = self.bitmap_start.saturating_add(block.checked_shr(bits).unwrap_or(0));
        (bitmap, block & self.bits_per_block().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bitmap::of_new_volume;

    /// A volume with blocks of 1024 bytes, 16 inodes of 64 bytes per block, and more blocks than a block has bits.
    fn small() -> Geometry {
        Geometry {
            block_bits: 10,
            inode_bits: 6,
            size: 20_000,
            log: 2..50,
            inode_start: 50,
            inodes: 40,
            bitmap_start: 53,
            data_start: 8200,
        }
    }

    #[test]
    fn an_inode_has_the_place_of_its_number_and_invalid_numbers_have_no_place() {
        let places = [0, 1, 15, 16, 39, 40, u64::MAX].map(|number| small().inode_place(Ino(number)));
        let [none, first, last_of_block, next, last, past, far] = places;
        assert_eq!(first, Some((50, 64..128)));
        assert_eq!(last_of_block, Some((50, 960..1024)));
        assert_eq!(next, Some((51, 0..64)));
        assert_eq!(last, Some((52, 448..512)));
        assert_eq!([none, past, far], [None, None, None]);
    }

    #[test]
    fn bytes_and_blocks_are_converted_at_the_edges_of_blocks() {
        let geometry = small();
        assert_eq!([1023, 1024, 5000].map(|at| geometry.split(at)), [(0, 1023), (1, 0), (4, 904)]);
        assert_eq!([0, 1, 1024, 1025].map(|len| geometry.blocks_of(len)), [0, 1, 1, 2]);
        assert_eq!((geometry.offset_of(3), geometry.bytes_of(3)), (3072, 3072));
        assert_eq!(
            [8191, 8192, 16_384].map(|block| geometry.bit_place(block)),
            [(53, 8191), (54, 0), (55, 0)]
        );
        assert_eq!((geometry.log_room(), geometry.is_data(8199), geometry.is_data(8200)), (47, false, true));
        assert!(!geometry.is_data(20_000));
    }

    #[test]
    fn the_bitmap_of_a_new_volume_has_a_bit_for_each_block_before_the_data() {
        let ones = [0, 1, 2].map(|at| {
            let bytes = of_new_volume(&small(), at);
            obento_base::Bitmap::new(&bytes).count_ones(8192)
        });
        assert_eq!(ones, [8192, 8, 0]);
        assert_eq!(of_new_volume(&small(), 1).get(..2), Some(&[0xff, 0][..]));
    }
}
