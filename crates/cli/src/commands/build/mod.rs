//! `obento build`: builds images from directories, archives and manifests.

mod args;
mod confine;
mod disk;
mod engine;
mod keys;
mod layout;
mod print;
mod saved;
mod volume;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use obento::address::Operand;
use obento::base::Quantity;
use obento::build::{BuildFailure, BuildReport, SourceProblem, SourceReason, build, build_verified};
use obento::copy::{Observer, Problem};
use obento::driver::FormatError;
use obento::host::{HostError, interrupt};
use obento::text::human_size;

use crate::cause::{Cause, Worded};
use crate::commands::mkfs::refused::{RefusedOptions, by_layout};
use crate::commands::mkfs::{Units, created_types, expect_no_journal, known_format};
use crate::context::Context;
use crate::help::page::{EPOCH, Page};
use crate::json::Line;
use crate::output::{Outcome, Output, of_output};
use crate::progress::Progress;
use crate::replaced::expect_replaceable;
use crate::report::{Report, printable, shell_word, subject};
pub use args::Args;
pub use layout::PARTITION_KEYS;
use volume::VolumeArgs;

/// The page of `build`.
pub const PAGE: Page = Page::new(&[
    ("obento build root.img --from rootfs/ --free 20%", "Build an ext4 image of a directory"),
    ("docker export c1 | obento build root.img --from - -L root", "Build an image of a container"),
    (
        "obento build root.img --from oci:image/ --add init:/sbin/init --chmod go-w",
        "Build an image of an OCI layout and one more file",
    ),
    (
        "obento build -t ext2 initrd.img --from tree.mtree --minimize",
        "Build the smallest image of a manifest",
    ),
    ("obento build disk.img --disk layout.toml", "Build a disk; 'obento help layout' describes the format"),
])
.environment(&[EPOCH])
.see_also(&["mke2fs(8)", "mtree(5)", "systemd-repart(8)"]);

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if let Some(image) = &args.print_layout {
        if let Some(out) = &args.out {
            let out = out.as_os_str().as_bytes();
            let report =
                Report::on("cannot build", out, "--print-layout prints a layout, and builds no image");
            return Err(report.help(format!("omit {}", subject(out))).into());
        }
        if context.json() {
            let report = Report::new("cannot print a layout", "a layout file has no JSON form");
            return Err(report.help("omit --json").into());
        }
        return print::print(image, context);
    }
    expect_no_journal(context, "omit this option")?;
    make(&args.settle()?, context)
}

fn make(args: &Args, context: &Context) -> Outcome {
    let shown = args.out().as_os_str().as_bytes();
    context.expect_changes_allowed(shown)?;
    let _replaced = expect_replaceable("cannot build", args.out(), args.force)?;
    if let Some(layout) = &args.disk {
        return disk::make(args, layout, context);
    }
    if args.root_hash.is_some() {
        return Err(Report::on("cannot build", shown, "--root-hash requires --disk").into());
    }
    refuse_images(args, context)?;
    if let Some(kind) = context.registry().engine_type(&args.volume.fs_type) {
        return engine::make(args, kind, context);
    }
    let (sources, settings) = args.volume(context.options().unpack())?;
    saved::note_saved_images(&args.volume.from, context);
    let contents = settings.contents.iter().map(PathBuf::as_path);
    confine::confine(&[args.out()], sources.iter(), contents, context);
    let start = Instant::now();
    let mut watch = BuildDisplay::new(context);
    let built = match args.verify {
        true => build_verified(args.out(), &sources, &settings, context.registry(), &mut watch),
        false => build(args.out(), &sources, &settings, context.registry(), &mut watch),
    };
    drop(watch);
    let report = match built {
        Ok(report) => report,
        Err(failure) => return failed(failure, shown, Some(&args.volume), context),
    };
    super::mkfs::notes(shown, &report.formatted, context);
    report.notes.iter().for_each(|note| context.note(shown, note));
    warn_of_lists(&report.lost, context);
    let mut out = Output::stdout();
    if context.json() {
        line(args, &report, start.elapsed()).write(&mut out)?;
    } else if !args.quiet {
        write_summary(&mut out, shown, &report, start.elapsed())?;
    }
    out.finish()
}

/// Fails if a source is a path in an image.
fn refuse_images(args: &Args, context: &Context) -> Result<(), Report> {
    let path_in_image = |source: &&OsString| match Operand::parse_with(source, &|path| context.look_up(path))
    {
        Ok(Operand::Image(address)) => address.server().is_none() && address.place.is_some(),
        _ => false,
    };
    let Some(source) = args.volume.from.iter().find(path_in_image) else { return Ok(()) };
    let (source, out) = (source.as_bytes(), args.out().as_os_str().as_bytes());
    let cause = format!("{} is a path in an image, which cannot be a source", subject(source));
    let (source, target) = (shell_word(source), shell_word(out));
    let command = format!("obento export {source} | obento build {target} --from -");
    Err(Report::on("cannot build", out, cause).help(format!("use an archive of the files: {command}")))
}

