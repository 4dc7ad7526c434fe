//! Lists partitions and free space.

use std::io::Write as _;

use obento::Image;
use obento::image::ImageNotice;
use obento::partition::{DiskId, Partition, Scheme, Table, TableEditor, TableNotice};
use obento::text::human_size;

use super::Disk;
use crate::format::size::exact_size;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::parse::attributes;
use crate::report::{printable, shell_word};

/// Free space of less than this is not listed.
const LEAST_FREE: u64 = 1 << 20;

/// Prints the table. A table that is too damaged to be changed is listed without its free space.
pub(super) fn list(disk: &Disk<'_>, image: &Image, table: &Table) -> Outcome {
    let editor = TableEditor::open(image.device().clone(), table).ok();
    let free = editor.as_ref().map(TableEditor::free).unwrap_or_default();
    let logical = editor.as_ref().map(TableEditor::free_for_logical).unwrap_or_default();
    let free = free.into_iter().map(|gap| (gap, false));
    let logical = logical.into_iter().map(|gap| (gap, true));
    let free: Vec<_> = free.chain(logical).filter(|(gap, _)| gap.end - gap.start >= LEAST_FREE).collect();
    let is_backed = editor.as_ref().is_none_or(TableEditor::has_backup);
    let mut out = Output::stdout();
    if disk.context.json() {
        let size = image.device().len();
        table_line(disk, table.scheme, table.id, size, table.sector_size, is_backed).write(&mut out)?;
        for partition in &table.partitions {
            line(disk, table.scheme, partition).write(&mut out)?;
        }
        for (gap, is_logical) in free {
            let line = Line::new("free_space").bytes("path", disk.shown).field("start", gap.start);
            line.field("size", gap.end - gap.start).field("logical", is_logical).write(&mut out)?;
        }
        return out.finish();
    }
    out.write_name(disk.shown)?;
    let len = human_size(image.device().len());
    writeln!(out, ": {} {}, {len}, sectors of {} bytes", table.scheme, table.id, table.sector_size)?;
    writeln!(out, "{:>6} {:>15} {:>15} {:>10}  {:<24} NAME", "NUMBER", "START", "END", "SIZE", "TYPE")?;
    let mut rows: Vec<_> =
        table.partitions.iter().map(|partition| (partition.start, row(table, partition))).collect();
    rows.extend(free.into_iter().map(|(gap, is_logical)| {
        let what = if is_logical { "free, for logical partitions" } else { "free" };
        let size = human_size(gap.end - gap.start);
        (gap.start, format!("{:>6} {:>15} {:>15} {size:>10}  {what}", "-", gap.start, gap.end))
    }));
    rows.sort_by_key(|(start, _)| *start);
    for (_, row) in rows {
        writeln!(out, "{row}")?;
    }
    out.flush()?;
    // The note about a damaged copy at the start names the same command.
    let is_noted = |notice: &ImageNotice| matches!(notice, ImageNotice::Table(TableNotice::Backup(_)));
    if !is_backed && image.can_be_changed() && !image.notices().iter().any(is_noted) {
        disk.context.note(
            disk.shown,
            format!(
                "the copies of the GPT differ, or the backup is not at the end of the disk; run 'obento part {} repair-backup'",
                shell_word(disk.shown)
            ),
        );
    }
    out.finish()
}

fn row(table: &Table, partition: &Partition) -> String {
    let Partition { number, start, len, kind, name, .. } = partition;
    let attributes = attributes::names(partition.attributes, table.scheme);
    let attributes =
        if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
    let (end, size, kind) = (partition.end(), human_size(*len), kind.to_string());
    let row =
        format!("{number:>6} {start:>15} {end:>15} {size:>10}  {kind:<24} {}{attributes}", printable(name));
    row.trim_end().to_owned()
}

/// Returns the JSON record of a table.
pub(super) fn table_line(
    disk: &Disk<'_>,
    scheme: Scheme,
    id: DiskId,
    size: u64,
    sector_size: u32,
    is_backed: bool,
) -> Line {
    Line::new("partition_table")
        .bytes("path", disk.shown)
        .field("table", scheme.to_string().to_lowercase())
        .field("uuid", id.to_string())
        .field("size", size)
        .field("sector_size", sector_size)
        .field("backup", is_backed)
}

/// Describes one partition in a line.
pub(super) fn sentence(disk: &Disk<'_>, partition: &Partition) -> String {
    let Partition { number, start, len, kind, .. } = partition;
    format!("{}: partition {number}: {kind}, {} at byte {start}", printable(disk.shown), exact_size(*len))
}

/// Returns the JSON record of a partition.
pub(super) fn line(disk: &Disk<'_>, scheme: Scheme, partition: &Partition) -> Line {
    Line::new("partition")
        .bytes("path", disk.shown)
        .field("number", partition.number)
        .field("start", partition.start)
        .field("size", partition.len)
        .field("type", partition.kind.to_string())
        .field("partition_uuid", &partition.uuid)
        .bytes("name", &partition.name)
        .field("attributes", attributes::names(partition.attributes, scheme))
}
