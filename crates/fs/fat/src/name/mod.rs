//! Names: short names in a code page, long names in UTF-16, and comparison without case.
//!
//! Source: fatgen103, "FAT Directory Structure", "Name Limits and Character Sets"; Linux fs/fat/dir.c, namei_vfat.c.

mod code_page;
mod long;
mod make;
mod short;

use alloc::vec::Vec;

pub use obento_clusters::utf16::{MAX_UNITS, to_bytes, to_units};

pub use self::code_page::CodePage;
pub use self::long::{LongName, MAX_PARTS, PART, parts_for};
pub use self::make::{Basis, check, parts};
pub use self::short::{ShortName, checksum};

/// Returns `bytes` without trailing spaces.
pub fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_end()
}

/// Folds `unit` for comparison: to upper case, if that is one unit. Source: fatgen103 leaves the comparison to the
/// system; Windows uses the simple upper case mappings of Unicode.
pub fn fold(unit: u16) -> u16 {
    if let Ok(ascii @ 0..128) = u8::try_from(unit) {
        return ascii.to_ascii_uppercase().into();
    }
    let Some(c) = char::from_u32(unit.into()) else { return unit };
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => u16::try_from(u32::from(upper)).unwrap_or(unit),
        _ => unit,
    }
}

/// A folded name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Folded(Vec<u16>);

impl Folded {
    /// Folds `units`.
    pub fn new(units: &[u16]) -> Self {
        Self(units.iter().map(|&unit| fold(unit)).collect())
    }

    /// Returns whether `units` are this name.
    pub fn is(&self, units: &[u16]) -> bool {
        self.0.len() == units.len() && self.0.iter().zip(units).all(|(&mine, &unit)| mine == fold(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_folded_by_single_characters() {
        let folded = |text: &str| Folded::new(&to_units(text.as_bytes()).unwrap());
        assert_eq!(folded("stra\u{df}e \u{e4}\u{3b1}"), folded("STRA\u{df}E \u{c4}\u{391}"));
        assert_ne!(folded("\u{df}"), folded("SS"));
        assert!(folded("AbC").is(&to_units(b"aBc").unwrap()) && !folded("ab").is(&[0x61]));
    }
}
