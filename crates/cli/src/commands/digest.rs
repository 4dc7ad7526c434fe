//! `obento sha256sum` and the commands like it: prints checksums, and checks those of a list.

mod algorithm;
mod list;

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;

use obento::vfs::Symlinks;

use algorithm::Algorithm;

use crate::context::Context;
use crate::files::stream::{CHUNK, zeros};
use crate::files::{Below, Piece, Results, Said, Stream, StreamError, Task, Tasks, in_order, open_all};
use crate::help::page::Page;
use crate::json::{Line, hex};
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The page of `sha256sum`.
pub const SHA256_PAGE: Page = Page::new(&[
    ("obento sha256sum -r disk.img:/usr > sums", "Print the checksums of all files below /usr"),
    ("obento sha256sum --check sums", "Compare the files of an image with a list that obento printed"),
    (
        "obento sha256sum -c tree.sums --root disk.img:/srv",
        "Compare a directory with a list that names files relative to it",
    ),
])
.see_also(&["sha256sum(1)"]);

/// The page of `sha512sum`.
pub const SHA512_PAGE: Page =
    Page::new(&[("obento sha512sum disk.img:/boot/vmlinuz", "Print a checksum")]).see_also(&["sha512sum(1)"]);

/// The page of `sha1sum`.
pub const SHA1_PAGE: Page =
    Page::new(&[("obento sha1sum disk.img:/boot/vmlinuz", "Print a checksum")]).see_also(&["sha1sum(1)"]);

/// The page of `md5sum`.
pub const MD5_PAGE: Page = Page::new(&[(
    "obento md5sum -c bash.md5sums --root disk.img",
    "Compare files with the checksums of a Debian package",
)])
.see_also(&["md5sum(1)"]);

/// The page of `b3sum`.
pub const B3_PAGE: Page =
    Page::new(&[("obento b3sum -r disk.img:/srv", "Print the checksums of a directory")])
        .see_also(&["b3sum(1)"]);

/// The options of the commands that print checksums.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images; - is standard input. With --check, lists of checksums on the host
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Print the checksums of all files below directories
    #[arg(short, long, conflicts_with = "check")]
    recursive: bool,
    /// Compare files with the checksums in lists
    #[arg(short, long)]
    check: bool,
    /// Resolve the names in the lists relative to this directory of an image. If all names start with the same image,
    /// as in lists that obento printed, the directory replaces this part of the names. If IMAGE has
    /// several file systems, a name such as disk.img@2:/path refers to partition 2
    #[arg(long, value_name = "IMAGE[:/DIR]", requires = "check")]
    root: Option<OsString>,
    /// Print lines in the BSD format
    #[arg(long, conflicts_with = "check")]
    tag: bool,
    /// End each line with NUL instead of a newline, and do not escape names
    #[arg(short, long)]
    zero: bool,
    /// Do not print OK for each file that is verified
    #[arg(long, requires = "check")]
    quiet: bool,
    /// Print nothing; the exit status is the result
    #[arg(long, requires = "check")]
    status: bool,
    /// Skip files that do not exist
    #[arg(long, requires = "check")]
    ignore_missing: bool,
    /// Fail if a list contains a malformed line
    #[arg(long, requires = "check")]
    strict: bool,
    /// Report each malformed line of a list
    #[arg(short, long, requires = "check")]
    warn: bool,
    /// Ignored, for compatibility
    #[arg(short, long, hide = true)]
    binary: bool,
    /// Ignored, for compatibility
    #[arg(short, long, hide = true, overrides_with = "binary")]
    text: bool,
}

/// Runs `sha256sum`.
pub fn sha256(args: &Args, context: &Context) -> Outcome {
    run(Algorithm::Sha256, args, context)
}

/// Runs `sha512sum`.
pub fn sha512(args: &Args, context: &Context) -> Outcome {
    run(Algorithm::Sha512, args, context)
}

