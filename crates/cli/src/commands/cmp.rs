//! `obento cmp`: compares two files byte by byte.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::ArgAction;
use memchr::memchr_iter;
use obento::address::Operand;
use obento::base::{FileKind, Quantity};
use obento::driver::Access;
use obento::vfs::Symlinks;

use crate::context::Context;
use crate::files::stream::CHUNK;
use crate::files::{Input, Piece, Stream};
use crate::help::page::Page;
use crate::input;
use crate::json::Line;
use crate::open::{self, BareOperand, Location, seal_before_decoding};
use crate::output::{Outcome, Output, Stop, go_on};
use crate::parse::size::size;
use crate::report::{Report, subject};

/// The page of `cmp`.
pub const PAGE: Page = Page::new(&[
    ("obento cmp disk.img:/etc/fstab fstab", "Compare a file with one of the host"),
    ("obento cmp -l one.img:/f other.img:/f", "Print all bytes that differ"),
])
.exit(&[
    ("0", "The files are the same."),
    ("1", "The files differ."),
    ("2", "Wrong usage, a file could not be read, or the output could not be written."),
])
.unwritten(2)
.see_also(&["cmp(1)"]);

/// Compare two files byte by byte
///
/// Each file is in an image, on the host, or standard input (-). The options are those of GNU cmp.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The files
    #[arg(value_names = ["FILE1", "FILE2"], num_args = 2, required = true, action = ArgAction::Set)]
    files: Vec<OsString>,
    /// Print the different bytes
    #[arg(short = 'b', long)]
    print_bytes: bool,
    /// Skip the first SKIP bytes of both files, or SKIP1 bytes of the first and SKIP2 of the second
    #[arg(short = 'i', long, value_name = "SKIP1[:SKIP2]", default_value = "0")]
    ignore_initial: String,
    /// Print the number and the values of all different bytes
    #[arg(short = 'l', long, conflicts_with = "quiet")]
    verbose: bool,
    /// Compare at most LIMIT bytes
    #[arg(short = 'n', long, value_name = "LIMIT", value_parser = size)]
    bytes: Option<u64>,
    /// Print nothing; the exit status is the result
    #[arg(short = 's', long, visible_aliases = ["silent"])]
    quiet: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let skips = skips(&args.ignore_initial)?;
    // A process that decodes an image cannot open files any more.
    let others = args.files.iter().map(|file| Compared::open(file, context));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    seal_before_decoding(&args.files, BareOperand::HostFile, Access::ReadOnly, context);
    let open = |(file, other): (&OsString, Option<Compared>)| match other {
        Some(other) => Ok(Opened::Other(other)),
        None => open::open(file, context).map(Opened::Image),
    };
    let opened = args.files.iter().zip(others).map(open).collect::<Result<Vec<_>, _>>()?;
    context.seal();
    let files = opened.into_iter().map(Opened::find).collect::<Result<Vec<_>, _>>()?;
    let [left, right] = files.as_slice() else { return Ok(()) };
    let mut sides = [Side::new(left, skips.0)?, Side::new(right, skips.1)?];
    let mut comparison = Comparison::new(args, &sides, context);
    let ended = comparison.run(&mut sides);
    if comparison.differs {
        context.raise(1);
    }
    let ended = ended?;
    if let Some(shorter) = ended
        && !args.quiet
    {
        context.warn(&comparison.end_of(&sides[shorter]));
    }
    // A part that cannot be read was not compared.
    context.report_damage(|report| context.fail(report));
    comparison.out.finish()
}

fn skips(text: &str) -> Result<(u64, u64), Report> {
    let parse = |text: &str| {
        size(text).map_err(|error| Report::plain(format!("invalid value {} for -i: {error}", subject(text))))
    };
    match text.split_once(':') {
        Some((left, right)) => Ok((parse(left)?, parse(right)?)),
        None => parse(text).map(|skip| (skip, skip)),
    }
}

/// An operand whose image or file is open.
enum Opened {
    Image(Location),
    Other(Compared),
}

/// A file that is compared.
struct Compared {
    shown: Vec<u8>,
    input: Input,
    /// The length, if the file is a regular one.
    size: Option<u64>,
}

impl Compared {
    /// Opens the standard input or a file of the host. Returns `None` for an operand in an image.
    fn open(file: &OsStr, context: &Context) -> Result<Option<Self>, Report> {
        let shown = file.as_bytes().to_vec();
        let failed = |error| Report::on("cannot compare", file.as_bytes(), error);
        Ok(match open::operand(file, context)? {
            Operand::Stdio => Some(Self { shown, input: Input::Stdin, size: None }),
            Operand::Image(_) => None,
            Operand::Host(path) => {
                let opened = input::open("cannot compare", &path)?;
                let meta = opened.metadata().map_err(failed)?;
                if meta.is_dir() {
                    return Err(Report::on("cannot compare", file.as_bytes(), "is a directory"));
                }
                let size = meta.is_file().then_some(meta.len());
                Some(Self { shown, input: Input::Host(opened), size })
            }
        })
    }
}

