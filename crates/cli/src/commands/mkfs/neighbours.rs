//! The parts of a partitioned disk that a volume at an offset would overwrite.

use std::ops::Range;

use obento::Image;
use obento::partition::{Partition, Scheme, Table};

/// The length of the entries of a GPT. Source: UEFI specification 2.10, 5.3.1.
const ENTRIES: u64 = 16384;

/// Describes the partitions and the copies of the partition table in `range` of the image. Returns `None` for an image without
/// a table, and for a range that starts with a partition and is not longer than this partition.
pub fn in_range(image: &Image, range: &Range<u64>) -> Option<String> {
    let table = image.table()?;
    let is_start = |partition: &Partition| partition.start == range.start && range.end <= partition.end();
    if table.partitions.iter().any(|partition| is_start(partition) && !partition.kind.is_container()) {
        return None;
    }
    let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
    let partitions = table.partitions.iter().filter(|partition| overlaps(&partition.range()));
    let mut found: Vec<String> =
        partitions.map(|partition| format!("partition {}", partition.number)).collect();
    let (start, end) = tables(table, image.device().len());
    found.extend(overlaps(&start).then(|| "the partition table".to_owned()));
    found.extend(overlaps(&end).then(|| "the backup of the partition table".to_owned()));
    let last = found.pop()?;
    Some(if found.is_empty() { last } else { format!("{} and {last}", found.join(", ")) })
}

/// Returns the number of the partition that starts at `offset`.
pub fn starting_at(image: &Image, offset: u64) -> Option<u32> {
    let mut partitions = image.partitions().iter();
    partitions.find(|partition| partition.start == offset).map(|partition| partition.number)
}

/// Returns the ranges of the table and of its backup on a disk of `len` bytes. The backup of an MBR is empty.
fn tables(table: &Table, len: u64) -> (Range<u64>, Range<u64>) {
    let sector = u64::from(table.sector_size);
    match table.scheme {
        Scheme::Gpt => (0..sector.saturating_mul(2) + ENTRIES, len.saturating_sub(sector + ENTRIES)..len),
        Scheme::Mbr => (0..sector, len..len),
    }
}
