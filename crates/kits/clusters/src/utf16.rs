//! Names of FAT and exFAT in UTF-16, converted to bytes as in [`obento_base::utf16`].

use alloc::vec::Vec;

pub use obento_base::utf16::to_bytes;
use obento_base::{Error, Result, utf16};

/// Maximum number of UTF-16 units of a name.
pub const MAX_UNITS: usize = 255;
/// Maximum number of bytes of a name: three per unit.
pub const MAX_BYTES: u32 = 765;

/// Converts a name to UTF-16 units. Fails with `NameTooLong`, or with `Invalid` for bytes that are neither UTF-8 nor
/// an unpaired surrogate.
pub fn to_units(bytes: &[u8]) -> Result<Vec<u16>> {
    let units = utf16::to_units(bytes).ok_or(Error::Invalid)?;
    if units.len() > MAX_UNITS { Err(Error::NameTooLong) } else { Ok(units) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_limit_and_are_utf_8_with_unpaired_surrogates() {
        assert_eq!(to_units(b"a\xed\xa0\xbd").unwrap(), [0x61, 0xd83d]);
        assert_eq!(to_units(b"\xff"), Err(Error::Invalid));
        assert_eq!(to_units(b"a\xed\x9f"), Err(Error::Invalid));
        assert_eq!(to_units("x".repeat(255).as_bytes()).unwrap().len(), 255);
        assert_eq!(to_units("x".repeat(256).as_bytes()), Err(Error::NameTooLong));
    }
}
