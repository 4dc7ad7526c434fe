//! Quoting of names for terminals: GNU's quoting styles (gnulib's quotearg, with the names of `ls --quoting-style`).
//!
//! Names are decoded as UTF-8. Bytes that are not UTF-8, and characters that control a terminal or change the direction of text, count
//! as unprintable.

use std::borrow::Cow;

pub use obento::base::is_printable;
use obento::base::is_printable_after;
use unicode_width::UnicodeWidthChar;

/// A way to write a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameStyle {
    /// The unchanged bytes (`ls -N`, and the default if the output is not a terminal).
    Literal,
    /// `?` for unprintable characters (`ls -q`).
    Question,
    /// C escapes and `\ ` for a space (`ls -b`).
    Escape,
    /// C escapes between double quotes (`ls -Q`).
    C,
    /// Quotes of a shell if needed, and `$'\n'` for unprintable characters (the default on a terminal).
    Shell,
    /// C escapes, for names between quotes in a message.
    Backslash,
}

/// Returns `name` in `style`; borrowed if nothing changes.
pub fn escape(name: &[u8], style: NameStyle) -> Cow<'_, [u8]> {
    match style {
        NameStyle::Literal => Cow::Borrowed(name),
        _ if is_plain(name) && style != NameStyle::C => Cow::Borrowed(name),
        NameStyle::Question => rewrite(name, |out, piece| match piece {
            Piece::Char(c) if is_printable(c) => push(out, c),
            _ => out.push(b'?'),
        }),
        NameStyle::Escape => rewrite(name, |out, piece| match piece {
            Piece::Char(' ') => out.extend_from_slice(b"\\ "),
            Piece::Char(c) if is_printable(c) && c != '\\' => push(out, c),
            piece => backslash(out, piece),
        }),
        NameStyle::Backslash => rewrite(name, |out, piece| match piece {
            Piece::Char(c) if is_printable(c) && c != '\\' => push(out, c),
            piece => backslash(out, piece),
        }),
        NameStyle::C => Cow::Owned(in_double_quotes(name)),
        NameStyle::Shell => shell(name),
    }
}

/// Returns the columns that `text`, which is escaped, takes on a terminal.
pub fn width(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.iter().filter(|byte| !byte.is_ascii_control()).count();
    }
    let chunks = text.utf8_chunks();
    chunks.map(|c| c.valid().chars().map(|c| c.width().unwrap_or(0)).sum::<usize>() + c.invalid().len()).sum()
}

/// Returns whether no style but C changes the bytes: the fast path for nearly every name.
fn is_plain(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|b| {
            b.is_ascii_alphanumeric()
                || matches!(b, b'_' | b'-' | b'.' | b'+' | b'/' | b'@' | b'%' | b',' | b':')
        })
}

#[derive(Clone, Copy)]
enum Piece {
    Char(char),
    Byte(u8),
}

fn pieces(name: &[u8]) -> impl Iterator<Item = Piece> {
    let mut before = None;
    name.utf8_chunks().flat_map(move |chunk| {
        let mut pieces = Vec::with_capacity(chunk.valid().len() + chunk.invalid().len());
        for c in chunk.valid().chars() {
            if is_printable(c) && !is_printable_after(before, c) {
                // A combining mark over a character that is not part of the name is shown as bytes.
                pieces.extend(c.encode_utf8(&mut [0; 4]).bytes().map(Piece::Byte));
            } else {
                pieces.push(Piece::Char(c));
            }
            before = Some(c);
        }
        pieces.extend(chunk.invalid().iter().map(|&byte| Piece::Byte(byte)));
        before = before.filter(|_| chunk.invalid().is_empty());
        pieces
    })
}

fn rewrite(name: &[u8], each: impl Fn(&mut Vec<u8>, Piece)) -> Cow<'_, [u8]> {
    let mut out = Vec::with_capacity(name.len() + 8);
    pieces(name).for_each(|piece| each(&mut out, piece));
    Cow::Owned(out)
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Writes a letter if C has one, and otherwise three octal digits per byte.
fn backslash(out: &mut Vec<u8>, piece: Piece) {
    let letter = match piece {
        Piece::Char('\x07') => b'a',
        Piece::Char('\x08') => b'b',
        Piece::Char('\x0c') => b'f',
        Piece::Char('\n') => b'n',
        Piece::Char('\r') => b'r',
        Piece::Char('\t') => b't',
        Piece::Char('\x0b') => b'v',
        Piece::Char(c) if c.is_ascii() && !c.is_control() => c as u8,
        Piece::Char(c) => return c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| octal(out, b)),
        Piece::Byte(b) => return octal(out, b),
    };
    out.extend_from_slice(&[b'\\', letter]);
}

