//! `obento undelete`: lists deleted files and copies them to the host.

mod extract;

use std::ffi::OsString;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use obento::sandbox::Rights;
use obento::{Access, BlockDevice, Certainty, DeletedFile, ImageFile, Timestamp};

use self::extract::Extraction;
use crate::context::Context;
use crate::find::{Case, Pattern};
use crate::format::time::{Clock, TimeStyle};
use crate::json::Line;
use crate::open::{self, BareOperand, options};
use crate::output::{Outcome, Output, Stop};
use crate::report::Report;

/// List deleted files and copy them to the host
///
/// FAT and exFAT are supported. A line shows the condition of a file, its size, the time of its last change and its path. The
/// conditions are: certain (the clusters are known and free), likely (the clusters are guessed and free), doubtful (another file
/// uses some of the clusters, or some were not found) and overwritten (another file uses the first cluster, or its location is
/// lost). The image is not changed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Select files whose path matches GLOB, or whose name does if GLOB has no slash
    #[arg(value_name = "GLOB")]
    patterns: Vec<OsString>,
    /// Copy the files to this directory, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Omit files whose condition is worse
    #[arg(long, value_name = "LEVEL", default_value = "doubtful")]
    least: Level,
}

/// How certain a file must be.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Overwritten,
    Doubtful,
    Likely,
    Certain,
}

impl Level {
    fn certainty(self) -> Certainty {
        match self {
            Self::Overwritten => Certainty::Overwritten,
            Self::Doubtful => Certainty::Doubtful,
            Self::Likely => Certainty::Likely,
            Self::Certain => Certainty::Certain,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let address = open::address(&args.image, context)?;
    if address.place.is_some() {
        let report = Report::on("cannot search", args.image.as_bytes(), "not an image or a partition");
        return Err(report.help("name the image, and the file as a pattern after it").into());
    }
    let options = options(context.options());
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    let clock = Clock::system();
    let extraction = args.to.as_deref().map(Extraction::new).transpose()?;
    if open::prepare([&args.image], BareOperand::Image, Access::ReadOnly, context) {
        match &extraction {
            Some(extraction) => context.confine(Rights::WriteBeneath(&[extraction.as_fd()])),
            None => context.seal(),
        }
    }
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    image.notices().iter().for_each(|notice| context.note(args.image.as_bytes(), notice));
    let (device, choice) = image.volume_bytes(address.part.as_ref()).map_err(Report::plain)?;
    let fs_type = choice.probe().map_or("", |probe| probe.fs_type);
    let driver = context.registry().find(fs_type);
    let Some(undelete) = driver.and_then(|driver| driver.undelete()) else {
        let cause = match choice.probe() {
            Some(_) => format!("obento cannot find deleted files on {fs_type}"),
            None => format!("no supported file system; the data looks like {}", choice.holds),
        };
        let report = Report::on("cannot search", args.image.as_bytes(), cause);
        return Err(report.help("supported are FAT and exFAT").into());
    };
    let compile = |pattern: &OsString| Pattern::new(pattern.as_bytes(), Case::Sensitive);
    let patterns = args.patterns.iter().map(|pattern| (compile(pattern), pattern.as_bytes().contains(&b'/')));
    let mut listing = Listing {
        args,
        context,
        patterns: patterns.collect(),
        device,
        extraction,
        clock,
        out: Output::stdout(),
        count: 0,
    };
    let mut stopped = Ok(());
    let searched = undelete.deleted(&*listing.device.clone(), &mut |found| {
        stopped = listing.take(&found);
        if stopped.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    stopped?;
    searched.map_err(|error| Report::on("cannot search", args.image.as_bytes(), error))?;
    if listing.count == 0 {
        context.note(args.image.as_bytes(), "no deleted files were found");
        context.raise(1);
    }
    listing.out.finish()
}

struct Listing<'a> {
    args: &'a Args,
    context: &'a Context,
    /// The patterns, and whether each one matches whole paths.
    patterns: Vec<(Pattern, bool)>,
    device: Arc<dyn BlockDevice>,
    extraction: Option<Extraction>,
    clock: Clock,
    out: Output,
    count: u64,
}

impl Listing<'_> {
    fn take(&mut self, found: &DeletedFile) -> Result<(), Stop> {
        crate::output::go_on()?;
        if found.certainty < self.args.least.certainty() || !self.is_wanted(&found.path) {
            return Ok(());
        }
        self.count += 1;
        self.list(found)?;
        let Some(extraction) = &mut self.extraction else { return Ok(()) };
        if let Err(error) = extraction.file(&*self.device, found) {
            self.context.warn(&Report::on("cannot extract", &found.path, error));
        }
        Ok(())
    }

    fn is_wanted(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let matches =
            |(pattern, is_whole): &(Pattern, bool)| pattern.matches(if *is_whole { path } else { name });
        self.patterns.is_empty() || self.patterns.iter().any(matches)
    }

    fn list(&mut self, found: &DeletedFile) -> Outcome {
        let certainty = found.certainty.name();
        if self.context.json() {
            let line = Line::new("deleted").bytes("path", &found.path).field("certainty", certainty);
            let line = line.field("size", found.size);
            let line = match found.modified {
                Some(time) => line.time("mtime", time),
                None => line,
            };
            let extents: Vec<_> = found.extents.iter().map(|range| [range.start, range.end]).collect();
            return Ok(line.field("extents", extents).write(&mut self.out)?);
        }
        let text = |clock: &mut Clock, time: Timestamp| clock.text(&TimeStyle::LongIso, time);
        let time = found.modified.map_or_else(|| "-".to_owned(), |time| text(&mut self.clock, time));
        write!(self.out, "{certainty:<11} {:>12} {time:<16} ", found.size)?;
        self.out.write_name(&found.path)?;
        Ok(writeln!(self.out)?)
    }
}
