//! Which segments may contain a key. A query that looks up many keys would otherwise search the index of each segment for
//! each key.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;

use crate::index::Index;

/// Binary logarithm of the maximum number of words, which limits the table to 32 MiB. The more rows it has, the fewer of
/// them have bits of other keys.
const WORD_BITS: u32 = 22;
/// Maximum number of segments: more segments would leave too few rows.
const SEGMENTS_MAX: usize = 1024;

/// A table with a row for each group of hashes, and a bit in each row for each segment.
#[derive(Debug)]
pub(crate) struct Presence {
    /// Number of words of a row.
    width: usize,
    /// Number of bits of a hash that select a row.
    row_bits: u32,
    words: Vec<u64>,
}

impl Presence {
    /// Returns the table of `indexes`, in the order of the segments. Returns `None` for too many segments.
    pub(crate) fn of<'a>(indexes: impl ExactSizeIterator<Item = &'a Index>) -> Option<Self> {
        let width = indexes.len().div_ceil(64);
        if indexes.len() > SEGMENTS_MAX {
            return None;
        }
        let row_bits = WORD_BITS.saturating_sub(width.next_power_of_two().ilog2());
        let mut table = Self { width, row_bits, words: vec![0; width.checked_shl(row_bits)?] };
        for (at, index) in indexes.enumerate() {
            for hash in index.hashes() {
                let (word, bit) = table.place(hash, at);
                if let Some(word) = table.words.get_mut(word) {
                    *word |= bit;
                }
            }
        }
        Some(table)
    }

    /// Returns whether the segment at a position may contain a key with this hash.
    pub(crate) fn may_contain(&self, hash: u32, at: usize) -> bool {
        let (word, bit) = self.place(hash, at);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns the word and the bit of a segment in the row of a hash.
    fn place(&self, hash: u32, at: usize) -> (usize, u64) {
        let row = to_usize(u64::from(hash >> (u32::BITS.saturating_sub(self.row_bits))));
        let word = row.saturating_mul(self.width).saturating_add(at / 64);
        (word, 1_u64.rotate_left(u32::try_from(at % 64).unwrap_or(0)))
    }
}