/// Reports files whose access control lists lack entries. The image exists: exit code 1.
fn warn_of_lists(lost: &[SourceProblem], context: &Context) {
    for SourceProblem { path, why } in lost {
        context.warn(&Report::on("cannot keep the whole access control list of", path, why));
    }
}

/// An error of a build.
struct BuildSubject<'a> {
    shown: &'a [u8],
    /// The part of the disk with the error.
    words: String,
}

impl BuildSubject<'_> {
    fn because(&self, cause: &dyn Cause) -> Report {
        // The sources have the name of standard input in place of a path.
        let text = format!("{}{}", self.words, cause.text()).replace("'standard input'", "standard input");
        Report::on("cannot build", self.shown, Worded { text, cause })
    }
}

/// Reports every reason why nothing was built. `volume` has the options of the command line, if they and no layout file
/// describe the volume.
fn failed(failure: BuildFailure, shown: &[u8], volume: Option<&VolumeArgs>, context: &Context) -> Outcome {
    let (failure, cannot) = match failure {
        BuildFailure::Partition { number, failure } => {
            let words = format!("partition {number}: ");
            (*failure, BuildSubject { shown, words })
        }
        failure => (failure, BuildSubject { shown, words: String::new() }),
    };
    let because = |cause: &dyn Cause| cannot.because(cause);
    let report = match failure {
        BuildFailure::Unfit(problems) => {
            for (why, paths) in by_reason(&problems) {
                let (count, first) = (paths.len(), paths.first().copied().unwrap_or_default());
                let what = match count {
                    1 => "cannot store".into(),
                    _ => format!("cannot store {count} files, such as"),
                };
                context.warn(&Report::on(&what, first, why));
            }
            because(&none_taken(problems.len())).help(LEAVE_OUT)
        }
        BuildFailure::Sources(problems) => {
            for problem in &problems {
                context.warn(&Report::on("cannot use", &problem.path, &problem.why));
            }
            let count = Quantity::new(problems.len() as u64, "entry");
            because(&format!("{count} of the sources cannot be used; nothing was written"))
                .help("fix the sources, or omit the files with --exclude")
        }
        BuildFailure::TooSmall { size, needed } if needed > size => {
            because(&BuildFailure::TooSmall { size, needed })
                .help(format!("use a size of {}K, or auto", needed.div_ceil(1024)))
        }
        BuildFailure::NotSound(findings) => {
            for finding in &findings {
                context.warn(&Report::on("the check reports a problem of", cannot.shown, finding));
            }
            because(&"the new image is damaged and was removed").help(OUR_FAULT)
        }
        BuildFailure::Differs(problems) => {
            for problem in &problems {
                context.warn(&Report::on("differs from its source:", &problem.path, &problem.why));
            }
            because(&"the new image differs from its sources and was removed").help(OUR_FAULT)
        }
        BuildFailure::Host(HostError::FileLimit { ref path, limit }) => {
            let path = subject(path.as_os_str().as_bytes());
            because(&format!("cannot add {path}: the limit of files ({limit}) is reached"))
                .help("check the source, or allow more entries: --max-files N")
        }
        BuildFailure::Host(HostError::Exists { .. }) => {
            because(&"file exists").help("use --force to overwrite it")
        }
        BuildFailure::Host(HostError::System { ref path, errno, .. })
            if path.as_os_str().as_bytes() == cannot.shown =>
        {
            of_output(because(&std::io::Error::from(errno)), path, errno)
        }
        BuildFailure::UnknownType { ref fs_type } => {
            let opens = context.registry().find(fs_type).is_some();
            let but = if opens { ", but opens existing volumes" } else { "" };
            because(&format!("{failure}{but}")).help(created_types(context.registry()))
        }
        BuildFailure::OnlyOnce => {
            because(&failure).help("omit --verify, or store the archive in a file and name the file")
        }
        BuildFailure::Full { .. } => because(&failure).help("use the size auto, or a larger size"),
        BuildFailure::Format(FormatError::TooFewInodes { needed, .. }) => {
            because(&failure).help(format!("omit -N, or use at least as many inodes: -N {needed}"))
        }
        BuildFailure::Format(ref error) => {
            let format =
                volume.and_then(|volume| Some((known_format(context.registry(), &volume.fs_type)?, volume)));
            match format {
                Some((format, options)) => RefusedOptions { format, options }.report(error, &because),
                None => by_layout(error, &because),
            }
        }
        failure => {
            let text = failure.to_string();
            let report = because(&failure);
            // A packed file is not to be added as it is.
            match volume.and_then(|volume| volume.file_in(&text)).filter(|_| failure.hint().is_none()) {
                Some(file) => report.help(format!("use --add {file} to add a file that is not an archive")),
                None => report,
            }
        }
    };
    Err(report.into())
}

