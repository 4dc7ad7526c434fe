//! `obento build --disk`: the image of a whole disk.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use obento::partition::{DiskId, PartitionType};
use obento::{DiskReport, DiskSettings, PartitionContent, build_disk, build_disk_twice, human_size};

use super::{Args, Watch, layout, tell};
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::report::printable;

/// Builds the disk that the file `layout` describes.
pub(super) fn make(args: &Args, layout: &Path, context: &Context) -> Outcome {
    let shown = args.out.as_os_str().as_bytes();
    let mut settings = layout::read(layout, args.threads)?;
    settings.publish = args.publish();
    confine(args, &settings, context);
    let start = Instant::now();
    let mut watch = Watch::new(context);
    let built = match args.verify {
        true => build_disk_twice(&args.out, &settings, context.registry(), &mut watch),
        false => build_disk(&args.out, &settings, context.registry(), &mut watch),
    };
    drop(watch);
    let report = match built {
        Ok(report) => report,
        Err(failure) => return tell(failure, shown, context),
    };
    for partition in &report.partitions {
        let Some(volume) = &partition.volume else { continue };
        let name = [shown, format!("@{}", partition.number).as_bytes()].concat();
        crate::commands::mkfs::notes(&name, &volume.formatted, context);
        volume.notes.iter().for_each(|note| context.note(&name, note));
    }
    let mut out = Output::stdout();
    if context.json() {
        json(args, &report, start.elapsed(), &mut out)?;
    } else if !args.quiet {
        text(&mut out, shown, &report, start.elapsed())?;
    }
    out.finish()
}

/// Gives up what no partition has a use for.
fn confine(args: &Args, settings: &DiskSettings, context: &Context) {
    let contents = || settings.partitions.iter().map(|partition| &partition.content);
    let sources = contents().filter_map(|content| match content {
        PartitionContent::Volume { sources, .. } => Some(sources),
        _ => None,
    });
    let files = contents().filter_map(|content| match content {
        PartitionContent::Raw(path) => Some(path.as_path()),
        _ => None,
    });
    super::confine::confine(&args.out, sources.flatten(), files, context);
}

fn scheme(report: &DiskReport) -> &'static str {
    match report.id {
        DiskId::Guid(_) => "GPT",
        DiskId::Signature(_) => "MBR",
    }
}

fn text(out: &mut Output, shown: &[u8], report: &DiskReport, time: Duration) -> std::io::Result<()> {
    out.write_name(shown)?;
    let (len, secs) = (human_size(report.len), time.as_secs_f64());
    writeln!(out, ": {} {}, {len} in {secs:.2} s", scheme(report), report.id)?;
    for partition in &report.partitions {
        let len = human_size(partition.range.end - partition.range.start);
        write!(out, "  {} {} {len}", partition.number, partition.kind)?;
        if !partition.name.is_empty() {
            write!(out, " '{}'", printable(partition.name.as_bytes()))?;
        }
        match &partition.volume {
            Some(volume) => {
                let (files, moved) = (volume.files, human_size(volume.bytes));
                let (fs_type, uuid) =
                    (volume.formatted.fs_type, crate::commands::mkfs::id_text(&volume.formatted));
                writeln!(out, ": {fs_type} {uuid}, {files} files with {moved}")?;
            }
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn json(args: &Args, report: &DiskReport, time: Duration, out: &mut Output) -> std::io::Result<()> {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Line::new("built_disk")
        .bytes("path", args.out.as_os_str().as_bytes())
        .field("table", scheme(report).to_lowercase())
        .field("uuid", report.id.to_string())
        .field("size", report.len)
        .field("milliseconds", millis)
        .field("verified", args.verify)
        .write(out)?;
    for partition in &report.partitions {
        let line = Line::new("built_partition")
            .field("number", partition.number)
            .field("type", partition.kind.to_string())
            .field("name", &partition.name)
            .field("start", partition.range.start)
            .field("size", partition.range.end - partition.range.start);
        let line = match partition.kind {
            PartitionType::Gpt(_) => line.field("partition_uuid", partition.uuid.to_string()),
            PartitionType::Mbr(_) => line,
        };
        let line = match &partition.volume {
            Some(volume) => super::volume_fields(line, volume),
            None => line,
        };
        line.write(out)?;
    }
    Ok(())
}
