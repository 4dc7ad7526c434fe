//! The type of the partition of a new volume: Windows shows a FAT or exFAT volume only in a partition of its own types.

use std::os::unix::ffi::OsStrExt as _;

use obento::Image;
use obento::image::PartitionChoice;
use obento::partition::{PartitionType, Scheme};

use crate::context::Context;
use crate::report::shell_word;

/// Notes that Windows ignores the partition `found` of a new volume, because its type is that of Linux. `part add` gives this
/// type to a partition unless another type is named.
pub fn note(image: &Image, found: &[PartitionChoice], fs_type: &str, shown: &[u8], context: &Context) {
    let is_exfat = fs_type == "exfat";
    let Some(scheme) = image.table().map(|table| table.scheme) else { return };
    let Some(partition) = found.first().and_then(|found| found.partition.as_ref()) else { return };
    let is_linux = Some(partition.kind) == PartitionType::parse("linux-generic", scheme);
    if !is_linux || !(is_exfat || fs_type.contains("fat") || fs_type == "msdos") {
        return;
    }
    // NTFS and exFAT have this number in an MBR.
    let kind = if is_exfat && scheme == Scheme::Mbr { "0x07" } else { "basic-data" };
    let (disk, number) = (shell_word(image.path().as_os_str().as_bytes()), partition.number);
    context.note(
        shown,
        format!(
            "the type of partition {number} is {}, which Windows ignores; 'obento part {disk} type {number} {kind}' \
             changes the type",
            partition.kind
        ),
    );
}
