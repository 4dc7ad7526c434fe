//! UUIDs as options take them.

use crate::report::{Report, subject};

/// Parses a UUID; `clear` is the nil UUID, and `random` returns `None`.
pub fn uuid(text: &str) -> Result<Option<[u8; 16]>, Report> {
    match text {
        "random" => return Ok(None),
        "clear" | "null" => return Ok(Some([0; 16])),
        _ => {}
    }
    let dashes = text.char_indices().all(|(at, digit)| (digit == '-') == matches!(at, 8 | 13 | 18 | 23));
    let digits: String = text.chars().filter(|&digit| digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| dashes && text.len() == 36);
    number.map(|number| Some(number.to_be_bytes())).ok_or_else(|| {
        Report::plain(format!("invalid UUID {}", subject(text)))
            .help("write a UUID such as 01234567-89ab-cdef-0123-456789abcdef, or random, or clear")
    })
}

/// Parses a UUID like [`uuid`], for a command that also takes volume IDs.
pub fn uuid_or_volume_id(text: &str) -> Result<Option<[u8; 16]>, Report> {
    uuid(text).map_err(|report| report.also("for FAT and exFAT write a volume ID such as 1234-ABCD"))
}

/// Returns whether `text` is a volume ID such as `1234-ABCD`, which FAT and exFAT have instead of a UUID.
pub fn is_volume_id(text: &str) -> bool {
    let digits = text.split_once('-').filter(|(high, low)| high.len() == 4 && low.len() == 4);
    digits.is_some_and(|(high, low)| high.bytes().chain(low.bytes()).all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_given_random_or_clear() {
        assert_eq!(uuid("clear"), Ok(Some([0; 16])));
        assert_eq!(uuid("random"), Ok(None));
        assert_eq!(
            uuid("00000000-0000-0000-0000-00000000000f").map(|uuid| uuid.map(|uuid| uuid[15])),
            Ok(Some(15))
        );
        assert!(uuid("0000000000000000000000000000000f").is_err());
    }
}
