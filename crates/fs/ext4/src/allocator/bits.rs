//! Bits of a bitmap, word by word.
//!
//! Bits past the end of the bytes count as set, so that they are never found as free.
//! Invariant: ranges end at most 64 bits after the bits of a block, whose number is at most 2^19.
#![allow(clippy::arithmetic_side_effects, reason = "the numbers of bits are at most those of a block")]

use core::ops::Range;

use obento_base::wire::to_usize;

/// Number of bits per word.
const WORD: u32 = 64;

/// Returns the 64 bits from bit `64 * index` on.
fn word(bytes: &[u8], index: u32) -> u64 {
    let start = to_usize(u64::from(index) * 8);
    match bytes.get(start..start + 8).and_then(|bytes| bytes.first_chunk()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let rest = bytes.get(start..).unwrap_or_default();
            rest.iter().rev().fold(u64::MAX, |word, &byte| word << 8 | u64::from(byte))
        }
    }
}

/// Returns the first bit in `range` that is set in its word after `flip` was applied, or the end of the range.
fn next(bytes: &[u8], range: Range<u32>, flip: u64) -> u32 {
    let mut at = range.start;
    while at < range.end {
        let index = at / WORD;
        let found = (word(bytes, index) ^ flip) & (u64::MAX << (at % WORD));
        if found != 0 {
            return (index * WORD + found.trailing_zeros()).min(range.end);
        }
        at = (index + 1) * WORD;
    }
    range.end.max(range.start)
}

/// Returns the first clear bit in `range`, or its end.
pub fn next_clear(bytes: &[u8], range: Range<u32>) -> u32 {
    next(bytes, range, u64::MAX)
}

/// Returns the first set bit in `range`, or its end.
pub fn next_set(bytes: &[u8], range: Range<u32>) -> u32 {
    next(bytes, range, 0)
}

/// Returns the number of clear bits in `range`.
pub fn count_clear(bytes: &[u8], range: Range<u32>) -> u32 {
    let mut at = range.start;
    let mut count = 0_u32;
    while at < range.end {
        let index = at / WORD;
        let end = (index + 1) * WORD;
        let mut clear = !word(bytes, index) & (u64::MAX << (at % WORD));
        if end > range.end {
            clear &= !(u64::MAX << (range.end % WORD));
        }
        count += clear.count_ones();
        at = end;
    }
    count
}

/// Sets the bits of `range`.
pub fn set(bytes: &mut [u8], range: Range<u32>) {
    write(bytes, range, |byte, mask| *byte |= mask);
}

/// Clears the bits of `range`.
pub fn clear(bytes: &mut [u8], range: Range<u32>) {
    write(bytes, range, |byte, mask| *byte &= !mask);
}

fn write(bytes: &mut [u8], range: Range<u32>, change: impl Fn(&mut u8, u8)) {
    let mut at = range.start;
    while at < range.end {
        let end = (at / 8 + 1) * 8;
        let high = u8::MAX << (at % 8);
        let low = if end > range.end { !(u8::MAX << (range.end % 8)) } else { u8::MAX };
        if let Some(byte) = bytes.get_mut(to_usize((at / 8).into())) {
            change(byte, high & low);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Returns pseudo-random bytes from `seed`.
    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 40) & (state >> 52)) as u8
        };
        (0..len).map(step).collect()
    }

    fn bit(bytes: &[u8], at: u32) -> bool {
        bytes.get(at as usize / 8).is_none_or(|byte| byte >> (at % 8) & 1 == 1)
    }

    #[test]
    fn words_find_and_count_the_same_bits_as_single_steps() {
        for len in [1, 7, 8, 9, 128, 131] {
            let map = bytes(len as u64, len);
            for start in 0..len as u32 * 8 + 3 {
                for end in [start, start + 1, start + 5, start + 64, start + 65, start + 200] {
                    let clear = (start..end).find(|&at| !bit(&map, at)).unwrap_or(end);
                    let set = (start..end).find(|&at| bit(&map, at)).unwrap_or(end);
                    assert_eq!(next_clear(&map, start..end), clear, "{len} {start}..{end}");
                    assert_eq!(next_set(&map, start..end), set, "{len} {start}..{end}");
                    let count = (start..end).filter(|&at| !bit(&map, at)).count();
                    assert_eq!(count_clear(&map, start..end), count as u32, "{len} {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn setting_and_clearing_touch_the_bits_of_the_range_and_no_others() {
        for range in [0..0, 0..1, 3..8, 7..9, 8..16, 5..77, 63..65, 0..128] {
            let mut map = bytes(9, 16);
            let before = map.clone();
            set(&mut map, range.clone());
            assert!((0..128).all(|at| bit(&map, at) == (range.contains(&at) || bit(&before, at))));
            clear(&mut map, range.clone());
            assert!((0..128).all(|at| bit(&map, at) == (!range.contains(&at) && bit(&before, at))));
        }
    }
}
