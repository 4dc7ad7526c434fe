//! Writes a GPT with its copy, and the protective MBR.

use obento_base::Result;
use obento_block::BlockDevice;

use super::{NewPartition, SECTOR};
pub use crate::partition::gpt_bytes::ENTRIES;
use crate::partition::gpt_bytes::GptBytes;
use crate::partition::{Guid, PartitionType};

/// Writes the table, its copy and the MBR.
pub fn write(device: &dyn BlockDevice, id: Guid, partitions: &[NewPartition]) -> Result<()> {
    let mut table = GptBytes::new(id, device.len());
    for (number, partition) in (1..).zip(partitions) {
        let Some(raw) = table.entry_mut(partition.number.unwrap_or(number)) else { continue };
        if let PartitionType::Gpt(guid) = partition.kind {
            raw.partition_type_guid = guid.to_disk();
        }
        raw.unique_partition_guid = partition.uuid.to_disk();
        raw.set_sectors(&partition.range, SECTOR);
        raw.attributes.set(partition.attributes);
        raw.set_name(&partition.name);
    }
    table.write_new(device)
}
