//! Numbers of things in messages.

use core::fmt;

/// A number with its noun in the singular or the plural: `1 byte`, `2 bytes`, `3 entries`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantity {
    number: u64,
    noun: &'static str,
}

impl Quantity {
    /// Returns the quantity of `number` things. `noun` is the singular. The plural adds `s`, and changes `ry` at the
    /// end to `ries`, so the noun must form its plural in this way.
    pub fn new(number: u64, noun: &'static str) -> Self {
        Self { number, noun }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, noun } = self;
        match noun.strip_suffix("ry") {
            _ if *number == 1 => write!(f, "1 {noun}"),
            Some(stem) => write!(f, "{number} {stem}ries"),
            None => write!(f, "{number} {noun}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn only_one_thing_is_in_the_singular() {
        let shown = |number, noun| Quantity::new(number, noun).to_string();
        assert_eq!([0, 1, 2].map(|number| shown(number, "byte")), ["0 bytes", "1 byte", "2 bytes"]);
        assert_eq!([1, 3].map(|number| shown(number, "entry")), ["1 entry", "3 entries"]);
    }
}