impl Opened {
    fn find(self) -> Result<Compared, Report> {
        let location = match self {
            Self::Image(location) => location,
            Self::Other(file) => return Ok(file),
        };
        let shown = location.shown();
        let mut found = location.find(Symlinks::Follow, "cannot compare")?;
        let found = match (found.pop(), found.is_empty()) {
            (Some(found), true) => found,
            _ => return Err(Report::on("cannot compare", shown, "the pattern matches several files")),
        };
        let failed = |error| Report::on("cannot compare", found.shown(), error);
        let attr = found.node.attr().map_err(failed)?;
        match attr.kind {
            FileKind::Regular => {
                let (shown, size) = (found.shown(), Some(attr.size));
                Ok(Compared { shown, input: Input::Image(found.node), size })
            }
            FileKind::Directory => {
                let report = Report::on("cannot compare", found.shown(), "is a directory");
                Err(report.help("use 'obento diff -r' to compare directories"))
            }
            kind => {
                let cause = crate::format::mode::not_regular(kind);
                Err(Report::on("cannot compare", found.shown(), cause))
            }
        }
    }
}

/// The unread bytes of a file.
struct Side<'f> {
    file: &'f Compared,
    stream: Stream<'f>,
    buffer: Vec<u8>,
    /// The bytes of `buffer` that are not compared yet.
    from: usize,
    to: usize,
    /// Zeros that are not compared yet; only if `buffer` has no bytes left.
    zeros: u64,
    skipped: u64,
}

impl<'f> Side<'f> {
    fn new(file: &'f Compared, skip: u64) -> Result<Self, Report> {
        let mut stream = Stream::new(&file.input);
        stream.skip_to(skip).map_err(|error| Report::on("cannot compare", &file.shown, error))?;
        Ok(Self { file, stream, buffer: vec![0; CHUNK], from: 0, to: 0, zeros: 0, skipped: skip })
    }

    /// Reads if no bytes are left. Returns the number of bytes that are left, which is 0 at the end.
    fn fill(&mut self) -> Result<u64, Report> {
        if self.from == self.to && self.zeros == 0 {
            (self.from, self.to) = (0, 0);
            match self.stream.next(&mut self.buffer) {
                Ok(Piece::Data(len)) => self.to = len,
                Ok(Piece::Hole(len)) => self.zeros = len,
                Ok(Piece::End) => {}
                Err(error) => return Err(Report::on("cannot compare", &self.file.shown, error)),
            }
        }
        Ok(self.zeros + (self.to - self.from) as u64)
    }

    /// Returns `len` bytes, which [`fill`](Self::fill) returned, of data or zeros.
    fn bytes<'b>(&'b self, len: usize, zeros: &'b [u8]) -> &'b [u8] {
        if self.zeros > 0 { &zeros[..len] } else { &self.buffer[self.from..self.from + len] }
    }

    fn consume(&mut self, len: u64) {
        match self.zeros {
            0 => self.from += usize::try_from(len).unwrap_or(0),
            _ => self.zeros -= len,
        }
    }
}

struct Comparison<'a> {
    args: &'a Args,
    context: &'a Context,
    out: Output,
    differs: bool,
    /// The bytes and the newlines that were compared.
    at: u64,
    lines: u64,
    is_line_start: bool,
    left: u64,
    width: usize,
}

