//! A component of a path.
//!
//! Invariant: a `Name` has 1 to 1024 bytes, contains neither `/` nor NUL, and is neither `.` nor `..`,
//! since its constructor is the only way to create one. The layers below need no further checks, and a
//! damaged directory cannot refer to its parent.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt::{self, Write as _};
use core::ops::Deref;

use ref_cast::{RefCastCustom, ref_cast_custom};

/// A component of a path: bytes in an unspecified encoding.
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
    /// The name is `.` or `..`, which are path steps and not names.
    #[error("the name is `.` or `..`")]
    Dots,
    /// The name contains a `/` or a NUL.
    #[error("the name holds a `/` or a NUL")]
    Separator,
}

impl Name {
    /// Maximum length in bytes in any layer; most formats allow 255.
    pub const MAX: usize = 1024;

    /// Checks that `bytes` is a valid name.
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

/// Returns whether a terminal displays `c` without any other effect. Returns `false` for control
/// characters, characters that change the direction of text, line separators, and invisible characters.
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        && !matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// Displays the name. Backslashes are doubled; characters that are not [printable](is_printable) and bytes
/// that are not UTF-8 appear as `\xNN`, so that a hostile name cannot control a terminal.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if !is_printable(c) || c == '\\' {
                    let mut utf8 = [0; 4];
                    for b in c.encode_utf8(&mut utf8).bytes() {
                        write!(f, "\\x{b:02x}")?;
                    }
                } else {
                    f.write_char(c)?;
                }
            }
            for b in chunk.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
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
    /// Checks that `bytes` is a valid name.
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
        assert_eq!(name.to_string(), r"a\x1b[2J\xff\x5c\xc2\x9b");
        assert_eq!(Name::new("a\u{202e}b\u{e4}".as_bytes()).unwrap().to_string(), "a\\xe2\\x80\\xaeb\u{e4}");
    }
}
