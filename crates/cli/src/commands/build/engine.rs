//! Building a type that only the kernel engine opens: its own program makes the volume, Linux takes the tree.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use obento::engine::types::Type;
use obento::{FillReport, build_filled, human_size, uuid_text};

use super::{Args, Watch, tell, write_counts};
use crate::commands::cp::tell_losses;
use crate::commands::mkfs::own;
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::report::{Report, printable};

/// Builds the image that `args` ask for, of the type `kind`.
pub fn make(args: &Args, kind: &Type, context: &Context) -> Outcome {
    let shown = args.out.as_os_str().as_bytes();
    let name = kind.names.first().copied().unwrap_or_default();
    let maker = kind.maker.ok_or_else(|| {
        let cause = format!("no program is known that makes an empty {name}");
        Report::on("cannot build", shown, cause)
    })?;
    refuse(args, maker.tool.program)?;
    let (sources, settings) = args.volume()?;
    let program = own::program(&maker, args.volume.label.as_ref(), "cannot build", shown)?;
    let start = Instant::now();
    let mut watch = Watch::new(context);
    let mut empty = |image: &Path| own::on(&program, image);
    let how = (&settings, maker.least);
    let built = build_filled(&args.out, &sources, how, context.registry(), &mut empty, &mut watch);
    drop(watch);
    let report = match built {
        Ok(report) => report,
        Err(failure) => return tell(failure, shown, context),
    };
    tell_losses(&report.written, shown, false, context);
    report.notes.iter().for_each(|note| context.note(shown, note));
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
        writeln!(out, ", {}, made by {}", human_size(probe.len), program.name())?;
        // Names of others are counted with what is no directory, as in any other image.
        let files = written.files + written.others;
        write_counts(
            &mut out,
            (files, written.directories),
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

fn line(shown: &[u8], report: &FillReport, start: Instant) -> Line {
    let FillReport { probe, written, excluded, notes } = report;
    let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Line::new("built")
        .bytes("path", shown)
        .field("size", probe.len)
        .field("file_system", probe.fs_type)
        .field("uuid", probe.uuid.map(uuid_text))
        .bytes("label", &probe.label)
        .field("files", written.files + written.others)
        .field("directories", written.directories)
        .field("bytes", written.bytes)
        .field("excluded", excluded)
        .field("notes", notes)
        .field("milliseconds", millis)
        .field("verified", false)
}

/// Errors: an option that the program does not get.
fn refuse(args: &Args, program: &str) -> Result<(), Report> {
    let volume = &args.volume;
    let options = [
        (volume.uuid.is_some(), "--uuid"),
        (volume.block_size.is_some(), "--block-size"),
        (!volume.features.is_empty(), "-O"),
        (!volume.extended.is_empty(), "-E"),
        (volume.inodes.is_some(), "--inodes"),
        (volume.inode_size.is_some(), "--inode-size"),
        (volume.reserved_percent.is_some(), "--reserved-percent"),
        (volume.minimize, "--minimize"),
    ];
    if args.verify {
        let cause = format!(
            "{program} and Linux, which make this type, write their own time and a new UUID each time"
        );
        return Err(Report::new("cannot use --verify", cause));
    }
    let Some((_, option)) = options.iter().find(|(given, _)| *given) else { return Ok(()) };
    let cause = format!("{program} makes this type, and does not get it");
    Err(Report::new(format!("cannot use {option}"), cause)
        .help(format!("make the volume by {program} itself, and fill it: obento cp -a FOLDER/. IMAGE:/")))
}
