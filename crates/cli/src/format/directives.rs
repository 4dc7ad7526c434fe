//! Formats with `%` directives of `stat -c` and `stat --printf`: flags, width and precision as in
//! printf(3).

use std::collections::BTreeSet;

use obento::base::Timestamp;

use crate::parse::escape::{control, digits};

/// A parsed format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectiveFormat(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Vec<u8>),
    Directive(Directive),
}

/// `%-8.3Hx`: the modifiers between the percent sign and the letter, and the letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Directive {
    /// The letter.
    pub letter: u8,
    /// `H` or `L` before the letter, for the halves of a device number.
    pub half: Option<u8>,
    left: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<Precision>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Precision {
    /// A dot without a number: as many digits as exist.
    Full,
    Digits(usize),
}

/// The value of a directive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Text(Vec<u8>),
    Number(u64),
    Octal(u64),
    Hex(u64),
    /// Seconds since 1970, with a fraction if a precision asks for it.
    Seconds(Timestamp),
}

/// Larger widths are a mistake and would exhaust the memory.
const MAX_WIDTH: usize = 4096;

/// Whether `
/// ` and similar sequences are escapes (`--printf`) or literal text (`-c`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Escapes {
    Interpret,
    Keep,
}

impl DirectiveFormat {
    /// Parses `text`. A format that ends within a directive is an error.
    pub fn parse(text: &[u8], escapes: Escapes) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&first, tail)) = rest.split_first() {
            match first {
                b'%' if tail.is_empty() || tail[0] == b'%' => {
                    plain.push(b'%');
                    rest = tail.get(1..).unwrap_or_default();
                }
                b'%' => {
                    let (directive, tail) = Directive::parse(tail)
                        .ok_or_else(|| format!("'{}' is not a directive", String::from_utf8_lossy(rest)))?;
                    parts.extend([Part::Text(std::mem::take(&mut plain)), Part::Directive(directive)]);
                    rest = tail;
                }
                b'\\' if escapes == Escapes::Interpret => rest = unescape(tail, &mut plain),
                other => {
                    plain.push(other);
                    rest = tail;
                }
            }
        }
        parts.push(Part::Text(plain));
        Ok(Self(parts))
    }

    /// Returns the letters of directives that are not among `known`, each once.
    pub fn unknown(&self, known: &[u8]) -> BTreeSet<char> {
        let letter = |part: &Part| match part {
            Part::Directive(directive) => Some(directive.letter),
            Part::Text(_) => None,
        };
        self.0.iter().filter_map(letter).filter(|letter| !known.contains(letter)).map(char::from).collect()
    }

    /// Adds the text to `out`, with each directive's value from `value`; `None` shows `?`.
    pub fn write(&self, out: &mut Vec<u8>, mut value: impl FnMut(&Directive) -> Option<Value>) {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Directive(directive) => match value(directive) {
                    Some(value) => directive.write(out, value),
                    None => out.push(b'?'),
                },
            }
        }
    }
}

impl Directive {
    fn parse(mut text: &[u8]) -> Option<(Self, &[u8])> {
        let mut directive = Self::default();
        while let Some((flag @ (b'-' | b'0' | b'#' | b'+' | b' ' | b'\'' | b'I'), tail)) = text.split_first()
        {
            match flag {
                b'-' => directive.left = true,
                b'0' => directive.zero = true,
                b'#' => directive.alternate = true,
                // No value is signed, and obento groups no digits.
                _ => {}
            }
            text = tail;
        }
        (directive.width, text) = number(text);
        if let Some((b'.', tail)) = text.split_first() {
            let (digits, after) = number(tail);
            let full = after.len() == tail.len();
            directive.precision = Some(if full { Precision::Full } else { Precision::Digits(digits) });
            text = after;
        }
        if let [half @ (b'H' | b'L'), b'd' | b'r', ..] = text {
            directive.half = Some(*half);
            text = &text[1..];
        }
        let (&letter, tail) = text.split_first()?;
        directive.letter = letter;
        Some((directive, tail))
    }

    fn write(&self, out: &mut Vec<u8>, value: Value) {
        let (prefix, text) = match value {
            Value::Text(mut text) => {
                if let Some(Precision::Digits(most)) = self.precision {
                    text.truncate(most);
                }
                // Only numbers are padded with zeros.
                return Self { zero: false, ..*self }.pad(out, b"", &text);
            }
            Value::Number(n) => ("", self.digits(n.to_string())),
            Value::Octal(n) => {
                (if self.alternate && n != 0 { "0" } else { "" }, self.digits(format!("{n:o}")))
            }
            Value::Hex(n) => {
                (if self.alternate && n != 0 { "0x" } else { "" }, self.digits(format!("{n:x}")))
            }
            Value::Seconds(time) => ("", self.seconds(time)),
        };
        self.pad(out, prefix.as_bytes(), text.as_bytes());
    }

