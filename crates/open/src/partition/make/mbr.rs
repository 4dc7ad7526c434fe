//! Writes an MBR, with a chain of boot records for logical partitions.
//!
//! The boot record of a logical partition is [`ALIGNMENT`] bytes before it. Its first record is relative to
//! the boot record. Its second record, which leads to the next boot record, is relative to the extended
//! partition.

use std::ops::Range;

use obento_base::Result;
use obento_base::wire::{FromZeros, IntoBytes};
use obento_block::BlockDevice;

use super::{ALIGNMENT, NewPartition, PRIMARY, SECTOR, is_logical, write_sector};
use crate::partition::PartitionType;
use crate::partition::raw::{RawMbr, RawMbrEntry};

/// The type of an extended partition with LBA addressing, and of the links of the chain in it.
const EXTENDED: u8 = 0x0f;
const LINK: u8 = 0x05;
/// The address of sectors past the range of cylinders, heads and sectors.
const BEYOND_CHS: [u8; 3] = [0xfe, 0xff, 0xff];
/// The bit of GPT attributes that marks the active partition.
const BOOTABLE: u64 = 1 << 2;

/// Writes the MBR and all boot records.
pub fn write(device: &dyn BlockDevice, signature: u32, partitions: &[NewPartition]) -> Result<()> {
    let count = partitions.len();
    let mut mbr = RawMbr::new_zeroed();
    mbr.disk_signature.set(signature);
    mbr.signature.set(0xaa55);
    let (primary, logical) = partitions.split_at(if count > PRIMARY.0 { PRIMARY.1 } else { count });
    debug_assert!(logical.is_empty() || is_logical(PRIMARY.1, count));
    for (to, partition) in mbr.partition_record.iter_mut().zip(primary) {
        *to = of_partition(partition, 0);
    }
    if let (Some(first), Some(last), Some(to)) =
        (logical.first(), logical.last(), mbr.partition_record.get_mut(PRIMARY.1))
    {
        let whole = boot_record(first)..last.range.end;
        *to = record(EXTENDED, &whole, 0);
        write_chain(device, logical, whole.start)?;
    }
    write_sector(device, 0, mbr.as_bytes())
}

/// Returns the position of the boot record of a logical partition.
fn boot_record(partition: &NewPartition) -> u64 {
    partition.range.start.saturating_sub(ALIGNMENT)
}

fn write_chain(device: &dyn BlockDevice, logical: &[NewPartition], base: u64) -> Result<()> {
    for (at, partition) in logical.iter().enumerate() {
        let place = boot_record(partition);
        let mut raw = RawMbr::new_zeroed();
        raw.signature.set(0xaa55);
        let [first, second, ..] = &mut raw.partition_record;
        *first = of_partition(partition, place);
        if let Some(next) = logical.get(at.saturating_add(1)) {
            *second = record(LINK, &(boot_record(next)..next.range.end), base);
        }
        write_sector(device, place / SECTOR, raw.as_bytes())?;
    }
    Ok(())
}

fn of_partition(partition: &NewPartition, base: u64) -> RawMbrEntry {
    let kind = match partition.kind {
        PartitionType::Mbr(number) => number,
        PartitionType::Gpt(_) => 0,
    };
    let mut raw = record(kind, &partition.range, base);
    if partition.attributes & BOOTABLE != 0 {
        raw.boot_indicator = 0x80;
    }
    raw
}

/// Returns a record of `range`, relative to byte `base`.
fn record(kind: u8, range: &Range<u64>, base: u64) -> RawMbrEntry {
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX);
    let mut raw = RawMbrEntry::new_zeroed();
    raw.os_type = kind;
    raw.starting_chs = BEYOND_CHS;
    raw.ending_chs = BEYOND_CHS;
    raw.starting_lba.set(sectors(range.start.saturating_sub(base)));
    raw.size_in_lba.set(sectors(range.end.saturating_sub(range.start)));
    raw
}
