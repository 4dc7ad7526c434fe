//! `obento head`: prints the first lines or bytes of files.

use std::ffi::OsString;

use memchr::memchr_iter;

use super::tail::{Ends, Part, PrintStyle, Reading, each_reading};
use crate::context::Context;
use crate::files::lines::{Amount, Window, start_of_last};
use crate::files::stream::{CHUNK, zeros};
use crate::files::{Below, Input, Piece, Stream, Task, open_all};
use crate::help::page::Page;
use crate::output::{Outcome, go_on};

/// The page of `head`.
pub const PAGE: Page = Page::new(&[
    ("obento head -n 20 disk.img:/var/log/syslog", "Print the first 20 lines of a file"),
    ("obento head -c 512 disk.img:/boot/mbr.bin | xxd", "Print the first 512 bytes of a file"),
])
.see_also(&["head(1)"]);

/// Print the first lines of files
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images; - is standard input
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Print the first N lines (default 10); with a minus sign, all but the last N lines. -20 is short for -n 20
    #[arg(short = 'n', long, value_name = "[-]N", allow_hyphen_values = true, overrides_with_all = ["lines", "bytes"])]
    lines: Option<String>,
    /// Print the first N bytes; with a minus sign, all but the last N bytes
    #[arg(short = 'c', long, value_name = "[-]N", allow_hyphen_values = true, overrides_with_all = ["lines", "bytes"])]
    bytes: Option<String>,
    #[command(flatten)]
    style: PrintStyle,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let part =
        Part::parse(args.lines.as_deref(), args.bytes.as_deref(), args.style.zero_terminated, Ends::Head)?;
    let opened = open_all(&args.paths, Below::Refuse, context);
    let header = args.style.header(opened.len());
    each_reading(opened, header, context, |reading| match part.is_inverse {
        true => all_but(reading, part.amount),
        false => first(reading, part.amount),
    })
}

fn first(reading: &mut Reading<'_>, amount: Amount) -> Outcome {
    let task: &Task = reading.task;
    let mut stream = Stream::new(&task.input);
    let (mut left, end) = match amount {
        Amount::Bytes(count) => (count, None),
        Amount::Lines(count, end) => (count, Some(end)),
    };
    let mut buffer = vec![0; CHUNK];
    while left > 0 {
        go_on()?;
        let want = match end {
            None => usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK)),
            Some(_) => CHUNK,
        };
        match stream.next(&mut buffer[..want]) {
            Ok(Piece::End) => break,
            Ok(Piece::Data(len)) => {
                let bytes = &buffer[..len];
                let (len, done) = match end {
                    None => (len, len as u64),
                    Some(end) => up_to(bytes, end, left),
                };
                reading.write(&bytes[..len])?;
                left -= done;
            }
            Ok(Piece::Hole(len)) => {
                // Zeros end lines only if NUL does.
                let counts = end.is_none_or(|end| end == 0);
                let len = if counts { len.min(left) } else { len };
                zeros(len, |bytes| reading.write(bytes))?;
                left -= if counts { len } else { 0 };
            }
            Err(error) => {
                reading.failed(error);
                break;
            }
        }
    }
    Ok(())
}

/// Returns the length of the first `most` lines of `bytes`, and the number of ends in it.
fn up_to(bytes: &[u8], end: u8, most: u64) -> (usize, u64) {
    let mut count = 0;
    for at in memchr_iter(end, bytes) {
        count += 1;
        if count == most {
            return (at + 1, count);
        }
    }
    (bytes.len(), count)
}

fn all_but(reading: &mut Reading<'_>, amount: Amount) -> Outcome {
    match &reading.task.input {
        Input::Image(node) => match start_of_last(node, amount) {
            Ok(end) => reading.range(0..end),
            Err(error) => {
                reading.failed(error);
                Ok(())
            }
        },
        _ => {
            let mut window = Window::new(amount);
            reading.chunks(0, |reading, bytes| window.push(bytes, |bytes| reading.write(bytes)))?;
            let (bytes, start) = window.finish();
            reading.write(&bytes[..start])
        }
    }
}
