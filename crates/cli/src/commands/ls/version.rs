//! The order of `ls -v`: numbers in names compare by value, and suffixes such as `.tar.gz` after the rest.
//!
//! Source: GNU coreutils manual, "Version sort ordering".

use std::cmp::Ordering;

/// Compares two names.
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let by_rank = rank(a).cmp(&rank(b));
    if by_rank != Ordering::Equal || rank(a) < Rank::Hidden {
        return by_rank;
    }
    let (stem_a, stem_b) = (stem(a), stem(b));
    let order = by_parts(stem_a, stem_b);
    let has_endings = stem_a.len() < a.len() || stem_b.len() < b.len();
    if order == Ordering::Equal && has_endings { by_parts(a, b) } else { order }
}

/// The first criterion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Empty,
    Dot,
    DotDot,
    Hidden,
    Other,
}

fn rank(name: &[u8]) -> Rank {
    match name {
        b"" => Rank::Empty,
        b"." => Rank::Dot,
        b".." => Rank::DotDot,
        [b'.', ..] => Rank::Hidden,
        _ => Rank::Other,
    }
}

/// Returns the name without its suffixes: dots followed by a letter or `~`, and then letters, digits and `~`. The first byte is never
/// part of a suffix.
fn stem(name: &[u8]) -> &[u8] {
    let mut end = name.len();
    loop {
        let head = name.get(..end).unwrap_or_default();
        let Some(dot) = head.iter().rposition(|&b| !is_ending(b)).filter(|&dot| dot > 0) else { break };
        let starts = head.get(dot + 1).is_some_and(|&b| b.is_ascii_alphabetic() || b == b'~');
        if head[dot] != b'.' || !starts {
            break;
        }
        end = dot;
    }
    &name[..end]
}

fn is_ending(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'~'
}

/// Compares text and numbers in turns: text by its bytes, numbers by their value.
fn by_parts(mut a: &[u8], mut b: &[u8]) -> Ordering {
    while !(a.is_empty() && b.is_empty()) {
        let (text_a, rest_a) = split(a, |byte| !byte.is_ascii_digit());
        let (text_b, rest_b) = split(b, |byte| !byte.is_ascii_digit());
        let weights = |text: &[u8]| -> Vec<i16> {
            // The end sorts after `~`, and a number before letters.
            text.iter().map(|&byte| weight(byte)).collect()
        };
        let (end_a, end_b) = (end(rest_a), end(rest_b));
        let order =
            weights(text_a).into_iter().chain([end_a]).cmp(weights(text_b).into_iter().chain([end_b]));
        if order != Ordering::Equal {
            return order;
        }
        let (number_a, after_a) = split(rest_a, |byte| byte.is_ascii_digit());
        let (number_b, after_b) = split(rest_b, |byte| byte.is_ascii_digit());
        let (number_a, number_b) = (significant(number_a), significant(number_b));
        let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (after_a, after_b);
    }
    Ordering::Equal
}

fn split(text: &[u8], is_part: fn(u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|&byte| !is_part(byte)).unwrap_or(text.len()))
}

/// Returns the weight of the position after the text: of a number, or of the end of the name.
fn end(rest: &[u8]) -> i16 {
    if rest.is_empty() { -1 } else { 0 }
}

/// Returns the weight of a byte: `~`, the end, digits, letters, everything else.
fn weight(byte: u8) -> i16 {
    match byte {
        b'~' => -2,
        _ if byte.is_ascii_alphabetic() => byte.into(),
        _ => i16::from(byte) + 256,
    }
}

fn significant(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_in_the_coreutils_manual() {
        let sorted = [
            "",
            ".",
            "..",
            ".0",
            ".9",
            ".A",
            ".z",
            "0",
            "9",
            "A",
            "a~",
            "a",
            "a.b~",
            "a.b",
            "a.bc~",
            "a.bc",
            "a1.c",
            "a2.c",
            "a10.c",
            "a+",
            "a_1",
            "foo-2.0.tar.gz",
            "foo-10.tar.gz",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(compare(a.as_bytes(), b.as_bytes()), at.cmp(&other), "{a:?} {b:?}");
            }
        }
        assert_eq!(compare(b"a01", b"a1"), Ordering::Equal);
    }
}
