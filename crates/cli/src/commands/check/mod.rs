//! `obento check`: finds and repairs the problems of a file system.
//!
//! A type that only the kernel engine opens is checked by its own program (`own`).
//!
//! Exit codes are those of fsck(8), which scripts expect, not those of the other commands.

mod own;
mod table;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use obento::address::PartSelector;
use obento::base::{DeviceError, Feature, Quantity};
use obento::check::{CheckError, check};
use obento::driver::{
    Access, CheckObserver, CheckOptions, CheckProgress, CheckReport, FieldValue, Finding, Notice, RepairMode,
    Severity,
};
use obento::env::SystemClock;
use obento::image::{DiskChecksums, ImageFile, ImageNotice, Locking};
use obento::{Error, Image, Options};

use crate::context::Context;
use crate::help::page::Page;
use crate::json::{Line, hex};
use crate::open::{cannot_open, image_address, report_notices_but};
use crate::output::{Outcome, Output, Stop};
use crate::progress::Progress;
use crate::report::{Report, printable, sentence, shell_word, subject};

/// The exit codes of fsck(8).
const REPAIRED: u8 = 1;
const LEFT: u8 = 4;
pub const FAILED: u8 = 8;
pub const USAGE: u8 = 16;
/// The codes of findings with an advice after their text. Notes among them are shown without --verbose, but not with
/// --quiet: the volume is marked as having errors; a part of the volume is not checked; a repair is not complete.
const ADVISED: [(&str, &str); 4] = [
    ("marked-with-errors", ""),
    ("journal-missing", JOURNAL_ADVICE),
    ("journal-not-read", JOURNAL_ADVICE),
    ("repair-unfinished", "; run the command again"),
];
const JOURNAL_ADVICE: &str = "; name it with --journal FILE";

/// The page of `check`.
pub const PAGE: Page = Page::new(&[
    ("obento check disk.img", "Check a volume without writing"),
    ("obento check -p disk.img@2", "Repair only problems whose repair is certain and loses no data"),
    ("obento check -y disk.img", "Repair everything that can be repaired"),
])
.exit(&[
    ("0", "No problem was found."),
    ("1", "All problems were repaired."),
    ("4", "Problems are left."),
    ("8", "The check could not be done, or its report could not be written."),
    ("16", "Wrong usage."),
])
.unwritten(FAILED)
.see_also(&["fsck(8)", "e2fsck(8)"]);

/// Check a file system, and repair it
///
/// Without an option, nothing is written. Without PART, all partitions of a disk that have a file system are
/// checked. The exit status is the sum of the values that apply.
///
/// A type that only the kernel engine opens is checked by its own program, such as xfs_repair, btrfs or fsck.f2fs.
#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("repair").args(["safe", "yes"]))]
pub struct Args {
    /// Only check, and write nothing (default)
    #[arg(short = 'n', long, conflicts_with_all = ["safe", "yes"])]
    look: bool,
    /// Repair only problems whose repair is certain and loses no data
    #[arg(short = 'p', long, visible_short_alias = 'a', conflicts_with = "yes")]
    safe: bool,
    /// Repair all problems that can be repaired
    #[arg(short = 'y', long)]
    yes: bool,
    /// With -p or -y: turn clusters that belong to no file into files instead of freeing them (exFAT only)
    #[arg(short = 's', long, requires = "repair")]
    rescue: bool,
    /// Ignored, for compatibility: a volume is always checked, even if it is marked clean
    #[arg(short = 'f', long, hide = true)]
    force: bool,
    /// Use the super block in block N
    #[arg(short = 'b', long = "backup", value_name = "N")]
    backup: Option<u64>,
    /// Block size in bytes, to locate the super block of -b
    #[arg(short = 'B', long, value_name = "SIZE", requires = "backup")]
    block_size: Option<u32>,
    /// Also report notes, which are not problems; important notes are always shown, except with -q
    #[arg(short, long)]
    verbose: bool,
    /// Print only problems, without notes and without a summary
    #[arg(short, long)]
    quiet: bool,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// The image, or a partition
    #[arg(required = true, value_name = "IMAGE[@PART]")]
    image: OsString,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let reported = |(report, code): (Report, u8)| {
        context.warn(&report);
        context.set_status(code);
    };
    let opened = match open(args, context) {
        Ok(opened) => opened,
        Err(failure) => {
            reported(failure);
            return Ok(());
        }
    };
    // A check of wrong bytes shows nothing about the original.
    let mut status = if opened.image.notices().iter().any(ImageNotice::is_damage) { FAILED } else { 0 };
    let printed = table::check(args, &opened, context);
    status |= context.take_status();
    context.set_status(status);
    printed?;
    context.take_status();
    let volumes = opened.volumes();
    // Before rights are given up, because a program is started.
    let mut others = Vec::new();
    for volume in volumes {
        match own::Subject::of(&volume, context) {
            Some(subject) => {
                let printed = subject.check(args, &volume, context).unwrap_or_else(|failure| {
                    reported(failure);
                    Ok(())
                });
                status |= context.take_status();
                context.set_status(status);
                printed?;
                context.take_status();
            }
            None => others.push(volume),
        }
    }
    context.seal();
    for volume in others {
        let printed = check_one(args, &volume, context);
        status |= context.take_status();
        context.set_status(status);
        // With a closed pipe, the exit code is that of the volumes that were checked.
        printed?;
        context.take_status();
    }
    context.set_status(status);
    Ok(())
}

