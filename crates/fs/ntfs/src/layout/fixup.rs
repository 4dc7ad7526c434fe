//! Update sequence arrays: the protection of a record against torn writes.
//!
//! The last two bytes of each 512 bytes of a record contain the update sequence number. The array stores the
//! bytes that belong there. The stride is 512 bytes also on disks with sectors of 4096 bytes.
//! Source: linux-ntfs documentation, "Fixup"; libfsntfs documentation, "Fix-up values".

use super::bytes::u16_at;

/// Distance of the protected words.
pub const STRIDE: usize = 512;

/// The reason why a record cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FixupError {
    /// The array is outside of the record or has the wrong length; the value is its offset or its length.
    Array(u16),
    /// The sector with this index was not written together with the others; the value is its last word.
    Torn(u16, u16),
}

/// Verifies the update sequence of a record and restores its bytes.
///
/// # Errors
///
/// - `Array`: the array does not fit the record.
/// - `Torn`: a sector has another sequence number.
pub fn apply(record: &mut [u8]) -> Result<(), FixupError> {
    let offset = u16_at(record, 4).ok_or(FixupError::Array(0))?;
    let count = u16_at(record, 6).ok_or(FixupError::Array(0))?;
    let sectors = record.len() / STRIDE;
    if usize::from(count) != sectors.saturating_add(1) {
        return Err(FixupError::Array(count));
    }
    let start = usize::from(offset);
    let words = record.get(start..start.saturating_add(usize::from(count).saturating_mul(2)));
    let words = words.filter(|_| start >= 8 && start % 2 == 0).ok_or(FixupError::Array(offset))?.to_vec();
    let number = u16_at(&words, 0).unwrap_or(0);
    let saved = words.chunks_exact(2).skip(1);
    for ((index, sector), saved) in (0..).zip(record.chunks_exact_mut(STRIDE)).zip(saved) {
        let Some(last) = sector.last_chunk_mut::<2>() else { continue };
        let found = u16::from_le_bytes(*last);
        if found != number {
            return Err(FixupError::Torn(index, found));
        }
        last.copy_from_slice(saved);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn record() -> Vec<u8> {
        let mut record = std::vec![0; 1024];
        record[4..8].copy_from_slice(&[48, 0, 3, 0]);
        record[48..54].copy_from_slice(&[7, 0, 1, 2, 3, 4]);
        record[510] = 7;
        record[1022] = 7;
        record
    }

    #[test]
    fn the_saved_words_return_to_the_ends_of_their_sectors() {
        let mut bytes = record();
        apply(&mut bytes).unwrap();
        assert_eq!((&bytes[510..512], &bytes[1022..]), (&[1, 2][..], &[3, 4][..]));
    }

    #[test]
    fn a_torn_sector_and_an_array_outside_of_the_record_are_errors() {
        let mut torn = record();
        torn[1022] = 8;
        assert_eq!(apply(&mut torn), Err(FixupError::Torn(1, 8)));
        let mut outside = record();
        outside[4..6].copy_from_slice(&[0xfe, 3]);
        assert_eq!(apply(&mut outside), Err(FixupError::Array(0x3fe)));
        let mut short = record();
        short[6] = 2;
        assert_eq!(apply(&mut short), Err(FixupError::Array(2)));
        assert!(apply(&mut [1, 2, 3]).is_err());
    }
}
