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
use obento::base::{Quantity, Timestamp};
use obento::block::BlockDevice;
use obento::driver::{Access, Certainty, DeletedFile, Unsearched};
use obento::host::sandbox::Rights;
use obento::image::ImageFile;
use obento::pattern::{Case, Pattern};

use self::extract::{Extraction, Unextracted};
use crate::context::Context;
use crate::format::time::{Clock, TimeStyle};
use crate::help::page::{Page, TZ};
use crate::json::Line;
use crate::open::{self, BareOperand};
use crate::output::{Outcome, Output, Stop};
use crate::parse::size::positive_size;
use crate::report::Report;

/// The page of `undelete`.
pub const PAGE: Page = Page::new(&[
    ("obento undelete card.img", "List the deleted files of a memory card"),
    ("obento undelete card.img '*.jpg' --to photos", "Copy deleted photographs to a directory"),
    ("obento undelete root.img 'home/*' --least likely", "List files of ext4 whose blocks are all free"),
])
.exit(&[
    ("0", "Deleted files were found."),
    ("1", "No deleted files were found, or a file could not be copied."),
    ("2", "Wrong usage, the search failed, the list could not be written, or --max-bytes was reached."),
])
.unwritten(2)
.environment(&[TZ])
.see_also(&["testdisk(8)", "photorec(8)"]);

/// List deleted files and copy them to the host
///
/// FAT, exFAT, ext2, ext3 and ext4 are supported. A line shows the condition of a file, its size, the time of its last
/// change and its path. On ext3 and ext4, files are found as long as the journal contains their inodes. The image is not
/// changed.
///
/// Copies have mode 0600, and their directories 0700, whatever the mode of the deleted file.
///
/// The condition is 'certain' if the blocks of the file are known and free. It is 'likely' if the blocks are free, but
/// their numbers are a guess, or come from an older state in the journal. It is 'possible' if obento chose the first
/// block among several candidates. It is 'doubtful' if another file uses some of the blocks, if some blocks were not
/// found, if the first bytes are not those of files with this extension, or if the name may belong to another
/// directory. It is 'overwritten' if another file uses the first block, or if the location of the data is lost.
///
/// On FAT, the chain of a deleted directory is lost. obento recognises its later clusters by their contents, and prints a
/// note about each directory that may be incomplete.
///
/// When Windows deletes a file on FAT32, it clears the upper half of the number of the first cluster. On a volume with
/// more than 65534 clusters, obento then examines each free cluster whose number has the same lower half. It recognises
/// a deleted directory by its contents. For a file, it chooses the cluster whose first bytes fit the extension best.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Select files whose path matches GLOB; a GLOB without a slash applies to the name of the file. On FAT and exFAT, case
    /// is ignored
    #[arg(value_name = "GLOB")]
    patterns: Vec<OsString>,
    /// Copy the files to this directory, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Copy at most SIZE bytes of data (default: 1 GiB plus twice the size of the volume)
    #[arg(long, value_name = "SIZE", value_parser = positive_size, requires = "to")]
    max_bytes: Option<u64>,
    /// Omit files whose condition is worse than LEVEL
    #[arg(long, value_name = "LEVEL", default_value = "doubtful")]
    least: Level,
}

/// How certain a file must be.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Overwritten,
    Doubtful,
    Possible,
    Likely,
    Certain,
}

impl Level {
    fn certainty(self) -> Certainty {
        match self {
            Self::Overwritten => Certainty::Overwritten,
            Self::Doubtful => Certainty::Doubtful,
            Self::Possible => Certainty::Possible,
            Self::Likely => Certainty::Likely,
            Self::Certain => Certainty::Certain,
        }
    }
}

