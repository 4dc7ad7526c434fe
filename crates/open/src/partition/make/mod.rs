//! Writes partition tables: lays out the partitions of a new disk, and writes the bytes of the table.
//!
//! Invariant: partitions are in the order of the list. They begin and end at multiples of [`ALIGNMENT`],
//! except that a partition with a requested position begins and ends at multiples of the sector size. Each
//! logical partition of an MBR has at least [`ALIGNMENT`] bytes before it for its boot record.
//! Source: as the parent module. The alignment is that of sfdisk(8) and systemd-repart(8) for disks of any
//! kind.

mod gpt;
mod mbr;
mod replace;

use std::ops::Range;

use obento_base::Result;
use obento_block::BlockDevice;

use super::{DiskId, Guid, PartitionType, Scheme};
pub use replace::CreateError;

/// The alignment of partitions in bytes.
pub const ALIGNMENT: u64 = 1 << 20;
/// The sector size of a new table in bytes.
const SECTOR: u64 = 512;
/// Maximum number of partitions of an MBR. Linux follows a chain of 100 boot records (`block/partitions/msdos.c`).
const MBR_MAX: usize = 63;
/// The primary partitions of an MBR, without and with logical partitions.
const PRIMARY: (usize, usize) = (4, 3);

/// A partition to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPartition {
    /// The number in a GPT, or `None` for the position in the list.
    pub number: Option<u32>,
    /// The type.
    pub kind: PartitionType,
    /// The name, which an MBR does not store.
    pub name: String,
    /// The GUID, which an MBR does not store.
    pub uuid: Guid,
    /// The GPT attributes. An MBR stores only bit 2, which marks the active partition.
    pub attributes: u64,
    /// The bytes on the disk, as returned by [`lay_out`].
    pub range: Range<u64>,
}

/// A table to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTable {
    /// The identity of the disk, which also selects the kind of table.
    pub id: DiskId,
    /// The partitions in their order.
    pub partitions: Vec<NewPartition>,
}

/// The reason why a table is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// The table has too few entries for the partitions.
    #[error("{found} partitions are too many: {scheme} has room for {max}")]
    TooMany {
        /// The kind of table.
        scheme: Scheme,
        /// The requested number of partitions.
        found: usize,
        /// The maximum number of partitions.
        max: usize,
    },
    /// The requested position of a partition overlaps the table or the previous partition.
    #[error("partition {} of the layout cannot start at byte {start}: the first free byte is {first}", index.saturating_add(1))]
    Position {
        /// The index of the partition.
        index: usize,
        /// The requested position.
        start: u64,
        /// The first possible position, a multiple of the sector size.
        first: u64,
    },
    /// The disk is larger than an MBR can address.
    #[error("the disk is too large for an MBR: the maximum is 2 TiB")]
    TooLarge,
}

/// Lays out partitions of the lengths `lens`, which are rounded up. Returns the ranges of the partitions and the
/// length of the disk. Fails with `TooMany` or `TooLarge`.
pub fn lay_out(scheme: Scheme, lens: &[u64]) -> Result<(Vec<Range<u64>>, u64), TableError> {
    let wanted: Vec<_> = lens.iter().map(|len| (None, *len)).collect();
    lay_out_at(scheme, &wanted)
}

/// Lays out partitions like [`lay_out`]. A partition may have a position. The length of such a partition is only
/// rounded up to sectors. Fails with `TooMany`, `Position` or `TooLarge`.
pub fn lay_out_at(
    scheme: Scheme,
    wanted: &[(Option<u64>, u64)],
) -> Result<(Vec<Range<u64>>, u64), TableError> {
    let max = match scheme {
        Scheme::Gpt => gpt::ENTRIES,
        Scheme::Mbr => MBR_MAX,
    };
    if wanted.len() > max {
        return Err(TableError::TooMany { scheme, found: wanted.len(), max });
    }
    let table = table_end(scheme);
    let (mut ranges, mut end) = (Vec::new(), table);
    for (index, (start, len)) in wanted.iter().enumerate() {
        let lead = if scheme == Scheme::Mbr && is_logical(index, wanted.len()) { ALIGNMENT } else { 0 };
        let first = end.checked_add(lead).ok_or(TableError::TooLarge)?;
        let (start, unit) = match *start {
            Some(start) if start < first || !start.is_multiple_of(SECTOR) => {
                let first = first.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
                return Err(TableError::Position { index, start, first });
            }
            Some(start) => (start, SECTOR),
            None => {
                let aligned = end.checked_next_multiple_of(ALIGNMENT).and_then(|end| end.checked_add(lead));
                (aligned.ok_or(TableError::TooLarge)?, ALIGNMENT)
            }
        };
        let len = len.max(&1).checked_next_multiple_of(unit).ok_or(TableError::TooLarge)?;
        end = start.checked_add(len).ok_or(TableError::TooLarge)?;
        ranges.push(start..end);
    }
    // The end of the disk contains the copy of a GPT.
    let len = match scheme {
        Scheme::Gpt
            if end.is_multiple_of(ALIGNMENT) && wanted.last().is_none_or(|(start, _)| start.is_none()) =>
        {
            end.saturating_add(ALIGNMENT)
        }
        Scheme::Gpt if wanted.is_empty() => ALIGNMENT.saturating_mul(2),
        Scheme::Gpt => end.saturating_add(table.saturating_sub(SECTOR)),
        Scheme::Mbr => end.max(ALIGNMENT),
    };
    match scheme == Scheme::Mbr && len.div_ceil(SECTOR) > u32::MAX.into() {
        true => Err(TableError::TooLarge),
        false => Ok((ranges, len)),
    }
}

/// Returns the end of the table at the start of a disk.
pub fn table_end(scheme: Scheme) -> u64 {
    match scheme {
        // The MBR, the header, and the entries.
        Scheme::Gpt => SECTOR.saturating_mul(34),
        Scheme::Mbr => SECTOR,
    }
}

/// Returns whether partition `index` of `count` is a logical partition of an MBR.
fn is_logical(index: usize, count: usize) -> bool {
    count > PRIMARY.0 && index >= PRIMARY.1
}

/// Returns the number of partition `index` of `count`, in the numbering of Linux.
pub fn number_of(scheme: Scheme, index: usize, count: usize) -> u32 {
    let before = match scheme {
        Scheme::Mbr if is_logical(index, count) => 2,
        _ => 1,
    };
    u32::try_from(index.saturating_add(before)).unwrap_or(u32::MAX)
}

impl NewTable {
    /// Writes the table to a device that contains zeros and has the length of the disk. Fails with the errors of the
    /// device.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        match self.id {
            DiskId::Guid(id) => gpt::write(device, id, &self.partitions),
            DiskId::Signature(id) => mbr::write(device, id, &self.partitions),
        }
    }
}

/// Writes a sector. Fails with the errors of the device.
fn write_sector(device: &dyn BlockDevice, sector: u64, bytes: &[u8]) -> Result<()> {
    device.write_at(sector.saturating_mul(SECTOR), bytes)
}
