//! Partition tables written: where partitions come to lie on a new disk, and the bytes of the table.
//!
//! Invariant: partitions begin and end with multiples of [`ALIGNMENT`], in the order in which they are named, and each logical
//! partition of an MBR has that much before it for its boot record.
//! Source: as the parent module; the alignment is that of sfdisk(8) and systemd-repart(8) for disks of any kind.

mod gpt;
mod mbr;

use std::ops::Range;

use obento_base::Result;
use obento_block::BlockDevice;

use super::{DiskId, Guid, PartitionType, Scheme};

/// What partitions begin and end with multiples of.
pub const ALIGNMENT: u64 = 1 << 20;
/// The sector that the numbers of a table count.
const SECTOR: u64 = 512;
/// Linux follows a chain of 100 boot records (`block/partitions/msdos.c`); fewer by far are of use.
const MBR_MAX: usize = 63;
/// Partitions of an MBR with a record of their own, if there are no logical ones, and if there are.
const PRIMARY: (usize, usize) = (4, 3);

/// A partition to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPartition {
    /// What it is for.
    pub kind: PartitionType,
    /// Its name, which an MBR has no room for.
    pub name: String,
    /// Its GUID, which an MBR has no room for.
    pub uuid: Guid,
    /// GPT attributes; of these an MBR knows bit 2, which makes it the active one.
    pub attributes: u64,
    /// Its bytes on the disk, as [`lay_out`] has them.
    pub range: Range<u64>,
}

/// A table to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTable {
    /// What identifies the disk; says which kind of table it is.
    pub id: DiskId,
    /// The partitions in their order.
    pub partitions: Vec<NewPartition>,
}

/// What of a table cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// More partitions than it has room for.
    #[error("{found} partitions are too many: {scheme} has room for {max}")]
    TooMany {
        /// Which kind.
        scheme: Scheme,
        /// How many there are to be.
        found: usize,
        /// How many there can be.
        max: usize,
    },
    /// More bytes than an MBR can count.
    #[error("the disk is too large for an MBR, which counts 2 TiB")]
    TooLarge,
}

/// Where partitions of these lengths lie on a disk, and how long that has to be. Lengths are rounded up. Errors: TooMany;
/// TooLarge.
pub fn lay_out(scheme: Scheme, lens: &[u64]) -> Result<(Vec<Range<u64>>, u64), TableError> {
    let max = match scheme {
        Scheme::Gpt => gpt::ENTRIES,
        Scheme::Mbr => MBR_MAX,
    };
    if lens.len() > max {
        return Err(TableError::TooMany { scheme, found: lens.len(), max });
    }
    let (mut ranges, mut at) = (Vec::new(), ALIGNMENT);
    for (index, len) in lens.iter().enumerate() {
        if scheme == Scheme::Mbr && is_logical(index, lens.len()) {
            at = at.saturating_add(ALIGNMENT);
        }
        let len = len.max(&1).checked_next_multiple_of(ALIGNMENT).ok_or(TableError::TooLarge)?;
        let end = at.checked_add(len).ok_or(TableError::TooLarge)?;
        ranges.push(at..end);
        at = end;
    }
    // The copy of a GPT at the end.
    let len = if scheme == Scheme::Gpt { at.saturating_add(ALIGNMENT) } else { at };
    match scheme == Scheme::Mbr && len.div_ceil(SECTOR) > u32::MAX.into() {
        true => Err(TableError::TooLarge),
        false => Ok((ranges, len)),
    }
}

/// Whether partition `index` of `count` is a logical one of an MBR.
fn is_logical(index: usize, count: usize) -> bool {
    count > PRIMARY.0 && index >= PRIMARY.1
}

/// The number of partition `index` of `count`, as Linux counts.
pub fn number_of(scheme: Scheme, index: usize, count: usize) -> u32 {
    let before = match scheme {
        Scheme::Mbr if is_logical(index, count) => 2,
        _ => 1,
    };
    u32::try_from(index.saturating_add(before)).unwrap_or(u32::MAX)
}

impl NewTable {
    /// Writes the table over a device of zeros that is as long as the disk is to be. Errors: those of the device.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        match self.id {
            DiskId::Guid(id) => gpt::write(device, id, &self.partitions),
            DiskId::Signature(id) => mbr::write(device, id, &self.partitions),
        }
    }
}

/// Writes a sector. Errors: those of the device.
fn write_sector(device: &dyn BlockDevice, sector: u64, bytes: &[u8]) -> Result<()> {
    device.write_at(sector.saturating_mul(SECTOR), bytes)
}
