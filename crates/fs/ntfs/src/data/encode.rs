//! Encoders for the tests: greedy, and with codes that are as uneven as the formats allow.

use std::collections::BTreeMap;
use std::vec::Vec;

/// A copy or a byte.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A byte.
    Literal(u8),
    /// A copy: distance, length.
    Copy(usize, usize),
}

/// Splits `data` into bytes, and copies of at least `least` and at most `most` bytes.
pub fn items(data: &[u8], least: usize, most: usize) -> Vec<Item> {
    let (mut found, mut at, mut last) = (Vec::new(), 0, BTreeMap::new());
    while at < data.len() {
        let key = data.get(at..at + 3).map(<[u8]>::to_vec);
        let length = |from: usize| {
            let same = data[at..].iter().zip(&data[from..]).take(most).take_while(|(a, b)| a == b);
            same.count()
        };
        let candidate = key.as_ref().and_then(|key| last.get(key)).copied();
        let copy = candidate.map(|from: usize| (at - from, length(from))).filter(|(_, len)| *len >= least);
        key.map(|key| last.insert(key, at));
        match copy {
            Some((distance, length)) => {
                found.push(Item::Copy(distance, length));
                at += length;
            }
            None => {
                found.push(Item::Literal(data[at]));
                at += 1;
            }
        }
    }
    found
}

/// Lengths of a complete code of the symbols in `used`: the first three short, the others long.
pub fn code_lengths(used: impl Iterator<Item = usize>, symbols: usize) -> Vec<u8> {
    let mut counts = BTreeMap::<usize, usize>::new();
    used.for_each(|symbol| *counts.entry(symbol).or_default() += 1);
    // A code of one symbol would not be complete.
    for symbol in 0..2 {
        counts.entry(symbol).or_default();
    }
    let mut order: Vec<_> = counts.into_iter().collect();
    order.sort_by_key(|&(symbol, count)| (usize::MAX - count, symbol));
    let short = if order.len() > 6 { 3 } else { 0 };
    let rest = order.len() - short;
    let bits = rest.next_power_of_two().trailing_zeros() as usize;
    let mut lengths = std::vec![0; symbols];
    for (place, (symbol, _)) in order.into_iter().enumerate() {
        let is_shorter = place >= short && place - short < (1 << bits) - rest;
        let length = if place < short { place + 1 } else { short + bits - usize::from(is_shorter) };
        lengths[symbol] = length as u8;
    }
    lengths
}

/// Returns the canonical codes of these lengths.
pub fn codes(lengths: &[u8]) -> Vec<(u32, u32)> {
    let mut codes = std::vec![(0, 0); lengths.len()];
    let mut code = 0;
    for length in 1..=16_u8 {
        for (symbol, _) in lengths.iter().enumerate().filter(|(_, found)| **found == length) {
            codes[symbol] = (code, length.into());
            code += 1;
        }
        code <<= 1;
    }
    codes
}

/// A bit stream with bytes between its words, where the decoder will look for them.
#[derive(Default)]
pub struct Writer {
    bits: Vec<bool>,
    places: Vec<Option<u8>>,
    available: u32,
}

impl Writer {
    fn fill(&mut self) {
        if self.available < 16 {
            self.places.push(None);
            self.available += 16;
        }
    }

    /// Writes up to 16 bits.
    pub fn bits(&mut self, (value, count): (u32, u32)) {
        self.fill();
        self.bits.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
        self.available -= count;
    }

    /// Writes a byte after the words that the decoder has taken.
    pub fn byte(&mut self, byte: u8) {
        self.fill();
        self.places.push(Some(byte));
    }

    /// Returns the bytes.
    pub fn finish(self) -> Vec<u8> {
        let mut words = self.bits.chunks(16).map(|bits| {
            let word = (0..16).fold(0, |word, at| word << 1 | u16::from(bits.get(at) == Some(&true)));
            word.to_le_bytes()
        });
        let bytes = self.places.iter().flat_map(|place| match place {
            Some(byte) => std::vec![*byte],
            None => words.next().unwrap_or_default().to_vec(),
        });
        bytes.collect()
    }
}

/// Texts that exercise the codecs, of at most `len` bytes.
pub fn texts(len: usize) -> Vec<Vec<u8>> {
    let noise = |at: usize| ((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8 & 0x7f;
    std::vec![
        b"a".to_vec(),
        b"abcabcabcabcabcab".repeat(len / 17),
        (0..len).map(noise).collect(),
        std::vec![7; len],
        (0..len).map(|at| if at / 700 % 2 == 0 { noise(at) } else { (at / 5) as u8 & 0x3f }).collect(),
        b"some words and some other words, ".iter().copied().cycle().take(len - 5).collect(),
    ]
}

/// Calls `decompress` with each prefix of `packed`, and with single bytes changed: nothing may panic.
pub fn damage(packed: &[u8], len: usize, decompress: impl Fn(&[u8], &mut [u8]) -> Option<()>) {
    let mut output = std::vec![0; len];
    for cut in (0..packed.len()).step_by(packed.len() / 97 + 1) {
        let _ = decompress(&packed[..cut], &mut output);
        for flip in [1, 0x80, 0xff] {
            let mut changed = packed.to_vec();
            changed[cut] ^= flip;
            let _ = decompress(&changed, &mut output);
        }
    }
}