const OUR_FAULT: &str = "this is a bug in obento; please report it, with the sources if possible";
const LEAVE_OUT: &str = "rename or remove these files, or omit them with --exclude";

fn none_taken(count: usize) -> String {
    format!("{} cannot be stored; nothing was written", Quantity::new(count as u64, "file"))
}

/// Returns the paths that the format cannot store, grouped by reason.
fn by_reason(problems: &[SourceProblem]) -> BTreeMap<&SourceReason, Vec<&[u8]>> {
    let mut reasons: BTreeMap<&SourceReason, Vec<&[u8]>> = BTreeMap::new();
    for problem in problems {
        reasons.entry(&problem.why).or_default().push(&problem.path);
    }
    reasons
}

fn rate(bytes: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1000) / millis
}

fn write_summary(
    out: &mut Output,
    shown: &[u8],
    report: &BuildReport,
    time: Duration,
) -> std::io::Result<()> {
    let made = &report.formatted;
    let len = made.blocks.saturating_mul(made.block_size.into());
    out.write_name(shown)?;
    write!(out, ": {}", made.fs_type)?;
    if !made.label.is_empty() {
        write!(out, " '{}'", printable(&made.label))?;
    }
    let space = Quantity::new(made.blocks, Units::of(made).space);
    writeln!(out, ", {} in {space} of {} bytes", human_size(len), made.block_size)?;
    write_counts(out, (report.files, report.directories), report.bytes, report.excluded, time)?;
    match crate::commands::mkfs::id_text(made) {
        Some(id) => writeln!(out, "  UUID {id}"),
        None => Ok(()),
    }
}

/// Prints the contents of an image, and the duration.
fn write_counts(
    out: &mut Output,
    (files, directories): (u64, u64),
    bytes: u64,
    excluded: u64,
    time: Duration,
) -> std::io::Result<()> {
    writeln!(
        out,
        "  {} and {} with {} in {:.2} s, {}/s",
        Quantity::new(files, "file"),
        Quantity::new(directories, "directory"),
        human_size(bytes),
        time.as_secs_f64(),
        human_size(rate(bytes, time)),
    )?;
    if excluded > 0 {
        writeln!(out, "  {excluded} omitted by --exclude")?;
    }
    Ok(())
}

fn line(args: &Args, report: &BuildReport, time: Duration) -> Line {
    let made = &report.formatted;
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let line = Line::new("built")
        .bytes("path", args.out().as_os_str().as_bytes())
        .field("size", made.blocks.saturating_mul(u64::from(made.block_size)));
    volume_fields(line, report).field("milliseconds", millis).field("verified", args.verify)
}

/// Adds the fields of the image and its contents to a JSON record.
fn volume_fields(line: Line, report: &BuildReport) -> Line {
    let made = &report.formatted;
    line.field("file_system", made.fs_type)
        .field("uuid", crate::commands::mkfs::id_text(made))
        .bytes("label", &made.label)
        .field("block_size", made.block_size)
        .field("blocks", made.blocks)
        .field("inodes", made.inodes)
        .field("journal_blocks", made.journal_blocks)
        .field("files", report.files)
        .field("directories", report.directories)
        .field("bytes", report.bytes)
        .field("excluded", report.excluded)
        .field("notes", &report.notes)
}

/// The progress for users: the files that were found, and then the part of them that is in the image.
struct BuildDisplay<'c> {
    context: &'c Context,
    progress: Progress<'c>,
    /// The number of files and bytes, once they are known.
    total: Option<(u64, u64)>,
}

impl<'c> BuildDisplay<'c> {
    fn new(context: &'c Context) -> Self {
        Self { context, progress: Progress::new(context.messages(), "reading"), total: None }
    }
}

impl Observer for BuildDisplay<'_> {
    fn progress(&mut self, progress: &obento::copy::Progress<'_>) {
        match self.total {
            None => self.progress.update(progress.bytes, None, progress.path),
            Some((files, bytes)) => {
                let name = format!("{} of {files} files", progress.files.min(files));
                self.progress.update(progress.bytes, Some(bytes), name.as_bytes());
            }
        }
    }

    fn total(&mut self, files: u64, bytes: u64) {
        self.total = Some((files, bytes));
        self.progress = Progress::new(self.context.messages(), "building");
    }

    fn is_stopped(&self) -> bool {
        interrupt::is_requested()
    }

    fn problem(&mut self, _problem: &Problem) {}
}
