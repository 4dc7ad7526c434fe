//! `obento sync`: brings a volume into order on stable storage.

use std::ffi::OsString;

use crate::change::each_volume;
use crate::context::Context;
use crate::output::Outcome;
use crate::report::Report;

/// Replay what an image's journal holds, and bring all of it to stable storage
///
/// Every command that changes an image does so at its end. This is for an image that was left in use: by a power cut,
/// or by a copy of a disk that was mounted.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images; the whole volume is synchronised
    #[arg(required = true, value_name = "IMAGE")]
    paths: Vec<OsString>,
    /// Accepted and ignored: always the whole volume
    #[arg(short, long, hide = true)]
    data: bool,
    /// Accepted and ignored: always the whole volume
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
