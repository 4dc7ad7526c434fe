//! Building types that only the kernel engine opens: their own program creates the volume, and Linux fills it.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use obento::OpenError;
use obento::build::{FillReport, build_filled};
use obento::copy::WriteReport;
use obento::engine::kernel_of;
use obento::engine::tools::Maker;
use obento::engine::types::Type;
use obento::text::{human_size, uuid_text};

use super::confine::confine_filled;
use super::volume::VolumeArgs;
use super::{Args, BuildDisplay, failed, warn_of_lists, write_counts};
use crate::cause::Cause as _;
use crate::commands::cp::report_losses;
use crate::commands::mkfs::{created_types, own};
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::report::{Report, printable};

/// Builds the image of the type `kind` with the options `args`.
pub fn make(args: &Args, kind: &'static Type, context: &Context) -> Outcome {
    let shown = args.out().as_os_str().as_bytes();
    let name = kind.names.first().copied().unwrap_or_default();
    let maker = maker(kind)
        .map_err(|cause| Report::on("cannot build", shown, cause).help(created_types(context.registry())))?;
    refuse(args, &maker)?;
    if let Some((cause, hint)) = without_kernel(kind) {
        let report = Report::on("cannot build", shown, cause);
        return Err(hint.into_iter().fold(report, Report::help).into());
    }
    let (sources, settings) = args.volume(context.options().unpack())?;
    let program = own::program(&maker, args.volume.label.as_ref(), "cannot build", shown)?;
    let mut empty = own::maker(program, &maker);
    let contents = settings.contents.iter().map(PathBuf::as_path);
    confine_filled(&mut [(kind, &mut empty)], &[args.out()], sources.iter(), contents, context)
        .map_err(|error| Report::on("cannot build", shown, error))?;
    let start = Instant::now();
    let mut watch = BuildDisplay::new(context);
    let how = (&settings, empty.least);
    let mut make = |image: BorrowedFd<'_>| (empty.make)(image);
    let built = build_filled(args.out(), &sources, how, context.registry(), &mut make, &mut watch);
    drop(watch);
    let report = match built {
        Ok(report) => report,
        Err(failure) => return failed(failure, shown, Some(&args.volume), context),
    };
    report_losses(&report.written, shown, false, context);
    report.notes.iter().for_each(|note| context.note(shown, note));
    warn_of_lists(&report.lost, context);
    let mut out = Output::stdout();
    if context.json() {
        line(shown, &report, start).write(&mut out)?;
    } else if !args.quiet {
        let FillReport { probe, written, .. } = &report;
        out.write_name(shown)?;
        write!(out, ": {name}")?;
        if !probe.label.is_empty() {
            write!(out, " '{}'", printable(&probe.label))?;
        }
        writeln!(out, ", {}, created by {}", human_size(probe.len), maker.tool.program)?;
        write_counts(
            &mut out,
            (files(written), written.directories),
            written.bytes,
            report.excluded,
            start.elapsed(),
        )?;
        if let Some(uuid) = probe.uuid {
            writeln!(out, "  UUID {}", uuid_text(uuid))?;
        }
    }
    out.finish()
}

/// Returns the reason why no kernel is available for `kind`, and the next step.
pub(super) fn without_kernel(kind: &'static Type) -> Option<(String, Option<String>)> {
    let error = Box::new(kernel_of(kind).err()?);
    let (image, fs_type) = (PathBuf::new(), kind.names.first().copied().unwrap_or_default());
    let error = OpenError::Volume { image, part: None, fs_type, is_requested: true, error };
    let text = error.to_string();
    // The text names the image, which does not exist yet.
    let cause = text.split_once("': ").map_or(&*text, |(_, cause)| cause);
    Some((cause.to_owned(), error.hint()))
}

/// Returns the command that creates an empty volume of `kind`. Fails if no known program does.
pub(super) fn maker(kind: &Type) -> Result<Maker, String> {
    let name = kind.names.first().copied().unwrap_or_default();
    kind.maker.ok_or_else(|| format!("obento supports no program that creates {name} volumes"))
}

fn line(shown: &[u8], report: &FillReport, start: Instant) -> Line {
    let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = Line::new("built").bytes("path", shown).field("size", report.probe.len);
    filled_fields(line, report).field("milliseconds", millis).field("verified", false)
}

/// Adds the fields of the volume and its contents to a JSON record.
pub(super) fn filled_fields(line: Line, report: &FillReport) -> Line {
    let FillReport { probe, written, excluded, notes, .. } = report;
    line.field("file_system", probe.fs_type)
        .field("uuid", probe.uuid.map(uuid_text))
        .bytes("label", &probe.label)
        .field("files", files(written))
        .field("directories", written.directories)
        .field("bytes", written.bytes)
        .field("excluded", excluded)
        .field("notes", notes)
}

/// Returns the number of files that are not directories. Each name counts, as in other images.
pub(super) fn files(written: &WriteReport) -> u64 {
    written.files + written.others
}

/// Returns the reason why two builds differ whose volumes `program` creates.
pub(super) fn differs(program: &str) -> Report {
    let cause =
        format!("{program} and Linux write the current time and a new UUID in each build of this type");
    Report::new("--verify is not supported", cause)
}

/// The options of `volume` that the program does not support: as an option, and as a key of a layout file.
pub(super) fn not_passed(volume: &VolumeArgs, maker: &Maker) -> Option<(&'static str, &'static str)> {
    let options = [
        (volume.label.is_some() && maker.label.is_none(), "--label", "fs-label"),
        (volume.uuid.is_some(), "--uuid", "fs-uuid"),
        (volume.block_size.is_some(), "--block-size", "block-size"),
        (!volume.features.is_empty(), "-O", "features"),
        (!volume.extended.is_empty(), "-E", "extended"),
        (volume.inodes.is_some(), "--inodes", "inodes"),
        (volume.inode_size.is_some(), "--inode-size", "inode-size"),
        (volume.reserved_percent.is_some(), "--reserved-percent", "reserved-percent"),
        (volume.minimize, "--minimize", "minimize"),
    ];
    options.into_iter().find(|(given, ..)| *given).map(|(_, option, key)| (option, key))
}

/// Fails for an option that the program does not support.
fn refuse(args: &Args, maker: &Maker) -> Result<(), Report> {
    let program = maker.tool.program;
    if args.verify {
        return Err(differs(program));
    }
    let unsupported = args.provenance.then_some("--provenance");
    let option = unsupported.or_else(|| not_passed(&args.volume, maker).map(|(option, _)| option));
    let Some(option) = option else { return Ok(()) };
    let name = args.volume.fs_type.to_uppercase();
    Err(Report::plain(format!("{option} is not available for {name}"))
        .help(format!("omit {option}, or run {program}, and then 'obento cp -a DIR/. IMAGE:/'")))
}
