//! `obento truncate`: sets the size of files.

use std::ffi::OsString;

use obento::base::FileKind;
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use crate::change::{Done, each_place_by};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::{Location, open};
use crate::output::Outcome;
use crate::parse::size;
use crate::report::Report;

/// The page of `truncate`.
pub const PAGE: Page = Page::new(&[("obento truncate -s 10M disk.img:/swapfile", "Set the size of a file")])
    .see_also(&["truncate(1)"]);

/// Set the size of files
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento truncate [OPTIONS] --size <SIZE> <IMAGE:PATH>...\n       obento truncate [OPTIONS] --reference <IMAGE:FILE> <IMAGE:PATH>...",
    group = clap::ArgGroup::new("new_size").required(true).multiple(true).args(["size", "reference"])
)]
pub struct Args {
    /// Files in images; created if they do not exist
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    #[arg(short, long, help = "The new size, such as 4096 or 1M. +SIZE extends and -SIZE reduces the file; <SIZE and >SIZE set a maximum and a minimum; /SIZE and %SIZE round down and up to a multiple", value_parser = SizeChange::parse, allow_hyphen_values = true)]
    size: Option<SizeChange>,
    /// Use the size of FILE; a SIZE such as +1M then changes this size
    #[arg(short, long, value_name = "IMAGE:FILE")]
    reference: Option<OsString>,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// SIZE is a number of blocks of the file system
    #[arg(short = 'o', long)]
    io_blocks: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SizeChange {
    how: SizeOperation,
    amount: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SizeOperation {
    Set,
    Add,
    Subtract,
    AtMost,
    AtLeast,
    RoundDown,
    RoundUp,
}

impl SizeChange {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_start();
        let (how, size) = match text.as_bytes().first() {
            Some(b'+') => (SizeOperation::Add, &text[1..]),
            Some(b'-') => (SizeOperation::Subtract, &text[1..]),
            Some(b'<') => (SizeOperation::AtMost, &text[1..]),
            Some(b'>') => (SizeOperation::AtLeast, &text[1..]),
            Some(b'/') => (SizeOperation::RoundDown, &text[1..]),
            Some(b'%') => (SizeOperation::RoundUp, &text[1..]),
            _ => (SizeOperation::Set, text),
        };
        let amount = size::size(size)?;
        if amount == 0 && matches!(how, SizeOperation::RoundDown | SizeOperation::RoundUp) {
            return Err("the size to round to must not be 0".to_owned());
        }
        Ok(Self { how, amount })
    }

    /// Returns the new size of a file of `size` bytes; the amount counts `unit` bytes. `None` if it is too large.
    fn apply(self, size: u64, unit: u64) -> Option<u64> {
        let amount = self.amount.checked_mul(unit)?;
        Some(match self.how {
            SizeOperation::Set => amount,
            SizeOperation::Add => size.checked_add(amount)?,
            SizeOperation::Subtract => size.saturating_sub(amount),
            SizeOperation::AtMost => size.min(amount),
            SizeOperation::AtLeast => size.max(amount),
            SizeOperation::RoundDown => size - size % amount,
            SizeOperation::RoundUp => size.checked_next_multiple_of(amount)?,
        })
    }
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if let (Some(SizeChange { how: SizeOperation::Set, .. }), Some(_)) = (args.size, &args.reference) {
        let report = Report::new("cannot combine --size with --reference", "--size is not relative");
        return Err(report.help("start the size with + - < > / or %").into());
    }
    let mut reference = None;
    each_place_by(&args.paths, args.reference.as_ref(), context, |location| {
        if let (Some(file), None) = (&args.reference, reference) {
            reference = Some(size_of(file, context)?);
        }
        truncate(location, args, reference)
    });
    Ok(())
}

fn size_of(file: &OsString, context: &Context) -> Result<u64, Report> {
    let location = open(file, context)?;
    let size = location.volume.resolve(&location.place, Symlinks::Follow).and_then(|node| node.attr());
    size.map(|attr| attr.size).map_err(|error| location.not_found("cannot access", error))
}

/// The start of error messages about a file.
const ACTION: &str = "cannot truncate";

fn truncate(location: &Location, args: &Args, reference: Option<u64>) -> Done {
    let failed = |error: Error| location.with_cause(Report::on(ACTION, location.shown(), error), error);
    let found = match location.volume.resolve(&location.place, Symlinks::Follow) {
        Err(error) if error == Error::NotFound && args.no_create => return Ok(()),
        Err(error) if error == Error::NotFound => {
            let made = location.open_or_create(0o666).map(|(node, _)| node);
            made.map_err(|error| location.failed(ACTION, error))
        }
        found => found.map_err(failed),
    };
    let node = found?;
    let size = new_size(&node, args, reference).map_err(failed)?;
    node.vfs().truncate(&Caller::Owner, &node, size).map_err(failed)
}

fn new_size(node: &Node, args: &Args, reference: Option<u64>) -> Result<u64, Error> {
    let attr = node.attr()?;
    match attr.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Error::IsDirectory),
        _ => return Err(Error::Invalid),
    }
    let size = reference.unwrap_or(attr.size);
    let unit = if args.io_blocks { u64::from(attr.block_size) } else { 1 };
    args.size.map_or(Some(size), |change| change.apply(size, unit)).ok_or(Error::FileTooBig)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_change_as_in_coreutils() {
        let size = |text: &str, unit| SizeChange::parse(text).unwrap().apply(1000, unit);
        for (text, expected) in [
            ("0", 0),
            ("1K", 1024),
            ("+24", 1024),
            ("-1001", 0),
            ("-1", 999),
            ("<500", 500),
            ("<5000", 1000),
            (">5000", 5000),
            ("/300", 900),
            ("%300", 1200),
        ] {
            assert_eq!(size(text, 1), Some(expected), "{text}");
        }
        assert_eq!(size("2", 4096), Some(8192));
        assert_eq!(size("+16", 1 << 60), None);
        for bad in ["", "x", "/0", "%0", "+", "1X", "--1", "16E"] {
            assert!(SizeChange::parse(bad).is_err(), "{bad:?}");
        }
    }
}
