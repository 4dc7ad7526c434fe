//! Canonical Huffman codes, and the bit stream of XPRESS and LZX: 16-bit little-endian words, whose bits are read from
//! the most significant one.
//!
//! Source: MS-XCA 2.2.4, "Processing"; MS-PATCH 2.1, "Bitstream".

use alloc::vec;
use alloc::vec::Vec;

use crate::layout::bytes::u16_at;

/// Longest code.
pub const LENGTH_MAX: usize = 16;
/// Codes up to this length are decoded with one look into a table.
const DIRECT: u32 = 10;

/// A bit stream. Past the end of the input, it reads zeros.
pub struct Bits<'a> {
    input: &'a [u8],
    /// Byte after the words that were taken.
    at: usize,
    /// The next bits, the first one most significant.
    word: u32,
    /// Number of valid bits in `word`.
    count: u32,
}

impl<'a> Bits<'a> {
    /// Starts at byte `at` of the input.
    pub fn new(input: &'a [u8], at: usize) -> Self {
        Self { input, at, word: 0, count: 0 }
    }

    /// Takes words until at least 16 bits are available.
    pub fn fill(&mut self) {
        if self.count < 16 {
            let next = u32::from(u16_at(self.input, self.at).unwrap_or(0));
            self.at = self.at.saturating_add(2);
            self.word |= next.checked_shl(16_u32.saturating_sub(self.count)).unwrap_or(0);
            self.count = self.count.saturating_add(16);
        }
    }

    /// Returns the next 16 bits without taking them.
    pub fn peek(&mut self) -> u32 {
        self.fill();
        self.word >> 16
    }

    fn skip(&mut self, count: u32) {
        self.word = self.word.checked_shl(count).unwrap_or(0);
        self.count = self.count.saturating_sub(count);
    }

    /// Takes up to 16 bits.
    pub fn take(&mut self, count: u32) -> u32 {
        let value = self.peek().checked_shr(16_u32.saturating_sub(count)).unwrap_or(0);
        self.skip(count);
        value
    }

    /// Returns whether the stream has taken more words than the input has.
    pub fn is_past_end(&self) -> bool {
        // A decoder looks two words ahead of the bits that it uses.
        self.at > self.input.len().saturating_add(4)
    }

    /// Returns the byte after the words that were taken, which a format may read as bytes.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Takes bytes after the words that were taken.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let found = crate::layout::bytes::slice(self.input, self.at, count)?;
        self.at = self.at.saturating_add(count);
        Some(found)
    }

    /// Drops the bits up to the next word, at least one, as before bytes of LZX that are not compressed.
    pub fn align(&mut self) {
        if self.count == 0 {
            self.at = self.at.saturating_add(2);
        } else if self.count > 16 {
            // A whole word was taken in advance.
            self.at = self.at.saturating_sub(2);
        }
        (self.word, self.count) = (0, 0);
    }

    /// Continues with words at byte `at`.
    pub fn restart(&mut self, at: usize) {
        (self.at, self.word, self.count) = (at, 0, 0);
    }
}

/// A code.
#[derive(Default)]
pub struct Huffman {
    /// Per prefix: symbol and length, or length 0 for a longer code.
    direct: Vec<(u16, u8)>,
    /// Symbols in the order of their codes.
    sorted: Vec<u16>,
    /// Per length: first code, and the index of its symbol; then number of codes.
    levels: [(u32, u32, u32); LENGTH_MAX + 1],
}

impl Huffman {
    /// Builds the code of symbols with these lengths, of which 0 means unused. Returns `None` if no prefix code has
    /// these lengths.
    pub fn build(&mut self, lengths: &[u8]) -> Option<()> {
        let mut counts = [0_u32; LENGTH_MAX + 1];
        for &length in lengths {
            let count = counts.get_mut(usize::from(length))?;
            *count = count.checked_add(1)?;
        }
        let (mut code, mut first) = (0_u32, 0_u32);
        for (length, (level, &count)) in self.levels.iter_mut().zip(&counts).enumerate().skip(1) {
            code = code.checked_mul(2)?;
            *level = (code, first, count);
            code = code.checked_add(count)?;
            first = first.checked_add(count)?;
            if code > 1_u32.checked_shl(u32::try_from(length).ok()?)? {
                return None;
            }
        }
        self.sorted.clear();
        self.sorted.resize(crate::layout::bytes::index(first), 0);
        let mut next = self.levels.map(|(_, first, _)| first);
        self.direct.clear();
        self.direct.resize(1 << DIRECT, (0, 0));
        for (symbol, &length) in (0_u16..).zip(lengths).filter(|(_, length)| **length > 0) {
            let place = next.get_mut(usize::from(length))?;
            *self.sorted.get_mut(crate::layout::bytes::index(*place))? = symbol;
            let (code, first, _) = *self.levels.get(usize::from(length))?;
            let code = code.checked_add(place.checked_sub(first)?)?;
            *place = place.checked_add(1)?;
            if let Some(spare) = DIRECT.checked_sub(length.into()) {
                let start = crate::layout::bytes::index(code.checked_shl(spare)?);
                let end = start.checked_add(1_usize.checked_shl(spare)?)?;
                self.direct.get_mut(start..end)?.fill((symbol, length));
            }
        }
        Some(())
    }

    /// Takes a symbol. Returns `None` if no code starts with the next bits.
    pub fn take(&self, bits: &mut Bits<'_>) -> Option<u16> {
        let next = bits.peek();
        let (symbol, length) = *self.direct.get(crate::layout::bytes::index(next >> (16 - DIRECT)))?;
        if length > 0 {
            bits.skip(length.into());
            return Some(symbol);
        }
        for (length, &(first, index, count)) in (0_u32..).zip(&self.levels).skip(1) {
            let code = next.checked_shr(16_u32.checked_sub(length)?)?;
            let inside = code.checked_sub(first).filter(|&inside| inside < count);
            if let Some(inside) = inside {
                bits.skip(length);
                return self.sorted.get(crate::layout::bytes::index(index.checked_add(inside)?)).copied();
            }
        }
        None
    }
}

/// Creates lengths of so many symbols.
pub fn lengths(count: usize) -> Vec<u8> {
    vec![0; count]
}
