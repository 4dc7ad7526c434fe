//! Bytes of images as text without control characters.

use std::fmt;

use obento_base::write_escaped;
use obento_driver::Probe;

use crate::partition::Guid;

/// Bytes that print like a [`Name`](obento_base::Name), in the form of [`write_escaped`]. Escape sequences of C replace
/// backslashes, characters that a terminal does not display, and bytes that are not valid UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a [u8]);

/// Wraps `bytes` for printing without characters that a terminal does not display.
pub fn escaped(bytes: &[u8]) -> Escaped<'_> {
    Escaped(bytes)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(self.0, f)
    }
}

/// A path or an argument as the user typed it. Prints like [`Escaped`], but does not escape backslashes: a user who
/// typed `C:\disk.img` recognises the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typed<'a>(pub &'a [u8]);

impl fmt::Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.split(|&byte| byte == b'\\');
        parts.next().map_or(Ok(()), |first| write_escaped(first, f))?;
        parts.try_for_each(|part| {
            f.write_str("\\")?;
            write_escaped(part, f)
        })
    }
}

/// Formats a number of bytes, as in `512 B` and `1.5 MiB`.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let exponent = bytes.ilog2() / 10;
    let unit = UNITS[exponent as usize - 1];
    // A tenth of the unit, rounded. The last unit times ten needs 128 bits.
    let tenths = (u128::from(bytes) * 10 + (1 << (10 * exponent - 1))) >> (10 * exponent);
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        tenth => format!("{}.{tenth} {unit}", tenths / 10),
    }
}

/// Formats the identity of a volume: its UUID, or its serial number as `1234-ABCD` if the format has no UUID.
/// Returns `None` if the volume has neither.
pub fn volume_id_text(uuid: Option<[u8; 16]>, serial: Option<u32>) -> Option<String> {
    let serial = || serial.map(|serial| format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff));
    uuid.map(uuid_text).or_else(serial)
}

/// Returns the text of the identifier of a volume: its UUID, its serial number, or its own text.
pub fn probe_id_text(probe: &Probe) -> Option<String> {
    volume_id_text(probe.uuid, probe.serial).or_else(|| probe.text_id.clone())
}

/// Formats a UUID, as in `2f1d4f9e-0c5f-4e53-9d6b-0c2a7b0f5a11`.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    Guid::from_u128(u128::from_be_bytes(uuid)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_in_the_largest_unit_that_they_fill() {
        let texts = [0, 1023, 1024, 1536, 10 << 20, (1 << 40) + (1 << 39), u64::MAX].map(human_size);
        assert_eq!(texts, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "10 MiB", "1.5 TiB", "16 EiB"]);
    }

    #[test]
    fn bytes_of_an_image_cannot_speak_to_a_terminal() {
        let shown = escaped(b"/a\x1b[2J\xff\\\xc2\x9b/\xc3\xa4").to_string();
        assert_eq!(shown, format!("{}/\u{e4}", r"/a\033[2J\377\\\302\233"));
        assert_eq!(escaped("a\u{202e}b".as_bytes()).to_string(), r"a\342\200\256b");
    }

    #[test]
    fn a_backslash_that_the_user_typed_is_printed_as_typed() {
        assert_eq!(Typed(br"C:\a\\b").to_string(), r"C:\a\\b");
        assert_eq!(Typed(b"\\\x1b[2J\xff\\").to_string(), r"\\033[2J\377\");
    }
}