/// Checks a volume with its driver, and sets the exit code.
fn check_one(args: &Args, opened: &Opened, context: &Context) -> Outcome {
    let mut printer = FindingPrinter::new(args, context);
    let shown = &opened.shown;
    let report = match examine(args, context, opened, &mut printer) {
        Ok(report) => report,
        Err((report, code)) => {
            drop(printer);
            context.warn(&report);
            context.set_status(code);
            return Ok(());
        }
    };
    let FindingPrinter { mut out, bar, failed, .. } = printer;
    drop(bar);
    context.set_status(status_of(&report));
    if let Some(error) = failed {
        return Err(Stop::Output(error));
    }
    if context.json() {
        line(shown, &report).write(&mut out)?;
    } else if !args.quiet {
        summary(&mut out, shown, &report, opened.repair_mode)?;
        if args.safe && report.left() > 0 {
            let all =
                format!("'obento check -y {}' repairs all problems that can be repaired", shell_word(shown));
            let note = "-p repairs only problems whose repair is certain and loses no data";
            context.note(shown, format!("{note}; {all}"));
        }
    }
    out.finish()
}

/// Returns the exit code for the findings of a report.
fn status_of(report: &CheckReport) -> u8 {
    match (report.left(), report.repaired) {
        (0, 0) => 0,
        (0, _) => REPAIRED,
        _ => LEFT,
    }
}

/// What is to be checked.
struct Opened {
    image: Image,
    part: Option<PartSelector>,
    repair_mode: RepairMode,
    /// The volume in messages.
    shown: Vec<u8>,
}

impl Opened {
    /// Returns the volume, or those of all partitions if none is named and the disk has several.
    fn volumes(self) -> Vec<Self> {
        let partitions = || self.image.probe_all().into_iter().filter(|content| content.probe().is_some());
        let numbers: Vec<u32> = match (&self.part, self.image.volume_bytes(None)) {
            (None, Err(_)) => partitions().filter_map(|content| Some(content.partition?.number)).collect(),
            _ => Vec::new(),
        };
        if numbers.is_empty() {
            return vec![self];
        }
        let of = |number: u32| Self {
            image: self.image.clone(),
            part: Some(PartSelector::Number(number)),
            repair_mode: self.repair_mode,
            shown: [&*self.shown, format!("@{number}").as_bytes()].concat(),
        };
        numbers.into_iter().map(of).collect()
    }
}

