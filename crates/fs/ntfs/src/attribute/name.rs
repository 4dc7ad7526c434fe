//! Names: UTF-16 on disk, UTF-8 behind the contract. A surrogate without its partner is written as the three bytes that
//! UTF-8 would use for it (WTF-8). Different names on disk therefore stay different.

use alloc::vec::Vec;

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
    let mut bytes = Vec::with_capacity(name.len());
    for unit in char::decode_utf16(units(name)) {
        match unit {
            Ok(unit) => bytes.extend_from_slice(unit.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(lone) => {
                let [high, low] = lone.unpaired_surrogate().to_be_bytes();
                let middle = 0x80 | (high & 0x0f) << 2 | low >> 6;
                bytes.extend_from_slice(&[0xe0 | high >> 4, middle, 0x80 | low & 0x3f]);
            }
        }
    }
    bytes
}

/// Converts UTF-8 to UTF-16. `None` for bytes that no name on disk has.
pub fn to_utf16(name: &[u8]) -> Option<Vec<u16>> {
    let mut found = Vec::with_capacity(name.len());
    let mut rest = name;
    while !rest.is_empty() {
        let chunk = rest.utf8_chunks().next()?;
        found.extend(chunk.valid().encode_utf16());
        rest = rest.get(chunk.valid().len()..)?;
        if let [a @ 0xed, b @ 0xa0..=0xbf, c @ 0x80..=0xbf, more @ ..] = rest {
            found.push(u16::from(a & 15) << 12 | u16::from(b & 63) << 6 | u16::from(c & 63));
            rest = more;
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(found)
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
            assert_eq!(to_utf16(&to_utf8(&bytes(units))).as_deref(), Some(units));
        }
        assert_eq!(to_utf8(&bytes(&[0xd83d, 0xde00])), "\u{1f600}".as_bytes());
        assert_eq!(to_utf8(&bytes(&[0xd800])), [0xed, 0xa0, 0x80]);
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_no_name() {
        assert_eq!(to_utf16(&[0xff]), None);
        assert_eq!(to_utf16(b"a\xc3"), None);
    }
}
