//! A component of a path: see [`Name`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt::{self, Write as _};
use core::ops::Deref;

use ref_cast::{RefCastCustom, ref_cast_custom};

use tables::{HIDDEN, MARKS};

mod tables;

/// A component of a path: bytes in any encoding.
///
/// Invariant: a `Name` has 1 to 1024 bytes, contains neither `/` nor NUL, and is neither `.` nor `..`.
/// Every function that creates a `Name` checks the bytes with [`Name::new`]. Lower layers therefore need no
/// further checks, and an entry of a damaged directory cannot be named `..`.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, RefCastCustom)]
#[repr(transparent)]
pub struct Name([u8]);

/// The reason why bytes are not a [`Name`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name has more than [`Name::MAX`] bytes.
    #[error("the name has more than {} bytes", Name::MAX)]
    TooLong,
    /// The name is `.` or `..`, which have a special meaning in paths.
    #[error("the name is `.` or `..`")]
    Dots,
    /// The name contains a `/` or a NUL.
    #[error("the name contains a `/` or a NUL")]
    Separator,
}

impl Name {
    /// Maximum length in bytes in any layer; most formats allow 255.
    pub const MAX: usize = 1024;

    /// Returns `bytes` as a name.
    ///
    /// # Errors
    ///
    /// 1. `Empty`: `bytes` is empty.
    /// 2. `Dots`: `bytes` is `.` or `..`.
    /// 3. `TooLong`: `bytes` is longer than [`Name::MAX`].
    /// 4. `Separator`: `bytes` contains a `/` or a NUL.
    pub fn new(bytes: &[u8]) -> Result<&Self, NameError> {
        match bytes {
            [] => Err(NameError::Empty),
            b"." | b".." => Err(NameError::Dots),
            _ if bytes.len() > Self::MAX => Err(NameError::TooLong),
            _ if bytes.iter().any(|&b| b == b'/' || b == 0) => Err(NameError::Separator),
            _ => Ok(Self::wrap(bytes)),
        }
    }

    #[ref_cast_custom]
    fn wrap(bytes: &[u8]) -> &Self;

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns an owned copy.
    pub fn to_buf(&self) -> NameBuf {
        NameBuf(self.0.into())
    }
}

/// Returns whether a terminal displays `c` as a visible character. Returns `false` for control characters, characters
/// that change the direction of text, line separators, characters without width, and unassigned characters.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() { !c.is_ascii_control() } else { !is_in(&HIDDEN, c) }
}

/// Returns whether a terminal displays `c` within its own text. `before` is the preceding character of that text, or
/// `None` at its start. A terminal draws a combining mark over the preceding character. The function therefore returns
/// `false` for a mark at the start of a text, after `/`, and after a character that is not printable.
pub fn is_printable_after(before: Option<char>, c: char) -> bool {
    let carries = |before: char| before != '/' && is_printable(before);
    is_printable(c) && (c.is_ascii() || !is_in(&MARKS, c) || before.is_some_and(carries))
}

fn is_in(table: &[(u32, u32)], c: char) -> bool {
    let place = table.binary_search_by(|&(first, last)| {
        if last < u32::from(c) {
            Ordering::Less
        } else if first > u32::from(c) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    });
    place.is_ok()
}

/// Writes `bytes` so that they cannot control a terminal. The function writes escape sequences of C for backslashes,
/// for characters that are not [printable](is_printable_after), and for bytes that are not UTF-8. An escape sequence is
/// a letter, as in `\n`, if C defines a letter. Otherwise, it is three octal digits for each byte.
pub fn write_escaped(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        let mut before = None;
        for c in chunk.valid().chars() {
            match letter(c) {
                Some(letter) => write!(f, "\\{letter}")?,
                None if is_printable_after(before, c) => f.write_char(c)?,
                None => c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(f, "\\{byte:03o}"))?,
            }
            before = Some(c);
        }
        chunk.invalid().iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))?;
    }
    Ok(())
}

/// Returns the letter of the escape sequence of C for `c`, if C has one.
fn letter(c: char) -> Option<char> {
    Some(match c {
        '\\' => '\\',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        _ => return None,
    })
}

/// Displays the name as [`write_escaped`] writes it.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(&self.0, f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// An owned [`Name`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameBuf(Box<[u8]>);

impl NameBuf {
    /// Returns `bytes` as an owned name. Fails as [`Name::new`] does.
    pub fn new(bytes: Vec<u8>) -> Result<Self, NameError> {
        Name::new(&bytes)?;
        Ok(Self(bytes.into()))
    }
}

impl Deref for NameBuf {
    type Target = Name;
    fn deref(&self) -> &Name {
        Name::wrap(&self.0)
    }
}

impl Borrow<Name> for NameBuf {
    fn borrow(&self) -> &Name {
        self
    }
}

impl fmt::Display for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn a_name_is_neither_empty_nor_dots_nor_a_path() {
        assert_eq!(Name::new(b""), Err(NameError::Empty));
        assert_eq!(Name::new(b"."), Err(NameError::Dots));
        assert_eq!(Name::new(b".."), Err(NameError::Dots));
        assert_eq!(Name::new(b"a/b"), Err(NameError::Separator));
        assert_eq!(Name::new(b"a\0"), Err(NameError::Separator));
        assert_eq!(Name::new(&[b'a'; 1025]), Err(NameError::TooLong));
        assert!(Name::new(&[b'a'; 1024]).is_ok());
        assert!(Name::new(b"...").is_ok());
    }

    #[test]
    fn a_hostile_name_prints_without_control_characters() {
        let name = Name::new(b"a\x1b[2J\xff\\\xc2\x9b").unwrap();
        assert_eq!(name.to_string(), r"a\033[2J\377\\\302\233");
        assert_eq!(Name::new("a\u{202e}b\u{e4}".as_bytes()).unwrap().to_string(), "a\\342\\200\\256b\u{e4}");
    }

    #[test]
    fn characters_that_a_terminal_does_not_show_are_escaped() {
        let shown = |text: &str| Name::new(text.as_bytes()).unwrap().to_string();
        let hidden = [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{fff9}',
            '\u{fffe}',
            '\u{378}',
            '\u{1d173}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{10ffff}',
        ];
        for c in hidden {
            assert!(!is_printable(c), "{c:?}");
            assert!(shown(&format!("a{c}b")).is_ascii(), "{c:?}");
        }
        let letters = "z\u{e4}\u{3b1}\u{5d0}\u{6dd}\u{4e2d}\u{1f600}\u{fffd}";
        assert_eq!(shown(letters), letters);
    }

    #[test]
    fn a_combining_mark_is_shown_only_over_a_character_of_its_own_name() {
        let shown = |text: &str| Name::new(text.as_bytes()).unwrap().to_string();
        assert_eq!(shown("e\u{301}\u{302}"), "e\u{301}\u{302}");
        assert_eq!(shown("\u{301}e"), r"\314\201e");
        assert_eq!(shown("\u{200b}\u{301}"), r"\342\200\213\314\201");
        assert!(!is_printable_after(Some('/'), '\u{301}'));
    }
}
