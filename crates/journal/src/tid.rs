//! Transaction numbers.

use core::fmt;

/// The number of a transaction. Numbers wrap at 2^32, so they are compared by distance and do not implement
/// `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tid(pub u32);

impl Tid {
    /// Returns the next transaction number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns whether this transaction is later than `other` (`tid_gt` in jbd2.h). The numbers must differ
    /// by less than 2^31.
    pub const fn is_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }

    /// Returns the number of transactions after `start`, up to and including this transaction.
    pub const fn since(self, start: Self) -> u32 {
        self.0.wrapping_sub(start.0)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap_of_the_number() {
        let last = Tid(u32::MAX);
        assert!(last.next().is_after(last) && !last.is_after(last.next()) && !last.is_after(last));
        assert_eq!(last.next().since(last), 1);
    }
}