/// Opens the image. Fails with the message and the exit code.
fn open(args: &Args, context: &Context) -> Result<Opened, (Report, u8)> {
    let address = image_address(&args.image, context).map_err(|report| (report, FAILED))?;
    let shown = args.image.as_bytes();
    if address.place.is_some() {
        let report = Report::on("cannot check", shown, "this is a path inside an image");
        return Err((report.help("name the image, or a partition: IMAGE@PART"), USAGE));
    }
    if context.options().ignore_checksums {
        let report = Report::on("cannot check", shown, "--ignore-checksums is for reading only");
        return Err((
            report.help("omit this option: a check verifies checksums, and -y corrects them"),
            USAGE,
        ));
    }
    let repair_mode = match (args.safe, args.yes) {
        (true, _) => RepairMode::Safe,
        (_, true) => RepairMode::All,
        _ => RepairMode::Nothing,
    };
    let global = context.options();
    let access = if repair_mode == RepairMode::Nothing { Access::ReadOnly } else { Access::ReadWrite };
    if repair_mode != RepairMode::Nothing {
        context.expect_changes_allowed(shown).map_err(|report| (report, FAILED))?;
    }
    let options = Options {
        access,
        fs_type: global.fs_type.clone(),
        disk_checksums: DiskChecksums::Verify,
        locking: if global.no_lock { Locking::Skip } else { Locking::Take },
        io: global.io.into(),
        allow_backing: global.allow_backing,
        journal: global.journal.clone(),
        unpack: global.unpack(),
        ..Options::default()
    };
    let file = ImageFile::open(&address.image, &options).map_err(|error| (cannot_open(error), FAILED))?;
    if !file.opens_others() && !own::may_start(context) {
        context.seal();
    }
    let image = file.decode(context.registry()).map_err(|error| (cannot_open(error), FAILED))?;
    report_notices_but(shown, &image, context.messages(), table::is_finding);
    Ok(Opened { image, part: address.part, repair_mode, shown: shown.to_vec() })
}

/// Checks. Fails with the message and the exit code.
fn examine(
    args: &Args,
    context: &Context,
    opened: &Opened,
    printer: &mut FindingPrinter<'_>,
) -> Result<CheckReport, (Report, u8)> {
    let Opened { image, part, repair_mode, shown } = opened;
    refuse_rescue(args, opened, context)?;
    let options = CheckOptions {
        repair_mode: *repair_mode,
        force: true,
        rescue: args.rescue,
        super_block: args.backup.or(context.options().superblock),
        block_size: args.block_size,
        threads: args.threads,
        journal: image.journal().cloned(),
        ..CheckOptions::new(Arc::new(SystemClock))
    };
    check(image, part.as_ref(), &options, printer).map_err(|error| {
        let report = match &error {
            // The error of opening describes the data.
            CheckError::Unknown if options.super_block.is_none() => match image.volume_to_read(part.as_ref())
            {
                Err(error) => error.into(),
                // A copy of the super block or of the boot sector opens the volume.
                Ok(volume) => {
                    let (fs_type, shown) = (volume.info().probe.fs_type, shell_word(shown));
                    Report::on("cannot check", &*opened.shown, &error).help(format!(
                        "the start of the {fs_type} volume is damaged; name its type to check it with the copy: \
                         obento --fs-type {fs_type} check {shown}"
                    ))
                }
            },
            error => failure(shown, error, opened, context),
        };
        (report, FAILED)
    })
}

/// Fails if `-s` is given for a type whose driver would ignore it.
fn refuse_rescue(args: &Args, opened: &Opened, context: &Context) -> Result<(), (Report, u8)> {
    match context.options().fs_type.as_deref().or(probed_type(opened)) {
        Some(name) if args.rescue && name != "exfat" => {
            let cause = format!("-s is not supported for {name} volumes");
            let report = Report::on("cannot check", &*opened.shown, cause);
            Err((report.help("omit -s, which only exFAT supports"), USAGE))
        }
        _ => Ok(()),
    }
}

