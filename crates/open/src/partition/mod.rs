//! Partition tables: a GPT with its backup header, an MBR with extended partitions, or a disk with both
//! (hybrid MBR).
//!
//! Layout: sector 0 contains the MBR, the GPT header begins in sector 1, and the last sector contains the
//! copy of the GPT header. A sector has 512, 1024, 2048 or 4096 bytes. The table does not store the sector
//! size, so `Table::read` reads each possible position.
//!
//! A GPT counts only if the MBR protects it, as in Linux (block/partitions/efi.c `is_pmbr_valid`), blkid and sfdisk.
//! Otherwise, the GPT is a remnant from before another program wrote sector 0.
//!
//! Invariant: a [`Partition`] has at least one byte, and start plus length do not overflow. It may extend
//! past the end of a truncated image.
//! Invariant: a table has at most [`MAX_PARTITIONS`] partitions. Errors of a table that is still usable are
//! reported as [`TableNotice`]s.
//!
//! Source: UEFI specification 2.10, chapter 5 (GPT, MBR); Linux `block/partitions/msdos.c` for extended
//! partitions.
#![cfg_attr(
    not(test),
    warn(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod check;
mod edit;
mod gpt;
mod gpt_bytes;
mod guid;
mod kind;
mod make;
mod mbr;
mod place;
mod raw;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use obento_base::{Error, Result};
use obento_block::BlockDevice;

pub use check::check_table;
pub use edit::{EditError, NewEntry, Placement, TableEditor};
pub use guid::Guid;
pub use kind::PartitionType;
pub use make::{
    ALIGNMENT, CreateError, NewPartition, NewTable, TableError, lay_out, lay_out_at, number_of, table_end,
};

/// The maximum number of partitions. Valid disks have fewer, but a damaged table could contain millions.
pub const MAX_PARTITIONS: usize = 4096;

/// The entries of an MBR, in bytes from the start of the disk. Source: UEFI specification 2.10, table 5.1.
const MBR_ENTRIES: Range<u64> = 446..510;

/// The possible sector sizes, the most likely first.
const SECTOR_SIZES: [u32; 4] = [512, 4096, 2048, 1024];

/// The kinds of table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// GUID partition table.
    Gpt,
    /// Master boot record, also called DOS.
    Mbr,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

/// A validated partition table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The kind of table.
    pub scheme: Scheme,
    /// The size in bytes of the sectors that the table refers to by number.
    pub sector_size: u32,
    /// The identity of the disk.
    pub id: DiskId,
    /// The partitions in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// The errors of the table, and the substitutes that were used.
    pub notices: Vec<TableNotice>,
}

/// The identity of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskId {
    /// The GUID in a GPT.
    Guid(Guid),
    /// The signature in an MBR.
    Signature(u32),
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guid(guid) => guid.fmt(f),
            Self::Signature(signature) => write!(f, "{signature:08x}"),
        }
    }
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// The number in the numbering of Linux: from 1, and from 5 for logical partitions of an MBR.
    pub number: u32,
    /// First byte on the device.
    pub start: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
    /// The type.
    pub kind: PartitionType,
    /// The GPT name in UTF-8, empty if it is absent. Invalid UTF-16 is replaced by U+FFFD.
    pub name: Vec<u8>,
    /// The identity of the partition as in `/dev/disk/by-partuuid`: the GUID in a GPT, or the signature and
    /// the number in an MBR.
    pub uuid: String,
    /// The GPT attributes. For an MBR, bit 2 marks the active partition, like GPT's "legacy bootable".
    pub attributes: u64,
}

impl Partition {
    /// Returns the byte after the last byte of the partition.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Returns the bytes on the device.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end()
    }
}

/// An error of a table that is still usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableNotice {
    /// The first GPT header or its entries are damaged. The copy at the end of the disk was used.
    #[error("the GPT at the start of the disk is damaged ({0}); the backup at the end is used")]
    Backup(Error),
    /// The entries do not match their checksum, and neither do those of the backup.
    #[error(
        "the entries of the GPT are damaged ({0}), and no undamaged backup exists: partitions may be wrong"
    )]
    DamagedEntries(Error),
    /// The GPT cannot be read. The partitions are those of the hybrid MBR.
    #[error("the GPT is damaged ({0}); the partitions shown are those of the MBR")]
    OnlyMbr(Error),
    /// The table describes a disk that is larger than the image.
    #[error(
        "the partition table uses the disk up to byte {expected}, but the image is truncated to {found} bytes"
    )]
    Truncated {
        /// The end in bytes of the last partition or of the copy of the table.
        expected: u64,
        /// Bytes of the image.
        found: u64,
    },
    /// An entry is not valid and was skipped.
    #[error("partition {number} is ignored: its start or its end is not possible")]
    BadEntry {
        /// The number.
        number: u32,
    },
    /// The chain of logical partitions is broken.
    #[error("the list of logical partitions is damaged after partition {after}: {error}")]
    BrokenChain {
        /// The last partition before the break.
        after: u32,
        /// The error of the next boot record.
        error: Error,
    },
    /// The chain of logical partitions contains a loop.
    #[error("the list of logical partitions forms a cycle after partition {after}")]
    CircularChain {
        /// The last partition before the loop.
        after: u32,
    },
    /// The chain of logical partitions has more boot records than the maximum.
    #[error("the list of logical partitions has more than 252 entries: partitions after {after} are ignored")]
    LongChain {
        /// The last partition of the boot records that were read.
        after: u32,
    },
}

