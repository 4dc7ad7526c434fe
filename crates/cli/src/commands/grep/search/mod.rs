//! Splits a file into lines, as GNU grep does. `select` selects lines and prints them.
//!
//! A file with NUL or a hole is binary: NUL ends lines in it, and no line of it is printed. In other files, a line that is not UTF-8 is
//! not printed, but counted.
//!
//! Invariant: the buffer holds one portion of the file, the lines of context before it, and an incomplete line of at most [`MAX_LINE`]
//! bytes. So memory is bounded for any file.
//! Source: GNU grep 3.8, `src/grep.c`, function `grep`.

mod select;

use std::cell::RefCell;

use memchr::{memchr, memrchr};

use super::args::{Args, Around, BinaryFiles};
use super::matcher::Matcher;
use super::show::Show;
use crate::files::{Input, Piece, Results, Stream, StreamError, Task};

/// The bytes that are read at once, as by GNU grep, because NUL is searched for in each portion.
const PORTION: usize = 96 << 10;
/// The longest line that is searched.
const MAX_LINE: usize = 64 << 20;

/// A result that is not output.
pub enum Message {
    /// The first group of lines of a file follows. A separator is before it, unless nothing was printed yet.
    Group,
    /// A line of a binary file is selected. A separator is before the next group.
    Unprinted,
    /// The search of a file has ended.
    Searched(Searched),
}

/// The result of the search of a file.
pub struct Searched {
    pub shown: Vec<u8>,
    /// Whether a line was selected.
    pub is_selected: bool,
    /// Whether lines matched that are not printed, because they are not text.
    pub is_binary: bool,
    pub error: Option<StreamError>,
}

/// What is printed of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    Lines,
    Count,
    /// The name, if the file has selected lines or none.
    Name(bool),
    Nothing,
}

/// The options of the search.
#[derive(Clone, Copy)]
pub struct Limits {
    output: Output,
    inverts: bool,
    most: u64,
    binary: BinaryFiles,
    around: Around,
    numbers: bool,
}

impl Limits {
    pub fn new(args: &Args) -> Self {
        let output = match args {
            Args { quiet: true, .. } => Output::Nothing,
            Args { files_with_matches: true, .. } => Output::Name(true),
            Args { files_without_match: true, .. } => Output::Name(false),
            Args { count: true, .. } => Output::Count,
            _ => Output::Lines,
        };
        Self {
            output,
            inverts: args.invert_match,
            most: args.max_count.unwrap_or(u64::MAX),
            binary: args.binary(),
            around: args.around(),
            numbers: args.line_number,
        }
    }
}

thread_local! {
    /// The buffer of the thread, because most files are small.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The search of one file.
pub struct Search<'s> {
    matcher: &'s Matcher,
    show: &'s Show,
    limits: Limits,
    task: &'s Task,
    /// The selected lines so far.
    count: u64,
    /// Lines to print after the last selected line.
    after: u64,
    /// Whether NUL was found.
    has_nul: bool,
    /// The selected lines before the first NUL.
    count_before_nul: u64,
    /// Whether a line was not printed because it is not UTF-8.
    has_invalid: bool,
    /// Whether enough lines are selected, and only their context is missing.
    is_full: bool,
    /// Whether a line was selected for printing.
    has_group: bool,
    /// The offset of the first byte of the buffer.
    offset: u64,
    /// The number of newlines before the offset `counted`.
    lines: u64,
    counted: u64,
    /// The offset of the end of the last printed line, if the buffer may start there.
    printed: Option<u64>,
}

/// Whether the search of the file continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    More,
    Enough,
}

impl<'s> Search<'s> {
    pub fn new(matcher: &'s Matcher, show: &'s Show, limits: Limits, task: &'s Task) -> Self {
        Self {
            matcher,
            show,
            limits,
            task,
            count: 0,
            after: 0,
            has_nul: false,
            count_before_nul: 0,
            has_invalid: false,
            is_full: false,
            has_group: false,
            offset: 0,
            lines: 0,
            counted: 0,
            printed: None,
        }
    }

