//! The PART of `IMAGE@PART`, which selects a file system of an image.

use std::fmt;

use super::AddressError;
use crate::text::escaped;

/// The selection of one file system of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartSelector {
    /// The partition with this number, from 1.
    Number(u32),
    /// The partition with this GPT name.
    Name(Vec<u8>),
    /// The partition whose file system has this label.
    Label(Vec<u8>),
    /// The partition with this UUID, or the partition whose file system has this UUID. The UUID consists of
    /// hexadecimal digits and `-`, in lower case.
    Uuid(String),
    /// The file system that starts at this byte. The partition table is not used.
    Offset(u64),
    /// The partition with this GPT name, file system label or UUID.
    Any(Vec<u8>),
}

impl PartSelector {
    /// Parses the text after the `@`.
    pub fn parse(text: &[u8]) -> Result<Self, AddressError> {
        let wrong = |why| AddressError::Part { part: escaped(text).to_string(), why };
        if text.is_empty() {
            return Err(wrong("a partition must follow: a number, a name, or +OFFSET in bytes"));
        }
        if let Some(offset) = text.strip_prefix(b"+") {
            return parse_size(offset).map(Self::Offset).ok_or_else(|| {
                wrong("an offset is a number of bytes, with K, M, G or T for powers of 1024: +1048576 or +1M")
            });
        }
        if text.iter().all(u8::is_ascii_digit) {
            return match parse_size(text).and_then(|number| u32::try_from(number).ok()) {
                Some(number) if number > 0 => Ok(Self::Number(number)),
                Some(_) => {
                    Err(wrong("partition numbers start at 1; write '@+0' for a volume at the first byte"))
                }
                None => Err(wrong("the number is too large; write +OFFSET for an offset in bytes")),
            };
        }
        let (key, value) = match text.iter().position(|&byte| byte == b'=') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (&b""[..], text),
        };
        let decoded = |value| {
            percent_decode(value).ok_or_else(|| {
                wrong(
                    "'%' must be followed by two hexadecimal digits: '%25' is '%', \
                     '%40' is '@', '%3a' is ':', '%2f' is '/'",
                )
            })
        };
        match key {
            b"name" => Ok(Self::Name(decoded(value)?)),
            b"label" => Ok(Self::Label(decoded(value)?)),
            b"uuid" => parse_uuid(&decoded(value)?)
                .map(Self::Uuid)
                .ok_or_else(|| wrong("a UUID consists of hexadecimal digits and '-'")),
            _ => Ok(Self::Any(decoded(text)?)),
        }
    }
}

/// Parses a number of bytes: decimal, or hexadecimal after `0x`, with K, M, G or T for powers of 1024.
fn parse_size(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+'));
    }
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(digits) => (digits, 10 * (1 + "KMGT".find(text.chars().last()?)?)),
        None => (text, 0),
    };
    let number: u64 = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
    number.checked_mul(1 << shift)
}

pub(super) fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    Some(decoded)
}

fn parse_uuid(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let is_uuid = !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_uuid.then(|| text.to_ascii_lowercase())
}

/// Prints the part as it is written after the `@`.
impl fmt::Display for PartSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = match self {
            Self::Number(number) => return write!(f, "{number}"),
            Self::Offset(offset) => return write!(f, "+{offset}"),
            Self::Uuid(uuid) => return write!(f, "uuid={uuid}"),
            Self::Name(name) => ("name=", name),
            Self::Label(label) => ("label=", label),
            Self::Any(any) => ("", any),
        };
        f.write_str(key)?;
        for chunk in value.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '@' | ':' | '/' | '%' => write!(f, "%{:02x}", u32::from(c))?,
                    c if c.is_control() => write!(
                        f,
                        "{}",
                        c.to_string().bytes().map(|b| format!("%{b:02x}")).collect::<String>()
                    )?,
                    c => write!(f, "{c}")?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "%{byte:02x}"))?;
        }
        Ok(())
    }
}
