//! Names: which ones are valid, how they are compared, and their hash.
//!
//! Source: specification, 7.6.4 "NameHash Field" and 7.7.3 "FileName Field".

use alloc::vec::Vec;

use obento_base::{Error, Result};
pub use obento_clusters::utf16::{MAX_UNITS, to_bytes, to_units};

use crate::up_case::UpCase;

/// Characters that no name may contain (Table 33).
const FORBIDDEN: &[u8] = b"\"*/:<>?\\|";
const DOT: u16 = 0x2e;
const SPACE: u16 = 0x20;

/// Returns whether a name may contain these units.
pub fn is_valid(units: &[u16]) -> bool {
    !units.iter().any(|&unit| match u8::try_from(unit) {
        Ok(byte) => byte < 0x20 || FORBIDDEN.contains(&byte),
        Err(_) => false,
    })
}

/// Whether a name may end with dots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastDots {
    /// No: Windows and Linux drop dots at the end, so that two names would be the same.
    Refuse,
    /// Yes: the mount option `keep_last_dots` of Linux.
    Keep,
}

/// Checks whether a new file may have this name. Fails with `Invalid` or `NameTooLong`.
pub fn check(units: &[u16], dots: LastDots) -> Result<()> {
    match units.last() {
        // Windows drops spaces at the end, too.
        None | Some(&SPACE) => Err(Error::Invalid),
        Some(&DOT) if dots == LastDots::Refuse => Err(Error::Invalid),
        _ if !is_valid(units) => Err(Error::Invalid),
        _ if units.len() > MAX_UNITS => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

/// A folded name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Folded(Vec<u16>);

impl Folded {
    /// Folds `units`.
    pub fn new(units: &[u16], table: &UpCase) -> Self {
        Self(units.iter().map(|&unit| table.fold(unit)).collect())
    }

    /// Returns whether `units` are this name.
    pub fn is(&self, units: &[u16], table: &UpCase) -> bool {
        self.0.len() == units.len() && self.0.iter().zip(units).all(|(&mine, &unit)| mine == table.fold(unit))
    }

    /// Returns the hash that a set contains, so that most sets need not be compared.
    pub fn hash(&self) -> u16 {
        let bytes = self.0.iter().flat_map(|unit| unit.to_le_bytes());
        bytes.fold(0, |hash: u16, byte| hash.rotate_right(1).wrapping_add(byte.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_the_table_of_the_volume() {
        let table = UpCase::standard().unwrap();
        let folded = |text: &str| Folded::new(&to_units(text.as_bytes()).unwrap(), &table);
        assert_eq!(folded("stra\u{df}e \u{e4}\u{3b1}\u{ff41}"), folded("STRA\u{df}E \u{c4}\u{391}\u{ff21}"));
        assert_eq!(folded("AbC").hash(), folded("aBc").hash());
        assert!(folded("AbC").is(&to_units(b"aBc").unwrap(), &table));
        assert!(!folded("ab").is(&[0x61], &table));
    }

    #[test]
    fn characters_that_no_name_can_contain_are_refused() {
        for name in ["a:b", "a*", "q?", "a\"", "<", "a|b", "a\\b", "tab\t", "dot.", "space ", ""] {
            assert_eq!(
                check(&to_units(name.as_bytes()).unwrap(), LastDots::Refuse),
                Err(Error::Invalid),
                "{name}"
            );
        }
        assert_eq!(check(&to_units(b" a;b,c=[d]+.x").unwrap(), LastDots::Refuse), Ok(()));
        assert_eq!(check(&to_units(b"dots..").unwrap(), LastDots::Keep), Ok(()));
    }
}
