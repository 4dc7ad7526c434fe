//! `obento mkfs`: creates an empty file system in a file, a device or a partition.
//!
//! Order: the options are tried without a device first, so that a wrong option changes nothing. Then the image is opened, locked and
//! examined, and then it is written. A file that was created for it is removed if anything fails.

pub(super) mod args;
pub(super) mod exfat;
pub(super) mod fat;
mod least;
pub(super) mod neighbours;
pub(super) mod own;
mod partition_type;
pub(super) mod refused;
mod target;
mod watched;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use obento::base::{DeviceError, Quantity};
use obento::block::BlockDevice;
use obento::driver::{Allowed, Contents, Format, FormatError, FormatNotice, FormatOptions, Formatted};
use obento::image::FormatTarget;
use obento::text::{human_size, volume_id_text};
use obento::{Error, Image, Registry};

use super::types::is_server;
use crate::cause::Cause;
use crate::context::Context;
use crate::help::page::{EPOCH, Page};
use crate::json::Line;
use crate::open::cannot_open;
use crate::output::{Outcome, Output};
use crate::report::{Report, printable};
pub use args::Args;
use refused::RefusedOptions;
pub(super) use target::contents_to_destroy;
use target::{Target, cannot_create, place};
use watched::Watched;

/// `ENOSPC`.
const NO_SPACE: i32 = 28;

/// The page of `mkfs`.
pub const PAGE: Page = Page::new(&[
    ("obento mkfs disk.img 10G", "Create an ext4 volume in a new sparse file"),
    ("obento mkfs -t ext3 -L data -m 0 disk.img", "Format all of disk.img, without reserved blocks"),
    ("obento mkfs -f disk.img@2", "Overwrite partition 2"),
    (
        "obento mkfs -O ^has_journal,casefold -E root_owner=1000:1000 disk.img 1G",
        "Remove and add features, and set the owner of the root directory",
    ),
    ("obento mkfs -t vfat -L BOOT -E fat=32 esp.img 512M", "Create a FAT32 volume"),
    ("obento mkfs -t exfat -L PHOTOS -C 128k card.img 32G", "Create an exFAT volume"),
    ("obento mkfs -t xfs -L data disk.img 1G", "Run mkfs.xfs, which must be installed"),
    ("obento mkfs -O journal_dev log.img 64M", "Create an external journal"),
])
.environment(&[EPOCH])
.see_also(&["mkfs(8)", "mke2fs(8)", "ext4(5)"]);

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    expect_no_journal(context, "use -J device=FILE to create a volume with an external journal")?;
    if let Some(kind) = context.registry().engine_type(&args.fs_type) {
        return own::run(args, kind, context);
    }
    let (path, formatted) = make(args, context)?;
    let mut out = Output::stdout();
    if context.json() {
        line(args, &path, &formatted).write(&mut out)?;
    } else if !args.quiet {
        write_summary(&mut out, args, &path, &formatted)?;
    }
    out.finish()
}

/// Fails if `--journal` is given, which has no effect on a new volume.
pub(super) fn expect_no_journal(context: &Context, help: &str) -> Result<(), Report> {
    match context.options().journal {
        Some(_) => Err(Report::plain("--journal is for opening volumes").help(help)),
        None => Ok(()),
    }
}

/// Creates the file system. Returns its name for messages, and its description.
fn make(args: &Args, context: &Context) -> Result<(Vec<u8>, Formatted), Report> {
    let (mut options, host) = args.options()?;
    let format = format_of(context.registry(), &args.fs_type)?;
    let len = args.len()?;
    options.len = len;
    let target = Target::parse(args)?;
    let failed = |error: FormatError, options: &FormatOptions| {
        let report = cannot_make(&target, &error, format, args);
        match error {
            FormatError::TooSmall { .. } => least::with_least(report, format, options, args),
            _ => report,
        }
    };
    if let Some(path) = &host.journal {
        options.journal = Some(open_journal(path, args.dry_run, context)?);
    }
    if args.dry_run && !target.path.exists() {
        let Some(len) = len else { return Err(needs_size(&target.shown)) };
        let formatted = format.plan(len, &options).map_err(|error| failed(error, &options))?;
        notes(&target.shown, &formatted, context);
        return Ok((target.shown, formatted));
    }
    if !args.dry_run {
        context.expect_changes_allowed(&target.shown)?;
    }
    let needed = match (len, &target.part) {
        (Some(len), None) if !args.dry_run => Some(len.saturating_add(host.offset)),
        _ => None,
    };
    if needed.is_none() && !target.path.exists() {
        return Err(needs_size(&target.shown));
    }
    if let Some(len) = len {
        // Report wrong options before a file is created or extended.
        format.plan(len, &options).map_err(|error| failed(error, &options))?;
    }
    let format_target =
        FormatTarget::open(&target.path, needed).map_err(|error| cannot_create(&target.path, error))?;
    if !format_target.is_new() {
        // From here on, bytes are read that any user may have written. A new file must stay removable.
        context.seal();
    }
    let (device, contents) = place(&format_target, &target, &host, args, context)?;
    options.contents = if host.keep { Contents::Preserved } else { contents };
    let formatted = if args.dry_run {
        // A file is extended when the file system is complete.
        let grown = len.filter(|_| target.part.is_none()).unwrap_or(0);
        format.plan(device.len().max(grown), &options)
    } else {
        format.format(&Watched::new(device.clone(), &target.shown, context), &options)
    };
    let formatted = formatted.map_err(|error| failed(error, &options))?;
    notes(&target.shown, &formatted, context);
    drop(device);
    format_target.keep();
    Ok((target.shown, formatted))
}

