//! Decodes base64, the encoding of bytes in archives and dumps of attributes.
//!
//! Source: RFC 4648, section 4.

/// Decodes `text`. Returns `None` if it is not base64. White space is skipped, and the padding is optional.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::with_capacity(text.len() / 4 * 3), 0_u32, 0);
    let end = text.iter().position(|&letter| letter == b'=').unwrap_or(text.len());
    let (letters, padding) = text.split_at(end);
    if padding.iter().any(|&letter| letter != b'=' && !letter.is_ascii_whitespace()) {
        return None;
    }
    for &letter in letters.iter().filter(|letter| !letter.is_ascii_whitespace()) {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).unwrap_or(0));
        }
    }
    (bits < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn letters_stand_for_bytes_with_or_without_padding() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8", "fo"), ("Zm 9v\nYmFy", "foobar"), ("Zg==\n", "f")]
        {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()), "{text:?}");
        }
        for text in ["Z", "Zg=x", "Z*==", "Zm9vY"] {
            assert_eq!(decode(text.as_bytes()), None, "{text:?}");
        }
    }
}
