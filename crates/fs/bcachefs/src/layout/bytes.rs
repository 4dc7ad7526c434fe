//! Little-endian numbers at computed places of a byte slice. Every function returns `None` past the end.

/// Returns the byte at `at`.
pub fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

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

/// Returns the bits `from..to` of a word, as the macro `BITMASK` of `bcachefs_format.h` numbers them.
pub fn bits(word: u64, from: u32, to: u32) -> u64 {
    let width = to.saturating_sub(from);
    let mask = 1_u64.checked_shl(width).map_or(u64::MAX, |bit| bit.wrapping_sub(1));
    word.checked_shr(from).unwrap_or(0) & mask
}

/// Returns [`bits`] as a 32-bit number. The width is at most 32 bits.
pub fn bits32(word: u64, from: u32, to: u32) -> u32 {
    u32::try_from(bits(word, from, to)).unwrap_or(u32::MAX)
}