/// The bytes that may be copied by default, in addition to twice the size of the volume.
const USUAL_BYTES: u64 = 1 << 30;

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let address = open::image_address(&args.image, context)?;
    if address.place.is_some() {
        let report = Report::on("cannot search", args.image.as_bytes(), "not an image or a partition");
        return Err(report.help("name the image, and the file as a pattern after it").into());
    }
    let options = context.options().image_options();
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    let clock = Clock::system();
    let mut extraction = args.to.as_deref().map(Extraction::new).transpose()?;
    if open::prepare([&args.image], BareOperand::Image, Access::ReadOnly, context) {
        match &extraction {
            Some(extraction) => context.confine(Rights::WriteBeneath(&[extraction.as_fd()])),
            None => context.seal(),
        }
    }
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    open::report_notices(args.image.as_bytes(), &image, context.messages());
    let (device, choice) = image.volume_bytes(address.part.as_ref())?;
    let fs_type = choice.probe().map_or("", |probe| probe.fs_type);
    let driver = context.registry().find(fs_type);
    let Some(undelete) = driver.and_then(|driver| driver.undelete()) else {
        let failed = |cause: String| Report::on("cannot search", args.image.as_bytes(), cause);
        if choice.probe().is_none() {
            let report = failed(format!("no supported file system; the data looks like {}", choice.holds));
            return Err(open::of_unknown_data(report, &image, address.part.as_ref()).into());
        }
        let report = failed(format!("obento cannot find deleted files on {fs_type}"));
        return Err(report.help("this command supports FAT, exFAT, ext2, ext3 and ext4").into());
    };
    if let Some(extraction) = &mut extraction {
        let usual = device.len().saturating_mul(2).saturating_add(USUAL_BYTES);
        extraction.limit(args.max_bytes.unwrap_or(usual));
    }
    // As in the names of these types.
    let case = if matches!(fs_type, "vfat" | "exfat") { Case::Insensitive } else { Case::Sensitive };
    // Paths have no leading slash.
    let compile = |pattern: &OsString| {
        let bytes = pattern.as_bytes();
        Pattern::new(bytes.strip_prefix(b"/").unwrap_or(bytes), case)
    };
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
        hidden: 0,
        unwanted: 0,
    };
    let mut stopped = Ok(());
    let searched = undelete.deleted(&listing.device.clone(), &mut |found| {
        stopped = listing.take(&found);
        if stopped.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    stopped?;
    let unsearched = searched.map_err(|error| Report::on("cannot search", args.image.as_bytes(), error))?;
    for part in &unsearched {
        let path = [args.image.as_bytes(), b":/", part.directory.as_slice()].concat();
        match part.reason.is_uncertain() {
            true => context.note(&path, format!("deleted files may be missing: {}", part.reason)),
            false => context.warn(&Report::on("cannot search all of directory", path, part.reason)),
        }
    }
    if unsearched.len() == Unsearched::MOST {
        context.note(args.image.as_bytes(), "deleted files of other directories may be missing, too");
    }
    if listing.count == 0 {
        context.note(args.image.as_bytes(), listing.nothing());
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
    /// The files that --least omits.
    hidden: u64,
    /// The other files that match no pattern.
    unwanted: u64,
}

impl Listing<'_> {
    fn take(&mut self, found: &DeletedFile) -> Result<(), Stop> {
        crate::output::go_on()?;
        if !self.is_wanted(&found.path) {
            self.unwanted += 1;
            return Ok(());
        }
        if found.certainty < self.args.least.certainty() {
            self.hidden += 1;
            return Ok(());
        }
        self.count += 1;
        self.list(found)?;
        let Some(extraction) = &mut self.extraction else { return Ok(()) };
        self.context.stop_between_steps();
        let extracted = extraction.file(&*self.device, found);
        // The search for the next file may take long, and needs no cleaning.
        let is_stopped = self.context.stop_at_once();
        match extracted {
            Ok(()) => {}
            Err(Unextracted::Stopped) => return Err(Stop::Interrupted),
            Err(Unextracted::Failed(error)) => {
                self.context.warn(&Report::on("cannot copy", &found.path, error));
            }
            Err(Unextracted::Limit) => {
                let cause = match self.args.max_bytes {
                    Some(limit) => format!("the limit of {} is reached", Quantity::new(limit, "byte")),
                    None => "the limit of bytes is reached".to_owned(),
                };
                let report = Report::on("cannot copy", &found.path, cause);
                let report =
                    report.help("--max-bytes sets this limit; the files that were copied before remain");
                return Err(report.into());
            }
        }
        if is_stopped { Err(Stop::Interrupted) } else { crate::output::go_on() }
    }

    /// Describes an empty list.
    fn nothing(&self) -> String {
        let mut reasons = Vec::new();
        if self.hidden > 0 {
            let level = self.args.least.to_possible_value();
            let level = level.as_ref().map_or("", |level| level.get_name());
            let hidden = Quantity::new(self.hidden, "file");
            reasons.push(format!("--least {level} omits {hidden} (--least overwritten lists all)"));
        }
        if self.unwanted > 0 {
            let verb = if self.unwanted == 1 { "does" } else { "do" };
            let unwanted = Quantity::new(self.unwanted, "file");
            reasons.push(format!("{unwanted} {verb} not match a pattern"));
        }
        match reasons.is_empty() {
            true => "no deleted files were found".to_owned(),
            false => format!("no deleted files were selected: {}", reasons.join(", and ")),
        }
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
            let line = line.field("extents", extents);
            let holes: Vec<_> = found.holes.iter().map(|range| [range.start, range.end]).collect();
            let line = if holes.is_empty() { line } else { line.field("holes", holes) };
            return Ok(line.write(&mut self.out)?);
        }
        let text = |clock: &mut Clock, time: Timestamp| clock.text(&TimeStyle::LongIso, time);
        let time = found.modified.map_or_else(|| "-".to_owned(), |time| text(&mut self.clock, time));
        write!(self.out, "{certainty:<11} {:>12} {time:<16} ", found.size)?;
        self.out.write_name(&found.path)?;
        Ok(writeln!(self.out)?)
    }
}
