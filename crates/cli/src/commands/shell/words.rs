//! Lines of the shell as commands and words, quoted as in sh.
//!
//! `'...'` is literal, `\` takes away the meaning of one character, also within `"..."`; `$'...'` holds the escapes with
//! which names are shown. `;`, `&&` and `||` stand between commands, `#` begins a comment. There are no variables, and
//! patterns are left to the commands, which expand them in the image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use obento::base::is_printable;

use crate::cause::Cause;
use crate::parse::escape::{control, digits};

/// A command, and the condition for running it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    pub when: RunCondition,
    pub words: Vec<OsString>,
}

/// When a command runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunCondition {
    Always,
    /// If the previous command succeeded.
    AfterSuccess,
    /// If the previous command failed.
    AfterFailure,
}

/// The reason why a line is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadLine {
    #[error("missing closing quote")]
    OpenQuote,
    #[error("missing command")]
    Nothing,
    #[error("pipes, redirections and background jobs are not supported")]
    Pipe,
}

impl Cause for BadLine {}

/// The end of a line that is being typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfinished {
    /// The words of the last command before the last word.
    pub words: Vec<OsString>,
    /// The last word so far, without its quotes; empty if it has not started.
    pub word: Vec<u8>,
    /// The offset at which the word starts.
    pub start: usize,
}

/// Returns the end of `line`, in an open quote or not; `None` in a comment.
pub fn unfinished(line: &[u8]) -> Option<Unfinished> {
    let mut lexer = Lexer::new(line);
    let mut start = 0;
    while let Some(byte) = lexer.next() {
        if lexer.word.is_none() {
            start = line.len() - lexer.rest.len() - 1;
            if byte == b'#' {
                return None;
            }
        }
        match lexer.take(byte) {
            // An open quote extends to the end of the line.
            Ok(()) | Err(BadLine::OpenQuote) => {}
            Err(BadLine::Nothing | BadLine::Pipe) => return None,
        }
    }
    let start = if lexer.word.is_some() { start } else { line.len() };
    Some(Unfinished { words: lexer.words, word: lexer.word.unwrap_or_default(), start })
}

/// Returns `name` as a word, each character quoted on its own, so that a prefix of the name is a prefix of the word. Control characters
/// become escapes.
pub fn quoted(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if !is_printable(c) => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| octal(&mut out, b)),
                c if !c.is_ascii() || c.is_ascii_alphanumeric() || "_-.+/@%,:=".contains(c) => out.push(c),
                c => out.extend(['\\', c]),
            }
        }
        chunk.invalid().iter().for_each(|&byte| octal(&mut out, byte));
    }
    out
}

fn octal(out: &mut String, byte: u8) {
    use std::fmt::Write;
    write!(out, "$'\\{byte:03o}'").expect("a string takes all");
}

/// Splits a line into commands.
pub fn parse(line: &[u8]) -> Result<Vec<Statement>, BadLine> {
    let mut lexer = Lexer::new(line);
    while let Some(byte) = lexer.next() {
        lexer.take(byte)?;
    }
    lexer.end_word();
    if lexer.words.is_empty() && lexer.when != RunCondition::Always {
        return Err(BadLine::Nothing);
    }
    lexer.end_statement(RunCondition::Always);
    Ok(lexer.statements)
}

struct Lexer<'a> {
    rest: &'a [u8],
    statements: Vec<Statement>,
    words: Vec<OsString>,
    /// The current word; `Some` for an empty word in quotes.
    word: Option<Vec<u8>>,
    when: RunCondition,
}

