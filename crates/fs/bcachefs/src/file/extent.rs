//! Extents: where the data of a range lies, and how it is coded.
//!
//! A value is a list of entries. The position of the lowest bit that is set in an entry says its type. An entry with a
//! checksum applies to the pointers after it, until the next one.
//! Source: Linux `fs/bcachefs/extents_format.h`, `rebalance_format.h`, `extents.c` (`bch2_extent_crc_unpack`).

use alloc::vec::Vec;

use obento_base::{Error, Feature, Result};

use super::codec::Compression;
use crate::btree::key::{Key, kind};
use crate::checksum::Method;
use crate::layout::bytes::{bits, bits32, u64_at};

/// Types of entries (`BCH_EXTENT_ENTRY_TYPES`), by their bit.
mod entry {
    pub const POINTER: u32 = 0;
    pub const CRC32: u32 = 1;
    pub const CRC64: u32 = 2;
    pub const CRC128: u32 = 3;
    pub const STRIPE: u32 = 4;
    pub const REBALANCE: u32 = 5;
    pub const FLAGS: u32 = 6;
}

/// How the data behind a pointer is coded. All lengths are in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coding {
    /// Length on disk.
    pub stored: u32,
    /// Length when decompressed.
    pub len: u32,
    /// Where the data of the extent starts in the decompressed data.
    pub offset: u32,
    /// Checksum of the data on disk.
    pub method: Method,
    /// The checksum, of which [`Coding::mask`] bits are stored.
    pub sum: u64,
    /// Bits of the checksum that are stored.
    pub mask: u64,
    /// Compression.
    pub compression: Compression,
}

/// A copy of the data of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// First sector.
    pub sector: u64,
    /// Whether the device may have reused the space.
    pub is_cached: bool,
    /// Coding; `None` for bytes that are neither checked nor compressed.
    pub coding: Option<Coding>,
}

/// The contents of an extent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents<'a> {
    /// Data on the device: copies, the best one first.
    Copies(Vec<Pointer>),
    /// Data in the key.
    Inline(&'a [u8]),
    /// Space that was never written.
    Unwritten,
    /// Sectors from this one on in the tree of shared extents.
    Shared(u64),
    /// The data was lost.
    Lost,
}

impl<'a> Contents<'a> {
    /// Decodes a key of the trees of extents or of shared extents. `None` means that the key is not an extent or is
    /// damaged.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: the extent has an entry, a compression or a checksum that is not supported.
    pub fn decode(key: Key<'a>, device: u8) -> Result<Option<Self>> {
        Ok(match key.kind {
            kind::EXTENT => Self::copies(key.value, device)?,
            kind::REFLINK_V => Self::copies(key.value.get(8..).unwrap_or_default(), device)?,
            kind::INLINE_DATA => Some(Self::Inline(key.value)),
            kind::INDIRECT_INLINE_DATA => key.value.get(8..).map(Self::Inline),
            kind::RESERVATION => Some(Self::Unwritten),
            kind::ERROR => Some(Self::Lost),
            // The rest of the word has flags (`REFLINK_P_ERROR`).
            kind::REFLINK_P => u64_at(key.value, 0).map(|word| Self::Shared(bits(word, 0, 56))),
            _ => None,
        })
    }

