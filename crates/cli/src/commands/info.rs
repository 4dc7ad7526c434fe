//! `obento info`: shows the containers, the partitions and the file systems of an image.

mod os;
mod release;
mod snapshots;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use obento::address::PartSelector;
use obento::base::{Error, Quantity};
use obento::driver::{Access, StatFs, VolumeInfo};
use obento::host::Snapshot;
use obento::image::{PartitionChoice, PartitionContents};
use obento::partition::Partition;
use obento::text::{human_size, probe_id_text};
use obento::{Image, OpenError, Volume};

use self::os::System;
use crate::context::Context;
use crate::format::time::Clock;
use crate::help::page::Page;
use crate::json::Line;
use crate::open;
use crate::output::{Outcome, Output};
use crate::report::{self, Report, printable};

/// The page of `info`.
pub const PAGE: Page = Page::new(&[
    ("obento info disk.img", "Show the partitions of a disk and their file systems"),
    ("obento info disk.img@2", "Show the file system in partition 2"),
    ("obento info disk.qcow2", "Also list the snapshots; 'disk.qcow2%NAME' opens a snapshot"),
])
.see_also(&["blkid(8)", "fdisk(8)"]);

/// Show the partitions and file systems of an image
///
/// For each file system, the command prints the type, label, UUID, state, use and features, and the operating
/// system that its files contain. For a qcow2 image, it also lists the snapshots.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images; IMAGE@PART is one file system
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<OsString>,
}

/// The width of the names of facts.
const NAME: usize = 22;

/// An image and its contents.
struct Findings {
    shown: Vec<u8>,
    image: Rc<Image>,
    /// Whether one part was requested.
    one_part: bool,
    snapshots: Vec<Snapshot>,
    contents: Vec<(PartitionChoice, Option<Found>)>,
    /// The reason why a file system could not be opened.
    failures: Vec<Report>,
}

/// A file system.
struct Found {
    info: VolumeInfo,
    stat: Result<StatFs, Error>,
    system: Option<System>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut clock = Clock::system();
    open::seal_before_decoding(
        &args.images,
        open::BareOperand::Image,
        obento::driver::Access::ReadOnly,
        context,
    );
    let found: Vec<_> = args.images.iter().map(|image| examine(image, context)).collect();
    context.seal();
    let mut out = Output::stdout();
    for (number, findings) in found.iter().enumerate() {
        let findings = match findings {
            Ok(findings) => findings,
            Err(report) => {
                context.fail(report);
                continue;
            }
        };
        if context.json() {
            write_json(&mut out, findings)?;
        } else {
            if number > 0 {
                writeln!(out)?;
            }
            write_text(&mut out, findings, &mut clock)?;
        }
        out.flush()?;
        findings.failures.iter().for_each(|report| context.warn(report));
    }
    out.finish()
}

/// Opens the image and every file system in it, or the requested one.
fn examine(argument: &OsString, context: &Context) -> Result<Findings, Report> {
    let address = open::address(argument, context)?;
    if address.place.is_some() && address.server().is_none() {
        let report = Report::on("cannot describe", argument.as_bytes(), "this is a path inside an image");
        return Err(report.help("name the image, or a partition: IMAGE@PART; 'obento stat' describes a file"));
    }
    let image = context.quiet_image(&address.image).map_err(open::cannot_open)?;
    let mut failures = Vec::new();
    let snapshots = image.snapshots().unwrap_or_else(|error| {
        failures.push(open::cannot_open(error));
        Vec::new()
    });
    let mut contents = Vec::new();
    if address.part.is_some() {
        let volume = image.volume(address.part.as_ref())?;
        let found = Found::new(&volume);
        let holds = PartitionContents::FileSystem(found.info.probe.clone());
        contents
            .push((PartitionChoice { partition: named(&image, address.part.as_ref()), holds }, Some(found)));
    } else {
        for content in image.probe_all() {
            let part = part_of(&image, &content);
            let volume = content.probe().map(|_| image.volume(part.as_ref()));
            let found = volume.and_then(|volume| match volume {
                Ok(volume) => Some(Found::new(&volume)),
                Err(error) => {
                    failures.push(error.into());
                    None
                }
            });
            contents.push((content, found));
        }
        if let Some(ambiguity) = image.ambiguity() {
            failures.push(ambiguity.into());
        } else if contents.iter().all(|(_, found)| found.is_none()) && failures.is_empty() {
            // A file system that is opened by --fs-type or --superblock has no signature.
            match image.volume(None) {
                Ok(volume) => {
                    let found = Found::new(&volume);
                    let holds = PartitionContents::FileSystem(found.info.probe.clone());
                    contents = vec![(PartitionChoice { partition: None, holds }, Some(found))];
                }
                // The output describes these contents already.
                Err(error) if is_shown(&error) && !is_forced(context) => {}
                Err(error) => failures.push(error.into()),
            }
        }
    }
    Ok(Findings {
        shown: argument.as_bytes().to_vec(),
        one_part: address.part.is_some(),
        image,
        snapshots,
        contents,
        failures,
    })
}