    fn digits(&self, digits: String) -> String {
        match self.precision {
            Some(Precision::Digits(least)) => format!("{digits:0>least$}"),
            _ => digits,
        }
    }

    /// Writes seconds before 1970 with their fraction as a negative decimal number.
    fn seconds(&self, time: Timestamp) -> String {
        let digits = match self.precision {
            None | Some(Precision::Digits(0)) => return time.secs().to_string(),
            Some(Precision::Full) => 9,
            Some(Precision::Digits(n)) => n,
        };
        let (sign, secs, nanos) = match (time.secs(), time.nanos()) {
            (secs @ ..0, 0) => ("-", secs.unsigned_abs(), 0),
            (secs @ ..0, nanos) => ("-", secs.unsigned_abs() - 1, 1_000_000_000 - nanos),
            (secs, nanos) => ("", secs.unsigned_abs(), nanos),
        };
        let mut fraction = format!("{nanos:09}");
        fraction.truncate(digits);
        format!("{sign}{secs}.{fraction:0<digits$}")
    }

    fn pad(&self, out: &mut Vec<u8>, prefix: &[u8], text: &[u8]) {
        let missing = self.width.saturating_sub(prefix.len() + text.len());
        let fill = |out: &mut Vec<u8>, b: u8| out.resize(out.len() + missing, b);
        if !self.left && !self.zero {
            fill(out, b' ');
        }
        out.extend_from_slice(prefix);
        if !self.left && self.zero {
            fill(out, b'0');
        }
        out.extend_from_slice(text);
        if self.left {
            fill(out, b' ');
        }
    }
}

fn number(text: &[u8]) -> (usize, &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let value = text[..end].iter().fold(0_usize, |n, b| (n * 10 + usize::from(b - b'0')).min(MAX_WIDTH));
    (value, &text[end..])
}

/// Decodes the escape after a backslash, appends its character to `out`, and returns the remaining text.
fn unescape<'t>(text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    let mut rest = text;
    if let Some(value) = digits(&mut rest, 3, 8) {
        out.push(value);
        return rest;
    }
    match rest.split_off_first() {
        None => out.push(b'\\'),
        Some(b'x') => match digits(&mut rest, 2, 16) {
            Some(value) => out.push(value),
            None => out.extend_from_slice(b"\\x"),
        },
        Some(&byte @ (b'\\' | b'"')) => out.push(byte),
        Some(&byte) => match control(byte) {
            Some(control) => out.push(control),
            None => out.extend_from_slice(&[b'\\', byte]),
        },
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(format: &str, escapes: Escapes, value: Value) -> String {
        let mut out = Vec::new();
        DirectiveFormat::parse(format.as_bytes(), escapes).unwrap().write(&mut out, |_| Some(value.clone()));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_and_texts_take_flags_width_and_precision() {
        let keep = Escapes::Keep;
        assert_eq!(show("[%5s|%-5s|%05s]", keep, Value::Number(42)), "[   42|42   |00042]");
        assert_eq!(show("%04a %#a", keep, Value::Octal(0o644)), "0644 0644");
        assert_eq!(show("%#f", keep, Value::Hex(0x81a4)), "0x81a4");
        assert_eq!(show("[%6.2U]", keep, Value::Text(b"root".to_vec())), "[    ro]");
    }

    #[test]
    fn seconds_have_as_many_digits_as_asked() {
        let time = Value::Seconds(Timestamp::new(12, 345_678_901));
        assert_eq!(show("%X %.3X %.X %.12X", Escapes::Keep, time), "12 12.345 12.345678901 12.345678901000");
        let before = Value::Seconds(Timestamp::new(-2, 750_000_000));
        assert_eq!(show("%X %.2X", Escapes::Keep, before), "-2 -1.25");
    }

    #[test]
    fn escapes_are_for_printf_alone() {
        assert_eq!(show(r"%%\t\101\x41\\\q", Escapes::Interpret, Value::Number(0)), "%\tAA\\\\q");
        assert_eq!(show(r"\n%", Escapes::Keep, Value::Number(0)), r"\n%");
    }

    #[test]
    fn a_format_that_ends_within_a_directive_is_refused() {
        assert!(DirectiveFormat::parse(b"%10", Escapes::Keep).is_err());
        assert!(DirectiveFormat::parse(b"%99999999999999999999s", Escapes::Keep).is_ok());
    }

    #[test]
    fn halves_of_a_device_number_have_their_letter() {
        let format = DirectiveFormat::parse(b"%Hr,%Lr %L", Escapes::Keep).unwrap();
        let mut out = Vec::new();
        format.write(&mut out, |d| match (d.half, d.letter) {
            (Some(b'H'), b'r') => Some(Value::Number(8)),
            (Some(b'L'), b'r') => Some(Value::Number(1)),
            _ => None,
        });
        assert_eq!(out, b"8,1 ?");
    }
}
