//! Writes an empty table to a disk that may have other contents.

use obento_base::Error;
use obento_block::BlockDevice;

use super::{ALIGNMENT, NewTable, SECTOR, table_end};
use crate::partition::{DiskId, Scheme};

/// The number of bytes at the start that are cleared. They may contain super blocks, whose signatures would
/// compete with the table.
const START: u64 = ALIGNMENT;

/// The reason why an empty table cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreateError {
    /// The disk is too small for the table and a partition.
    #[error("the disk has {len} bytes, but {scheme} requires at least {least}")]
    TooSmall {
        /// The kind of table.
        scheme: Scheme,
        /// The length of the disk.
        len: u64,
        /// The minimum length.
        least: u64,
    },
    /// The disk has sectors of another size.
    #[error(
        "the disk has sectors of {sector_size} bytes, and obento creates tables only for sectors of 512 bytes"
    )]
    SectorSize {
        /// The sector size in bytes.
        sector_size: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Error),
}

impl NewTable {
    /// Writes a table without partitions over the current contents of a disk. Clears the first MiB, and the
    /// location of the second copy of a GPT at the end of the disk. The other bytes keep their values.
    ///
    /// # Errors
    ///
    /// - `SectorSize`: the disk has sectors of another size than 512 bytes.
    /// - `TooSmall`: the disk is too small for the table and a partition.
    /// - `Device`: the device failed. The disk then has no table, the old table or the new table.
    pub fn replace(device: &dyn BlockDevice, id: DiskId) -> Result<(), CreateError> {
        let (len, sector_size) = (device.len(), device.sector_size());
        let scheme = match id {
            DiskId::Guid(_) => Scheme::Gpt,
            DiskId::Signature(_) => Scheme::Mbr,
        };
        if u64::from(sector_size) != SECTOR {
            return Err(CreateError::SectorSize { sector_size });
        }
        let copy = table_end(Scheme::Gpt).saturating_sub(SECTOR);
        let least = match scheme {
            Scheme::Gpt => table_end(scheme).saturating_add(copy).saturating_add(SECTOR),
            Scheme::Mbr => table_end(scheme).saturating_add(SECTOR),
        };
        if len < least {
            return Err(CreateError::TooSmall { scheme, len, least });
        }
        // The last whole sectors contain the copy.
        let end = (len / SECTOR).saturating_mul(SECTOR);
        clear(device, end.saturating_sub(copy), end)?;
        clear(device, 0, START.min(end))?;
        device.flush()?;
        Self { id, partitions: Vec::new() }.write(device)?;
        Ok(device.flush()?)
    }
}

fn clear(device: &dyn BlockDevice, start: u64, end: u64) -> obento_base::Result<()> {
    let len = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    device.write_at(start, &vec![0; len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{Guid, Table, TableEditor};
    use obento_block::MemDevice;
    use std::sync::Arc;

    const GPT: DiskId = DiskId::Guid(Guid::from_u128(7));

    #[test]
    fn bytes_of_partitions_keep_their_values_when_a_table_is_replaced() {
        for (id, scheme) in [(GPT, Scheme::Gpt), (DiskId::Signature(7), Scheme::Mbr)] {
            let len = 4 * ALIGNMENT + 100;
            let device = Arc::new(MemDevice::new(vec![0xee; usize::try_from(len).unwrap()]));
            NewTable::replace(&*device, id).unwrap();
            let table = match scheme {
                Scheme::Gpt => Table::read(&*device).unwrap().unwrap(),
                Scheme::Mbr => Table::read_empty_mbr(&*device).unwrap().unwrap(),
            };
            assert_eq!((table.scheme, table.id, table.partitions.len()), (scheme, id, 0));
            assert_eq!(table.notices, []);
            assert!(TableEditor::open(device.clone(), &table).unwrap().has_backup());
            let mut bytes = vec![0; usize::try_from(len - ALIGNMENT - 33 * 512 - 100).unwrap()];
            device.read_at(ALIGNMENT, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0xee), "{scheme}");
        }
    }

    #[test]
    fn a_disk_without_room_for_a_partition_gets_no_table() {
        for (len, id, is_possible) in [
            (67 * 512, GPT, false),
            (68 * 512, GPT, true),
            (512, DiskId::Signature(7), false),
            (1024, DiskId::Signature(7), true),
        ] {
            let device = MemDevice::new(vec![0; len]);
            assert_eq!(NewTable::replace(&device, id).is_ok(), is_possible, "{len}");
        }
    }
}
