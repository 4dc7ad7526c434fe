//! Names the field of a partition table at a byte of the disk.

use super::raw::RawGptHeader;
use super::{Scheme, Table, read_sector};
use obento_block::BlockDevice;

/// Fields of a structure: name, offset and length.
type Fields = &'static [(&'static str, u64, u64)];

/// UEFI specification, table 5.5.
const GPT_HEADER: Fields = &[
    ("Signature", 0, 8),
    ("Revision", 8, 4),
    ("HeaderSize", 12, 4),
    ("HeaderCRC32", 16, 4),
    ("Reserved", 20, 4),
    ("MyLBA", 24, 8),
    ("AlternateLBA", 32, 8),
    ("FirstUsableLBA", 40, 8),
    ("LastUsableLBA", 48, 8),
    ("DiskGUID", 56, 16),
    ("PartitionEntryLBA", 72, 8),
    ("NumberOfPartitionEntries", 80, 4),
    ("SizeOfPartitionEntry", 84, 4),
    ("PartitionEntryArrayCRC32", 88, 4),
];
/// UEFI specification, table 5.6.
const GPT_ENTRY: Fields = &[
    ("PartitionTypeGUID", 0, 16),
    ("UniquePartitionGUID", 16, 16),
    ("StartingLBA", 32, 8),
    ("EndingLBA", 40, 8),
    ("Attributes", 48, 8),
    ("PartitionName", 56, 72),
];
/// UEFI specification, table 5.1.
const MBR: Fields = &[("BootCode", 0, 440), ("UniqueMBRDiskSignature", 440, 4), ("Signature", 510, 2)];
/// UEFI specification, table 5.2.
const MBR_RECORD: Fields = &[
    ("BootIndicator", 0, 1),
    ("StartingCHS", 1, 3),
    ("OSType", 4, 1),
    ("EndingCHS", 5, 3),
    ("StartingLBA", 8, 4),
    ("SizeInLBA", 12, 4),
];
/// The position of the records of an MBR, and the length of each.
const MBR_RECORDS: (u64, u64) = (446, 16);

impl Table {
    /// Describes the part of the table at byte `offset` of `device`: `GPT header, DiskGUID`. Returns `None`
    /// if the byte does not belong to the table. For boot records of logical partitions, the description has
    /// no field.
    pub fn field_at(&self, device: &dyn BlockDevice, offset: u64) -> Option<String> {
        if offset < 512 {
            return Some(format!("MBR, {}", mbr_field(offset)));
        }
        match self.scheme {
            Scheme::Gpt => self.gpt_field(device, offset),
            Scheme::Mbr => {
                let container = self.partitions.iter().find(|partition| partition.kind.is_container())?;
                container.range().contains(&offset).then(|| "boot records of logical partitions".to_owned())
            }
        }
    }

    fn gpt_field(&self, device: &dyn BlockDevice, offset: u64) -> Option<String> {
        let size = u64::from(self.sector_size);
        let last = device.len().checked_div(size)?.checked_sub(1)?;
        for (sector, copy) in [(1, ""), (last, ", copy at the end of the disk")] {
            let bytes = read_sector(device, self.sector_size, sector).ok()?;
            let start = sector.checked_mul(size)?;
            if let Some(inside) = offset.checked_sub(start).filter(|&inside| inside < size) {
                return Some(format!("GPT header{copy}, {}", named(GPT_HEADER, inside)));
            }
            let Some(header) = RawGptHeader::of(&bytes) else { continue };
            let entry_size = u64::from(header.size_of_partition_entry.get());
            let len = entry_size.checked_mul(header.number_of_partition_entries.get().into())?;
            let start = header.partition_entry_lba.get().checked_mul(size)?;
            if let Some(inside) = offset.checked_sub(start).filter(|&inside| inside < len) {
                let number = inside.checked_div(entry_size)?.checked_add(1)?;
                let field = named(GPT_ENTRY, inside.checked_rem(entry_size)?);
                return Some(format!("GPT entry {number}{copy}, {field}"));
            }
        }
        None
    }
}

fn mbr_field(offset: u64) -> String {
    let (start, len) = MBR_RECORDS;
    let record = offset.checked_sub(start).and_then(|inside| {
        let number = inside.checked_div(len)?.checked_add(1).filter(|&number| number <= 4)?;
        Some(format!("PartitionRecord {number}, {}", named(MBR_RECORD, inside.checked_rem(len)?)))
    });
    record.unwrap_or_else(|| named(MBR, offset).to_owned())
}

fn named(fields: Fields, offset: u64) -> &'static str {
    let holds = |(_, start, len): &&(&str, u64, u64)| offset.checked_sub(*start).is_some_and(|at| at < *len);
    fields.iter().find(holds).map_or("reserved", |(name, ..)| name)
}
