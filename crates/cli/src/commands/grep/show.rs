//! The format of the output.

use crate::context::Context;
use crate::escape::{NameStyle, escape};
use crate::files::{Input, Results, Task};
use crate::json::Line;
use crate::output::Output;

use super::args::Args;
use super::matcher::Matcher;
use super::search::Message;

/// The form of the output, for all files.
pub struct Show {
    /// `None` if an option neither requests names nor forbids them.
    has_names: Option<bool>,
    has_lines: bool,
    has_offsets: bool,
    only_matching: bool,
    inverts: bool,
    ends_names_by_nul: bool,
    colors: bool,
    json: bool,
    is_terminal: bool,
}

/// A line of the output.
pub struct Shown<'b> {
    /// The line without its end.
    pub bytes: &'b [u8],
    /// The number of the line from 1 on.
    pub number: u64,
    /// The offset of the line.
    pub offset: u64,
    /// Whether the line is selected, and not context.
    pub is_selected: bool,
}

/// The colours of GNU grep.
const MATCH: &str = "01;31";
const NAME: &str = "35";
const NUMBER: &str = "32";
const SEPARATOR: &str = "36";

impl Show {
    pub fn new(args: &Args, operands: usize, context: &Context, out: &Output) -> Self {
        let several = (operands > 1).then_some(true);
        Self {
            has_names: if args.no_filename {
                Some(false)
            } else {
                args.with_filename.then_some(true).or(several)
            },
            has_lines: args.line_number,
            has_offsets: args.byte_offset,
            only_matching: args.only_matching,
            inverts: args.invert_match,
            ends_names_by_nul: args.null,
            colors: context.colors(),
            json: context.json(),
            is_terminal: out.is_terminal(),
        }
    }

    /// Returns whether only the parts that match are printed.
    pub fn only_matching(&self) -> bool {
        self.only_matching && !self.json
    }

    fn has_name(&self, task: &Task) -> bool {
        self.has_names.unwrap_or(!task.is_alone)
    }

    /// Writes a line, or with `-o` its matches.
    pub fn line(&self, task: &Task, line: &Shown<'_>, matcher: &Matcher, sink: &mut Results<'_, Message>) {
        if self.json {
            return self.json(task, line, matcher, sink);
        }
        let matches_here = line.is_selected != self.inverts;
        if self.only_matching {
            let found = if matches_here { matcher.matches(line.bytes) } else { Vec::new() };
            for range in found {
                let start = range.start as u64;
                self.head(task, line, start, sink);
                self.colored(MATCH, &line.bytes[range], sink);
                sink.bytes(b"\n");
            }
            return;
        }
        self.head(task, line, 0, sink);
        let mut rest = 0;
        // Without the option, all matches of selected lines have the colour, and none of context.
        if self.colors && matches_here && (line.is_selected || self.inverts) {
            for range in matcher.matches(line.bytes) {
                sink.bytes(&line.bytes[rest..range.start]);
                self.colored(MATCH, &line.bytes[range.clone()], sink);
                rest = range.end;
            }
        }
        sink.bytes(&line.bytes[rest..]);
        sink.bytes(b"\n");
    }

    fn head(&self, task: &Task, line: &Shown<'_>, skip: u64, sink: &mut Results<'_, Message>) {
        let separator: &[u8] = if line.is_selected { b":" } else { b"-" };
        if self.has_name(task) {
            self.colored(NAME, &self.name(task), sink);
            match self.ends_names_by_nul {
                true => sink.bytes(b"\0"),
                false => self.colored(SEPARATOR, separator, sink),
            }
        }
        if self.has_lines {
            self.colored(NUMBER, line.number.to_string().as_bytes(), sink);
            self.colored(SEPARATOR, separator, sink);
        }
        if self.has_offsets {
            self.colored(NUMBER, (line.offset + skip).to_string().as_bytes(), sink);
            self.colored(SEPARATOR, separator, sink);
        }
    }

    fn json(&self, task: &Task, line: &Shown<'_>, matcher: &Matcher, sink: &mut Results<'_, Message>) {
        let kind = if line.is_selected { "match" } else { "context" };
        let mut text = Line::new(kind).bytes("path", &self.plain_name(task)).bytes("text", line.bytes);
        if self.has_lines {
            text = text.field("line", line.number);
        }
        if self.has_offsets {
            text = text.field("offset", line.offset);
        }
        if self.only_matching && line.is_selected != self.inverts {
            let ranges: Vec<_> =
                matcher.matches(line.bytes).into_iter().map(|range| [range.start, range.end]).collect();
            text = text.field("matches", ranges);
        }
        // Writing to a sink cannot fail.
        let _ = text.write(sink);
    }

    /// Returns the line between two groups of lines.
    pub fn separator(&self) -> Vec<u8> {
        match (self.json, self.colors) {
            (true, _) => Vec::new(),
            (false, false) => b"--\n".to_vec(),
            (false, true) => format!("\x1b[{SEPARATOR}m\x1b[K--\x1b[m\x1b[K\n").into_bytes(),
        }
    }

    /// Writes the line between two groups of lines.
    pub fn gap(&self, sink: &mut Results<'_, Message>) {
        sink.bytes(&self.separator());
    }

    /// Writes the number of selected lines.
    pub fn count(&self, task: &Task, count: u64, sink: &mut Results<'_, Message>) {
        if self.json {
            let line = Line::new("match_count").bytes("path", &self.plain_name(task)).field("count", count);
            let _ = line.write(sink);
            return;
        }
        if self.has_name(task) {
            self.colored(NAME, &self.name(task), sink);
            match self.ends_names_by_nul {
                true => sink.bytes(b"\0"),
                false => self.colored(SEPARATOR, b":", sink),
            }
        }
        sink.bytes(format!("{count}\n").as_bytes());
    }

    /// Writes the name of a file with or without selected lines.
    pub fn file(&self, task: &Task, is_selected: bool, sink: &mut Results<'_, Message>) {
        if self.json {
            let line = Line::new("searched").bytes("path", &self.plain_name(task));
            let _ = line.field("matches", is_selected).write(sink);
            return;
        }
        self.colored(NAME, &self.name(task), sink);
        sink.bytes(if self.ends_names_by_nul { b"\0" } else { b"\n" });
    }

    fn plain_name<'t>(&self, task: &'t Task) -> std::borrow::Cow<'t, [u8]> {
        match task.input {
            Input::Stdin => b"(standard input)"[..].into(),
            _ => task.shown.as_slice().into(),
        }
    }

    fn name(&self, task: &Task) -> Vec<u8> {
        let style = if self.is_terminal { NameStyle::Backslash } else { NameStyle::Literal };
        escape(&self.plain_name(task), style).into_owned()
    }

    fn colored(&self, color: &str, bytes: &[u8], sink: &mut Results<'_, Message>) {
        if self.colors {
            sink.bytes(format!("\x1b[{color}m\x1b[K").as_bytes());
            sink.bytes(bytes);
            sink.bytes(b"\x1b[m\x1b[K");
        } else {
            sink.bytes(bytes);
        }
    }
}
