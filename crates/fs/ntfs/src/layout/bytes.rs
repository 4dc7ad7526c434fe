//! Little-endian numbers at computed places of a byte slice. Every function returns `None` past the end.

use obento_base::wire::{to_u64, to_usize};

/// Returns the 16-bit number at `at`.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|&word| u16::from_le_bytes(word))
}

/// Returns the 32-bit number at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|&word| u32::from_le_bytes(word))
}

/// Returns the 64-bit number at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|&word| u64::from_le_bytes(word))
}

/// Returns `len` bytes at `at`.
pub fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

/// Widens an index of 32 bits.
pub fn index(value: u32) -> usize {
    to_usize(value.into())
}

/// Returns the smaller of a length in memory and a length on disk.
pub fn min_len(memory: usize, disk: u64) -> usize {
    to_usize(disk.min(to_u64(memory)))
}

/// Returns `value` rounded up to a multiple of `unit`, or the largest number if that does not fit.
pub fn round_up(value: u64, unit: u64) -> u64 {
    value.checked_next_multiple_of(unit.max(1)).unwrap_or(u64::MAX)
}

/// Returns the units of the UTF-16 text in `bytes`; an odd last byte is ignored.
pub fn units(bytes: &[u8]) -> impl DoubleEndedIterator<Item = u16> + Clone + '_ {
    bytes.chunks_exact(2).map(|pair| u16_at(pair, 0).unwrap_or(0))
}