/// Returns whether the reason why no file system can be opened is the contents, which are known.
fn is_shown(error: &OpenError) -> bool {
    match error {
        // The table is complete, and has room for partitions or for file systems.
        OpenError::NoPartitions { .. } | OpenError::NoneOfThese { .. } => true,
        OpenError::NoFileSystem { looks, .. } => !looks.may_be_anything() && !looks.is_undecoded(),
        _ => false,
    }
}

/// Returns whether the user named the type or the super block of a file system that must be present.
fn is_forced(context: &Context) -> bool {
    context.options().fs_type.is_some() || context.options().superblock.is_some()
}

/// Returns the name by which `content` is opened.
fn part_of(image: &Image, content: &PartitionChoice) -> Option<PartSelector> {
    match &content.partition {
        Some(partition) => Some(PartSelector::Number(partition.number)),
        None if image.partitions().is_empty() => None,
        None => Some(PartSelector::Offset(0)),
    }
}

fn named(image: &Image, part: Option<&PartSelector>) -> Option<Partition> {
    match part {
        Some(PartSelector::Number(number)) => {
            image.partitions().iter().find(|p| p.number == *number).cloned()
        }
        _ => None,
    }
}

impl Found {
    fn new(volume: &Volume) -> Self {
        // Counting the space may find damage, which is then among the notices.
        let stat = volume.statfs();
        Self { info: volume.info(), stat, system: System::of(volume) }
    }
}

fn write_text(out: &mut impl Write, findings: &Findings, clock: &mut Clock) -> io::Result<()> {
    let Findings { shown, image, contents, one_part, snapshots, .. } = findings;
    writeln!(out, "{}", printable(shown))?;
    if !one_part {
        let len = image.device().len();
        fact(out, 2, "size", &size_text(len))?;
        if !image.layers().is_empty() {
            fact(out, 2, "packed in", &image.layers().join(", "))?;
        }
        if let Some(table) = image.table() {
            let text = format!("{} {}, sectors of {} bytes", table.scheme, table.id, table.sector_size);
            fact(out, 2, "partition table", &text)?;
        }
        for notice in image.notices() {
            let note = open::image_note(notice, image);
            fact(out, 2, "note", &note.replace(report::HELP, "; "))?;
        }
        snapshots::write_text(out, snapshots, clock)?;
    }
    for (content, found) in contents {
        let indent = match &content.partition {
            Some(partition) => {
                partition_text(out, partition)?;
                4
            }
            None => 2,
        };
        match found {
            Some(found) => file_system_text(out, indent, found, image)?,
            None => fact(out, indent, "contents", &content.holds.to_string())?,
        }
    }
    Ok(())
}

/// Writes `  name      value`; a long value continues on the next line.
fn fact(out: &mut impl Write, indent: usize, name: &str, value: &str) -> io::Result<()> {
    let width = if io::stdout().is_terminal() { crate::terminal::width().clamp(40, 100) } else { 100 };
    wrapped(out, indent, (name, value), width)
}

/// Writes a fact in lines of at most `limit` columns, if its words permit.
fn wrapped(out: &mut impl Write, indent: usize, (name, value): (&str, &str), limit: usize) -> io::Result<()> {
    let column = NAME + 4;
    let mut line = format!("{:indent$}{name:<width$}", "", width = column - indent);
    let mut used = column;
    for (number, word) in value.split(' ').enumerate() {
        if number > 0 && used + 1 + word.len() > limit {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(column);
            used = column;
        } else if number > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += word.len();
    }
    writeln!(out, "{}", line.trim_end())
}

/// Returns `12 MiB (12582912 bytes)`, or `1 byte`.
fn size_text(len: u64) -> String {
    let bytes = Quantity::new(len, "byte");
    if len < 1024 { bytes.to_string() } else { format!("{} ({bytes})", human_size(len)) }
}

fn partition_text(out: &mut impl Write, partition: &Partition) -> io::Result<()> {
    let Partition { number, start, len, kind, name, uuid, .. } = partition;
    let name = if name.is_empty() { String::new() } else { format!(" \"{}\"", printable(name)) };
    writeln!(out, "\n  partition {number}{name}")?;
    fact(out, 4, "location", &format!("{} at byte {start}", size_text(*len)))?;
    fact(out, 4, "type", &kind.to_string())?;
    fact(out, 4, "partition UUID", uuid)
}