impl Table {
    /// Reads the table of `device`. Returns `None` if the device has no table.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a GPT exists, no copy of it is usable, and the MBR contains no other partitions.
    /// - `Device`: the device failed.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let gpt = match mbr::protects_gpt(device)
            .and_then(|protects| if protects { gpt::read(device) } else { Ok(None) })
        {
            Ok(Some(table)) => return Ok(Some(table.with_truncation(device.len()))),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        match (mbr::read(device, device.sector_size())?, gpt) {
            (Some(mut table), Some(error)) if !table.partitions.is_empty() => {
                table.notices.push(TableNotice::OnlyMbr(error));
                Ok(Some(table.with_truncation(device.len())))
            }
            (_, Some(error)) => Err(error),
            (table, None) => {
                let table = table.filter(|table| !table.partitions.is_empty());
                Ok(table.map(|table| table.with_truncation(device.len())))
            }
        }
    }

    /// Reads an MBR with sectors of `sector_size` bytes, for an image of a disk with such sectors. An MBR
    /// does not store its sector size. Returns `None` if the device has no MBR with partitions. Fails with
    /// the errors of the device.
    pub fn read_mbr_of_large_sectors(device: &dyn BlockDevice, sector_size: u32) -> Result<Option<Self>> {
        let table = mbr::read(device, sector_size)?.filter(|table| !table.partitions.is_empty());
        Ok(table.map(|table| table.with_truncation(device.len())))
    }

    /// Reads an MBR without partitions and without boot code. [`Table::read`] does not return such a table,
    /// because the disk may contain a file system instead. Returns `None` if the device has other contents in
    /// sector 0. Fails with the errors of the device.
    pub fn read_empty_mbr(device: &dyn BlockDevice) -> Result<Option<Self>> {
        mbr::read_empty(device, device.sector_size())
    }

    /// Returns whether `device` has a GPT, with any sector size, that is ignored because the MBR does not
    /// protect the GPT. Fails with the errors of the device.
    pub fn ignores_gpt(device: &dyn BlockDevice) -> Result<bool> {
        Ok(!mbr::protects_gpt(device)? && matches!(gpt::read(device), Ok(Some(_))))
    }

    /// Reads a GPT that is ignored because the MBR does not protect the GPT, as [`ignores_gpt`](Self::ignores_gpt)
    /// reports. [`TableEditor::write`] then writes a protective MBR again.
    ///
    /// Returns `None` if a GPT is absent. Also returns `None` unless the first sectors contain boot code and an
    /// undamaged GPT, or zeros instead of both. With other contents, data may have been written over the start of a
    /// disk whose backup GPT remains.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a GPT exists, and no copy of it is usable.
    /// - `Device`: the device failed.
    pub fn read_unprotected_gpt(device: &dyn BlockDevice) -> Result<Option<Self>> {
        if device.len() < MBR_ENTRIES.end {
            return Ok(None);
        }
        let mut entries = [0; 64];
        device.read_at(MBR_ENTRIES.start, &mut entries)?;
        let Some(copy) = gpt::find(device)?.filter(|_| entries == [0; 64]) else { return Ok(None) };
        let table = copy.table();
        let has = |is: fn(&TableNotice) -> bool| table.notices.iter().any(is);
        let is_lost = has(|notice| matches!(notice, TableNotice::DamagedEntries(_)))
            || has(|notice| matches!(notice, TableNotice::Backup(_)))
                && !gpt::starts_with_zeros(device, &copy)?;
        Ok((!is_lost).then(|| table.with_truncation(device.len())))
    }

    fn with_truncation(mut self, found: u64) -> Self {
        let expected = self.partitions.iter().map(Partition::end).max().unwrap_or(0);
        if expected > found {
            self.notices.push(TableNotice::Truncated { expected, found });
        }
        self
    }

    /// Adds the partition of `sectors` sectors from `first` on to the table, or a notice that its entry is
    /// not valid.
    fn add(&mut self, number: u32, first: u64, sectors: Option<u64>, detail: Detail) {
        let size = u64::from(self.sector_size);
        let range = sectors.filter(|&sectors| sectors > 0).and_then(|sectors| {
            let (start, len) = (first.checked_mul(size)?, sectors.checked_mul(size)?);
            start.checked_add(len).map(|_| (start, len))
        });
        let Some((start, len)) = range else {
            self.notices.push(TableNotice::BadEntry { number });
            return;
        };
        let Detail { kind, name, uuid, attributes } = detail;
        self.partitions.push(Partition { number, start, len, kind, name, uuid, attributes });
    }
}

/// The properties of an entry other than its position.
struct Detail {
    kind: PartitionType,
    name: Vec<u8>,
    uuid: String,
    attributes: u64,
}

/// Reads the sector with this number. Fails with the errors of the device, including OutOfBounds past its end.
fn read_sector(device: &dyn BlockDevice, sector_size: u32, number: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(sector_size).unwrap_or(usize::MAX)];
    device.read_at(number.saturating_mul(u64::from(sector_size)), &mut bytes)?;
    Ok(bytes)
}