impl<'a> Comparison<'a> {
    fn new(args: &'a Args, sides: &[Side<'_>; 2], context: &'a Context) -> Self {
        let left = args.bytes.unwrap_or(u64::MAX);
        let sizes = sides.iter().filter_map(|side| Some(side.file.size?.saturating_sub(side.skipped)));
        let most = sizes.fold(left.min(i64::MAX as u64), u64::min);
        let (out, width) = (Output::stdout(), most.to_string().len());
        Self { args, context, out, differs: false, at: 0, lines: 0, is_line_start: true, left, width }
    }

    /// Compares until the first difference, or with `-l` to the end. Returns the index of the file that ended first.
    fn run(&mut self, sides: &mut [Side<'_>; 2]) -> Result<Option<usize>, Stop> {
        let zeros = vec![0; CHUNK];
        while self.left > 0 {
            go_on()?;
            let (left, right) = (sides[0].fill()?, sides[1].fill()?);
            let len = left.min(right).min(self.left);
            if len == 0 {
                let ended = if left == 0 { 0 } else { 1 };
                self.differs |= left != right;
                return Ok(Some(ended).filter(|_| left != right));
            }
            if sides.iter().all(|side| side.zeros > 0) {
                self.at += len;
                self.is_line_start = false;
                self.left -= len;
                sides.iter_mut().for_each(|side| side.consume(len));
                continue;
            }
            let part = usize::try_from(len).map_or(CHUNK, |len| len.min(CHUNK));
            let (a, b) = (sides[0].bytes(part, &zeros), sides[1].bytes(part, &zeros));
            if a != b && !self.difference(a, b, sides)? {
                return Ok(None);
            }
            self.lines += memchr_iter(b'\n', a).count() as u64;
            self.is_line_start = a.last() == Some(&b'\n');
            self.at += part as u64;
            self.left -= part as u64;
            sides.iter_mut().for_each(|side| side.consume(part as u64));
        }
        Ok(None)
    }

    /// Prints the differences of `a` and `b`. Returns whether the comparison continues.
    fn difference(&mut self, a: &[u8], b: &[u8], sides: &[Side<'_>; 2]) -> Result<bool, Stop> {
        self.differs = true;
        if self.args.quiet {
            return Ok(false);
        }
        let pairs = a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b);
        for (index, (&one, &other)) in pairs {
            let byte = self.at + index as u64 + 1;
            if !self.args.verbose {
                let line = self.lines + memchr_iter(b'\n', &a[..index]).count() as u64 + 1;
                self.first([one, other], byte, line, sides)?;
                return Ok(false);
            }
            if self.context.json() {
                self.json([one, other], byte, None, sides)?;
                continue;
            }
            write!(self.out, "{byte:width$} {one:3o}", width = self.width)?;
            if self.args.print_bytes {
                writeln!(self.out, " {:4} {other:3o} {}", visible(one), visible(other))?;
            } else {
                writeln!(self.out, " {other:3o}")?;
            }
        }
        Ok(true)
    }

    fn first(&mut self, bytes: [u8; 2], byte: u64, line: u64, sides: &[Side<'_>; 2]) -> Outcome {
        if self.context.json() {
            return self.json(bytes, byte, Some(line), sides);
        }
        self.out.write_name(&sides[0].file.shown)?;
        self.out.write_all(b" ")?;
        self.out.write_name(&sides[1].file.shown)?;
        write!(self.out, " differ: byte {byte}, line {line}")?;
        if self.args.print_bytes {
            let [one, other] = bytes;
            write!(self.out, " is {one:3o} {} {other:3o} {}", visible(one), visible(other))?;
        }
        Ok(writeln!(self.out)?)
    }

    fn json(&mut self, bytes: [u8; 2], byte: u64, line: Option<u64>, sides: &[Side<'_>; 2]) -> Outcome {
        let [left, right] = sides;
        let text = Line::new("byte").bytes("left", &left.file.shown).bytes("right", &right.file.shown);
        let text = text.field("offset", byte - 1).field("left_byte", bytes[0]).field("right_byte", bytes[1]);
        let text = match line {
            Some(line) => text.field("line", line),
            None => text,
        };
        Ok(text.write(&mut self.out)?)
    }

    /// Returns the report of the file that ended first.
    fn end_of(&self, side: &Side<'_>) -> Report {
        let what = "the files differ";
        let name = crate::report::subject(&side.file.shown);
        match (self.at, self.args.verbose, self.is_line_start) {
            (0, ..) if side.skipped > 0 => {
                let skipped = Quantity::new(side.skipped, "byte");
                Report::new(what, format!("EOF on {name}, which has at most {skipped}"))
            }
            (0, ..) => Report::new(what, format!("EOF on {name}, which is empty")),
            (at, true, _) => Report::new(what, format!("EOF on {name} after byte {at}")),
            (at, false, true) => {
                Report::new(what, format!("EOF on {name} after byte {at}, line {}", self.lines))
            }
            (at, false, false) => {
                Report::new(what, format!("EOF on {name} after byte {at}, in line {}", self.lines + 1))
            }
        }
    }
}

/// Returns a byte as GNU cmp prints it: `^A` for control characters, `M-` before bytes from 128 on.
fn visible(byte: u8) -> String {
    let (prefix, byte) = if byte >= 128 { ("M-", byte - 128) } else { ("", byte) };
    match byte {
        0..32 => format!("{prefix}^{}", char::from(byte + 64)),
        127 => format!("{prefix}^?"),
        _ => format!("{prefix}{}", char::from(byte)),
    }
}
