//! `obento hexdump`: prints bytes as `hexdump -C` does.

use std::ffi::OsString;
use std::io::Write;

use crate::context::Context;
use crate::files::{Below, Input, Piece, Stream, StreamError, Tasks, open_all};
use crate::help::page::Page;
use crate::output::{Outcome, Output, Stop, go_on};
use crate::parse::size::size;
use crate::report::Report;

/// The bytes of a line.
const LINE: usize = 16;

/// The page of `hexdump`.
pub const PAGE: Page = Page::new(&[(
    "obento hexdump -s 0x200 -n 64 disk.img:/boot/kernel",
    "Print 64 bytes of a file from byte 512 on",
)])
.see_also(&["hexdump(1)", "xxd(1)"]);

/// Print the bytes of files in hexadecimal and as text
///
/// The output is that of 'hexdump -C'. Several files are printed as one.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images; - is standard input
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Hexadecimal and text, which is the only format
    #[arg(short = 'C', long)]
    canonical: bool,
    /// Print at most LENGTH bytes
    #[arg(short = 'n', long, value_name = "LENGTH", value_parser = offset)]
    length: Option<u64>,
    /// Skip the first OFFSET bytes
    #[arg(short = 's', long, value_name = "OFFSET", value_parser = offset, default_value = "0")]
    skip: u64,
    /// Print all lines; without this option, * replaces lines that are the same as the line before
    #[arg(short = 'v', long)]
    no_squeezing: bool,
}

/// Parses a size, or a number in hexadecimal such as 0x200.
fn offset(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(digits) => {
            u64::from_str_radix(digits, 16).map_err(|_| format!("{text} is not a hexadecimal number"))
        }
        None => size(text),
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let opened = open_all(&args.paths, Below::Refuse, context);
    let end = args.length.map_or(u64::MAX, |length| args.skip.saturating_add(length));
    let mut dump = Dump::new(Output::stdout(), args.skip, end, args.no_squeezing);
    for task in Tasks::new(opened, Below::Refuse) {
        let task = match task {
            Ok(task) => task,
            Err(report) => {
                context.warn(&report);
                continue;
            }
        };
        // Bytes of earlier files count for the offset.
        let from = args.skip.saturating_sub(dump.passed);
        let mut stream = Stream::new(&task.input);
        let size = Some(task.size).filter(|_| !matches!(task.input, Input::Stdin));
        if let Err(error) = dump.file(&mut stream, from, size)? {
            context.warn(&Report::on("cannot read", &task.shown, error));
        }
    }
    dump.end()?;
    dump.out.finish()
}

/// The state of the output.
struct Dump {
    out: Output,
    /// The number of bytes of the files so far, skipped ones too.
    passed: u64,
    /// The offset at which the output ends.
    end: u64,
    all: bool,
    /// The bytes of the current line, and the offset of its first byte.
    line: Vec<u8>,
    at: u64,
    /// The bytes of the line before.
    before: Option<[u8; LINE]>,
    /// Whether `*` was printed for lines like `before`.
    is_squeezed: bool,
}

impl Dump {
    fn new(out: Output, at: u64, end: u64, all: bool) -> Self {
        Self { out, passed: 0, end, all, line: Vec::new(), at, before: None, is_squeezed: false }
    }

    /// Prints the bytes of a file from `from` on. The inner result is an error of reading.
    fn file(
        &mut self,
        stream: &mut Stream<'_>,
        from: u64,
        size: Option<u64>,
    ) -> Result<Result<(), StreamError>, Stop> {
        let start = self.passed;
        if let Err(error) = stream.skip_to(from) {
            return Ok(Err(error));
        }
        let mut buffer = vec![0; crate::files::stream::CHUNK];
        loop {
            go_on()?;
            let left = self.end.saturating_sub(start.saturating_add(stream.position()));
            if left == 0 {
                self.passed = start.saturating_add(stream.position());
                return Ok(Ok(()));
            }
            let want = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            match stream.next(&mut buffer[..want]) {
                Ok(Piece::Data(len)) => self.bytes(&buffer[..len])?,
                Ok(Piece::Hole(len)) => self.zeros(len.min(left))?,
                Ok(Piece::End) => break,
                Err(error) => return Ok(Err(error)),
            }
        }
        self.passed = start.saturating_add(size.unwrap_or_else(|| stream.position()));
        Ok(Ok(()))
    }

    fn bytes(&mut self, mut bytes: &[u8]) -> Outcome {
        while !bytes.is_empty() {
            let len = bytes.len().min(LINE - self.line.len());
            self.line.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            if self.line.len() == LINE {
                self.whole_line()?;
            }
        }
        Ok(())
    }

    /// Adds zeros. Lines of zeros that are squeezed are counted, not printed.
    fn zeros(&mut self, len: u64) -> Outcome {
        let mut left = len;
        while left > 0 {
            let is_zeros = self.is_squeezed && self.before == Some([0; LINE]) && self.line.is_empty();
            if is_zeros && left >= LINE as u64 {
                self.at += left - left % LINE as u64;
                left %= LINE as u64;
                continue;
            }
            let part = left.min((LINE - self.line.len()) as u64);
            self.bytes(&[0; LINE][..usize::try_from(part).unwrap_or(LINE)])?;
            left -= part;
        }
        Ok(())
    }

    fn whole_line(&mut self) -> Outcome {
        let line: [u8; LINE] = self.line.as_slice().try_into().unwrap_or_default();
        if !self.all && self.before == Some(line) {
            if !std::mem::replace(&mut self.is_squeezed, true) {
                self.out.write_all(b"*\n")?;
            }
        } else {
            self.is_squeezed = false;
            self.print()?;
        }
        self.before = Some(line);
        self.at += LINE as u64;
        self.line.clear();
        Ok(())
    }

    fn print(&mut self) -> Outcome {
        let mut text = format!("{:08x} ", self.at);
        for index in 0..LINE {
            let gap = if index == LINE / 2 { "  " } else { " " };
            match self.line.get(index) {
                Some(byte) => text.push_str(&format!("{gap}{byte:02x}")),
                None => text.push_str(&format!("{gap}  ")),
            }
        }
        text.push_str("  |");
        text.extend(self.line.iter().map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '.',
        }));
        text.push_str("|\n");
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Prints the last line and the length.
    fn end(&mut self) -> Outcome {
        if !self.line.is_empty() {
            self.print()?;
            self.at += self.line.len() as u64;
        }
        // Nothing is printed if there are no bytes. If all are skipped, the length is printed.
        let is_empty = self.before.is_none() && self.line.is_empty();
        match is_empty {
            true if self.passed == 0 || self.end == self.at => {}
            true => writeln!(self.out, "{:08x}", self.passed)?,
            false => writeln!(self.out, "{:08x}", self.at)?,
        }
        Ok(())
    }
}