    fn copies(mut value: &[u8], device: u8) -> Result<Option<Self>> {
        let (mut coding, mut copies, mut is_unwritten) = (None, Vec::new(), false);
        while let Some(first) = u64_at(value, 0) {
            let words = match first.trailing_zeros() {
                entry::POINTER => {
                    is_unwritten |= bits(first, 3, 4) == 1;
                    if bits(first, 48, 56) == u64::from(device) {
                        let (sector, is_cached) = (bits(first, 4, 48), bits(first, 1, 2) == 1);
                        copies.push(Pointer { sector, is_cached, coding });
                    }
                    1
                }
                entry::CRC32 => {
                    coding = Some(crc32(first)?);
                    1
                }
                entry::CRC64 => {
                    let Some(low) = u64_at(value, 8) else { return Ok(None) };
                    coding = Some(crc64(first, low)?);
                    2
                }
                entry::CRC128 => {
                    let Some(low) = u64_at(value, 8).filter(|_| value.len() >= 24) else { return Ok(None) };
                    coding = Some(crc128(first, low)?);
                    3
                }
                entry::STRIPE | entry::REBALANCE | entry::FLAGS => 1_usize,
                // Zeros fill the value.
                64 => break,
                _ => return Err(Error::Unsupported(Feature::Named("an extent entry of bcachefs"))),
            };
            value = value.get(words.saturating_mul(8)..).unwrap_or_default();
        }
        if is_unwritten {
            return Ok(Some(Self::Unwritten));
        }
        copies.sort_by_key(|copy: &Pointer| copy.is_cached);
        Ok(Some(Self::Copies(copies)))
    }
}

/// `struct bch_extent_crc32`: lengths of 7 bits.
fn crc32(word: u64) -> Result<Coding> {
    let length = |from: u32, to| bits32(word, from, to).saturating_add(1);
    Ok(Coding {
        stored: length(2, 9),
        len: length(9, 16),
        offset: bits32(word, 16, 23),
        method: Method::decode(bits(word, 24, 28))?,
        sum: bits(word, 32, 64),
        mask: u32::MAX.into(),
        compression: Compression::decode(bits(word, 28, 32))?,
    })
}

/// `struct bch_extent_crc64`: lengths of 9 bits. Checksums of 80 bits occur only with encryption.
fn crc64(word: u64, low: u64) -> Result<Coding> {
    let length = |from: u32, to| bits32(word, from, to).saturating_add(1);
    Ok(Coding {
        stored: length(3, 12),
        len: length(12, 21),
        offset: bits32(word, 21, 30),
        method: Method::decode(bits(word, 40, 44))?,
        sum: low,
        mask: u64::MAX,
        compression: Compression::decode(bits(word, 44, 48))?,
    })
}

/// `struct bch_extent_crc128`: lengths of 13 bits.
fn crc128(word: u64, low: u64) -> Result<Coding> {
    let length = |from: u32, to| bits32(word, from, to).saturating_add(1);
    Ok(Coding {
        stored: length(4, 17),
        len: length(17, 30),
        offset: bits32(word, 30, 43),
        method: Method::decode(bits(word, 56, 60))?,
        sum: low,
        mask: u64::MAX,
        compression: Compression::decode(bits(word, 60, 64))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_applies_to_the_pointers_after_it() {
        let plain = 1 | 1000 << 4;
        let other_device = 1 | 7 << 4 | 3_u64 << 48;
        let sum = 2 | 6 << 2 | 7 << 9 | 1 << 16 | 5 << 24 | 4 << 28 | 0xabcd_u64 << 32;
        let coded = 1 | 1 << 1 | 2000 << 4;
        let value: Vec<u8> =
            [plain, other_device, sum, coded, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        let key = Key { pos: crate::btree::key::Pos::MIN, size: 8, kind: kind::EXTENT, value: &value };
        let Some(Contents::Copies(copies)) = Contents::decode(key, 0).unwrap() else { panic!() };
        assert_eq!(copies.len(), 2);
        assert_eq!((copies[0].sector, copies[0].coding), (1000, None));
        let coding = copies[1].coding.unwrap();
        assert_eq!((coding.stored, coding.len, coding.offset), (7, 8, 1));
        assert_eq!(
            (coding.method, coding.sum, coding.compression),
            (Method::Crc32c, 0xabcd, Compression::Zstd)
        );
        assert!(copies[1].is_cached);
    }

    #[test]
    fn unknown_entries_are_refused_by_name() {
        let value = (1_u64 << 7).to_le_bytes();
        let key = Key { pos: crate::btree::key::Pos::MIN, size: 8, kind: kind::EXTENT, value: &value };
        assert!(matches!(Contents::decode(key, 0), Err(Error::Unsupported(_))));
    }
}
