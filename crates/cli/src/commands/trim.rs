//! `obento trim`: gives the free space of a volume back to the host.

use std::ffi::OsString;

use obento::Error;

use crate::change::Tell;
use crate::change::each_volume;
use crate::context::Context;
use crate::format::size::{Unit, parse_length};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// Give free space back to the host: an image gets holes where nothing is, a device is told to forget it
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images; the whole volume is trimmed
    #[arg(required = true, value_name = "IMAGE")]
    paths: Vec<OsString>,
    /// Leave free runs below SIZE
    #[arg(short, long, value_name = "SIZE", value_parser = parse_length, default_value = "0")]
    minimum: u64,
    /// Tell how much it was
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut tell = Tell::new(args.verbose);
    each_volume(&args.paths, context, |location| {
        let trimmed = location.volume.trim(args.minimum).map_err(|error| {
            let report = Report::on("cannot trim", location.shown(), error);
            match error == Error::NotSupported {
                true => report.help("this file system cannot tell what is free"),
                false => report,
            }
        })?;
        let size = Unit::Human.text(trimmed);
        tell.say(|| format!("{}: {size} ({trimmed} bytes) trimmed", subject(location.shown())));
        Ok(())
    });
    tell.finish()
}
