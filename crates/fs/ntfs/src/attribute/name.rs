//! Names: UTF-16 on disk, bytes as in [`obento_base::utf16`] behind the contract. Different names on disk therefore stay
//! different.

use alloc::vec::Vec;

use obento_base::utf16;
use obento_base::wire::FromBytes as _;

use crate::layout::bytes::{slice, units};
use crate::layout::raw::RawFileName;

/// Most units of a name.
pub const UNITS_MAX: usize = 255;

/// The rules that a name follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Namespace {
    /// Any units but `/` and NUL.
    Posix,
    /// A long name.
    Win32,
    /// A short name beside a long one.
    Dos,
    /// A name that is both.
    Win32AndDos,
}

/// A name of a file, as the file and its directory store it.
#[derive(Clone, Copy, Debug)]
pub struct FileName<'a> {
    /// Fixed part.
    pub raw: &'a RawFileName,
    /// Name in UTF-16.
    pub name: &'a [u8],
}

impl<'a> FileName<'a> {
    /// Decodes the value of a `$FILE_NAME` attribute, or a key of a directory.
    pub fn decode(value: &'a [u8]) -> Option<Self> {
        let (raw, _) = RawFileName::ref_from_prefix(value).ok()?;
        let len = usize::from(raw.name_length).checked_mul(2).filter(|&len| len > 0)?;
        let name = slice(value, size_of::<RawFileName>(), len)?;
        (raw.namespace < 4).then_some(Self { raw, name })
    }

    /// Returns the rules that the name follows.
    pub fn namespace(&self) -> Namespace {
        match self.raw.namespace {
            0 => Namespace::Posix,
            1 => Namespace::Win32,
            2 => Namespace::Dos,
            _ => Namespace::Win32AndDos,
        }
    }

    /// Returns whether the name is a short name beside a long one.
    pub fn is_short(&self) -> bool {
        self.namespace() == Namespace::Dos
    }
}

/// Converts UTF-16 to UTF-8.
pub fn to_utf8(name: &[u8]) -> Vec<u8> {
    utf16::to_bytes(units(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(units: &[u16]) -> Vec<u8> {
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    #[test]
    fn every_name_on_disk_survives_the_way_to_utf_8_and_back() {
        let cases: [&[u16]; 5] =
            [&[0x41], &[0xe4, 0x4e2d], &[0xd83d, 0xde00], &[0xd83d, 0x41], &[0xde00, 0xd83d]];
        for units in cases {
            assert_eq!(utf16::to_units(&to_utf8(&bytes(units))).as_deref(), Some(units));
        }
        assert_eq!(to_utf8(&bytes(&[0xd83d, 0xde00])), "\u{1f600}".as_bytes());
        assert_eq!(to_utf8(&bytes(&[0xd800])), [0xed, 0xa0, 0x80]);
    }
}
