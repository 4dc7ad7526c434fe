//! Selects lines, and prints them with their context.
//!
//! Source: GNU grep 3.8, `src/grep.c`, functions `prtext` and `prpending`.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memrchr};

use super::super::args::BinaryFiles;
use super::super::show::Shown;
use super::{MAX_LINE, Message, Next, Output, Search};
use crate::files::Results;

impl Search<'_> {
    /// Returns whether further lines change nothing.
    pub(super) fn is_decided(&self) -> bool {
        let needs_one = match self.limits.output {
            Output::Lines => self.has_nul,
            Output::Count => false,
            Output::Name(_) | Output::Nothing => true,
        };
        needs_one && self.count > self.count_before_nul
    }

    /// Searches the lines from `from` to `end`.
    pub(super) fn lines_of(
        &mut self,
        buffer: &[u8],
        from: usize,
        end: usize,
        sink: &mut Results<'_, Message>,
    ) -> Next {
        let mut at = from;
        while at < end {
            let found = self.matcher.find_line(&buffer[at..end]);
            let found = found.map_or(end..end, |line| at + line.start..at + line.end);
            let (before, line) = (at..found.start, found.clone());
            let next = match self.limits.inverts {
                true => self.each_selected(buffer, before, sink).and(|| self.rejected(buffer, line, sink)),
                false => {
                    let rejected = self.rejected(buffer, before, sink);
                    rejected.and(|| self.each_selected(buffer, line, sink))
                }
            };
            if next == Next::Enough {
                return Next::Enough;
            }
            at = found.end;
        }
        Next::More
    }

    /// Handles lines that are selected.
    fn each_selected(&mut self, buffer: &[u8], lines: Range<usize>, sink: &mut Results<'_, Message>) -> Next {
        let mut at = lines.start;
        while at < lines.end {
            let end = memchr(b'\n', &buffer[at..lines.end]).map_or(lines.end, |end| at + end + 1);
            if self.selected(buffer, at..end, sink) == Next::Enough {
                return Next::Enough;
            }
            at = end;
        }
        Next::More
    }

    fn selected(&mut self, buffer: &[u8], line: Range<usize>, sink: &mut Results<'_, Message>) -> Next {
        if self.is_full {
            return self.rejected(buffer, line, sink);
        }
        self.count += 1;
        let is_printed = self.limits.output == Output::Lines && !self.has_nul;
        if is_printed {
            self.before(buffer, line.start, sink);
            self.print(buffer, line, true, sink);
            self.after = self.limits.around.after;
        } else if self.limits.output == Output::Lines {
            sink.done(Message::Unprinted);
        }
        self.is_full = self.count == self.limits.most;
        if self.is_decided() || self.is_full && (!is_printed || self.after == 0) {
            return Next::Enough;
        }
        Next::More
    }

    /// Handles lines that are not selected: those after a selected line are printed as its context.
    fn rejected(&mut self, buffer: &[u8], lines: Range<usize>, sink: &mut Results<'_, Message>) -> Next {
        // Context follows the last printed line. That is not the selected one if that is not UTF-8, as in GNU grep.
        if self.after > 0 && !self.has_nul {
            self.printed.get_or_insert(self.offset);
        }
        let mut at = self.printed.map_or(0, |printed| self.within(printed));
        while at < lines.end && self.after > 0 && !self.has_nul {
            let end = memchr(b'\n', &buffer[at..lines.end]).map_or(lines.end, |end| at + end + 1);
            self.after -= 1;
            if self.print(buffer, at..end, false, sink) {
                at = end;
            }
        }
        if self.is_full && self.after == 0 { Next::Enough } else { Next::More }
    }

    /// Prints the context before the selected line at `start`, and the separator of groups.
    fn before(&mut self, buffer: &[u8], start: usize, sink: &mut Results<'_, Message>) {
        let around = self.limits.around;
        let mut from = start;
        for _ in 0..around.before {
            if from == 0 || self.printed.is_some_and(|printed| from <= self.within(printed)) {
                break;
            }
            from = line_before(buffer, from);
        }
        if around.is_requested {
            if !std::mem::replace(&mut self.has_group, true) {
                sink.done(Message::Group);
            } else if self.printed != Some(self.offset + from as u64) {
                self.show.gap(sink);
            }
        }
        while from < start {
            let end = memchr(b'\n', &buffer[from..start]).map_or(start, |end| from + end + 1);
            self.print(buffer, from..end, false, sink);
            from = end;
        }
    }

    /// Prints a line. Returns whether it was printed: a line that is not UTF-8 is not, and it does not end the group before it.
    fn print(
        &mut self,
        buffer: &[u8],
        line: Range<usize>,
        is_selected: bool,
        sink: &mut Results<'_, Message>,
    ) -> bool {
        self.count_lines(buffer, line.start);
        let bytes = &buffer[line.start..line.end - 1];
        let is_whole = !self.show.only_matching();
        if is_whole && self.limits.binary != BinaryFiles::Text && str::from_utf8(bytes).is_err() {
            self.has_invalid = true;
            return false;
        }
        self.printed = Some(self.offset + line.end as u64);
        let offset = self.offset + line.start as u64;
        let shown = Shown { bytes, number: self.lines + 1, offset, is_selected };
        self.show.line(self.task, &shown, self.matcher, sink);
        true
    }

    /// Drops what is no longer needed from the buffer, whose lines up to `end` are searched. Returns where the unsearched bytes are.
    pub(super) fn shift(&mut self, buffer: &mut Vec<u8>, end: usize) -> usize {
        let mut start = end;
        let before = if self.limits.output == Output::Lines { self.limits.around.before } else { 0 };
        for _ in 0..before {
            // The bytes of context are bounded like those of a line.
            let is_printed = self.printed.is_some_and(|printed| start <= self.within(printed));
            if start == 0 || is_printed || end - start > MAX_LINE {
                break;
            }
            start = line_before(buffer, start);
        }
        self.count_lines(buffer, start);
        self.printed = self.printed.filter(|printed| *printed == self.offset + start as u64);
        buffer.drain(..start);
        self.offset += start as u64;
        end - start
    }

    /// Returns where an offset is in the buffer.
    fn within(&self, offset: u64) -> usize {
        usize::try_from(offset.saturating_sub(self.offset)).unwrap_or(usize::MAX)
    }

    /// Counts the newlines of the buffer up to `to`.
    fn count_lines(&mut self, buffer: &[u8], to: usize) {
        let (from, end) = (self.counted - self.offset, self.offset + to as u64);
        if self.limits.numbers && end > self.counted {
            let from = usize::try_from(from).unwrap_or(to);
            self.lines += memchr_iter(b'\n', &buffer[from..to]).count() as u64;
        }
        self.counted = self.counted.max(end);
    }
}

/// Returns the start of the line before `at`, which is the start of a line that is not the first.
fn line_before(buffer: &[u8], at: usize) -> usize {
    memrchr(b'\n', &buffer[..at.saturating_sub(1)]).map_or(0, |end| end + 1)
}