    /// Searches the file and writes the output.
    pub fn run(mut self, sink: &mut Results<'_, Message>) -> Searched {
        let error = BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            let error = self.file(buffer, sink).err();
            if buffer.capacity() > PORTION * 8 {
                *buffer = Vec::new();
            }
            error
        });
        let is_match = self.count > 0;
        match self.limits.output {
            Output::Count => self.show.count(self.task, self.count, sink),
            Output::Name(wanted) if wanted == is_match => self.show.file(self.task, is_match, sink),
            _ => {}
        }
        let is_binary = self.limits.binary == BinaryFiles::Binary
            && self.limits.output == Output::Lines
            && (self.has_invalid || self.has_nul && self.count > self.count_before_nul);
        Searched { shown: self.task.shown.clone(), is_selected: is_match, is_binary, error }
    }

    fn file(&mut self, buffer: &mut Vec<u8>, sink: &mut Results<'_, Message>) -> Result<(), StreamError> {
        if self.limits.most == 0 {
            return Ok(());
        }
        let mut stream = Stream::new(&self.task.input);
        // The start of the lines that are not searched yet.
        let mut from = 0;
        let mut is_first = true;
        while !sink.is_stopped() {
            let old = buffer.len();
            buffer.resize(old + PORTION, 0);
            let piece = stream.next(&mut buffer[old..]);
            buffer.truncate(old + if let Ok(Piece::Data(len)) = piece { len } else { 0 });
            let hole = match piece? {
                Piece::End => break,
                Piece::Data(_) => 0,
                Piece::Hole(len) => len,
            };
            let has_nul = hole > 0
                || memchr(0, &buffer[old..]).is_some()
                || is_first && self.has_hole(stream.position());
            is_first = false;
            if has_nul && !self.has_nul && self.limits.binary != BinaryFiles::Text {
                if self.limits.binary == BinaryFiles::WithoutMatch {
                    self.count = 0;
                    return Ok(());
                }
                (self.has_nul, self.count_before_nul) = (true, self.count);
            }
            if hole > 0 {
                if self.hole(hole, &mut from, buffer, sink)? == Next::Enough {
                    return Ok(());
                }
                continue;
            }
            self.zap(&mut buffer[old..]);
            let Some(end) = memrchr(b'\n', &buffer[old..]).map(|end| old + end + 1) else {
                expect_short(buffer.len() - from)?;
                continue;
            };
            if self.lines_of(buffer, from, end, sink) == Next::Enough {
                return Ok(());
            }
            from = self.shift(buffer, end);
        }
        if buffer.len() > from && !sink.is_stopped() {
            // The last line lacks its end.
            buffer.push(b'\n');
            let end = buffer.len();
            self.lines_of(buffer, from, end, sink);
        }
        Ok(())
    }

    /// Replaces NUL by line ends in a binary file.
    fn zap(&self, bytes: &mut [u8]) {
        if !self.has_nul {
            return;
        }
        let mut at = 0;
        while let Some(next) = memchr(0, &bytes[at..]) {
            at += next;
            while bytes.get(at) == Some(&0) {
                bytes[at] = b'\n';
                at += 1;
            }
        }
    }

    /// Returns whether a hole follows the bytes before `position`.
    fn has_hole(&self, position: u64) -> bool {
        let Input::Image(node) = &self.task.input else { return false };
        position < self.task.size && node.seek_hole(0).is_ok_and(|hole| hole < self.task.size)
    }

    /// Adds the zeros of a hole.
    fn hole(
        &mut self,
        len: u64,
        from: &mut usize,
        buffer: &mut Vec<u8>,
        sink: &mut Results<'_, Message>,
    ) -> Result<Next, StreamError> {
        if !self.has_nul {
            // The zeros are part of a line of text.
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            expect_short(len.saturating_add(buffer.len() - *from))?;
            buffer.resize(buffer.len() + len, 0);
            return Ok(Next::More);
        }
        // The first zero ends the line before the hole, and each other one an empty line.
        buffer.push(b'\n');
        let end = buffer.len();
        if self.lines_of(buffer, *from, end, sink) == Next::Enough {
            return Ok(Next::Enough);
        }
        *from = self.shift(buffer, end);
        if self.matcher.is_match(b"") != self.limits.inverts && len > 1 {
            let left = self.limits.most - self.count;
            self.count += (len - 1).min(left);
            if self.is_decided() || self.count == self.limits.most {
                return Ok(Next::Enough);
            }
        }
        Ok(Next::More)
    }
}

impl Next {
    /// Returns the result of `then` if the search continues.
    fn and(self, then: impl FnOnce() -> Self) -> Self {
        if self == Self::More { then() } else { self }
    }
}

fn expect_short(len: usize) -> Result<(), StreamError> {
    match len > MAX_LINE {
        true => Err(StreamError::Contents(format!("a line is longer than {} MiB", MAX_LINE >> 20))),
        false => Ok(()),
    }
}
