//! Writes a GPT with its copy, and the protective MBR.
//!
//! Source: UEFI specification 2.10, 5.2.3 (protective MBR), 5.3.2 (header), 5.3.3 (entries).

use obento_base::Result;
use obento_base::crc::crc32;
use obento_base::wire::{FromZeros, IntoBytes};
use obento_block::BlockDevice;

use super::{NewPartition, SECTOR, write_sector};
use crate::partition::raw::{RawGptEntry, RawGptHeader, RawMbr, header_crc};
use crate::partition::{Guid, PartitionType};

/// Entries of a table: the usual number.
pub const ENTRIES: usize = 128;
/// Sectors of the entries.
const ENTRY_SECTORS: u64 = 32;
/// Bytes of the entries.
const ENTRIES_LEN: usize = ENTRIES * size_of::<RawGptEntry>();
const _: () = assert!(ENTRIES_LEN == 32 * 512);
const REVISION: u32 = 0x0001_0000;
/// The type of the record that covers the disk.
const PROTECTIVE: u8 = 0xee;

/// Writes the table, its copy and the MBR.
pub fn write(device: &dyn BlockDevice, id: Guid, partitions: &[NewPartition]) -> Result<()> {
    let last = (device.len() / SECTOR).saturating_sub(1);
    let entries: Vec<u8> = entries(partitions);
    let header = |my: u64, other: u64, entries_at: u64| {
        let mut raw = RawGptHeader::new_zeroed();
        raw.signature = *b"EFI PART";
        raw.revision.set(REVISION);
        raw.header_size.set(u32::try_from(size_of::<RawGptHeader>()).unwrap_or(0));
        raw.my_lba.set(my);
        raw.alternate_lba.set(other);
        raw.first_usable_lba.set(ENTRY_SECTORS.saturating_add(2));
        raw.last_usable_lba.set(last.saturating_sub(ENTRY_SECTORS).saturating_sub(1));
        raw.disk_guid = id.to_disk();
        raw.partition_entry_lba.set(entries_at);
        raw.number_of_partition_entries.set(u32::try_from(ENTRIES).unwrap_or(0));
        raw.size_of_partition_entry.set(u32::try_from(size_of::<RawGptEntry>()).unwrap_or(0));
        raw.partition_entry_array_crc32.set(crc32(&entries));
        raw.header_crc32.set(header_crc(raw.as_bytes()));
        raw
    };
    let copy_at = last.saturating_sub(ENTRY_SECTORS);
    write_sector(device, copy_at, &entries)?;
    write_sector(device, last, header(last, 1, copy_at).as_bytes())?;
    write_sector(device, 2, &entries)?;
    write_sector(device, 1, header(1, last, 2).as_bytes())?;
    write_sector(device, 0, protective(last).as_bytes())
}

fn entries(partitions: &[NewPartition]) -> Vec<u8> {
    let mut bytes = vec![0; ENTRIES_LEN];
    for (to, partition) in bytes.chunks_exact_mut(size_of::<RawGptEntry>()).zip(partitions) {
        let mut raw = RawGptEntry::new_zeroed();
        if let PartitionType::Gpt(guid) = partition.kind {
            raw.partition_type_guid = guid.to_disk();
        }
        raw.unique_partition_guid = partition.uuid.to_disk();
        raw.starting_lba.set(partition.range.start / SECTOR);
        raw.ending_lba.set((partition.range.end / SECTOR).saturating_sub(1));
        raw.attributes.set(partition.attributes);
        raw.partition_name.iter_mut().zip(partition.name.encode_utf16()).for_each(|(to, unit)| to.set(unit));
        to.copy_from_slice(raw.as_bytes());
    }
    bytes
}

/// Returns the MBR with a record of the whole disk, whose last sector is `last`.
fn protective(last: u64) -> RawMbr {
    let mut mbr = RawMbr::new_zeroed();
    mbr.signature.set(0xaa55);
    if let Some(record) = mbr.partition_record.first_mut() {
        record.starting_chs = [0x00, 0x02, 0x00];
        record.os_type = PROTECTIVE;
        record.ending_chs = [0xff; 3];
        record.starting_lba.set(1);
        record.size_in_lba.set(u32::try_from(last).unwrap_or(u32::MAX));
    }
    mbr
}
