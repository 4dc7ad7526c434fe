//! Files at positions outside of partitions, such as boot loaders before the first partition.
//!
//! Invariant: a file overlaps neither the table, nor a boot record, nor a partition, nor another file.

use std::ops::Range;

use obento_host::build::FreshFile;
use obento_open::partition::{ALIGNMENT, Scheme, number_of, table_end};

use super::DiskSettings;
use super::content::copy;
use crate::build::BuildFailure;
use crate::build::source::open_at_once;

/// Copies the files to a disk of `len` bytes.
///
/// # Errors
///
/// - Layout: a file overlaps something, or ends after the disk.
/// - Host.
/// - Changed if the length of a file changed.
pub(super) fn write(
    settings: &DiskSettings,
    partitions: &[Range<u64>],
    len: u64,
    fresh: &FreshFile,
) -> Result<(), BuildFailure> {
    let mut used = tables(settings.scheme, partitions, len);
    for blob in &settings.blobs {
        let path = &blob.path;
        let (file, meta) = open_at_once(path)?;
        let layout = |why: String| BuildFailure::Layout { why: format!("{}: {why}", path.display()) };
        if !meta.is_file() {
            return Err(layout("not a regular file".into()));
        }
        let end = blob.offset.checked_add(meta.len()).filter(|end| *end <= len);
        let end = end.ok_or_else(|| {
            layout(format!(
                "{} bytes at byte {} end after the disk, which has {len} bytes",
                meta.len(),
                blob.offset
            ))
        })?;
        let range = blob.offset..end;
        let hit = used.iter().find(|(other, _)| other.start < range.end && range.start < other.end);
        if let Some((other, what)) = hit {
            let (start, end) = (other.start, other.end);
            return Err(layout(format!(
                "bytes {} to {} overlap {what}, bytes {start} to {end}",
                range.start, range.end
            )));
        }
        copy(path, &file, meta.len(), fresh, range.start)?;
        used.push((range, format!("{}", path.display())));
    }
    Ok(())
}

/// Returns the ranges that no file may overlap, each with a description.
fn tables(scheme: Scheme, partitions: &[Range<u64>], len: u64) -> Vec<(Range<u64>, String)> {
    let count = partitions.len();
    let mut used = vec![(0..table_end(scheme), "the partition table".to_owned())];
    if scheme == Scheme::Gpt {
        used.push((
            len.saturating_sub(table_end(scheme) - 512)..len,
            "the copy of the partition table".into(),
        ));
    }
    for (at, range) in partitions.iter().enumerate() {
        let number = number_of(scheme, at, count);
        if scheme == Scheme::Mbr && number > 4 {
            let record = range.start.saturating_sub(ALIGNMENT);
            used.push((record..record + 512, format!("the boot record of partition {number}")));
        }
        used.push((range.clone(), format!("partition {number}")));
    }
    used
}
