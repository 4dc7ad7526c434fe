//! `obento trim`: returns the free space of a volume to the host.

use std::ffi::OsString;

use obento::Error;

use crate::change::Verbose;
use crate::change::each_volume;
use crate::context::Context;
use crate::format::size::exact_size;
use crate::help::page::Page;
use crate::output::Outcome;
use crate::parse::size::size;
use crate::report::{Report, printable};

/// The page of `trim`.
pub const PAGE: Page =
    Page::new(&[("obento trim -v disk.img", "Turn the free space of an image into holes")])
        .see_also(&["fstrim(8)"]);

/// Return free space to the host
///
/// An image gets holes; a device discards the blocks.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images; the whole volume is trimmed
    #[arg(required = true, value_name = "IMAGE")]
    paths: Vec<OsString>,
    /// Skip free ranges of less than SIZE
    #[arg(short, long, value_name = "SIZE", value_parser = size, default_value = "0")]
    minimum: u64,
    /// Print the trimmed size
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut verbose = Verbose::new(args.verbose);
    each_volume(&args.paths, context, |location| {
        let trimmed = location.volume.trim(args.minimum).map_err(|error| match error {
            Error::NotSupported => {
                Report::on("cannot trim", location.shown(), "volumes of this type do not support trimming")
            }
            error => Report::on("cannot trim", location.shown(), error),
        })?;
        verbose.say(|| {
            let shown = location.shown();
            let shown = shown.strip_suffix(b":/").unwrap_or(&shown);
            format!("{}: {} trimmed", printable(shown), exact_size(trimmed))
        });
        Ok(())
    });
    verbose.finish()
}
