//! Names in UTF-16, converted to bytes.
//!
//! The layers above drivers use UTF-8. An unpaired surrogate, which a damaged or unusual name may contain, is converted
//! to three bytes by the scheme of UTF-8, although UTF-8 does not permit surrogates (WTF-8). Every name on disk can
//! therefore be used.

use alloc::vec::Vec;

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

/// Converts bytes to units. The bytes must be UTF-8, in which surrogates of three bytes each may occur. Returns `None`
/// for other bytes. A high and a low surrogate in succession become a pair, which [`to_bytes`] converts to the four
/// bytes of one character.
pub fn to_units(bytes: &[u8]) -> Option<Vec<u16>> {
    let mut units = Vec::new();
    let mut rest = bytes;
    while let Some(chunk) = rest.utf8_chunks().next() {
        units.extend(chunk.valid().encode_utf16());
        rest = rest.get(chunk.valid().len()..).unwrap_or_default();
        if chunk.invalid().is_empty() {
            break;
        }
        units.push(half_of(*rest.first_chunk()?)?);
        rest = rest.get(3..).unwrap_or_default();
    }
    Some(units)
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
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_not_a_valid_name() {
        for bytes in [&b"\xff"[..], b"a\xc3", b"a\xed\x9f"] {
            assert_eq!(to_units(bytes), None);
        }
    }
}
