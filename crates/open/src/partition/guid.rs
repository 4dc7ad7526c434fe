//! GUIDs in the byte order of GPT: the first three groups are little-endian (UEFI specification, appendix A).

use std::fmt;

/// A GUID. The bytes have the order of the text form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Guid([u8; 16]);

impl Guid {
    /// Converts from the bytes on disk.
    pub const fn from_disk(b: [u8; 16]) -> Self {
        let [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15] = b;
        Self([b3, b2, b1, b0, b5, b4, b7, b6, b8, b9, b10, b11, b12, b13, b14, b15])
    }

    /// Converts from the number that the text form represents without its dashes.
    pub const fn from_u128(number: u128) -> Self {
        Self(number.to_be_bytes())
    }

    /// Converts to the bytes on disk.
    pub const fn to_disk(self) -> [u8; 16] {
        // The conversion reverses the order of bytes in the groups, so it is its own inverse.
        Self::from_disk(self.0).0
    }

    /// Parses the text form, with or without dashes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|&c| c != '-').collect();
        let is_number = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_number);
        number.map(Self::from_u128)
    }

    /// Returns the bytes in the order of the text form.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Prints `c12a7328-f81f-11d2-ba4b-00a0c93ec93b`.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
