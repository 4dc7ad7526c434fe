//! `obento sync`: replays the journal of a volume.

use std::ffi::OsString;

use crate::change::each_volume;
use crate::context::Context;
use crate::help::page::Page;
use crate::output::Outcome;
use crate::report::Report;

/// The page of `sync`.
pub const PAGE: Page =
    Page::new(&[("obento sync disk.img", "Replay the journal of an image that was in use")])
        .see_also(&["sync(1)"]);

/// Replay the journal of an image
///
/// A command that changes an image leaves no dirty journal. Use this command for an image that was not closed: after a power failure,
/// or for a copy of a mounted disk.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images; the whole volume is synchronised
    #[arg(required = true, value_name = "IMAGE")]
    paths: Vec<OsString>,
    /// Ignored, for compatibility
    #[arg(short, long, hide = true)]
    data: bool,
    /// Ignored, for compatibility
    #[arg(short, long, hide = true)]
    file_system: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    each_volume(&args.paths, context, |location| {
        let synced = location.volume.sync();
        synced.map_err(|error| Report::on("cannot synchronise", location.shown(), error))
    });
    Ok(())
}
