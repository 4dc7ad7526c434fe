//! Short names: eight characters and an extension of three.

use alloc::vec::Vec;

use super::{CodePage, trim};

/// `DIR_NTRes`: the name is shown in lower case.
pub const LOWER_NAME: u8 = 0x08;
/// `DIR_NTRes`: the extension is shown in lower case.
pub const LOWER_EXTENSION: u8 = 0x10;
/// Represents a first byte of 0xe5, which would mark the entry as free.
const KANJI: u8 = 0x05;
/// The byte that 0x05 represents.
const FREE: u8 = 0xe5;

/// The eleven bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShortName(pub [u8; 11]);

impl ShortName {
    /// `.` in a directory.
    pub const DOT: Self = Self(*b".          ");
    /// `..` in a directory.
    pub const DOT_DOT: Self = Self(*b"..         ");

    fn name(&self) -> &[u8] {
        self.0.get(..8).unwrap_or_default()
    }

    fn extension(&self) -> &[u8] {
        self.0.get(8..).unwrap_or_default()
    }

    /// Returns the name as Windows NT shows it. `case` is `DIR_NTRes`.
    pub fn to_units(self, page: CodePage, case: u8) -> Vec<u16> {
        let lower = |bit: u8| case & bit != 0;
        let this = self.unescaped();
        let part = |bytes: &[u8], is_lower: bool| -> Vec<u16> {
            trim_spaces(bytes).iter().map(|&byte| decode(page, byte, is_lower)).collect()
        };
        let mut units = part(this.name(), lower(LOWER_NAME));
        let extension = part(this.extension(), lower(LOWER_EXTENSION));
        if !extension.is_empty() {
            units.push(b'.'.into());
            units.extend(extension);
        }
        units
    }

    /// Returns the eleven bytes with the first byte unescaped.
    fn unescaped(mut self) -> Self {
        if let Some(first @ &mut KANJI) = self.0.first_mut() {
            *first = FREE;
        }
        self
    }

    /// Returns the eleven bytes as a label, without a dot and with their case.
    pub fn to_label(self, page: CodePage) -> Vec<u8> {
        super::to_bytes(trim(&self.unescaped().0).iter().map(|&byte| page.decode(byte)))
    }
}

fn trim_spaces(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last.saturating_add(1));
    bytes.get(..end).unwrap_or_default()
}

fn decode(page: CodePage, byte: u8, is_lower: bool) -> u16 {
    let unit = page.decode(byte);
    if !is_lower {
        return unit;
    }
    let mut lower = char::from_u32(unit.into()).into_iter().flat_map(char::to_lowercase);
    match (lower.next(), lower.next()) {
        (Some(c), None) => u16::try_from(u32::from(c)).unwrap_or(unit),
        _ => unit,
    }
}

/// Returns the checksum by which the parts of a long name refer to their short name. Source: fatgen103, "Organization
/// and Association of Short & Long Directory Entries", `ChkSum`.
pub fn checksum(name: ShortName) -> u8 {
    name.0.iter().fold(0, |sum: u8, &byte| sum.rotate_right(1).wrapping_add(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::to_bytes;

    fn shown(name: &[u8; 11], case: u8) -> Vec<u8> {
        to_bytes(ShortName(*name).to_units(CodePage::Cp437, case))
    }

    #[test]
    fn a_short_name_is_shown_in_the_case_that_its_bits_say() {
        assert_eq!(shown(b"README  TXT", 0), b"README.TXT");
        assert_eq!(shown(b"README  TXT", LOWER_NAME), b"readme.TXT");
        assert_eq!(shown(b"README  TXT", LOWER_EXTENSION), b"README.txt");
        assert_eq!(shown(b"README     ", LOWER_NAME | LOWER_EXTENSION), b"readme");
        assert_eq!(shown(b"A B     C  ", 0), b"A B.C");
        assert_eq!(shown(b"\x05\x81      \x9aX ", LOWER_NAME), "\u{3c3}\u{fc}.\u{dc}X".as_bytes());
        assert_eq!(shown(b"\x9a       X  ", LOWER_NAME), "\u{fc}.X".as_bytes());
    }

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(checksum(ShortName(*b"ALONGN~1TXT")), 0x42);
        assert_eq!(checksum(ShortName([0xff; 11])), 0xfe);
    }
}