/// Returns the type of the volume, if a driver recognises the volume.
fn probed_type(opened: &Opened) -> Option<&'static str> {
    let (_, content) = opened.image.volume_bytes(opened.part.as_ref()).ok()?;
    content.probe().map(|probe| probe.fs_type)
}

/// Returns the report of a check that failed, with the next step.
fn failure(shown: &[u8], error: &CheckError, opened: &Opened, context: &Context) -> Report {
    let report = Report::on("cannot check", shown, error);
    match error {
        CheckError::Open(error) => error.into(),
        CheckError::Unknown => report.help(
            "name the partition or the first byte of the file system: IMAGE@PART or IMAGE@+OFFSET; if its start is \
             damaged, name its type: obento --fs-type TYPE check IMAGE",
        ),
        CheckError::Failed(Error::Unsupported(Feature::Repairing)) => {
            let fs_type = context.options().fs_type.as_deref().or(probed_type(opened));
            let cause = format!("obento does not repair {} volumes", fs_type.unwrap_or("such"));
            Report::on("cannot repair", shown, cause)
                .help("omit -p and -y to check the volume without repairing it")
        }
        CheckError::Failed(Error::Corrupt(_)) if context.options().fs_type.is_some() => {
            report.help("omit --fs-type if the type may be wrong")
        }
        CheckError::Failed(Error::Corrupt(_)) => match probed_type(opened) {
            Some("vfat" | "exfat") => report.help("a program such as testdisk can rebuild the boot sector"),
            Some("ext2" | "ext3" | "ext4") => report.help(copies(opened)),
            _ => report,
        },
        CheckError::Failed(Error::Device(DeviceError::ReadOnly)) => {
            report.help("use -n to check without writing")
        }
        _ => report,
    }
}

/// The usual blocks of copies of the super block of an ext volume, and the sizes of the blocks.
const COPIES: [(u64, u64); 8] = [
    (8193, 1024),
    (24577, 1024),
    (40961, 1024),
    (16384, 2048),
    (49152, 2048),
    (32768, 4096),
    (98304, 4096),
    (163_840, 4096),
];

/// Returns the hint for an ext volume without a super block at the requested block: the copies that this volume has.
fn copies(opened: &Opened) -> String {
    if let Ok(volume) = opened.image.volume_to_read(opened.part.as_ref()) {
        let copy = volume.info().notices.into_iter().find_map(|notice| match notice {
            Notice::BackupSuperBlock { block } => Some(block),
            _ => None,
        });
        return match copy {
            Some(block) => format!("omit -b to use the copy at block {block}"),
            None => "omit -b: the primary super block is not damaged".to_owned(),
        };
    }
    let Ok((device, _)) = opened.image.volume_bytes(opened.part.as_ref()) else { return NO_COPY.to_owned() };
    let has_copy = |(block, size): &(u64, u64)| {
        let mut magic = [0; 2];
        device.read_at(block * size + MAGIC_AT, &mut magic).is_ok() && magic == [0x53, 0xef]
    };
    let found: Vec<String> =
        COPIES.iter().filter(|copy| has_copy(copy)).map(|(block, _)| block.to_string()).collect();
    match found.is_empty() {
        true => NO_COPY.to_owned(),
        false => format!("use -b with the block of a copy of the super block: {}", found.join(", ")),
    }
}

/// The offset of `s_magic` in a super block.
const MAGIC_AT: u64 = 0x38;
const NO_COPY: &str = "the usual blocks contain no copy of the super block; 'obento recover' copies the readable \
                       files";

/// Prints findings as they are found.
struct FindingPrinter<'a> {
    out: Output,
    args: &'a Args,
    context: &'a Context,
    bar: Progress<'a>,
    failed: Option<std::io::Error>,
}

impl<'a> FindingPrinter<'a> {
    fn new(args: &'a Args, context: &'a Context) -> Self {
        let bar = Progress::new(context.messages(), "checking");
        Self { out: Output::stdout(), args, context, bar, failed: None }
    }
}

