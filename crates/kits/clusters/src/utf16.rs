//! Names in UTF-16, converted to bytes.
//!
//! The layers above use UTF-8. An unpaired surrogate, which a damaged or unusual name may contain, is converted to the
//! three bytes that UTF-8 would otherwise use (WTF-8). Every name on disk can therefore be used.

use alloc::vec::Vec;

use obento_base::{Error, Result};

/// Maximum number of UTF-16 units of a name.
pub const MAX_UNITS: usize = 255;
/// Maximum number of bytes of a name: three per unit.
pub const MAX_BYTES: u32 = 765;

/// Converts `units` to bytes.
pub fn to_bytes(units: impl IntoIterator<Item = u16>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in char::decode_utf16(units) {
        let mut utf8 = [0; 4];
        match unit {
            Ok(c) => bytes.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes()),
            Err(half) => bytes.extend_from_slice(&half_to_bytes(half.unpaired_surrogate())),
        }
    }
    bytes
}

fn half_to_bytes(unit: u16) -> [u8; 3] {
    let six = |shift: u32| 0x80 | u8::try_from(unit >> shift & 0x3f).unwrap_or(0);
    [0xed, six(6), six(0)]
}

/// Converts a name to UTF-16 units. Fails with `NameTooLong`, or with `Invalid` for bytes that are neither UTF-8 nor
/// an unpaired surrogate.
pub fn to_units(bytes: &[u8]) -> Result<Vec<u16>> {
    let mut units = Vec::new();
    let mut rest = bytes;
    while let Some(chunk) = rest.utf8_chunks().next() {
        units.extend(chunk.valid().encode_utf16());
        rest = rest.get(chunk.valid().len()..).unwrap_or_default();
        if chunk.invalid().is_empty() {
            break;
        }
        let half = rest.first_chunk::<3>().and_then(|&bytes| half_of(bytes)).ok_or(Error::Invalid)?;
        units.push(half);
        rest = rest.get(3..).unwrap_or_default();
    }
    if units.len() > MAX_UNITS { Err(Error::NameTooLong) } else { Ok(units) }
}

fn half_of(bytes: [u8; 3]) -> Option<u16> {
    let [0xed, high @ 0xa0..=0xbf, low @ 0x80..=0xbf] = bytes else { return None };
    Some(0xd000 | u16::from(high & 0x3f) << 6 | u16::from(low & 0x3f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_halves_of_surrogate_pairs() {
        let units = [0x61, 0xd83d, 0x62, 0xde00, 0xd83d, 0xde00];
        let bytes = to_bytes(units);
        assert_eq!(bytes, b"a\xed\xa0\xbdb\xed\xb8\x80\xf0\x9f\x98\x80");
        assert_eq!(to_units(&bytes).unwrap(), units);
        assert_eq!(to_units(b"\xff"), Err(Error::Invalid));
        assert_eq!(to_units(b"a\xed\x9f"), Err(Error::Invalid));
        assert_eq!(to_units("x".repeat(255).as_bytes()).unwrap().len(), 255);
        assert_eq!(to_units("x".repeat(256).as_bytes()), Err(Error::NameTooLong));
    }
}