fn octal(out: &mut Vec<u8>, b: u8) {
    out.extend_from_slice(&[b'\\', b'0' + (b >> 6), b'0' + (b >> 3 & 7), b'0' + (b & 7)]);
}

fn in_double_quotes(name: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for piece in pieces(name) {
        match piece {
            Piece::Char(c) if is_printable(c) && c != '\\' && c != '"' => push(&mut out, c),
            piece => backslash(&mut out, piece),
        }
    }
    out.push(b'"');
    out
}

/// gnulib's `shell_escape_quoting_style`.
fn shell(name: &[u8]) -> Cow<'_, [u8]> {
    let all = || pieces(name).enumerate();
    let needs = all().any(|(at, piece)| match piece {
        Piece::Char('#' | '~') => at == 0,
        Piece::Char('{' | '}') => name.len() == 1,
        Piece::Char(c) => !is_printable(c) || " !\"$&()*;<=>?[\\^`|'".contains(c),
        Piece::Byte(_) => true,
    });
    if !needs && !name.is_empty() {
        return Cow::Borrowed(name);
    }
    Cow::Owned(shell_always(name))
}

/// Returns `name` in [`NameStyle::Shell`], always with quotes.
pub fn shell_always(name: &[u8]) -> Vec<u8> {
    let all = || pieces(name).enumerate();
    let fits_double_quotes = all().all(|(at, piece)| match piece {
        Piece::Char('#' | '~') => at == 0,
        Piece::Char(c) => is_printable(c) && !"!\"$&()*;<=>?[\\^`|{}".contains(c),
        Piece::Byte(_) => false,
    });
    if name.contains(&b'\'') && fits_double_quotes {
        return in_double_quotes(name);
    }
    let mut out = vec![b'\''];
    let mut in_dollar = false;
    for piece in pieces(name) {
        let printable = matches!(piece, Piece::Char(c) if is_printable(c));
        match (printable, in_dollar) {
            (false, false) => out.extend_from_slice(b"'$'"),
            (true, true) => out.extend_from_slice(b"''"),
            _ => {}
        }
        in_dollar = !printable;
        match piece {
            Piece::Char('\'') => out.extend_from_slice(b"'\\''"),
            Piece::Char(c) if printable => push(&mut out, c),
            piece => backslash(&mut out, piece),
        }
    }
    out.push(b'\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(style: NameStyle, name: &[u8], expected: &str) {
        assert_eq!(String::from_utf8_lossy(&escape(name, style)), expected, "{style:?}");
    }

    #[test]
    fn a_shell_reads_back_the_names_in_the_shell_style() {
        for (name, expected) in [
            (&b"plain-1.txt"[..], "plain-1.txt"),
            (b"with space", "'with space'"),
            (b"it's", "\"it's\""),
            (b"it's $", "'it'\\''s $'"),
            (b"new\nline", "'new'$'\\n''line'"),
            (b"\x1b[2J", "''$'\\033''[2J'"),
            (b"end\xff", "'end'$'\\377'"),
            (b"a\xff\xfeb", "'a'$'\\377\\376''b'"),
            (b"~x", "'~x'"),
            (b"x~", "x~"),
            (b"back\\slash", "'back\\slash'"),
            ("grüße".as_bytes(), "grüße"),
        ] {
            check(NameStyle::Shell, name, expected);
        }
    }

    #[test]
    fn the_other_styles_are_those_of_ls() {
        check(NameStyle::Question, b"a\nb\xffc", "a?b?c");
        check(NameStyle::Escape, b"a b\n\\\x01", "a\\ b\\n\\\\\\001");
        check(NameStyle::C, b"a \"b\"\t", "\"a \\\"b\\\"\\t\"");
        check(NameStyle::C, b"plain", "\"plain\"");
        check(NameStyle::Literal, b"a\nb", "a\nb");
    }

    #[test]
    fn a_name_cannot_change_the_direction_of_text() {
        check(NameStyle::Backslash, "a\u{202e}gpj.exe".as_bytes(), "a\\342\\200\\256gpj.exe");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(width("日本".as_bytes()), 4);
        assert_eq!(width(b"abc"), 3);
    }
}
