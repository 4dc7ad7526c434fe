//! Bitmaps, and their checksums, which are in their groups' descriptors.

use obento_base::Result;
use obento_base::wire::to_usize;

use super::super::counts::used_inodes;
use super::edits::Edits;
use crate::checksum::Crc;
use crate::unit::VolBlock;

/// One of a group's two bitmaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum RepairedBitmap {
    Blocks,
    Inodes,
}

impl Edits {
    /// Sets each bit of a bitmap to what the check of this round has found, once per round. Returns false if the check
    /// has found no place for the bitmap.
    pub(super) fn rewrite_bitmap(&mut self, kind: RepairedBitmap, group: u32) -> Result<bool> {
        let place = self.bitmap_place(kind, group);
        let Some(state) = self.used.clone().filter(|_| place.0 != 0) else { return Ok(false) };
        if !self.rewritten.insert((kind, group)) {
            return Ok(true);
        }
        let (words, bits) = match kind {
            RepairedBitmap::Blocks => {
                let words = state.with_used(group, |words| words.unwrap_or_default().to_vec());
                (words, self.view.sb.group_clusters(group))
            }
            RepairedBitmap::Inodes => (used_inodes(&self.view, &state, group), self.view.sb.inodes_per_group),
        };
        self.block(place, |bytes| {
            let right = words.iter().flat_map(|word| word.to_le_bytes()).chain(core::iter::repeat(0));
            // The bits after the last block or inode stay.
            let rest = !u8::MAX.checked_shl(bits % 8).unwrap_or(0);
            let masks = core::iter::repeat_n(u8::MAX, to_usize(u64::from(bits / 8))).chain([rest]);
            for ((byte, right), mask) in bytes.iter_mut().zip(right).zip(masks) {
                *byte = *byte & !mask | right & mask;
            }
        })?;
        self.seal_bitmap(kind, group)?;
        Ok(true)
    }

    /// Sets the bits after the end of a block bitmap.
    pub(super) fn pad_block_bitmap(&mut self, group: u32) -> Result<()> {
        let sb = &self.view.sb;
        let blocks = sb.blocks_count.saturating_sub(sb.group_start(group).0);
        let blocks = blocks.min(sb.blocks_per_group.into());
        let bits = sb.cluster.needed(blocks);
        let all = u64::from(sb.block_size.bits());
        self.set_bits(RepairedBitmap::Blocks, group, bits..all, true)
    }

    /// Sets the bits after the end of an inode bitmap.
    pub(super) fn pad_inode_bitmap(&mut self, group: u32) -> Result<()> {
        let all = u64::from(self.view.sb.block_size.bits());
        let bits = u64::from(self.view.sb.inodes_per_group)..all;
        self.set_bits(RepairedBitmap::Inodes, group, bits, true)
    }

    fn bitmap_place(&self, kind: RepairedBitmap, group: u32) -> VolBlock {
        let group = self.view.group(group);
        match kind {
            RepairedBitmap::Blocks => group.block_bitmap,
            RepairedBitmap::Inodes => group.inode_bitmap,
        }
    }

    pub(super) fn set_bits(
        &mut self,
        kind: RepairedBitmap,
        group: u32,
        bits: core::ops::Range<u64>,
        value: bool,
    ) -> Result<()> {
        let place = self.bitmap_place(kind, group);
        if place.0 == 0 {
            return Ok(());
        }
        self.block(place, |bytes| {
            for bit in bits {
                let Some(byte) = bytes.get_mut(to_usize(bit / 8)) else { return };
                let mask = 1_u8.checked_shl(u32::try_from(bit % 8).unwrap_or(0)).unwrap_or(0);
                *byte = if value { *byte | mask } else { *byte & !mask };
            }
        })?;
        self.seal_bitmap(kind, group)
    }

    pub(super) fn seal_bitmap(&mut self, kind: RepairedBitmap, group: u32) -> Result<()> {
        let sb = &self.view.sb;
        if !sb.has_metadata_csum() {
            return Ok(());
        }
        let bits = match kind {
            RepairedBitmap::Blocks => sb.clusters_per_group(),
            RepairedBitmap::Inodes => sb.inodes_per_group,
        };
        let bytes = self.view.read(self.bitmap_place(kind, group), 1)?;
        let covered = bytes.get(..to_usize(u64::from(bits / 8))).unwrap_or_default();
        let [a, b, c, d] = Crc::new(sb.checksum_seed).add(covered).get().to_le_bytes();
        let (low_half, high_half) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        self.descriptor(group, |low, high| match kind {
            RepairedBitmap::Blocks => {
                low.bg_block_bitmap_csum_lo.set(low_half);
                if let Some(high) = high {
                    high.bg_block_bitmap_csum_hi.set(high_half);
                }
            }
            RepairedBitmap::Inodes => {
                low.bg_inode_bitmap_csum_lo.set(low_half);
                if let Some(high) = high {
                    high.bg_inode_bitmap_csum_hi.set(high_half);
                }
            }
        })
    }
}