impl CheckObserver for FindingPrinter<'_> {
    fn found(&mut self, finding: Finding) {
        let shown = ADVISED.iter().find(|(code, _)| *code == finding.code);
        let is_note = finding.severity == Severity::Note;
        let has_notes = !self.args.quiet && (self.args.verbose || shown.is_some());
        if is_note && !has_notes && !self.context.json() {
            return;
        }
        let written = if self.context.json() {
            finding_line(&finding).write(&mut self.out)
        } else {
            let path = finding.fields.iter().find_map(|(name, value)| match value {
                FieldValue::Bytes(path) if *name == "path" => Some(format!(" (path {})", subject(path))),
                _ => None,
            });
            let advice = shown.map_or("", |(_, advice)| advice);
            let end = if finding.repaired { ": repaired" } else { advice };
            writeln!(self.out, "{}{}{end}", sentence(&finding.text), path.unwrap_or_default())
        };
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    fn progress(&mut self, progress: CheckProgress) {
        self.bar.update(progress.done, Some(progress.total), progress.pass.as_bytes());
    }
}

fn finding_line(finding: &Finding) -> Line {
    let line = Line::new("finding")
        .field("code", finding.code)
        .field("severity", finding.severity.name())
        .field("mended", finding.repaired)
        .field("text", &finding.text);
    finding.fields.iter().fold(line, |line, (name, value)| match value {
        FieldValue::Number(number) | FieldValue::Hex(number) => line.field(name, number),
        FieldValue::Bytes(bytes) if str::from_utf8(bytes).is_ok() => line.bytes(name, bytes),
        FieldValue::Bytes(bytes) => line.field(name, hex(bytes)),
        FieldValue::Text(text) => line.field(name, text),
    })
}

/// Writes the result of the check.
fn summary(
    out: &mut Output,
    shown: &[u8],
    report: &CheckReport,
    repair_mode: RepairMode,
) -> std::io::Result<()> {
    let CheckReport { inodes, blocks, directories, .. } = report;
    let state = state(report, repair_mode);
    // Some formats have no fixed number of inodes.
    let inodes = match inodes {
        (used, total) if used == total => Quantity::new(*used, "inode").to_string(),
        (used, total) => format!("{used} of {}", Quantity::new(*total, "inode")),
    };
    let directories = Quantity::new(*directories, "directory");
    let (used, total) = blocks;
    let shown = printable(shown);
    writeln!(out, "{shown}: {state}; {inodes} ({directories}) and {used} of {total} blocks are in use")
}

/// Returns the number of findings and of repairs in words.
fn state(report: &CheckReport, repair_mode: RepairMode) -> String {
    match (report.left(), report.repaired) {
        (0, 0) => "no problems".to_owned(),
        (0, 1) => "1 error, repaired".to_owned(),
        (0, repaired) => format!("{}, all repaired", things(repaired)),
        (left, 0) => match repair_mode {
            RepairMode::All => format!("{} left, which this command cannot repair", things(left)),
            RepairMode::Safe => format!("{} found, none repaired", things(left)),
            RepairMode::Nothing => format!("{} found", things(left)),
        },
        (left, repaired) => format!("{} repaired, {} left", things(repaired), things(left)),
    }
}

fn things(count: u64) -> Quantity {
    Quantity::new(count, "error")
}

fn line(shown: &[u8], report: &CheckReport) -> Line {
    Line::new("checked")
        .bytes("path", shown)
        .bytes("label", &report.label)
        .field("clean", report.is_clean())
        .field("found", report.found)
        .field("mended", report.repaired)
        .field("left", report.left())
        .field("inodes", report.inodes.1)
        .field("inodes_used", report.inodes.0)
        .field("directories", report.directories)
        .field("blocks", report.blocks.1)
        .field("blocks_used", report.blocks.0)
        .field("block_size", report.block_size)
}
