//! `obento write`: writes standard input to a file of an image.

use std::ffi::OsString;
use std::io::{self, Read};

use obento::base::{FileKind, Quantity};
use obento::copy::read_full;
use obento::host::interrupt;
use obento::vfs::Caller;
use obento::{Error, Node};

use crate::cause::Cause;
use crate::change::immutable;
use crate::context::Context;
use crate::files::StreamError;
use crate::help::page::Page;
use crate::open::{Location, open_for_change};
use crate::output::Outcome;
use crate::report::Report;

/// Bytes that are moved at once.
const CHUNK: usize = 1 << 20;

/// The page of `write`.
pub const PAGE: Page = Page::new(&[
    ("echo myhost | obento write disk.img:/etc/hostname", "Replace the contents of a file"),
    ("echo 10.0.0.1 db | obento write -a disk.img:/etc/hosts", "Append a line to a file"),
])
.see_also(&["tee(1)"]);

/// Write standard input to a file
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A file in an image; created if it does not exist
    #[arg(value_name = "IMAGE:PATH")]
    path: OsString,
    /// Append to the file
    #[arg(short, long)]
    append: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    crate::open::seal_before_decoding(
        [&args.path],
        crate::open::BareOperand::HostFile,
        obento::driver::Access::ReadWrite,
        context,
    );
    let location = match open_for_change(&args.path, context) {
        Ok(location) => location,
        Err(report) => {
            context.warn(&report);
            return Ok(());
        }
    };
    context.seal();
    let mut input = io::stdin().lock();
    if let Err(report) = write(&location, args, &mut input, context) {
        context.warn(&report);
    }
    Ok(())
}

fn write(location: &Location, args: &Args, input: &mut dyn Read, context: &Context) -> Result<(), Report> {
    let failed = |error: &dyn Cause| Report::on("cannot write to", location.shown(), error);
    let mut buffer = vec![0; CHUNK];
    // Read first: an error of the input must not cost the old contents.
    let mut len =
        read_full(input, &mut buffer).map_err(|error| Report::new("cannot read standard input", error))?;
    let (node, is_new) =
        location.open_or_create(0o666).map_err(|error| location.failed("cannot write to", error))?;
    match node.kind().map_err(|error| failed(&error))? {
        FileKind::Regular => {}
        kind => return Err(failed(&crate::format::mode::not_regular(kind))),
    }
    if !is_new && !args.append {
        let truncated = node.vfs().truncate(&Caller::Owner, &node, 0);
        truncated.map_err(|error| immutable(failed(&error), error, location.shown()))?;
    }
    let mut written = 0;
    while len > 0 {
        append(&node, &buffer[..len], &mut written).map_err(|error| {
            let report = failed(&StreamError::After { error: Box::new(error.into()), bytes: written });
            location.with_cause(report, error)
        })?;
        if interrupt::is_requested() {
            let len = Quantity::new(written, "byte");
            context.note(&location.shown(), format!("interrupted after {len} of standard input"));
            break;
        }
        len = read_full(input, &mut buffer).map_err(|error| {
            let error = StreamError::After { error: Box::new(error.into()), bytes: written };
            Report::new("cannot read standard input", error)
        })?;
    }
    Ok(())
}

fn append(node: &Node, mut bytes: &[u8], written: &mut u64) -> Result<(), Error> {
    while !bytes.is_empty() {
        let (_, len) = node.append(bytes)?;
        *written += len as u64;
        bytes = &bytes[len..];
    }
    Ok(())
}
