//! The file allocation table: for each cluster, the next one.
//!
//! Layout: entries of 12, 16 or 32 bits, the first two of which belong to no cluster. Entries of 12 bits cross bytes
//! and sectors. Values, by the lowest 12, 16 or 28 bits: 0 free; 2 and more the next cluster; ...7 bad; ...8 and more
//! the last cluster of a chain.
//! Source: fatgen103, "FAT Data Structure".

mod used;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::{Block, Cache};
use obento_clusters::{Entry, Links};

use crate::super_block::{SuperBlock, Width};
use crate::unit::Cluster;

pub use self::used::{best_copy, used, used_among};

/// The bits of a 32-bit entry that are used.
pub const COUNTED_32: u32 = 0x0fff_ffff;

/// Decodes `value`, of which only the used bits are set.
pub fn decode(value: u32, sb: &SuperBlock) -> Entry {
    let top = match sb.width {
        Width::Fat12 => 0xff0,
        Width::Fat16 => 0xfff0,
        Width::Fat32 => 0x0fff_fff0,
    };
    match value {
        0 => Entry::Free,
        _ if sb.has(Cluster(value)) => Entry::Next(Cluster(value)),
        _ if value == top | 7 => Entry::Bad,
        _ if value >= top | 8 => Entry::Last,
        _ => Entry::Invalid(value),
    }
}

/// Returns the place of an entry in its FAT: byte offset, and number of bits to shift.
pub fn place(width: Width, cluster: Cluster) -> (u64, u32) {
    let at = u64::from(cluster.0);
    match width {
        Width::Fat12 => (at.saturating_add(at >> 1), if at & 1 == 1 { 4 } else { 0 }),
        Width::Fat16 => (at.saturating_mul(2), 0),
        Width::Fat32 => (at.saturating_mul(4), 0),
    }
}

/// A change of a byte of the FAT: its offset in the FAT, the bits to keep, and the bits to set.
pub type Piece = (u64, u8, u8);

/// Returns the changes that store `value` as the entry of `cluster`.
pub fn pieces(width: Width, cluster: Cluster, value: u32) -> impl Iterator<Item = Piece> {
    let (start, shift) = place(width, cluster);
    // Bits of adjacent entries, or the four unused bits, are preserved.
    let (mask, len) = match width {
        Width::Fat12 => (0xfff_u32 << shift, 2),
        Width::Fat16 => (0xffff, 2),
        Width::Fat32 => (0x0fff_ffff, 4),
    };
    let (mask, value) = (mask.to_le_bytes(), (value << shift & mask).to_le_bytes());
    let bytes = mask.into_iter().zip(value).take(len);
    (start..).zip(bytes).map(|(at, (mask, bits))| (at, !mask, bits))
}

/// Returns the value of the last entry of a chain.
pub fn last(width: Width) -> u32 {
    match width {
        Width::Fat12 => 0xfff,
        Width::Fat16 => 0xffff,
        Width::Fat32 => 0x0fff_ffff,
    }
}

/// A reader of the FAT. It keeps the current sector, since most entries are near the previous one.
pub struct Reader<'v> {
    sb: &'v SuperBlock,
    cache: &'v Cache,
    /// Number of the FAT.
    copy: u8,
    /// The FAT that replaces sectors that the device cannot read.
    spare: Option<u8>,
    /// The number of a sector in the FAT `copy`, and its contents.
    held: Option<(u64, Block)>,
}

impl<'v> Reader<'v> {
    /// Creates a reader of the active FAT. On a device that cannot be written to, and if all FATs should be equal, another
    /// FAT replaces sectors that the device cannot read. Changes must not follow it, since its copy may be older.
    pub fn new(sb: &'v SuperBlock, cache: &'v Cache) -> Self {
        let has_spare = cache.device().is_read_only() && sb.active_fat.is_none() && sb.fats > 1;
        let spare = has_spare.then_some(1);
        Self { spare, ..Self::of_copy(sb, cache, sb.read_fat()) }
    }