/// Runs `sha1sum`.
pub fn sha1(args: &Args, context: &Context) -> Outcome {
    run(Algorithm::Sha1, args, context)
}

/// Runs `md5sum`.
pub fn md5(args: &Args, context: &Context) -> Outcome {
    run(Algorithm::Md5, args, context)
}

/// Runs `b3sum`.
pub fn blake3(args: &Args, context: &Context) -> Outcome {
    run(Algorithm::Blake3, args, context)
}

fn run(algorithm: Algorithm, args: &Args, context: &Context) -> Outcome {
    if args.check {
        return list::run(algorithm, args, context);
    }
    let below = if args.recursive { Below::Read(Symlinks::Keep) } else { Below::RefuseWithoutOption };
    let opened = open_all(&args.paths, below, context);
    let mut out = Output::stdout();
    each(algorithm, Tasks::new(opened, below), |said| {
        match said {
            Said::Done(Sum { shown, sum: Ok(sum), .. }) if context.json() => {
                let line = Line::new("checksum").bytes("path", &shown).field("algorithm", algorithm.name());
                line.field("checksum", sum).write(&mut out)?;
            }
            Said::Done(Sum { shown, sum: Ok(sum), .. }) => print(algorithm, args, &shown, &sum, &mut out)?,
            Said::Done(Sum { shown, sum: Err(error), .. }) => {
                context.warn(&Report::on("cannot read", shown, error));
            }
            Said::Fault(report) => context.warn(&report),
            Said::Bytes(_) => {}
        }
        Ok(())
    })?;
    out.finish()
}

/// The checksum of a file.
struct Sum {
    /// The index of the task.
    index: usize,
    shown: Vec<u8>,
    sum: Result<String, StreamError>,
}

/// Passes the checksum of each task to `take`.
fn each(
    algorithm: Algorithm,
    tasks: impl Iterator<Item = Result<Task, Report>>,
    mut take: impl FnMut(Said<Sum>) -> Outcome,
) -> Outcome {
    let work = |task: &Task, sink: &mut Results<'_, Sum>| {
        let sum = sum(algorithm, task, sink);
        sink.done(Sum { index: task.index, shown: task.shown.clone(), sum });
    };
    in_order(tasks, work, |said| take(said).map(ControlFlow::Continue))
}

fn sum(algorithm: Algorithm, task: &Task, sink: &Results<'_, Sum>) -> Result<String, StreamError> {
    let mut hasher = algorithm.hasher();
    let mut stream = Stream::new(&task.input);
    let mut buffer = vec![0; CHUNK.min(usize::try_from(task.size).map_or(CHUNK, |size| size.max(4096)))];
    while !sink.is_stopped() {
        match stream.next(&mut buffer)? {
            Piece::End => break,
            Piece::Data(len) => hasher.update(&buffer[..len]),
            Piece::Hole(len) => {
                // The error ends a hole whose checksum is not wanted any more.
                let _ = zeros(len, |bytes| {
                    hasher.update(bytes);
                    if sink.is_stopped() { Err(()) } else { Ok(()) }
                });
            }
        }
    }
    Ok(hex(&hasher.finish()))
}

fn print(algorithm: Algorithm, args: &Args, shown: &[u8], sum: &str, out: &mut Output) -> Outcome {
    let needs_escape = !args.zero && shown.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
    let name = match needs_escape {
        true => list::escaped(shown),
        false => out.shown(shown).into_owned(),
    };
    let name = if needs_escape { out.shown_escaped(&name).into_owned() } else { name };
    out.write_all(if needs_escape { b"\\" } else { b"" })?;
    if args.tag {
        write!(out, "{} (", algorithm.name())?;
        out.write_all(&name)?;
        write!(out, ") = {sum}")?;
    } else {
        write!(out, "{sum}  ")?;
        out.write_all(&name)?;
    }
    Ok(out.write_all(if args.zero { b"\0" } else { b"\n" })?)
}
