//! Names for new files: which ones are valid, and the short name beside a long one.
//!
//! Source: fatgen103, "Long File Name Creation" and "The Basis-Name Generation Algorithm". If the specification leaves
//! a choice, the driver follows Linux (fs/fat/namei_vfat.c). An ASCII name has no long name if it is short except for
//! its case, and its base and extension each have one case (`shortname=winnt`). Names with other bytes have one, since
//! their meaning and their lower case depend on the reader's code page. Tails are `~1` to `~9`, and then four
//! hexadecimal digits of a hash.

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes as _, le};
use obento_base::{Error, Result};

use super::short::{LOWER_EXTENSION, LOWER_NAME};
use super::{CodePage, LongName, MAX_UNITS, PART, ShortName, checksum, fold};
use crate::raw::RawLongEntry;

/// Characters that no name may contain.
const FORBIDDEN: &[u8] = b"\"*/:<>?\\|";
/// Characters that only long names may contain.
const LONG_ONLY: &[u8] = b"+,;=[]";
const DOT: u16 = 0x2e;
const SPACE: u16 = 0x20;

/// Checks whether a new file may have this name. Fails with `Invalid` or `NameTooLong`.
pub fn check(units: &[u16]) -> Result<()> {
    let is_forbidden = |unit: &u16| match u8::try_from(*unit) {
        Ok(byte) => byte < 0x20 || FORBIDDEN.contains(&byte),
        Err(_) => false,
    };
    // Windows drops dots and spaces at the end, so that two names would be the same.
    match units.last() {
        None | Some(&(DOT | SPACE)) => Err(Error::Invalid),
        _ if units.iter().any(is_forbidden) => Err(Error::Invalid),
        _ if units.len() > MAX_UNITS => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

/// A short name that is derived from a long one, before a tail is chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Basis {
    name: Vec<u8>,
    extension: Vec<u8>,
    /// `DIR_NTRes`, if no long name is needed.
    case: Option<u8>,
}

/// One part of a short name: its bytes, whether they represent the whole part, and the case of its letters.
struct Part {
    bytes: Vec<u8>,
    is_whole: bool,
    has_lower: bool,
    has_upper: bool,
}

fn part(units: &[u16], most: usize, page: CodePage) -> Part {
    let mut part = Part { bytes: Vec::new(), is_whole: true, has_lower: false, has_upper: false };
    for &unit in units {
        let upper = fold(unit);
        let byte = page.encode(upper).filter(|byte| !LONG_ONLY.contains(byte));
        if unit == DOT || unit == SPACE {
            part.is_whole = false;
            continue;
        }
        part.has_lower |= upper != unit;
        part.has_upper |= upper == unit && char::from_u32(unit.into()).is_some_and(char::is_uppercase);
        // A lower case letter whose upper case is not in the code page cannot be restored.
        part.is_whole &= byte.is_some() && part.bytes.len() < most;
        if part.bytes.len() < most {
            part.bytes.push(byte.unwrap_or(b'_'));
        }
    }
    part
}

impl Basis {
    /// Derives a short name from a valid name.
    pub fn new(units: &[u16], page: CodePage) -> Self {
        let start = units.iter().position(|&unit| unit != DOT).unwrap_or(0);
        let dot = units.iter().rposition(|&unit| unit == DOT).filter(|&dot| dot > start);
        let end = dot.unwrap_or(units.len());
        let name = part(units.get(start..end).unwrap_or_default(), 8, page);
        let rest = dot.and_then(|dot| units.get(dot.saturating_add(1)..)).unwrap_or_default();
        let extension = part(rest, 3, page);
        let is_short = start == 0
            && !name.bytes.is_empty()
            && units.iter().all(|&unit| unit < 0x7f)
            && [&name, &extension].iter().all(|part| part.is_whole && !(part.has_lower && part.has_upper));
        let lower = |part: &Part, bit: u8| if part.has_lower { bit } else { 0 };
        let case = is_short.then_some(lower(&name, LOWER_NAME) | lower(&extension, LOWER_EXTENSION));
        Self { name: name.bytes, extension: extension.bytes, case }
    }

    /// Returns the bits of `DIR_NTRes`, if the name needs no long name.
    pub fn case(&self) -> Option<u8> {
        self.case
    }

    fn with(&self, name: &[u8]) -> ShortName {
        let mut bytes = [b' '; 11];
        let (first, second) = bytes.split_at_mut(8);
        first.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        second.iter_mut().zip(&self.extension).for_each(|(to, from)| *to = *from);
        if let Some(first @ &mut 0xe5) = bytes.first_mut() {
            *first = 0x05;
        }
        ShortName(bytes)
    }

    /// Returns the name without a tail.
    pub fn plain(&self) -> ShortName {
        self.with(&self.name)
    }

    /// Returns the names with tails, in the order in which they are tried.
    pub fn tails(&self, units: &[u16]) -> impl Iterator<Item = ShortName> + '_ {
        let digits = b'1'..=b'9';
        let short = digits.clone().map(|digit| {
            let mut name: Vec<u8> = self.name.iter().copied().take(6).collect();
            name.extend([b'~', digit]);
            self.with(&name)
        });
        let hash =
            units.iter().fold(0_u16, |hash, &unit| hash.rotate_left(5).wrapping_mul(31).wrapping_add(unit));
        let hashed = (0..=u16::MAX).flat_map(move |step| {
            let hash = hash.wrapping_add(step);
            digits.clone().map(move |digit| (hash, digit))
        });
        short.chain(hashed.map(|(hash, digit)| {
            let mut name: Vec<u8> = self.name.iter().copied().take(2).collect();
            for shift in [12_u32, 8, 4, 0] {
                let nibble = u8::try_from(hash >> shift & 15).unwrap_or(0);
                name.push(if nibble < 10 {
                    nibble.saturating_add(b'0')
                } else {
                    nibble.saturating_add(b'A' - 10)
                });
            }
            name.extend([b'~', digit]);
            self.with(&name)
        }))
    }
}

