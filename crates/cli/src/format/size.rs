//! Sizes: in blocks, rounded up, and in readable units (`-h`, `--si`) as in human.c of gnulib.

use obento::base::Quantity;
use obento::text::human_size;

/// A unit of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A number of units of this many bytes, rounded up; 1 for bytes.
    Blocks(u64),
    /// `1.5K`: powers of 1024.
    Human,
    /// `1.6k`: powers of 1000.
    Si,
}

impl Unit {
    /// Returns `bytes` in this unit.
    pub fn text(self, bytes: u64) -> String {
        match self {
            Self::Blocks(size) => bytes.div_ceil(size.max(1)).to_string(),
            Self::Human => human(bytes, 1024, b" KMGTPE"),
            Self::Si => human(bytes, 1000, b" kMGTPE"),
        }
    }
}

/// Returns a size and its exact number of bytes, as in `1.5 MiB (1572864 bytes)` and `512 bytes`.
pub fn exact_size(bytes: u64) -> String {
    let exact = Quantity::new(bytes, "byte");
    if bytes < 1024 { exact.to_string() } else { format!("{} ({exact})", human_size(bytes)) }
}

/// Returns at least two digits if they exist, rounded up.
fn human(bytes: u64, base: u128, letters: &[u8; 7]) -> String {
    let bytes = u128::from(bytes);
    if bytes < base {
        return bytes.to_string();
    }
    let mut power = base;
    let mut exponent = 1;
    while bytes / power >= base && exponent < 6 {
        power *= base;
        exponent += 1;
    }
    let tenths = (bytes * 10).div_ceil(power);
    let letter = |exponent: usize| char::from(letters[exponent]);
    if tenths < 100 {
        return format!("{}.{}{}", tenths / 10, tenths % 10, letter(exponent));
    }
    match bytes.div_ceil(power) {
        whole if whole == base && exponent < 6 => format!("1.0{}", letter(exponent + 1)),
        whole => format!("{whole}{}", letter(exponent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people_are_rounded_up_as_coreutils_does() {
        for (bytes, human, si) in [
            (0, "0", "0"),
            (999, "999", "999"),
            (1000, "1000", "1.0k"),
            (1024, "1.0K", "1.1k"),
            (1025, "1.1K", "1.1k"),
            (10 * 1024 - 1, "10K", "11k"),
            (1024 * 1024 - 1, "1.0M", "1.1M"),
            (1536 * 1024 * 1024, "1.5G", "1.7G"),
            (u64::MAX, "16E", "19E"),
        ] {
            assert_eq!((Unit::Human.text(bytes), Unit::Si.text(bytes)), (human.into(), si.into()));
        }
    }
}
