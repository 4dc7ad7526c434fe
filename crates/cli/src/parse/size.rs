//! Sizes: `4096`, `10M`, `10MiB` (powers of 1024) and `10MB` (powers of 1000).
//!
//! Source: the GNU coreutils manual, "Block size"; mke2fs(8) for sizes whose unit is not one byte.

const EXAMPLES: &str = "not a size such as 4096, 10M or 10MB";
const TOO_LARGE: &str = "the size is too large";

/// Parses a number of bytes that may be 0. A unit alone counts as one: `K` is 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let number = if text.starts_with(|c: char| c.is_ascii_alphabetic()) { "1" } else { "" };
    parse(&format!("{number}{text}"), 1)
        .ok_or_else(|| if is_too_large(text) { TOO_LARGE } else { EXAMPLES }.to_owned())
}

/// Returns whether `text` has the form of a size, whose number of bytes exceeds 64 bits.
pub fn is_too_large(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(digits);
    let is_size = !digits.is_empty() && (suffix.is_empty() || factor(suffix).is_some());
    is_size && parse(text, 1).is_none()
}

/// Parses a number of bytes that is not 0.
pub fn positive_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|size| if size > 0 { Ok(size) } else { Err("the size must not be 0".to_owned()) })
}

/// Parses a number of bytes. A number without a unit counts `unit` bytes, and `s` counts sectors of 512 bytes, as in mke2fs(8).
pub fn size_in(text: &str, unit: u64) -> Option<u64> {
    match text.strip_suffix(['s', 'S']) {
        Some(sectors) => number(sectors)?.checked_mul(512),
        None => parse(text, unit),
    }
}

/// Parses the memory of the kernel engine and returns it in MiB, the unit of a number without one.
pub fn engine_memory(text: &str) -> Result<u32, String> {
    let bytes = parse(text, 1 << 20).ok_or(EXAMPLES)?;
    let mib = u32::try_from(bytes >> 20).ok().filter(|mib| (48..=65536).contains(mib));
    mib.ok_or_else(|| "not a size from 48M to 64G".to_owned())
}

fn parse(text: &str, unit: u64) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(digits);
    let factor = if suffix.is_empty() { unit } else { factor(suffix)? };
    number(digits)?.checked_mul(factor)
}

/// Returns the bytes of a unit such as `M`, `MiB` or `MB`.
fn factor(suffix: &str) -> Option<u64> {
    let mut letters = suffix.chars();
    let power = "KMGTPE".find(letters.next()?.to_ascii_uppercase())? + 1;
    let base: u64 = match letters.as_str() {
        "" | "iB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    base.checked_pow(u32::try_from(power).ok()?)
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_units_of_1024_or_of_1000() {
        for (text, bytes) in [
            ("4096", 4096),
            ("K", 1024),
            ("10M", 10 << 20),
            ("10MiB", 10 << 20),
            ("10MB", 10_000_000),
            ("2k", 2048),
            ("2kB", 2000),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!((size(text), size_in(text, 1).or(Some(bytes))), (Ok(bytes), Some(bytes)), "{text}");
        }
        for bad in ["", "1X", "-1", "1.5G", "10Mb", "10 M", "M10", "16E", "k1"] {
            assert!(size(bad).is_err(), "{bad:?}");
            assert_eq!(size_in(bad, 1), None, "{bad:?}");
        }
        for large in ["16E", "100E", "99999999999999999999", "18446744073709551616K"] {
            assert_eq!(size(large), Err(TOO_LARGE.to_owned()), "{large}");
        }
        assert_eq!(size("0"), Ok(0));
        assert!(positive_size("0").is_err() && positive_size("0K").is_err());
    }

    #[test]
    fn a_size_without_a_unit_counts_the_unit_of_the_option() {
        assert_eq!([size_in("64", 1024), size_in("64", 4096)], [Some(65_536), Some(262_144)]);
        assert_eq!([size_in("64k", 4096), size_in("8s", 1024)], [Some(65_536), Some(4096)]);
        assert_eq!([size_in("", 1024), size_in("k", 1024), size_in("s", 1)], [None; 3]);
    }

    #[test]
    fn the_memory_of_the_engine_counts_mib_without_a_unit() {
        assert_eq!(["128", "128M", "1GiB"].map(engine_memory), [Ok(128), Ok(128), Ok(1024)]);
        assert!(engine_memory("47").is_err() && engine_memory("65G").is_err() && engine_memory("x").is_err());
    }
}