/// Returns the parts of a long name as they are stored, for the short name `short`.
pub fn parts(units: &[u16], short: ShortName) -> Vec<[u8; 32]> {
    let sum = checksum(short);
    let mut parts: Vec<[u8; 32]> = Vec::new();
    for (order, chunk) in (1_u8..).zip(units.chunks(PART)) {
        let fill = core::iter::once(0).chain(core::iter::repeat(u16::MAX));
        let mut padded = chunk.iter().copied().chain(fill);
        let mut next = || le::U16::new(padded.next().unwrap_or(u16::MAX));
        let raw = RawLongEntry {
            LDIR_Ord: order,
            LDIR_Name1: [next(), next(), next(), next(), next()],
            LDIR_Attr: 0x0f,
            LDIR_Type: 0,
            LDIR_Chksum: sum,
            LDIR_Name2: [next(), next(), next(), next(), next(), next()],
            LDIR_FstClusLO: le::U16::new(0),
            LDIR_Name3: [next(), next()],
        };
        let mut bytes = [0; 32];
        bytes.copy_from_slice(raw.as_bytes());
        parts.push(bytes);
    }
    if let Some(first) = parts.last_mut().and_then(|last| last.first_mut()) {
        *first |= LongName::LAST;
    }
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::to_units;
    use std::string::String;

    fn basis(name: &str) -> (Basis, Vec<u16>) {
        let units = to_units(name.as_bytes()).unwrap();
        (Basis::new(&units, CodePage::Cp437), units)
    }

    /// Returns the short name, and its bits or the first tail.
    fn short(name: &str) -> (String, Option<u8>) {
        let (basis, units) = basis(name);
        let short = match basis.case() {
            Some(_) => basis.plain(),
            None => basis.tails(&units).next().unwrap(),
        };
        (String::from_utf8_lossy(&short.0).into_owned(), basis.case())
    }

    #[test]
    fn a_name_of_one_case_is_short_and_others_get_a_tail() {
        assert_eq!(short("README.TXT"), ("README  TXT".into(), Some(0)));
        assert_eq!(short("readme.txt"), ("README  TXT".into(), Some(0x18)));
        assert_eq!(short("readme.TXT"), ("README  TXT".into(), Some(0x08)));
        assert_eq!(short("Readme.txt"), ("README~1TXT".into(), None));
        assert_eq!(short("a long name.html"), ("ALONGN~1HTM".into(), None));
        assert_eq!(short(".hidden"), ("HIDDEN~1   ".into(), None));
        assert_eq!(short("two.dots.here"), ("TWODOT~1HER".into(), None));
        assert_eq!(short("a+b"), ("A_B~1      ".into(), None));
        assert_eq!(short("12345678.abc"), ("12345678ABC".into(), Some(0x10)));
        assert_eq!(short("123456789"), ("123456~1   ".into(), None));
        assert_eq!(short("\u{3b1}"), ("_~1        ".into(), None));
        for name in ["\u{e9}t\u{e9}.txt", "\u{c9}T\u{c9}.TXT", "del\u{7f}"] {
            assert_eq!(short(name).1, None, "{name}: another code page has another character there");
        }
    }

    #[test]
    fn tails_continue_after_nine() {
        let (basis, units) = basis("a long name");
        let tails: std::collections::BTreeSet<_> = basis.tails(&units).take(1000).collect();
        assert_eq!(tails.len(), 1000);
        assert!(tails.iter().all(|short| short.0.starts_with(b"AL") && short.0[8..] == *b"   "));
    }

    #[test]
    fn characters_that_no_name_can_contain_are_refused() {
        for name in ["a:b", "a*", "q?", "a\"", "<", "a|b", "a\\b", "tab\t", "dot.", "space "] {
            assert_eq!(check(&to_units(name.as_bytes()).unwrap()), Err(Error::Invalid), "{name}");
        }
        assert_eq!(check(&to_units(" a;b,c=[d]+".as_bytes()).unwrap()), Ok(()));
    }

    #[test]
    fn the_parts_of_a_name_are_gathered_to_it_again() {
        use obento_base::wire::FromBytes as _;
        for len in [1, 12, 13, 14, 26, 255] {
            let units = to_units("n".repeat(len).as_bytes()).unwrap();
            let short = ShortName(*b"NNNNNN~1   ");
            let mut name = LongName::default();
            parts(&units, short)
                .iter()
                .for_each(|part| name.push(RawLongEntry::ref_from_bytes(part).unwrap()));
            assert_eq!(name.name(checksum(short)), Some(&units[..]), "{len}");
        }
    }
}
