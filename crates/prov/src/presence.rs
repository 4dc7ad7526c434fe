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

    /// Returns the positions of the segments that may contain a key with this hash, in ascending order.
    pub(crate) fn segments(&self, hash: u32) -> impl Iterator<Item = usize> + '_ {
        let row = self.row(hash);
        let words = self.words.get(row..row.saturating_add(self.width)).unwrap_or_default();
        words.iter().enumerate().flat_map(|(number, &word)| {
            let rest = |bits: &u64| Some(bits & bits.wrapping_sub(1)).filter(|&bits| bits != 0);
            let bits = core::iter::successors(Some(word).filter(|&bits| bits != 0), rest);
            bits.map(move |bits| {
                to_usize(bits.trailing_zeros().into()).saturating_add(number.saturating_mul(64))
            })
        })
    }

    /// Returns the word and the bit of a segment in the row of a hash.
    fn place(&self, hash: u32, at: usize) -> (usize, u64) {
        let word = self.row(hash).saturating_add(at / 64);
        (word, 1_u64.rotate_left(u32::try_from(at % 64).unwrap_or(0)))
    }

    /// Returns the first word of the row of a hash.
    fn row(&self, hash: u32) -> usize {
        let row = to_usize(u64::from(hash >> (u32::BITS.saturating_sub(self.row_bits))));
        row.saturating_mul(self.width)
    }
}
