//! GUIDs as GPT stores them: the first three groups little-endian (UEFI specification, appendix A).

use std::fmt;

/// A GUID, its bytes in the order in which it is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Guid([u8; 16]);

impl Guid {
    /// From the bytes on disk.
    pub const fn from_disk(b: [u8; 16]) -> Self {
        let [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15] = b;
        Self([b3, b2, b1, b0, b5, b4, b7, b6, b8, b9, b10, b11, b12, b13, b14, b15])
    }

    /// From the number that the written form reads as without its dashes.
    pub const fn from_u128(number: u128) -> Self {
        Self(number.to_be_bytes())
    }

    /// The bytes in the order in which they are written.
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