fn file_system_text(out: &mut impl Write, indent: usize, found: &Found, image: &Image) -> io::Result<()> {
    let Found { info, stat, system } = found;
    fact(out, indent, "file system", info.probe.fs_type)?;
    if !info.probe.label.is_empty() {
        fact(out, indent, "label", &printable(&info.probe.label))?;
    }
    if let Some(id) = probe_id_text(&info.probe) {
        fact(out, indent, "UUID", &id)?;
    }
    fact(out, indent, "state", &info.state)?;
    for note in open::grouped_notes(&info.notices, Access::ReadOnly, image, info.probe.fs_type) {
        fact(out, indent, "note", &note)?;
    }
    if let Err(error @ Error::Corrupt(_)) = stat {
        fact(out, indent, "use", &format!("unknown: {error}"))?;
    }
    if let Ok(stat) = stat {
        let block = u64::from(stat.block_size);
        let used = stat.blocks.saturating_sub(stat.free);
        let bytes = |blocks: u64| human_size(blocks.saturating_mul(block));
        let percent = percent(used, stat.blocks);
        fact(out, indent, "use", &format!("{} of {}{percent}", bytes(used), bytes(stat.blocks)))?;
        let used = stat.inodes.saturating_sub(stat.free_inodes);
        // Formats such as FAT have no fixed number of inodes.
        if stat.inodes > 0 {
            let percent = self::percent(used, stat.inodes);
            fact(out, indent, "inodes", &format!("{used} of {}{percent}", stat.inodes))?;
        }
    }
    if !info.features.is_empty() {
        fact(out, indent, "features", &info.features.join(" "))?;
    }
    for item in &info.facts {
        fact(out, indent, item.name, &printable(item.value.as_bytes()))?;
    }
    for (name, _, value) in system.iter().flat_map(System::facts) {
        fact(out, indent, name, &printable(value.as_bytes()))?;
    }
    Ok(())
}

/// Returns `, 12%`, rounded up as df does, or nothing if `all` is 0.
fn percent(used: u64, all: u64) -> String {
    let share = u128::from(used) * 100;
    share
        .checked_next_multiple_of(u128::from(all))
        .map_or_else(String::new, |up| format!(", {}%", up / u128::from(all).max(1)))
}

/// Writes one line for the image, and one for each partition or file system.
fn write_json(out: &mut impl Write, findings: &Findings) -> io::Result<()> {
    let Findings { shown, image, snapshots, contents, .. } = findings;
    let notices: Vec<_> = image.notices().iter().map(ToString::to_string).collect();
    let mut line = Line::new("image")
        .bytes("path", shown)
        .field("size", image.device().len())
        .field("layers", image.layers())
        .field("notices", notices);
    if let Some(table) = image.table() {
        line = line
            .field("table", table.scheme.to_string())
            .field("table_id", table.id.to_string())
            .field("sector_size", table.sector_size);
    }
    line.write(out)?;
    snapshots::write_json(out, shown, snapshots)?;
    for (content, found) in contents {
        let line = Line::new("volume").bytes("path", shown);
        let line = match &content.partition {
            Some(partition) => partition_json(line, partition),
            None => line,
        };
        match found {
            Some(found) => file_system_json(line, found, image),
            None => line.field("holds", content.holds.to_string()),
        }
        .write(out)?;
    }
    Ok(())
}

fn partition_json(line: Line, partition: &Partition) -> Line {
    let line = line
        .field("partition", partition.number)
        .field("start", partition.start)
        .field("length", partition.len)
        .field("partition_type", partition.kind.to_string())
        .field("partition_uuid", &partition.uuid);
    if partition.name.is_empty() { line } else { line.bytes("partition_name", &partition.name) }
}

fn file_system_json(line: Line, found: &Found, image: &Image) -> Line {
    let Found { info, stat, system } = found;
    let mut line = line.field("file_system", info.probe.fs_type).field("size", info.probe.len);
    if !info.probe.label.is_empty() {
        line = line.bytes("label", &info.probe.label);
    }
    if let Some(id) = probe_id_text(&info.probe) {
        line = line.field("uuid", id);
    }
    let notices: Vec<_> = info
        .notices
        .iter()
        .map(|notice| report::notice(notice, Access::ReadOnly, image, info.probe.fs_type))
        .collect();
    line = line.field("state", &info.state).field("notices", notices).field("features", &info.features);
    if let Ok(stat) = stat {
        line = line
            .field("block_size", stat.block_size)
            .field("blocks", stat.blocks)
            .field("blocks_free", stat.free)
            .field("blocks_available", stat.available)
            .field("inodes", stat.inodes)
            .field("inodes_free", stat.free_inodes);
    }
    let facts: std::collections::BTreeMap<_, _> = info.facts.iter().map(|f| (f.name, &f.value)).collect();
    let line = line.field("facts", facts);
    match system {
        Some(system) => {
            let facts = system.facts().map(|(_, key, value)| (key, value));
            line.field("os", facts.collect::<std::collections::BTreeMap<_, _>>())
        }
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_continues_on_the_next_line() {
        let mut out = Vec::new();
        for (limit, lines) in [(100, 2), (80, 3)] {
            out.clear();
            wrapped(&mut out, 2, ("features", &"large_feature ".repeat(8)), limit).unwrap();
            let text = str::from_utf8(&out).unwrap();
            assert_eq!(text.lines().count(), lines);
            assert!(
                text.lines().all(|line| line.len() <= limit && line[26..].starts_with("large_feature")),
                "{text}"
            );
        }
    }

    #[test]
    fn percentages_are_rounded_up() {
        assert_eq!(
            [percent(0, 7), percent(1, 1000), percent(7, 7), percent(0, 0)],
            [", 0%", ", 1%", ", 100%", ""]
        );
    }
}
