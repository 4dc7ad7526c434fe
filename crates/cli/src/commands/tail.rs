//! `obento tail`: prints the last lines or bytes of files.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Range;

use memchr::memchr_iter;

use crate::cause::Cause;
use crate::context::Context;
use crate::files::lines::{Amount, Window, start_of_last};
use crate::files::stream::{CHUNK, zeros};
use crate::files::{Below, Input, Piece, Stream, StreamError, Task, Tasks, open_all};
use crate::help::page::Page;
use crate::open::Opened;
use crate::output::{Outcome, Output, Stop, go_on};
use crate::parse::size::size;
use crate::report::{Report, subject};

/// The page of `tail`.
pub const PAGE: Page = Page::new(&[
    ("obento tail disk.img:/var/log/syslog", "Print the last 10 lines of a file"),
    ("obento tail -n +2 disk.img:/data.csv", "Print all lines but the first"),
])
.see_also(&["tail(1)"]);

/// Print the last lines of files
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images; - is standard input
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Print the last N lines (default 10); with a plus sign, all lines from line N on. -20 is short for -n 20
    #[arg(short = 'n', long, value_name = "[+]N", allow_hyphen_values = true, overrides_with_all = ["lines", "bytes"])]
    lines: Option<String>,
    /// Print the last N bytes; with a plus sign, all bytes from byte N on
    #[arg(short = 'c', long, value_name = "[+]N", allow_hyphen_values = true, overrides_with_all = ["lines", "bytes"])]
    bytes: Option<String>,
    #[command(flatten)]
    style: PrintStyle,
}

/// The end of a file that a command prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    Head,
    Tail,
}

/// The part of each file that is printed.
pub struct Part {
    pub amount: Amount,
    /// Whether the number is `-N` of `head` or `+N` of `tail`.
    pub is_inverse: bool,
}

impl Part {
    /// Parses the value of `-n` or `-c`.
    pub fn parse(lines: Option<&str>, bytes: Option<&str>, by_nul: bool, ends: Ends) -> Result<Self, Report> {
        let text = bytes.or(lines).unwrap_or("10");
        let (inverse, plain) = match ends {
            Ends::Head => ('-', '+'),
            Ends::Tail => ('+', '-'),
        };
        let is_inverse = text.starts_with(inverse);
        let number = text.strip_prefix([inverse, plain]).unwrap_or(text);
        let count = count(number).ok_or_else(|| {
            let option = if bytes.is_some() { "-c" } else { "-n" };
            let report = Report::plain(format!("invalid value {} for {option}", subject(text)));
            report.help("use a number such as 20, 10k or 1M")
        })?;
        let amount = match bytes {
            Some(_) => Amount::Bytes(count),
            None => Amount::Lines(count, if by_nul { 0 } else { b'\n' }),
        };
        Ok(Self { amount, is_inverse })
    }
}

/// Parses a number with the units of head(1): those of sizes, and `b` for 512.
fn count(text: &str) -> Option<u64> {
    match text.strip_suffix('b') {
        Some(blocks) => blocks.parse::<u64>().ok()?.checked_mul(512),
        None if text.starts_with(|first: char| first.is_ascii_digit()) => size(text).ok(),
        None => None,
    }
}

/// Prints `==> NAME <==` before each file, if headers are wanted.
pub struct Header {
    is_wanted: bool,
    is_first: bool,
}

/// The options of `head` and `tail` for headers and lines.
#[derive(clap::Args, Debug)]
pub struct PrintStyle {
    /// Never print headers with the names of files
    #[arg(short, long, visible_alias = "silent", overrides_with = "verbose")]
    quiet: bool,
    /// Always print headers with the names of files
    #[arg(short, long, overrides_with = "quiet")]
    verbose: bool,
    /// Lines end with NUL instead of a newline
    #[arg(short, long)]
    pub zero_terminated: bool,
}

impl PrintStyle {
    /// Returns the headers of `count` operands.
    pub fn header(&self, count: usize) -> Header {
        Header { is_wanted: self.verbose || !self.quiet && count > 1, is_first: true }
    }
}

impl Header {
    fn print(&mut self, task: &Task, out: &mut Output) -> Outcome {
        if !self.is_wanted {
            return Ok(());
        }
        let gap: &[u8] = if std::mem::replace(&mut self.is_first, false) { b"" } else { b"\n" };
        let name: &[u8] = if matches!(task.input, Input::Stdin) { b"standard input" } else { &task.shown };
        out.write_all(gap)?;
        out.write_all(b"==> ")?;
        out.write_name(name)?;
        Ok(out.write_all(b" <==\n")?)
    }
}

/// A file that is being printed.
pub struct Reading<'a> {
    pub task: &'a Task,
    context: &'a Context,
    out: &'a mut Output,
}

