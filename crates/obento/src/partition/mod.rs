//! Partition tables: GPT with its backup header, MBR with extended partitions, and both at once (hybrid MBR).
//!
//! On disk: sector 0 holds the MBR, in sector 1 begins the GPT header, and the last sector holds the GPT's copy. A
//! sector has 512, 1024, 2048 or 4096 bytes; the table does not say which, so each place is read.
//!
//! A GPT counts only if the MBR protects it, as for Linux (block/partitions/efi.c `is_pmbr_valid`), blkid and sfdisk: otherwise
//! it is left over from before another program wrote sector 0.
//!
//! Invariants: a [`Partition`] has at least one byte, and start plus length do not overflow; it may lie past the end
//! of a truncated image. A table has at most [`MAX_PARTITIONS`] partitions, and what is wrong with it is a
//! [`TableNotice`] as long as something can be read.
//!
//! Source: UEFI specification 2.10, chapter 5 (GPT, MBR); Linux `block/partitions/msdos.c` for extended partitions.
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

mod gpt;
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

pub use guid::Guid;
pub use kind::PartitionType;
pub use make::{ALIGNMENT, NewPartition, NewTable, TableError, lay_out, number_of};

/// More partitions than any disk has; a damaged table could announce millions.
pub const MAX_PARTITIONS: usize = 4096;

/// The sizes that sectors have, the most likely first.
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

/// A partition table, read and checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Which kind.
    pub scheme: Scheme,
    /// The size of a sector in bytes that the table's numbers count.
    pub sector_size: u32,
    /// What identifies the disk.
    pub id: DiskId,
    /// The partitions in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// What is wrong with the table, and what stood in.
    pub notices: Vec<TableNotice>,
}

/// What identifies a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskId {
    /// A GPT's.
    Guid(Guid),
    /// An MBR's signature.
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
    /// Its number as Linux counts: from 1, logical partitions of an MBR from 5.
    pub number: u32,
    /// First byte on the device.
    pub start: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
    /// What it is for.
    pub kind: PartitionType,
    /// The GPT name in UTF-8, with what is no UTF-16 replaced by U+FFFD; empty if there is none.
    pub name: Vec<u8>,
    /// What identifies the partition: its GUID, or the MBR's signature and its number, as `/dev/disk/by-partuuid`
    /// spells them.
    pub uuid: String,
    /// GPT attributes; for an MBR bit 2 tells that the partition is active, as GPT's "legacy bootable" does.
    pub attributes: u64,
}

impl Partition {
    /// The byte after the last.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Its bytes on the device.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end()
    }
}

/// What is wrong with a table that could be read all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableNotice {
    /// The first GPT header or its entries are damaged; the copy at the end of the disk was used.
    #[error("the GPT at the start of the disk is damaged ({0}); its backup was used")]
    Backup(Error),
    /// The entries do not match their checksum, nor do those of the backup.
    #[error("the GPT's entries are damaged ({0}), and there is no good backup: partitions may be wrong")]
    DamagedEntries(Error),
    /// The GPT cannot be read; the partitions are those of the hybrid MBR.
    #[error("the GPT is damaged ({0}); the partitions shown are those of the MBR")]
    OnlyMbr(Error),
    /// The table speaks of a larger disk.
    #[error(
        "the partition table is for a disk of {expected} bytes, but the image has {found}: it is cut short"
    )]
    Truncated {
        /// Bytes up to the end of the last partition or of the table's copy.
        expected: u64,
        /// Bytes of the image.
        found: u64,
    },
    /// An entry makes no sense and was left out.
    #[error("partition {number} ends before it begins or past any disk; it was left out")]
    BadEntry {
        /// Its number.
        number: u32,
    },
    /// The chain of logical partitions breaks off.
    #[error("the list of logical partitions is damaged after partition {after}: {error}")]
    BrokenChain {
        /// The last partition before the break.
        after: u32,
        /// What is wrong there.
        error: Error,
    },
    /// The chain of logical partitions comes back to where it was.
    #[error("the list of logical partitions runs in a circle after partition {after}")]
    CircularChain {
        /// The last partition before the circle.
        after: u32,
    },
}

impl Table {
    /// Reads the table of `device`. `None` if there is none. Errors: Corrupt if there was a GPT of which nothing
    /// can be used; Device.
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

    /// Reads an MBR whose numbers count sectors of `sector_size` bytes, as on an image of a disk with such sectors: the table
    /// does not say. `None` if there is none.
    pub fn read_mbr_of_large_sectors(device: &dyn BlockDevice, sector_size: u32) -> Result<Option<Self>> {
        let table = mbr::read(device, sector_size)?.filter(|table| !table.partitions.is_empty());
        Ok(table.map(|table| table.with_truncation(device.len())))
    }

    /// Whether `device` has a GPT, in whatever size of sectors, that is ignored because the MBR does not protect it. Errors: those
    /// of the device.
    pub fn ignores_gpt(device: &dyn BlockDevice) -> Result<bool> {
        Ok(!mbr::protects_gpt(device)? && matches!(gpt::read(device), Ok(Some(_))))
    }

    fn with_truncation(mut self, found: u64) -> Self {
        let expected = self.partitions.iter().map(Partition::end).max().unwrap_or(0);
        if expected > found {
            self.notices.push(TableNotice::Truncated { expected, found });
        }
        self
    }

    /// Puts the partition that covers `sectors` sectors from `first` on into the table, or tells that it cannot be.
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

/// What an entry says beside the place.
struct Detail {
    kind: PartitionType,
    name: Vec<u8>,
    uuid: String,
    attributes: u64,
}

/// Reads the sector with this number. Errors: those of the device, OutOfBounds past its end included.
fn read_sector(device: &dyn BlockDevice, sector_size: u32, number: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(sector_size).unwrap_or(usize::MAX)];
    device.read_at(number.saturating_mul(u64::from(sector_size)), &mut bytes)?;
    Ok(bytes)
}
