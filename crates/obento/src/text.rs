//! Bytes of images as text that cannot speak to a terminal.

use std::fmt::{self, Write as _};

/// Bytes that print with control characters, backslashes and what is not UTF-8 as `\xNN`, as
/// [`Name`](obento_base::Name) prints.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a [u8]);

/// Wraps `bytes` for printing.
pub fn escaped(bytes: &[u8]) -> Escaped<'_> {
    Escaped(bytes)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
                } else {
                    f.write_char(c)?;
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}
