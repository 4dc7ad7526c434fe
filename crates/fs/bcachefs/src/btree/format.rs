//! The format of the packed keys of a node.
//!
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`struct bkey_format`), `bkey.c` (`unpack_state_init`,
//! `get_inc_field`, `bch2_bkey_format_invalid`).

use super::key::{KEY_LEN, Pos, decode_fields};
use crate::layout::bytes::{u8_at, u64_at};

/// Bits of a key before its fields.
const HEADER_BITS: u32 = 24;
/// Format of a key whose fields are packed as the node says.
const LOCAL: u8 = 0;
/// Format of an unpacked key.
const CURRENT: u8 = 1;

/// How the keys of a node are packed.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    words: usize,
    /// Bits of a field, and the number that is added to it.
    fields: [(u32, u64); 6],
}

impl Format {
    /// Decodes a format, and checks that its fields fit.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, count) = (usize::from(u8_at(bytes, 0)?), u8_at(bytes, 1)?);
        let mut fields = [(0, 0); 6];
        for (index, field) in fields.iter_mut().enumerate() {
            let offset = u64_at(bytes, index.checked_mul(8)?.checked_add(8)?)?;
            *field = (u8_at(bytes, index.checked_add(2)?)?.into(), offset);
        }
        let bits = fields.iter().try_fold(HEADER_BITS, |sum, &(bits, _)| sum.checked_add(bits))?;
        let fits = bits.div_ceil(64) <= u32::try_from(words).ok()? && words.checked_mul(8)? <= KEY_LEN;
        (count == 6 && fits && fields.iter().all(|&(bits, _)| bits <= 64)).then_some(Self { words, fields })
    }

    /// Decodes position and size of a key, and returns the length of its fields in bytes.
    pub fn unpack(&self, key: &[u8], is_big_endian: bool) -> Option<(Pos, u32, usize)> {
        match u8_at(key, 1)? & 0x7f {
            CURRENT => {
                let (pos, size) = decode_fields(key, is_big_endian)?;
                Some((pos, size, KEY_LEN))
            }
            LOCAL => {
                let len = self.words.checked_mul(8)?;
                let mut bytes = [0; KEY_LEN];
                let bytes = bytes.get_mut(..len)?;
                bytes.copy_from_slice(key.get(..len)?);
                if is_big_endian {
                    bytes.get_mut(3..)?.reverse();
                }
                let (pos, size) = self.unpack_fields(bytes)?;
                Some((pos, size, len))
            }
            _ => None,
        }
    }

    /// Reads the fields: the first one has the most significant bits of the last word.
    fn unpack_fields(&self, bytes: &[u8]) -> Option<(Pos, u32)> {
        let mut stream = Bits { words: bytes, word: 0, left: 0 };
        let [inode, offset, snapshot, size, ..] = self.fields;
        let mut field = |(bits, base): (u32, u64)| Some(base.wrapping_add(stream.take(bits)?));
        let (inode, offset) = (field(inode)?, field(offset)?);
        let snapshot = u32::try_from(field(snapshot)?).ok()?;
        Some((Pos { inode, offset, snapshot }, u32::try_from(field(size)?).ok()?))
    }
}

/// Bits of words, from the last word to the first.
struct Bits<'a> {
    words: &'a [u8],
    word: u64,
    left: u32,
}

impl Bits<'_> {
    fn take(&mut self, mut bits: u32) -> Option<u64> {
        let mut value = 0_u64;
        while bits > 0 {
            if self.left == 0 {
                let (rest, last) = self.words.split_last_chunk::<8>()?;
                (self.words, self.word, self.left) = (rest, u64::from_le_bytes(*last), 64);
            }
            let count = bits.min(self.left);
            let top = self.word.checked_shr(64_u32.saturating_sub(count)).unwrap_or(0);
            value = value.checked_shl(count).unwrap_or(0) | top;
            self.word = self.word.checked_shl(count).unwrap_or(0);
            self.left = self.left.saturating_sub(count);
            bits = bits.saturating_sub(count);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(words: u8, bits: [u8; 6], bases: [u64; 6]) -> Option<Format> {
        let mut bytes = std::vec![words, 6];
        bytes.extend(bits);
        bases.iter().for_each(|base| bytes.extend(base.to_le_bytes()));
        Format::decode(&bytes)
    }

    #[test]
    fn fields_follow_each_other_from_the_top_and_cross_words() {
        let found = format(2, [16, 40, 8, 4, 0, 0], [4096, 0, 0, 0, 0, 0]).unwrap();
        // 16 bits 5, 40 bits 0x12345678ab, 8 bits 0xfe, 4 bits 9, from the top of the second word.
        let bits = 5_u128 << 112 | 0x12_3456_78ab << 72 | 0xfe << 64 | 9 << 60;
        let mut key = bits.to_le_bytes();
        key[..3].copy_from_slice(&[2, 0, 0]);
        let (pos, size, len) = found.unpack(&key, false).unwrap();
        assert_eq!((pos, size, len), (Pos::new(4101, 0x12_3456_78ab, 0xfe), 9, 16));
        key[3..].reverse();
        assert_eq!(found.unpack(&key, true), Some((pos, size, len)));
    }

    #[test]
    fn a_format_without_room_for_its_fields_is_refused() {
        assert!(format(1, [40, 0, 0, 0, 0, 0], [0; 6]).is_some());
        assert!(format(1, [41, 0, 0, 0, 0, 0], [0; 6]).is_none());
        assert!(format(6, [0; 6], [0; 6]).is_none());
        assert!(format(5, [65, 0, 0, 0, 0, 0], [0; 6]).is_none());
    }
}
