//! The up-case table: for each 16-bit unit the one that it is compared as. The order of names in a directory follows
//! from it.
//!
//! Source: linux-ntfs documentation, "$UpCase" and "Collation".

use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::layout::bytes::units;

/// Bytes of the table.
pub const LEN: u64 = 1 << 17;

/// The table.
pub struct UpCase(Vec<u16>);

impl UpCase {
    /// Decodes a table.
    pub fn decode(bytes: &[u8]) -> Self {
        Self(units(bytes).collect())
    }

    /// Returns a substitute for a table that cannot be read, from the simple mappings of Unicode.
    pub fn substitute() -> Self {
        let upper = |unit: u16| {
            let mut upper = char::from_u32(unit.into())?.to_uppercase();
            let first = upper.next().filter(|_| upper.next().is_none())?;
            u16::try_from(u32::from(first)).ok()
        };
        Self((0..=u16::MAX).map(|unit| upper(unit).unwrap_or(unit)).collect())
    }

    /// Returns the first unit of ASCII with a wrong counterpart, and that counterpart. Source: libntfs-3g, volume.c
    /// (`ntfs_device_mount`), which refuses such a table.
    pub fn wrong(&self) -> Option<(u16, u16)> {
        let upper = |unit: u16| u8::try_from(unit).map_or(unit, |byte| byte.to_ascii_uppercase().into());
        (0x20..0x7f).map(|unit| (unit, self.of(unit))).find(|&(unit, found)| found != upper(unit))
    }

    fn of(&self, unit: u16) -> u16 {
        self.0.get(usize::from(unit)).copied().unwrap_or(unit)
    }

    /// Compares names without regard to case.
    pub fn compare(&self, left: impl Iterator<Item = u16>, right: impl Iterator<Item = u16>) -> Ordering {
        left.map(|unit| self.of(unit)).cmp(right.map(|unit| self.of(unit)))
    }

    /// Compares names as a directory orders them: without regard to case, then as they are.
    pub fn collate(
        &self,
        left: impl Iterator<Item = u16> + Clone,
        right: impl Iterator<Item = u16> + Clone,
    ) -> Ordering {
        self.compare(left.clone(), right.clone()).then_with(|| left.cmp(right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_are_neighbours() {
        let table = UpCase::substitute();
        let collate = |left: &str, right: &str| table.collate(left.encode_utf16(), right.encode_utf16());
        assert_eq!(collate("abc", "ABD"), Ordering::Less);
        assert_eq!(collate("abc", "ABC"), Ordering::Greater);
        assert_eq!(collate("\u{e4}", "\u{c4}"), Ordering::Greater);
        assert_eq!(collate("ab", "abc"), Ordering::Less);
        assert_eq!(table.compare("\u{fc}B".encode_utf16(), "\u{dc}b".encode_utf16()), Ordering::Equal);
    }
}