/// Returns the format that creates volumes of the type `fs_type`.
pub(super) fn known_format<'r>(registry: &'r Registry, fs_type: &str) -> Option<&'r dyn Format> {
    let mut formats = registry.drivers().iter().filter_map(|driver| driver.format());
    formats.find(|format| format.types().contains(&fs_type))
}

fn format_of<'r>(registry: &'r Registry, fs_type: &str) -> Result<&'r dyn Format, Report> {
    known_format(registry, fs_type).ok_or_else(|| {
        let what = format!("cannot create a file system of type '{}'", printable(fs_type.as_bytes()));
        let why = match registry.find(fs_type) {
            Some(_) => "obento opens volumes of this type, but does not create them",
            None if is_server(fs_type) => "this type is a server, which obento does not create",
            None => "the type is unknown",
        };
        Report::new(what, why).help(created_types(registry))
    })
}

/// Returns the hint that lists the types that can be created, each with its other names.
pub(super) fn created_types(registry: &Registry) -> String {
    let formats = registry.drivers().iter().filter_map(|driver| driver.format());
    let mut known: Vec<String> = formats.map(|format| format.types().join("/")).collect();
    let by_others = registry.engine_types().iter().filter(|kind| kind.maker.is_some());
    known.extend(by_others.filter_map(|kind| kind.names.first()).map(|name| (*name).to_owned()));
    known.sort_unstable();
    format!("supported types: {}", known.join(", "))
}

/// The device of an external journal.
fn open_journal(path: &Path, dry_run: bool, context: &Context) -> Result<Arc<dyn BlockDevice>, Report> {
    if dry_run {
        let image = Image::builder().registry(context.registry().clone()).open(path).map_err(cannot_open)?;
        return Ok(image.device().clone());
    }
    let format_target = FormatTarget::open(path, None).map_err(cannot_open)?;
    let device = format_target.device();
    format_target.keep();
    Ok(device)
}

fn needs_size(shown: &[u8]) -> Report {
    Report::on("cannot create", shown, "a new file requires a size")
        .help(format!("add the size after '{}'", printable(shown)))
}

/// Reports why the file system was not created, and what to do.
fn cannot_make(target: &Target, error: &FormatError, format: &dyn Format, args: &Args) -> Report {
    let report = |cause: &dyn Cause| Report::on("cannot create a file system on", &target.shown, cause);
    match error {
        FormatError::Device(Error::Device(
            DeviceError::Write { errno: NO_SPACE, .. } | DeviceError::Flush { errno: NO_SPACE },
        )) => report(&"no space left on the disk of the image")
            .help("free space on this disk, or choose another disk"),
        FormatError::BadValue { name: "journal_size", value, allowed } => journal_size(value, allowed),
        FormatError::PastDevice { len, device_len } => {
            let (len, device_len) = (Quantity::new(*len, "byte"), Quantity::new(*device_len, "byte"));
            let whole = target.kind();
            report(&format_args!("a size of {len} is larger than {whole}, which has {device_len}"))
                .help(format!("omit SIZE to use all of {whole}"))
        }
        FormatError::Journal(_) => {
            report(error).help("create a journal: obento mkfs -O journal_dev FILE SIZE")
        }
        _ => RefusedOptions { format, options: args }.report(error, &report),
    }
}

/// Reports an invalid size of a journal in MiB, the unit of `-J size`.
fn journal_size(value: &str, allowed: &Allowed) -> Report {
    const MIB: u64 = 1 << 20;
    let (value, expected) = match (value.parse::<u64>(), allowed) {
        (Ok(bytes), Allowed::Range(least, most)) => {
            let range = format!("a number of MiB from {} to {}", least.div_ceil(MIB), most / MIB);
            ((bytes / MIB).to_string(), range)
        }
        _ => (printable(value.as_bytes()), "a number of MiB, such as 16".to_owned()),
    };
    Report::plain(format!("invalid value '{value}' for -J size")).help(format!("use {expected}"))
}

/// Returns the UUID or the serial number, if the volume has one.
pub(super) fn id_text(formatted: &Formatted) -> Option<String> {
    let uuid = (formatted.serial.is_none() && formatted.uuid != [0; 16]).then_some(formatted.uuid);
    volume_id_text(uuid, formatted.serial)
}

