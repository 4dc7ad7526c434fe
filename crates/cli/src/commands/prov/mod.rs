//! `obento prov`: the history of the files of a volume that was used with the provenance layer.
//!
//! `log` reads the records, `select` filters them, and `paths` names their files. `history`, `lineage`, `changed` and
//! `export` are the four forms of output.

mod args;
mod changed;
mod export;
mod history;
mod lineage;
mod log;
mod paths;
mod select;

use crate::context::Context;
use crate::help::page::{LS_COLORS, PAGER, Page, TZ};
use crate::open::{self, BareOperand};
use crate::output::Outcome;
use crate::pager::Pager;
use crate::report::Report;
use obento::driver::Access;

pub use self::args::Args;
use self::log::Log;
use self::select::Selection;

/// The page of `prov`.
pub const PAGE: Page = Page::new(&[
    ("obento prov disk.img -n 20", "Show the last 20 records of a volume"),
    ("obento prov disk.img --of /bin/app", "Show the sources of /bin/app"),
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
    let address = open::address(&args.image, context)?;
    if address.place.is_some() {
        let report =
            Report::on("cannot show the history of", args.image_bytes(), "not an image or a partition");
        return Err(report.help("name the image, and the file with --of PATH").into());
    }
    // Reads the file of the time zone too, which is possible only now.
    let selection = Selection::new(args.by.clone(), args.since.as_deref())?;
    let pager = args.of.as_ref().and_then(|_| Pager::prepare(context));
    open::seal_before_decoding([&args.image], BareOperand::Image, Access::ReadOnly, context);
    let location = open::open(&args.image, context)?;
    context.seal();
    let log = Log::open(&location, context)?;
    match (&args.of, args.changed_since, args.export) {
        (Some(path), ..) => lineage::run(args, path, &log, selection.into_clock(), pager, context),
        (_, Some(sequence), _) => changed::run(args, sequence, &log, context),
        (.., Some(format)) => export::run(format, &log, context),
        _ => history::run(args, selection, &log, context),
    }
}
