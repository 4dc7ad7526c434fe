//! Sizes: in blocks, rounded up, and for people (`-h`, `--si`), as gnulib's human.c has them.

/// How to write a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A count of units of so many bytes, rounded up; 1 for bytes.
    Blocks(u64),
    /// `1.5K`: powers of 1024.
    Human,
    /// `1.6k`: powers of 1000.
    Si,
}

impl Unit {
    /// `bytes` in this unit.
    pub fn text(self, bytes: u64) -> String {
        match self {
            Self::Blocks(size) => bytes.div_ceil(size.max(1)).to_string(),
            Self::Human => human(bytes, 1024, b" KMGTPE"),
            Self::Si => human(bytes, 1000, b" kMGTPE"),
        }
    }
}

/// Two digits at least where there are any, never less than the value.
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

/// Parses coreutils' SIZE: `1K`, `4096`, `1MB` (powers of 1000), `KiB`, `M`. 0 is none.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_length(text).and_then(|size| if size > 0 { Ok(size) } else { Err(no_size(text)) })
}

/// [`parse_size`] where 0 is one, too.
pub fn parse_length(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let bad = || no_size(text);
    let number = if number.is_empty() { Ok(1) } else { number.parse::<u64>() };
    let number = number.map_err(|_| bad())?;
    let mut letters = suffix.chars();
    let power = match letters.next() {
        None if text.is_empty() => return Err(bad()),
        None => return Ok(number),
        Some(letter) => "KMGTPE".find(letter.to_ascii_uppercase()).ok_or_else(bad)? + 1,
    };
    let base: u64 = match letters.as_str() {
        "" | "iB" => 1024,
        "B" => 1000,
        _ => return Err(bad()),
    };
    let factor = base.checked_pow(u32::try_from(power).map_err(|_| bad())?);
    factor.and_then(|f| number.checked_mul(f)).ok_or_else(bad)
}

fn no_size(text: &str) -> String {
    format!("'{text}' is not a size such as 4096, 64K or 1MB")
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

    #[test]
    fn sizes_are_read_as_coreutils_reads_them() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("K"), Ok(1024));
        assert_eq!(parse_size("2MB"), Ok(2_000_000));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert!(parse_size("").is_err());
        assert!(parse_size("1X").is_err());
        assert!(parse_size("0").is_err() && parse_size("0K").is_err());
        assert_eq!(parse_length("0"), Ok(0));
    }
}
