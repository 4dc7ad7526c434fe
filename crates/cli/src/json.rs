//! Machine-readable output: one object per line, each with its schema and kind.
//!
//! Invariant: a line contains no character that controls a terminal; JSON has an escape for each.
//! Invariant: bytes are lossless. A string that is not UTF-8 is written readably under its own key, and exactly, in
//! hexadecimal, under the key with `_hex` appended. docs/json.md describes the schema.

use std::io::{self, Write};

use obento::Volume;
use obento::base::{Attr, Timestamp};
use obento::driver::StatFs;
use obento::text::probe_id_text;
use obento::volume::Owners;
use serde::Serialize;

use crate::escape::is_printable;
use crate::format::mode::kind_word;
use crate::format::time::{Clock, TimeStyle};

/// The version of the schema. It changes when a field is removed or changes its meaning, not when a field is added.
pub const SCHEMA: &str = "obento/1";

/// One object on one line.
pub struct Line {
    text: Vec<u8>,
}

impl Line {
    /// Starts an object of `kind`: `entry`, `volume`, ...
    pub fn new(kind: &str) -> Self {
        let text = format!("{{\"schema\":\"{SCHEMA}\",\"kind\":\"{kind}\"");
        Self { text: text.into_bytes() }
    }

    /// Adds a field. `None` writes `null`.
    #[must_use]
    pub fn field(mut self, key: &str, value: impl Serialize) -> Self {
        self.key(key);
        let start = self.text.len();
        // Numbers, strings and lists of them cannot fail to serialise, and writing to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut self.text, &value);
        if self.text[start..].iter().any(|b| *b >= 0x7f) {
            // Outside of strings JSON is ASCII, so an escape can only be needed inside a string.
            let value = self.text.split_off(start);
            self.text.extend_from_slice(escaped(&String::from_utf8_lossy(&value)).as_bytes());
        }
        self
    }

    /// Adds a string of bytes, exactly.
    #[must_use]
    pub fn bytes(mut self, key: &str, bytes: &[u8]) -> Self {
        self.key(key);
        self.string(&String::from_utf8_lossy(bytes));
        match std::str::from_utf8(bytes) {
            Ok(_) => self,
            Err(_) => self.field(&format!("{key}_hex"), hex(bytes)),
        }
    }

    /// Adds the attributes of an inode.
    #[must_use]
    pub fn attr(self, attr: &Attr, owners: &Owners) -> Self {
        let mut line = self
            .field("ino", attr.ino.0)
            .field("generation", attr.generation.0)
            .field("type", kind_word(attr.kind))
            .field("mode", format_args!("{:04o}", attr.mode.bits()))
            .field("nlink", attr.nlink)
            .field("uid", attr.uid)
            .field("gid", attr.gid);
        if let Some(user) = owners.user(attr.uid) {
            line = line.bytes("user", user);
        }
        if let Some(group) = owners.group(attr.gid) {
            line = line.bytes("group", group);
        }
        if attr.kind.is_device() {
            line = line.field("major", attr.rdev.major).field("minor", attr.rdev.minor);
        }
        line = line.field("size", attr.size).field("bytes_allocated", attr.blocks.saturating_mul(512));
        line = line.time("atime", attr.atime).time("mtime", attr.mtime).time("ctime", attr.ctime);
        if let Some(btime) = attr.btime {
            line = line.time("btime", btime);
        }
        let flags: Vec<String> = attr.flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
        line.field("flags", flags)
    }

    /// Adds the identity and the use of a volume.
    #[must_use]
    pub fn volume(self, volume: &Volume, usage: &StatFs) -> Self {
        let probe = volume.info().probe;
        self.field("type", probe.fs_type)
            .bytes("label", &probe.label)
            .field("uuid", probe_id_text(&probe))
            .field("block_size", usage.block_size)
            .field("blocks", usage.blocks)
            .field("blocks_free", usage.free)
            .field("blocks_available", usage.available)
            .field("inodes", usage.inodes)
            .field("inodes_free", usage.free_inodes)
    }

    /// Adds a time: ISO 8601 in UTC, with nanoseconds.
    #[must_use]
    pub fn time(self, key: &str, time: Timestamp) -> Self {
        let mut clock = Clock::new(jiff::tz::TimeZone::UTC, Timestamp::EPOCH);
        let text = clock.text(&TimeStyle::FullIso, time);
        self.field(key, text.trim_end_matches(" +0000").replacen(' ', "T", 1) + "Z")
    }

    /// Ends the object and writes its line.
    pub fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        self.text.extend_from_slice(b"}\n");
        out.write_all(&self.text)
    }

    fn string(&mut self, text: &str) {
        self.text.push(b'"');
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                self.text.push(b'\\');
            }
            push(&mut self.text, c);
        }
        self.text.push(b'"');
    }

    fn key(&mut self, key: &str) {
        self.text.extend_from_slice(b",\"");
        self.text.extend_from_slice(key.as_bytes());
        self.text.extend_from_slice(b"\":");
    }
}

/// Returns a document in JSON with escapes for the characters that control a terminal, without those between its lines.
pub fn escaped(json: &str) -> String {
    let mut text = Vec::with_capacity(json.len());
    json.chars().for_each(|c| if c == '\n' { text.push(b'\n') } else { push(&mut text, c) });
    String::from_utf8(text).unwrap_or_default()
}

/// Adds a character, or its escape if the character controls a terminal.
fn push(text: &mut Vec<u8>, c: char) {
    if is_printable(c) {
        return text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    for unit in c.encode_utf16(&mut [0; 2]) {
        text.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
    }
}

/// Returns lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| char::from(DIGITS[usize::from(d)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_controls_no_terminal_and_keeps_its_lines_and_values() {
        let text = "\u{9b}31m\u{202e}\u{200b}\u{1f600}";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let safe = escaped(&json);
        assert_eq!(safe, "[\n  \"\\u009b31m\\u202e\\u200b\u{1f600}\"\n]");
        assert_eq!(serde_json::from_str::<Vec<String>>(&safe).unwrap(), [text]);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_written_exactly() {
        let mut out = Vec::new();
        let line =
            Line::new("entry").bytes("name", b"a\xff\"").field("size", 3).field("target", None::<&str>);
        line.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"schema\":\"obento/1\",\"kind\":\"entry\",\"name\":\"a\u{fffd}\\\"\",\"name_hex\":\"61ff22\",\"size\":3,\"target\":null}\n"
        );
    }

    #[test]
    fn a_name_reads_back_and_cannot_control_a_terminal() {
        let name = "a\u{9b}2J\u{1b}\u{202e}\u{e0041}\\\"ü";
        let mut out = Vec::new();
        let line = Line::new("entry").bytes("name", name.as_bytes()).field("again", [name]);
        line.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.trim_end().chars().all(is_printable));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["name"], name);
        assert_eq!(value["again"][0], name);
    }
}