impl<'a> Lexer<'a> {
    fn new(line: &'a [u8]) -> Self {
        Self { rest: line, statements: Vec::new(), words: Vec::new(), word: None, when: RunCondition::Always }
    }
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn word(&mut self) -> &mut Vec<u8> {
        self.word.get_or_insert_default()
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take().map(OsString::from_vec));
    }

    fn end_statement(&mut self, next: RunCondition) {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() {
            self.statements.push(Statement { when: self.when, words });
        }
        self.when = next;
    }

    fn take(&mut self, byte: u8) -> Result<(), BadLine> {
        match byte {
            b'\'' => self.quoted()?,
            b'"' => self.double_quoted()?,
            b'$' if self.skip(b'\'') => self.escaped()?,
            b'\\' => {
                let next = self.next();
                self.word().extend(next);
            }
            b'#' if self.word.is_none() => self.rest = &[],
            b';' | b'\n' => self.joint(RunCondition::Always)?,
            b'&' if self.skip(b'&') => self.joint(RunCondition::AfterSuccess)?,
            b'|' if self.skip(b'|') => self.joint(RunCondition::AfterFailure)?,
            b'|' | b'>' | b'&' => return Err(BadLine::Pipe),
            b' ' | b'\t' | b'\r' => self.end_word(),
            byte => self.word().push(byte),
        }
        Ok(())
    }

    fn joint(&mut self, next: RunCondition) -> Result<(), BadLine> {
        self.end_word();
        let is_needed = next != RunCondition::Always || self.when != RunCondition::Always;
        if self.words.is_empty() && is_needed {
            return Err(BadLine::Nothing);
        }
        self.end_statement(next);
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), BadLine> {
        let end = self.rest.iter().position(|&b| b == b'\'');
        let (inner, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        self.word().extend_from_slice(inner);
        end.map(drop).ok_or(BadLine::OpenQuote)
    }

    fn double_quoted(&mut self) -> Result<(), BadLine> {
        self.word();
        loop {
            match self.next().ok_or(BadLine::OpenQuote)? {
                b'"' => return Ok(()),
                b'\\' => {
                    let next = self.next().ok_or(BadLine::OpenQuote)?;
                    if !matches!(next, b'"' | b'\\' | b'$' | b'`') {
                        self.word().push(b'\\');
                    }
                    self.word().push(next);
                }
                byte => self.word().push(byte),
            }
        }
    }

    /// `$'...'`, up to its end.
    fn escaped(&mut self) -> Result<(), BadLine> {
        self.word();
        loop {
            let byte = match self.next().ok_or(BadLine::OpenQuote)? {
                b'\'' => return Ok(()),
                b'\\' => self.escape()?,
                byte => byte,
            };
            self.word().push(byte);
        }
    }

    fn escape(&mut self) -> Result<u8, BadLine> {
        if let Some(value) = digits(&mut self.rest, 3, 8) {
            return Ok(value);
        }
        Ok(match self.next().ok_or(BadLine::OpenQuote)? {
            b'x' => digits(&mut self.rest, 2, 16).unwrap_or(b'x'),
            byte => control(byte).unwrap_or(byte),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<String>> {
        let statements = parse(line.as_bytes()).unwrap();
        let words = |s: &Statement| s.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        statements.iter().map(words).collect()
    }

    #[test]
    fn words_are_quoted_as_in_sh() {
        assert_eq!(
            words("ls  -l\t'a b' \"c 'd' \\\" e\" f\\ g ''"),
            [["ls", "-l", "a b", "c 'd' \" e", "f g", ""]]
        );
        assert_eq!(words(r"rm $'new\nline\033[\x41' a$'\'b'"), [["rm", "new\nline\x1b[A", "a'b"]]);
        assert_eq!(words("a#b # c"), [["a#b"]]);
        assert_eq!(words("  # nothing"), Vec::<Vec<String>>::new());
    }

    #[test]
    fn commands_are_joined_as_in_sh() {
        let statements = parse(b"a; b && c || d ;").unwrap();
        let when: Vec<_> = statements.iter().map(|statement| statement.when).collect();
        assert_eq!(
            when,
            [
                RunCondition::Always,
                RunCondition::Always,
                RunCondition::AfterSuccess,
                RunCondition::AfterFailure
            ]
        );
        assert_eq!(words(";;a;"), [["a"]]);
    }

    #[test]
    fn the_end_of_a_line_is_the_word_that_is_being_typed() {
        for (line, words, word, start) in [
            ("", &[][..], "", 0),
            ("l", &[], "l", 0),
            ("ls ", &["ls"], "", 3),
            ("a; ls x/y", &["ls"], "x/y", 6),
            ("a&&cat 'two w", &["cat"], "two w", 7),
            ("cat two\\ w", &["cat"], "two w", 4),
            ("cat \"x\" \"a b", &["cat", "x"], "a b", 8),
            ("cat a$'\\033[", &["cat"], "a\x1b[", 4),
            ("cat '", &["cat"], "", 4),
        ] {
            let words = words.iter().map(OsString::from).collect();
            let expected = Unfinished { words, word: word.into(), start };
            assert_eq!(unfinished(line.as_bytes()), Some(expected), "{line}");
        }
        for line in ["# c", "ls # c", "ls | c", "ls > "] {
            assert_eq!(unfinished(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_quoted_name_is_one_word_that_is_the_name() {
        for name in [
            &b"plain"[..],
            b"two words",
            b"a'b\"c\\d",
            b"\x1b[31m\n",
            b"$x;#*?|&<>",
            "\u{fc}\u{202e}".as_bytes(),
            b"\xff",
        ] {
            let word = quoted(name);
            assert!(word.chars().all(is_printable), "{word:?}");
            assert_eq!(parse(word.as_bytes()).unwrap()[0].words, [OsString::from_vec(name.to_vec())]);
        }
    }

    #[test]
    fn an_invalid_line_is_reported() {
        for (line, error) in [
            ("'a", BadLine::OpenQuote),
            ("\"a", BadLine::OpenQuote),
            ("$'a\\", BadLine::OpenQuote),
            ("&& a", BadLine::Nothing),
            ("a && ; b", BadLine::Nothing),
            ("a &&", BadLine::Nothing),
            ("cat a | b", BadLine::Pipe),
            ("cat a > b", BadLine::Pipe),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(error), "{line}");
        }
    }
}