    /// Creates a reader of another FAT.
    pub fn of_copy(sb: &'v SuperBlock, cache: &'v Cache, copy: u8) -> Self {
        Self { sb, cache, copy, spare: None, held: None }
    }

    /// Returns the used bits of an entry, also of the first two.
    pub fn value(&mut self, cluster: Cluster) -> Result<u32> {
        let value = self.raw(cluster)?;
        Ok(if self.sb.width == Width::Fat32 { value & COUNTED_32 } else { value })
    }

    /// Returns all bits of an entry, on FAT32 including the four unused ones.
    pub fn raw(&mut self, cluster: Cluster) -> Result<u32> {
        let (within, shift) = place(self.sb.width, cluster);
        let offset = self.sb.fat_offset(self.copy).saturating_add(within);
        Ok(match self.sb.width {
            // The two bytes may be in two sectors.
            Width::Fat12 => {
                let low = u32::from(self.byte(offset)?);
                let high = u32::from(self.byte(offset.saturating_add(1))?);
                (low | high << 8) >> shift & 0xfff
            }
            Width::Fat16 => u16::from_le_bytes(self.bytes(offset)?).into(),
            Width::Fat32 => u32::from_le_bytes(self.bytes(offset)?),
        })
    }

    fn byte(&mut self, offset: u64) -> Result<u8> {
        self.bytes::<1>(offset).map(|[byte]| byte)
    }

    /// Returns the bytes at `offset`, which are in one sector.
    fn bytes<const N: usize>(&mut self, offset: u64) -> Result<[u8; N]> {
        self.rest(offset)?.first_chunk::<N>().copied().ok_or(Error::Invalid)
    }

    /// Returns the bytes from `offset` to the end of its sector.
    fn rest(&mut self, offset: u64) -> Result<&[u8]> {
        let size = u64::from(self.cache.block_size());
        let number = offset.checked_div(size).unwrap_or(0);
        if self.held.as_ref().is_none_or(|(held, _)| *held != number) {
            let end = self.sb.fat_start.saturating_add(self.sb.fat_len.saturating_mul(self.sb.fats.into()));
            let end = end.checked_div(size).unwrap_or(0);
            let block = match self.cache.get_ahead(number, number..end.max(number.saturating_add(1))) {
                Err(error @ Error::Device(_)) => self.spare_sector(offset).ok_or(error)?,
                block => block?,
            };
            self.held = Some((number, block));
        }
        let within = to_usize(offset.checked_rem(size).unwrap_or(0));
        self.held.as_ref().and_then(|(_, held)| held.get(within..)).ok_or(Error::Invalid)
    }

    /// Returns the sector of the spare FAT that equals the one at `offset`, if the device can read it.
    fn spare_sector(&self, offset: u64) -> Option<Block> {
        let within = offset.checked_sub(self.sb.fat_offset(self.copy))?;
        let offset = self.sb.fat_offset(self.spare?).checked_add(within)?;
        self.cache.get(offset.checked_div(self.cache.block_size().into())?).ok()
    }
}

impl Links for Reader<'_> {
    fn clusters(&self) -> u32 {
        self.sb.clusters
    }

    fn entry(&mut self, cluster: Cluster) -> Result<Entry> {
        if !self.sb.has(cluster) {
            let structure = Structure::AllocationTable;
            return Err(Corrupt::BlockRange { structure, at: 0, start: cluster.0.into(), len: 1 }.into());
        }
        let value = self.value(cluster)?;
        Ok(decode(value, self.sb))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_12_bits_share_a_byte() {
        assert_eq!(place(Width::Fat12, Cluster(2)), (3, 0));
        assert_eq!(place(Width::Fat12, Cluster(3)), (4, 4));
        assert_eq!(place(Width::Fat16, Cluster(3)), (6, 0));
        assert_eq!(place(Width::Fat32, Cluster(u32::MAX)), (u64::from(u32::MAX) * 4, 0));
    }
}