pub(super) fn notes(shown: &[u8], formatted: &Formatted, context: &Context) {
    for notice in &formatted.notices {
        let text = match notice {
            FormatNotice::MessageCut(len) => format!("the message was truncated to {len} bytes"),
            FormatNotice::BadUnits(1) => "1 cluster is bad and will not be used".to_owned(),
            FormatNotice::BadUnits(count) => format!("{count} clusters are bad and will not be used"),
            FormatNotice::LabelCut(label) if label.is_empty() => {
                "the label was ignored, because the format has no label".to_owned()
            }
            FormatNotice::LabelCut(label) => format!(
                "the label was truncated to '{}': labels of this type have at most {}",
                printable(label),
                Quantity::new(label.len() as u64, "byte")
            ),
            FormatNotice::NoJournal => "the volume is too small for a journal, and has none".to_owned(),
            FormatNotice::FewClusters { clusters, least } => format!(
                "a FAT32 volume requires at least {least} clusters, and this one has {clusters}; other systems may not recognise it"
            ),
            FormatNotice::Unused(1) => "1 block at the end is unused".to_owned(),
            FormatNotice::Unused(blocks) => format!("{blocks} blocks at the end are unused"),
            FormatNotice::LargeBlocks(size) => {
                format!("most machines have smaller pages than {size} bytes and cannot mount this block size")
            }
            FormatNotice::Lost { what, files } => {
                let what = if *what == "modes" { "permissions" } else { what };
                format!("the {what} of {} are not preserved", Quantity::new(*files, "file"))
            }
            FormatNotice::ShortInodes(size) => {
                format!("inodes of {size} bytes cannot store times after the year 2038")
            }
        };
        context.note(shown, text);
    }
}

/// The terms of a format for its parts.
pub(super) struct Units {
    /// The unit of space.
    pub space: &'static str,
    /// The structure that describes the volume.
    head: &'static str,
    /// The unit of its place.
    place: &'static str,
}

impl Units {
    /// Returns the terms of a new volume: FAT and exFAT have clusters, and sectors of a size of their own.
    pub fn of(formatted: &Formatted) -> Self {
        match formatted.facts.iter().any(|fact| fact.name == "sector size") {
            true => Self { space: "cluster", head: "boot sector", place: "sector" },
            false => Self { space: "block", head: "super block", place: "block" },
        }
    }
}

fn write_summary(out: &mut Output, args: &Args, shown: &[u8], formatted: &Formatted) -> std::io::Result<()> {
    let Formatted { fs_type, block_size, blocks, inodes, .. } = formatted;
    let units = Units::of(formatted);
    let verb = if args.dry_run { "would be " } else { "" };
    let len = blocks.saturating_mul(u64::from(*block_size));
    out.write_name(shown)?;
    write!(out, ": {verb}{fs_type}")?;
    if !formatted.label.is_empty() {
        write!(out, " '{}'", printable(&formatted.label))?;
    }
    let space = Quantity::new(*blocks, units.space);
    write!(out, ", {} in {space} of {block_size} bytes", human_size(len))?;
    // The device of a journal has no inodes.
    if *inodes > 0 {
        write!(out, ", {}", Quantity::new(*inodes, "inode"))?;
    }
    writeln!(out)?;
    if let Some(id) = id_text(formatted) {
        writeln!(out, "  UUID      {id}")?;
    }
    if formatted.journal_blocks > 0 {
        let bytes = formatted.journal_blocks.saturating_mul(u64::from(*block_size));
        writeln!(out, "  journal   {}", human_size(bytes))?;
    }
    if formatted.reserved > 0 {
        writeln!(out, "  reserved  {} for the super user", Quantity::new(formatted.reserved, "block"))?;
    }
    if !formatted.backups.is_empty() {
        let list: Vec<String> = formatted.backups.iter().map(u64::to_string).collect();
        let s = if list.len() == 1 { "" } else { "s" };
        writeln!(out, "  backups   of the {} in {}{s} {}", units.head, units.place, list.join(", "))?;
    }
    // Not every format has reserved blocks.
    if formatted.features.is_empty() {
        return Ok(());
    }
    writeln!(out, "  features  {}", formatted.features.join(" "))
}

fn line(args: &Args, shown: &[u8], formatted: &Formatted) -> Line {
    let line = Line::new("made")
        .bytes("path", shown)
        .field("made", !args.dry_run)
        .field("file_system", formatted.fs_type)
        .field("uuid", id_text(formatted));
    let line = if formatted.label.is_empty() { line } else { line.bytes("label", &formatted.label) };
    let facts: std::collections::BTreeMap<_, _> =
        formatted.facts.iter().map(|fact| (fact.name, &fact.value)).collect();
    line.field("size", formatted.blocks.saturating_mul(u64::from(formatted.block_size)))
        .field("block_size", formatted.block_size)
        .field("blocks", formatted.blocks)
        .field("blocks_reserved", formatted.reserved)
        .field("inodes", formatted.inodes)
        .field("journal_blocks", formatted.journal_blocks)
        .field("backups", &formatted.backups)
        .field("features", &formatted.features)
        .field("facts", facts)
}
