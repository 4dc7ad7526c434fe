//! `obento fallocate`: allocates and frees space of files as fallocate(1) of util-linux does.

use std::ffi::OsString;

use obento::base::{FileFlags, Quantity};
use obento::driver::{Size, StoredProperties};
use obento::host::interrupt;
use obento::vfs::Symlinks;
use obento::{Error, Node};

use crate::change::{Done, Verbose, each_place, immutable};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::Location;
use crate::output::Outcome;
use crate::parse::size::size;
use crate::report::{Report, printable};

/// The number of bytes that are searched for zeros at once.
const CHUNK: usize = 1 << 20;

/// The page of `fallocate`.
pub const PAGE: Page = Page::new(&[
    ("obento fallocate -l 1G disk.img:/db", "Allocate space for a file"),
    ("obento fallocate -d disk.img:/db", "Turn zeros into holes"),
])
.see_also(&["fallocate(1)", "fallocate(2)"]);

/// Allocate or free space of files
#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("action").args(["collapse_range", "insert_range", "punch_hole", "zero_range", "dig_holes"]))]
#[command(
    override_usage = "obento fallocate [OPTIONS] --length <SIZE> <IMAGE:PATH>...\n       obento fallocate [OPTIONS] --dig-holes <IMAGE:PATH>..."
)]
#[command(group = clap::ArgGroup::new("range").required(true).multiple(true).args(["length", "dig_holes"]))]
pub struct Args {
    /// Files in images; a missing file is created if space is to be allocated
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// The length of the range, such as 4096 or 10MiB
    #[arg(short, long, value_parser = size)]
    length: Option<u64>,
    /// The start of the range
    #[arg(short, long, value_parser = size, default_value = "0")]
    offset: u64,
    /// Do not change the size of the file
    #[arg(short = 'n', long)]
    keep_size: bool,
    /// Turn the range into a hole
    #[arg(short, long)]
    punch_hole: bool,
    /// Turn the range into zeros whose space stays allocated
    #[arg(short, long)]
    zero_range: bool,
    /// Remove the range; the following data moves to the start of the range
    #[arg(short, long)]
    collapse_range: bool,
    /// Insert a hole; the following data moves to the end of the range
    #[arg(short, long)]
    insert_range: bool,
    /// Turn blocks of zeros into holes, in the range or in the whole file
    #[arg(short, long)]
    dig_holes: bool,
    /// Print what was done
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if args.length == Some(0) && !args.dig_holes {
        return Err(Report::plain("invalid length '0'").help("use a length such as 4096 or 10M").into());
    }
    let mut verbose = Verbose::new(args.verbose);
    each_place(&args.paths, context, |location| allocate(location, args, &mut verbose));
    verbose.finish()
}

fn allocate(location: &Location, args: &Args, verbose: &mut Verbose) -> Done {
    let makes = !(args.punch_hole || args.collapse_range || args.insert_range || args.dig_holes);
    let action = if makes { "cannot allocate space for" } else { "cannot change the space of" };
    let failed = |error: Error| {
        let report = Report::on(action, location.shown(), error);
        if error == Error::Invalid && (args.collapse_range || args.insert_range) {
            return report.help("the range must consist of whole blocks and end before the end of the file");
        }
        if error == Error::NotSupported {
            let advice = "the file system does not support files with holes";
            return location.without(StoredProperties::HOLES, report, advice);
        }
        immutable(location.with_cause(report, error), error, location.shown())
    };
    let found = match makes {
        true => {
            let made = location.open_or_create(0o666).map(|(node, _)| node);
            made.map_err(|error| location.failed(action, error))
        }
        false => location.volume.resolve(&location.place, Symlinks::Follow).map_err(failed),
    };
    let node = found?;
    expect_changeable(&node, makes && !args.zero_range).map_err(failed)?;
    let end = args.length.map_or(Some(u64::MAX), |length| args.offset.checked_add(length));
    let range = args.offset..end.ok_or_else(|| failed(Error::FileTooBig))?;
    let size = if args.keep_size { Size::Keep } else { Size::Grow };
    let len = range.end.saturating_sub(range.start);
    let (done, what) = match () {
        () if args.dig_holes => {
            let dug = dig(&node, range).map_err(failed)?;
            verbose.say(|| {
                format!("{}: {} converted to holes", printable(&location.shown()), Quantity::new(dug, "byte"))
            });
            return Ok(());
        }
        () if args.punch_hole => (node.punch(range), "converted to a hole"),
        () if args.zero_range => (node.zero_range(range, size), "zeroed"),
        () if args.collapse_range => (node.collapse(range), "removed"),
        () if args.insert_range => (node.insert(range), "inserted"),
        () => (node.allocate(range, size), "allocated"),
    };
    done.map_err(failed)?;
    verbose.say(|| format!("{}: {} {what}", printable(&location.shown()), Quantity::new(len, "byte")));
    Ok(())
}

/// Fails with `NotPermitted` if the flags of the file forbid the change, as fallocate(2) does: data can be allocated after
/// the data of an append-only file.
fn expect_changeable(node: &Node, only_adds: bool) -> Result<(), Error> {
    let forbidden = if only_adds { FileFlags::IMMUTABLE } else { FileFlags::IMMUTABLE | FileFlags::APPEND };
    let is_forbidden = node.attr()?.flags.intersects(forbidden);
    if is_forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Punches the blocks of zeros in `range`. Returns the number of bytes.
fn dig(node: &Node, range: std::ops::Range<u64>) -> Result<u64, Error> {
    let attr = node.attr()?;
    let block = usize::try_from(attr.block_size.max(1)).unwrap_or(CHUNK);
    let (mut buffer, mut dug) = (vec![0; CHUNK - CHUNK % block], 0);
    let mut at = range.start.next_multiple_of(block as u64);
    let end = range.end.min(attr.size);
    while at < end && !interrupt::is_requested() {
        let data = match node.seek_data(at) {
            Err(error) if error == Error::NoSuchOffset => break,
            data => data? / block as u64 * block as u64,
        };
        at = data.max(at);
        if at >= end {
            break;
        }
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let len = node.read_at(at, &mut buffer[..wanted])?;
        if len == 0 {
            break;
        }
        dug += dig_in(node, at, &buffer[..len], block, attr.size)?;
        at += len as u64;
    }
    Ok(dug)
}

/// Punches the zeros among `bytes`, which start at `start` in the file; adjacent blocks at once.
fn dig_in(node: &Node, start: u64, bytes: &[u8], block: usize, size: u64) -> Result<u64, Error> {
    let (mut hole, mut dug) = (start..start, 0);
    for (index, chunk) in bytes.chunks(block).enumerate() {
        let at = start + (index * block) as u64;
        let end = at + chunk.len() as u64;
        let is_whole = chunk.len() == block || end == size;
        let is_zero = is_whole && chunk.iter().all(|&byte| byte == 0);
        match is_zero {
            true if hole.end == at => hole.end = end,
            true => hole = at..end,
            false => {}
        }
        if !hole.is_empty() && (!is_zero || end == start + bytes.len() as u64) {
            dug += hole.end - hole.start;
            node.punch(hole.clone())?;
            hole = end..end;
        } else if !is_zero {
            hole = end..end;
        }
    }
    Ok(dug)
}
