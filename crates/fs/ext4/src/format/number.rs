//! Parsing numbers and sizes as `mke2fs` does.
//!
//! Source: e2fsprogs `lib/support/parse_num.c` `parse_num_blocks2`; `strtoul` with base 0.

use alloc::string::ToString;

use obento_driver::{Allowed, FormatError};

/// Parses a number: decimal, `0x` hexadecimal, `0` octal.
pub(super) fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// Parses a number of units of `1 << log` bytes. Without a suffix it is a number of units, with a suffix a number of
/// bytes.
pub(super) fn units(text: &str, log: u32) -> Option<u64> {
    let Some(last) = text.chars().next_back().filter(|last| last.is_ascii_alphabetic()) else {
        return number(text);
    };
    let shift = match last.to_ascii_lowercase() {
        's' => 9,
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => return None,
    };
    let value = number(text.strip_suffix(last)?)?;
    let bytes = value.checked_mul(1_u64.checked_shl(shift)?)?;
    bytes.checked_shr(log)
}

/// Parses the value of setting `name`, a number from `min` to `max`.
pub(super) fn ranged(name: &'static str, text: &str, min: u64, max: u64) -> Result<u64, FormatError> {
    let bad = || FormatError::BadValue { name, value: text.to_string(), allowed: Allowed::Range(min, max) };
    units(text, 0).filter(|value| (min..=max).contains(value)).ok_or_else(bad)
}

/// Parses the value of setting `name`, a power of two from `min` to `max`.
pub(super) fn power(name: &'static str, text: &str, min: u64, max: u64) -> Result<u64, FormatError> {
    let allowed = Allowed::PowerOfTwo(min, max);
    let bad = || FormatError::BadValue { name, value: text.to_string(), allowed };
    let value = units(text, 0).ok_or_else(bad)?;
    if value.is_power_of_two() && (min..=max).contains(&value) { Ok(value) } else { Err(bad()) }
}

/// Parses the value of setting `name`, which is on or off: an empty value and any number except 0 are on.
pub(super) fn switch(name: &'static str, text: &str) -> Result<bool, FormatError> {
    let bad = || FormatError::BadValue { name, value: text.to_string(), allowed: Allowed::Range(0, 1) };
    if text.is_empty() { Ok(true) } else { number(text).map(|value| value != 0).ok_or_else(bad) }
}

/// Parses a percentage, in millionths of a percent.
pub(super) fn percent(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || whole.is_empty() && part.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let millionths = part.bytes().chain(core::iter::repeat(b'0')).take(6);
    let part = millionths
        .fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(digit.saturating_sub(b'0').into()));
    whole.checked_mul(1_000_000)?.checked_add(part)
}

/// Parses a UUID: 32 hexadecimal digits, with dashes between groups of them.
pub(super) fn uuid(text: &str) -> Option<[u8; 16]> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    if text.len() != 36 || !text.is_ascii() {
        return None;
    }
    let dashes_are_right = text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == DASHES.contains(&at));
    let digits = text.bytes().filter(|&byte| byte != b'-');
    let value = digits.map(|digit| char::from(digit).to_digit(16)).try_fold(0_u128, |value, digit| {
        value.checked_shl(4).map(|value| value | u128::from(digit.unwrap_or(0)))
    });
    let all_hex = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    value.filter(|_| dashes_are_right && all_hex).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_mke2fs_reads_them() {
        assert_eq!(units("100", 10), Some(100));
        assert_eq!(units("0x10", 10), Some(16));
        assert_eq!(units("010", 10), Some(8));
        assert_eq!([units("4k", 10), units("1M", 12), units("2g", 10)], [Some(4), Some(256), Some(2 << 20)]);
        assert_eq!([units("1T", 10), units("16s", 10)], [Some(1 << 30), Some(8)]);
        for bad in ["", "k", "1x", "1kk", "-1", "1.5M", "99999999999999999999T"] {
            assert_eq!(units(bad, 10), None, "{bad}");
        }
    }

    #[test]
    fn percentages_have_fractions() {
        assert_eq!(
            [percent("5"), percent("0.5"), percent("12.345678")],
            [Some(5_000_000), Some(500_000), Some(12_345_678)]
        );
        assert_eq!([percent(""), percent("."), percent("-1"), percent("1e1")], [None; 4]);
    }

    #[test]
    fn a_uuid_has_its_dashes_where_they_belong() {
        let text = "01234567-89ab-cdef-0123-456789ABCDEF";
        let bytes =
            [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        assert_eq!(uuid(text), Some(bytes));
        for bad in ["", "01234567-89ab-cdef-0123-456789ABCDEg", "0123456-789ab-cdef-0123-456789ABCDEF"] {
            assert_eq!(uuid(bad), None);
        }
    }
}
