//! `obento wc`: counts lines, words, characters and bytes.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;

use memchr::memchr_iter;
use unicode_width::UnicodeWidthChar;

use crate::context::Context;
use crate::files::stream::{CHUNK, zeros};
use crate::files::{
    Below, Input, Piece, Results, Said, Stream, StreamError, Task, Tasks, in_order, open_all,
};
use crate::help::page::Page;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The page of `wc`.
pub const PAGE: Page =
    Page::new(&[("obento wc -l disk.img:/etc/passwd", "Count the lines of a file")]).see_also(&["wc(1)"]);

/// Count the lines, words and bytes of files
///
/// The requested counts are printed in this order: lines, words, characters, bytes, longest line. The default is lines, words and bytes.
/// Text is UTF-8.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images; - is standard input
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Print the number of newlines
    #[arg(short, long)]
    lines: bool,
    /// Print the number of words
    #[arg(short, long)]
    words: bool,
    /// Print the number of characters
    #[arg(short = 'm', long)]
    chars: bool,
    /// Print the number of bytes
    #[arg(short = 'c', long)]
    bytes: bool,
    /// Print the width of the longest line
    #[arg(short = 'L', long)]
    max_line_length: bool,
}

/// The columns that are printed.
#[derive(Clone, Copy)]
struct Columns {
    lines: bool,
    words: bool,
    chars: bool,
    bytes: bool,
    width: bool,
}

impl Columns {
    fn of(args: &Args) -> Self {
        let Args { lines, words, chars, bytes, max_line_length: width, .. } = *args;
        let is_default = !(lines || words || chars || bytes || width);
        Self {
            lines: lines || is_default,
            words: words || is_default,
            chars,
            bytes: bytes || is_default,
            width,
        }
    }

    fn count(self) -> usize {
        [self.lines, self.words, self.chars, self.bytes, self.width]
            .into_iter()
            .filter(|is_on| *is_on)
            .count()
    }

    /// Returns whether bytes have to be decoded.
    fn need_text(self) -> bool {
        self.words || self.chars || self.width
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    lines: u64,
    words: u64,
    chars: u64,
    bytes: u64,
    width: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.lines = self.lines.saturating_add(other.lines);
        self.words = self.words.saturating_add(other.words);
        self.chars = self.chars.saturating_add(other.chars);
        // Sparse files may have more than 2^64 bytes together.
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.width = self.width.max(other.width);
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let opened = open_all(&args.paths, Below::Refuse, context);
    // All sizes are known before the first line, because they determine the width of the columns.
    let tasks: Vec<_> = Tasks::new(opened, Below::Refuse).collect();
    let columns = Columns::of(args);
    let mut printer = Printer { columns, width: width(&tasks, columns), context, out: Output::stdout() };
    let (count, mut total) = (tasks.len(), Counts::default());
    let work = |task: &Task, sink: &mut Results<'_, (Vec<u8>, Counts)>| {
        let (counts, error) = count_of(task, columns, sink);
        if let Some(error) = error {
            sink.fault(Report::on("cannot read", &task.shown, error));
        }
        sink.done((task.shown.clone(), counts));
    };
    in_order(tasks.into_iter(), work, |said| {
        match said {
            Said::Done((shown, counts)) => {
                total.add(&counts);
                printer.print(Some(&shown), &counts)?;
            }
            Said::Fault(report) => context.warn(&report),
            Said::Bytes(_) => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if count > 1 {
        printer.print(None, &total)?;
    }
    printer.out.finish()
}

/// Returns the width of the columns, as GNU wc computes it from the sizes of the files.
fn width(tasks: &[Result<Task, Report>], columns: Columns) -> usize {
    if tasks.len() == 1 && columns.count() == 1 {
        return 1;
    }
    let known = || tasks.iter().filter_map(|task| task.as_ref().ok());
    let sum: u64 = known().fold(0, |sum, task| sum.saturating_add(task.size));
    let least = if known().any(|task| matches!(task.input, Input::Stdin)) { 7 } else { 1 };
    sum.to_string().len().max(least)
}

struct Printer<'a> {
    columns: Columns,
    width: usize,
    context: &'a Context,
    out: Output,
}

impl Printer<'_> {
    /// Prints a line; a total has no name.
    fn print(&mut self, name: Option<&[u8]>, counts: &Counts) -> Outcome {
        let Columns { lines, words, chars, bytes, width } = self.columns;
        let all = [
            (lines, "lines", counts.lines),
            (words, "words", counts.words),
            (chars, "characters", counts.chars),
            (bytes, "bytes", counts.bytes),
            (width, "longest_line", counts.width),
        ];
        let shown = all.into_iter().filter(|(is_shown, ..)| *is_shown);
        if self.context.json() {
            let line = match name {
                Some(name) => Line::new("counts").bytes("path", name),
                None => Line::new("counts_total"),
            };
            let line = shown.fold(line, |line, (_, key, count)| line.field(key, count));
            return Ok(line.write(&mut self.out)?);
        }
        for (index, (_, _, count)) in shown.enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(self.out, "{gap}{count:width$}", width = self.width)?;
        }
        self.out.write_all(b" ")?;
        self.out.write_name(name.unwrap_or(b"total"))?;
        Ok(self.out.write_all(b"\n")?)
    }
}

