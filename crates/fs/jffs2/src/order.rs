//! The byte order of a volume, which is that of the machine that wrote it.

/// A byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Order {
    /// Returns the name of the order.
    pub fn name(self) -> &'static str {
        match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        }
    }

    /// Returns the 16-bit number at byte `at`, or `None` past the end.
    pub fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let found = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(found),
            Self::Big => u16::from_be_bytes(found),
        })
    }

    /// Returns the 32-bit number at byte `at`, or `None` past the end.
    pub fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let found = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(found),
            Self::Big => u32::from_be_bytes(found),
        })
    }

    /// Returns the bytes of a 16-bit number.
    pub fn bytes16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Returns the bytes of a 32-bit number.
    pub fn bytes32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}