/// Calls `print` for each file of `opened`, below its header.
pub fn each_reading(
    opened: Vec<Result<Opened, Report>>,
    mut header: Header,
    context: &Context,
    mut print: impl FnMut(&mut Reading<'_>) -> Outcome,
) -> Outcome {
    let mut out = Output::stdout();
    for task in Tasks::new(opened, Below::Refuse) {
        match task {
            Ok(task) => {
                header.print(&task, &mut out)?;
                print(&mut Reading { task: &task, context, out: &mut out })?;
            }
            Err(report) => context.warn(&report),
        }
    }
    out.finish()
}

impl<'a> Reading<'a> {
    pub fn write(&mut self, bytes: &[u8]) -> Outcome {
        Ok(self.out.write_all(bytes)?)
    }

    /// Reports that the file cannot be read.
    pub fn failed(&self, error: impl Cause) {
        self.context.warn(&Report::on("cannot read", &self.task.shown, error));
    }

    /// Prints a range of the file.
    pub fn range(&mut self, range: Range<u64>) -> Outcome {
        let task: &'a Task = self.task;
        let mut stream = Stream::new(&task.input);
        if let Err(error) = stream.skip_to(range.start) {
            self.failed(error);
            return Ok(());
        }
        let mut buffer = vec![0; CHUNK];
        while stream.position() < range.end {
            go_on()?;
            let left = range.end - stream.position();
            let want = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            match stream.next(&mut buffer[..want]) {
                Ok(Piece::Data(len)) => self.write(&buffer[..len])?,
                Ok(Piece::Hole(len)) => zeros(len.min(left), |bytes| self.write(bytes))?,
                Ok(Piece::End) => break,
                Err(error) => {
                    self.failed(error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Passes all bytes from `start` on to `take`.
    pub fn chunks(&mut self, start: u64, mut take: impl FnMut(&mut Self, &[u8]) -> Outcome) -> Outcome {
        let task: &'a Task = self.task;
        let mut stream = Stream::new(&task.input);
        if let Err(error) = stream.skip_to(start) {
            self.failed(error);
            return Ok(());
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            go_on()?;
            match stream.next(&mut buffer) {
                Ok(Piece::Data(len)) => take(self, &buffer[..len])?,
                Ok(Piece::Hole(len)) => zeros(len, |bytes| take(self, bytes))?,
                Ok(Piece::End) => return Ok(()),
                Err(error) => {
                    self.failed(error);
                    return Ok(());
                }
            }
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let part =
        Part::parse(args.lines.as_deref(), args.bytes.as_deref(), args.style.zero_terminated, Ends::Tail)?;
    let opened = open_all(&args.paths, Below::Refuse, context);
    if !part.is_inverse && matches!(part.amount, Amount::Bytes(0) | Amount::Lines(0, _)) {
        return Ok(());
    }
    let header = args.style.header(opened.len());
    each_reading(opened, header, context, |reading| match part.is_inverse {
        true => from(reading, part.amount),
        false => last(reading, part.amount),
    })
}

/// Prints all from byte or line N on, counted from 1.
fn from(reading: &mut Reading<'_>, amount: Amount) -> Outcome {
    let (mut left, end) = match amount {
        Amount::Bytes(count) => return reading.range(count.saturating_sub(1)..u64::MAX),
        Amount::Lines(count, end) => (count.saturating_sub(1), end),
    };
    if left == 0 {
        return reading.range(0..u64::MAX);
    }
    if let Input::Image(_) = reading.task.input {
        return match line_start(reading.task, left, end) {
            Ok(start) => reading.range(start..u64::MAX),
            Err(error) => {
                reading.failed(error);
                Ok(())
            }
        };
    }
    reading.chunks(0, |reading, bytes| {
        if left == 0 {
            return reading.write(bytes);
        }
        let found = memchr_iter(end, bytes).nth(usize::try_from(left - 1).unwrap_or(usize::MAX));
        match found {
            Some(at) => {
                left = 0;
                reading.write(&bytes[at + 1..])
            }
            None => {
                left -= memchr_iter(end, bytes).count() as u64;
                Ok(())
            }
        }
    })
}

/// Returns the offset behind the first `count` line ends of a file of an image, or its length.
fn line_start(task: &Task, count: u64, end: u8) -> Result<u64, StreamError> {
    let mut left = count;
    let mut stream = Stream::new(&task.input);
    let mut buffer = vec![0; CHUNK];
    loop {
        let start = stream.position();
        match stream.next(&mut buffer)? {
            Piece::End => return Ok(start),
            Piece::Hole(len) if end == 0 && len >= left => return Ok(start + left),
            Piece::Hole(len) => left -= if end == 0 { len } else { 0 },
            Piece::Data(len) => {
                for at in memchr_iter(end, &buffer[..len]) {
                    left -= 1;
                    if left == 0 {
                        return Ok(start + at as u64 + 1);
                    }
                }
            }
        }
    }
}

fn last(reading: &mut Reading<'_>, amount: Amount) -> Outcome {
    match &reading.task.input {
        Input::Image(node) => match start_of_last(node, amount) {
            Ok(start) => reading.range(start..u64::MAX),
            Err(error) => {
                reading.failed(error);
                Ok(())
            }
        },
        _ => {
            let mut window = Window::new(amount);
            reading.chunks(0, |_, bytes| window.push(bytes, |_| Ok::<(), Stop>(())))?;
            let (bytes, start) = window.finish();
            reading.write(&bytes[start..])
        }
    }
}
