//! `obento prov`: the history of the files of a volume that was used with the provenance layer.
//!
//! `log` reads the records, `select` filters them, and `paths` names their files. `history`, `lineage`, `changed` and
//! `export` are the four forms of output.

mod changed;
mod export;
mod history;
mod lineage;
mod log;
mod paths;
mod select;

use std::ffi::OsString;

use crate::context::Context;
use crate::open::{self, BareOperand};
use crate::output::Outcome;
use crate::report::Report;
use obento::Access;

use self::export::ExportFormat;
use self::log::Log;
use self::select::{Selection, Who};

/// Show which programs created, read and changed files of a volume
///
/// A volume has this history if it was mounted with `-o provenance`. Without options, all records are listed, the newest
/// first. With --of, a tree shows the sources of a file. A program may have used each file that it opened for reading
/// before it finished writing. Each edge is possible, not certain. The image is not changed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Show the sources of the file PATH, and the programs that used them
    #[arg(long, value_name = "PATH", conflicts_with_all = ["by", "since", "changed_since", "export"])]
    of: Option<OsString>,
    /// With --of: show the sources of the file (the default)
    #[arg(long, requires = "of", conflicts_with = "forward")]
    back: bool,
    /// With --of: show the files that may contain data of the file
    #[arg(long, requires = "of")]
    forward: bool,
    /// Draw the tree with ASCII characters
    #[arg(long, requires = "of")]
    ascii: bool,
    /// Show only records of a process: a process ID, the name of a program, or uid=UID
    #[arg(long, value_name = "WHO")]
    by: Option<Who>,
    /// Show only records from TIME on: '2026-11-21 13:48', @1795268933, '3 days ago'
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Show at most N records
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Print the paths of files that were changed by the record with the number SEQUENCE or later, for an incremental backup
    #[arg(long, value_name = "SEQUENCE", conflicts_with_all = ["by", "since", "export", "lines"])]
    changed_since: Option<u64>,
    /// With --changed-since: end each path with a NUL
    #[arg(short = '0', long, requires = "changed_since")]
    null: bool,
    /// Write the whole graph to standard output
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["by", "since", "lines"])]
    export: Option<ExportFormat>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let address = open::address(&args.image, context)?;
    if address.place.is_some() {
        let report =
            Report::on("cannot show the history of", args.image_bytes(), "not an image or a partition");
        return Err(report.help("name the image, and the file with --of PATH").into());
    }
    // Reads the file of the time zone too, which is possible only now.
    let selection = Selection::new(args.by.clone(), args.since.as_deref())?;
    open::seal_before_decoding([&args.image], BareOperand::Image, Access::ReadOnly, context);
    let location = open::open(&args.image, context)?;
    context.seal();
    let log = Log::open(&location, context)?;
    match (&args.of, args.changed_since, args.export) {
        (Some(path), ..) => lineage::run(args, path, &log, selection.into_clock(), context),
        (_, Some(sequence), _) => changed::run(args, sequence, &log, context),
        (.., Some(format)) => export::run(format, &log, context),
        _ => history::run(args, selection, &log, context),
    }
}

impl Args {
    fn image_bytes(&self) -> Vec<u8> {
        std::os::unix::ffi::OsStrExt::as_bytes(self.image.as_os_str()).to_vec()
    }
}
