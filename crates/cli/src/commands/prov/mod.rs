//! `obento prov`: the history of the files of a volume that was used with the provenance layer.
//!
//! `log` reads the records, `select` filters them, and `paths` names their files. `tree` finds files in the image or in the
//! mount. `history`, `lineage`, `changed` and
//! `export` are the four forms of output.

mod args;
mod changed;
mod export;
mod history;
mod lineage;
mod log;
mod paths;
mod select;
mod tree;

use std::os::fd::AsFd as _;
use std::path::Path;

use obento::driver::Access;
use obento::host::sandbox::Rights;
use obento_fuse::MountPoint;
use rustix::fs::{Mode, OFlags};

use crate::commands::mount::{history as mount_history, own};
use crate::context::Context;
use crate::help::page::{LS_COLORS, PAGER, Page, TZ};
use crate::open::{self, BareOperand};
use crate::output::Outcome;
use crate::pager::Pager;
use crate::report::Report;

pub use self::args::Args;
use self::log::Log;
use self::select::Selection;

/// The page of `prov`.
pub const PAGE: Page = Page::new(&[
    ("obento prov disk.img -n 20", "Show the last 20 records of a volume"),
    ("obento prov mnt --of /bin/app", "Show the sources of /bin/app in the volume that is mounted at mnt"),
    ("obento prov disk.img --of /src/bad.c --forward", "Show the files that may contain data of /src/bad.c"),
    (
        "obento prov disk.img --changed-since 1200 -0 > changed",
        "List the files that changed in record 1200 or later",
    ),
    ("obento prov disk.img --export prov-json > prov.json", "Write the graph for other programs"),
])
.environment(&[TZ, LS_COLORS, PAGER]);

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if context.json() && args.export.is_some() {
        let report = Report::new("cannot show the history", "--export selects a format of its own");
        return Err(report.help("omit --json, or omit --export").into());
    }
    let mount = mounted_at(args, context)?;
    if mount.is_none() {
        expect_volume(args, context)?;
    }
    // Reads the file of the time zone too, which is possible only now.
    let selection = Selection::new(args.by.clone(), args.since.as_deref())?;
    let pager = args.of.as_ref().and_then(|_| Pager::prepare(context));
    let log = match &mount {
        Some(mount) => log_of_mount(mount, args, context)?,
        None => log_of_image(args, context)?,
    };
    match (&args.of, args.changed_since, args.export) {
        (Some(path), ..) => lineage::run(args, path, &log, selection.into_clock(), pager, context),
        (_, Some(sequence), _) => changed::run(args, sequence, &log, context),
        (.., Some(format)) => export::run(format, &log, context),
        _ => history::run(args, selection, &log, context),
    }
}

/// Returns the mount of `obento mount` that the operand names.
fn mounted_at(args: &Args, context: &Context) -> Result<Option<MountPoint>, Report> {
    let directory = Path::new(&args.image);
    if context.inside().is_some() || !directory.is_dir() {
        return Ok(None);
    }
    let what = "cannot show the history of";
    match own::mount_at(directory).map_err(|error| Report::on(what, args.image_bytes(), error))? {
        Some(mount) => Ok(Some(mount)),
        None => Err(Report::on(what, args.image_bytes(), "obento has mounted no volume at this directory")
            .help("name an image, or the directory of a mount with -o provenance")),
    }
}

/// Fails if the operand names a file in an image.
fn expect_volume(args: &Args, context: &Context) -> Result<(), Report> {
    if open::image_address(&args.image, context)?.place.is_none() {
        return Ok(());
    }
    let report = Report::on("cannot show the history of", args.image_bytes(), "not an image or a partition");
    Err(report.help("name the image, and the file with --of PATH"))
}

fn log_of_image(args: &Args, context: &Context) -> Result<Log, Report> {
    open::seal_before_decoding([&args.image], BareOperand::Image, Access::ReadOnly, context);
    let location = open::open(&args.image, context)?;
    context.seal();
    Log::open(&location)
}

/// Returns the log that the server of a mount sends, and gives up all rights but those to read files of the mount.
fn log_of_mount(mount: &MountPoint, args: &Args, context: &Context) -> Result<Log, Report> {
    let failed = |error: String| Report::on("cannot show the history of", args.image_bytes(), error);
    let history = mount_history::ask(mount).map_err(failed)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&args.image, flags, Mode::empty());
    let root = root.map_err(|error| failed(error.to_string()))?;
    context.confine(Rights::ReadBeneath { folders: &[root.as_fd()], trees: &[] });
    Log::of_mount(Path::new(&args.image), history)
}