/// Returns the counts, and the error that ended them early.
fn count_of(
    task: &Task,
    columns: Columns,
    sink: &Results<'_, (Vec<u8>, Counts)>,
) -> (Counts, Option<StreamError>) {
    let mut counts = Counts::default();
    // The size alone is enough.
    if matches!(task.input, Input::Image(_)) && !columns.need_text() && !columns.lines {
        return (Counts { bytes: task.size, ..counts }, None);
    }
    let mut text = columns.need_text().then(|| Text::new(columns));
    let mut stream = Stream::new(&task.input);
    let mut buffer = vec![0; CHUNK];
    let mut failed = None;
    while !sink.is_stopped() {
        match stream.next(&mut buffer) {
            Ok(Piece::End) => break,
            Ok(Piece::Data(len)) => {
                let bytes = &buffer[..len];
                if columns.lines {
                    counts.lines += memchr_iter(b'\n', bytes).count() as u64;
                }
                if let Some(text) = &mut text {
                    text.bytes(bytes, &mut counts);
                }
            }
            Ok(Piece::Hole(len)) => {
                if let Some(text) = &mut text {
                    text.hole(len, &mut counts);
                }
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if let Some(text) = &mut text {
        text.end(&mut counts);
    }
    counts.bytes = stream.position();
    (counts, failed)
}

/// Counts what depends on characters.
struct Text {
    columns: Columns,
    is_in_word: bool,
    /// The width of the current line so far.
    width: u64,
    /// The start of a character whose end has not been read.
    pending: Vec<u8>,
}

/// The most bytes of a character.
const CHARACTER: usize = 4;

impl Text {
    fn new(columns: Columns) -> Self {
        Self { columns, is_in_word: false, width: 0, pending: Vec::new() }
    }

    /// NUL is a character, has no width, and neither starts nor ends a word.
    fn hole(&mut self, len: u64, counts: &mut Counts) {
        const END: u64 = CHARACTER as u64;
        // A character that the hole cuts off is decoded with the first zeros.
        let _ = zeros::<()>(len.min(END), |bytes| {
            self.bytes(bytes, counts);
            Ok(())
        });
        counts.chars += len.saturating_sub(END);
    }

    fn bytes(&mut self, bytes: &[u8], counts: &mut Counts) {
        let mut rest = bytes;
        while !self.pending.is_empty() && !rest.is_empty() {
            self.pending.push(rest[0]);
            rest = &rest[1..];
            let pending = std::mem::take(&mut self.pending);
            self.pending = self.decode(&pending, counts).to_vec();
        }
        let incomplete = self.decode(rest, counts);
        self.pending.extend_from_slice(incomplete);
    }

    /// Counts the characters of `bytes`, and returns the incomplete one at the end.
    fn decode<'b>(&mut self, bytes: &'b [u8], counts: &mut Counts) -> &'b [u8] {
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.text(text, counts);
                    return &[];
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.text(std::str::from_utf8(valid).unwrap_or_default(), counts);
                    match error.error_len() {
                        None => return after,
                        // A byte that is not part of a character is not counted.
                        Some(len) => rest = &after[len..],
                    }
                }
            }
        }
    }

    fn text(&mut self, text: &str, counts: &mut Counts) {
        if self.columns.chars && !self.columns.words && !self.columns.width {
            counts.chars += text.chars().count() as u64;
            return;
        }
        for c in text.chars() {
            counts.chars += 1;
            if is_space(c) {
                counts.words += u64::from(std::mem::replace(&mut self.is_in_word, false));
            } else if !c.is_control() {
                self.is_in_word = true;
            }
            if self.columns.width {
                self.measure(c, counts);
            }
        }
    }

    fn measure(&mut self, c: char, counts: &mut Counts) {
        match c {
            '\n' | '\r' | '\x0c' => {
                counts.width = counts.width.max(self.width);
                self.width = 0;
            }
            '\t' => self.width += 8 - self.width % 8,
            c => self.width += c.width().unwrap_or(0) as u64,
        }
    }

    fn end(&mut self, counts: &mut Counts) {
        counts.words += u64::from(self.is_in_word);
        counts.width = counts.width.max(self.width);
    }
}

/// Returns whether a character separates words: white space, with or without a break.
fn is_space(c: char) -> bool {
    const NEXT_LINE: char = '\u{85}';
    const WORD_JOINER: char = '\u{2060}';
    c.is_whitespace() && c != NEXT_LINE || c == WORD_JOINER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_beyond_64_bits_is_the_greatest_number() {
        let mut total = Counts { bytes: u64::MAX - 1, ..Counts::default() };
        total.add(&Counts { bytes: 1 << 62, lines: 3, ..Counts::default() });
        assert_eq!((total.bytes, total.lines), (u64::MAX, 3));
    }
}
