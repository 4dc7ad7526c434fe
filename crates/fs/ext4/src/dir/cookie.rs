//! The cookies of a listing.
//!
//! Layout, with bit 62 as the highest bit in use. A cookie is always the place *after* an entry:
//!
//! ```text
//! in hash order   major hash >> 1 (31 bits) | upper 16 bits of the minor hash | 16 bits to distinguish equal ones
//! damaged index   31 bits set | 0 | byte offset / 4 (31 bits); no major hash has all bits set
//! no index        byte offset
//! ```
//!
//! Invariant: all keys of one major hash are assigned by one walk that begins at its first leaf. The keys are therefore
//! the same in each listing, wherever the listing starts.

use obento_driver::Cookie;

use super::hash::NameHash;

const LINEAR: u64 = 0x7fff_ffff << 32;
/// All cookies of this module are below this value.
pub(crate) const END: u64 = LINEAR | 1 << 31;

/// The last offset that can be represented, in units of 4 bytes.
const LAST_UNIT: u64 = (1 << 31) - 1;

/// A place in hash order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(hash: NameHash) -> Self {
        let minor = u64::from(hash.minor & 0xffff_0000);
        Self(u64::from(hash.major >> 1) << 32 | minor)
    }

    /// Returns the next key, or the last key itself.
    pub(super) fn next(self) -> Self {
        Self(self.0.saturating_add(1).min(LINEAR.saturating_sub(2)))
    }

    /// Returns the cookie for the place after the entry with this key.
    pub(super) fn cookie(self) -> Cookie {
        Cookie(self.0.saturating_add(1))
    }

    /// Returns the major hash at this place.
    pub(super) fn major(self) -> u32 {
        u32::try_from(self.0 >> 32 << 1).unwrap_or(u32::MAX)
    }
}

/// Where a listing in hash order continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resume {
    /// At the first entry with this key or a higher one.
    Hash(Key),
    /// At this byte, since the index is damaged.
    Offset(u64),
}

impl Resume {
    pub(super) fn from(cookie: Cookie) -> Self {
        match cookie.0.checked_sub(LINEAR) {
            Some(units) => Self::Offset(units.saturating_mul(4)),
            None => Self::Hash(Key(cookie.0)),
        }
    }
}

/// The representation of offsets as cookies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offsets {
    /// The directory is always listed from front to back.
    Plain,
    /// The directory has an index, but it is damaged.
    Marked,
}

impl Offsets {
    /// Returns the cookie for byte `offset`, which is a multiple of 4.
    pub(super) fn cookie(self, offset: u64) -> Cookie {
        match self {
            Self::Plain => Cookie(offset.min(i64::MAX.cast_unsigned())),
            Self::Marked => Cookie(LINEAR | (offset / 4).min(LAST_UNIT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_rise_with_the_hash_are_never_zero_and_stay_below_2_to_the_63() {
        let first = Key::new(NameHash { major: 0, minor: 0 });
        let last = Key::new(NameHash { major: 0xffff_fffc, minor: u32::MAX });
        assert_eq!(first.cookie(), Cookie(1));
        assert!(first < last && last.cookie() < Offsets::Marked.cookie(4));
        assert!(Offsets::Marked.cookie(u64::MAX).0 < END && END < 1 << 63);
        assert!(Offsets::Plain.cookie(u64::MAX).0 < 1 << 63);
    }

    #[test]
    fn a_cookie_leads_back_to_the_place_after_its_entry() {
        let hash = NameHash { major: 0x1234_5678, minor: 0x9abc_def0 };
        let key = Key::new(hash);
        assert_eq!(Resume::from(key.cookie()), Resume::Hash(key.next()));
        assert_eq!(key.next().major(), hash.major);
        assert_eq!(Resume::from(Offsets::Marked.cookie(4096)), Resume::Offset(4096));
        assert_eq!(Resume::from(Cookie::START), Resume::Hash(Key::default()));
    }

    #[test]
    fn the_last_key_never_runs_into_the_offsets() {
        let end = (0..9).fold(Key(LINEAR - 4), |key, _| key.next());
        assert!(matches!(Resume::from(end.cookie()), Resume::Hash(_)));
    }
}
