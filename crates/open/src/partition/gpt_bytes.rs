//! The bytes of a GPT, and the writer of its two copies.
//!
//! Invariant: bytes of headers and entries that this code does not interpret are written as they were read.
//! Invariant: while one copy is written, the other one is valid and durable. A power failure leaves at least
//! one of the old and the new table.
//!
//! Source: UEFI specification 2.10, 5.2.3 (protective MBR), 5.3.2 (header), 5.3.3 (entries).

use std::ops::Range;

use obento_base::crc::crc32;
use obento_base::wire::{FromBytes, FromZeros, IntoBytes};
use obento_base::{Result, wire::to_u64};
use obento_block::BlockDevice;

use super::gpt::GptCopy;
use super::raw::{RawGptEntry, RawGptHeader, RawMbr, header_crc};
use super::{Guid, Table, read_sector};

/// Entries of a new table: the usual number.
pub const ENTRIES: usize = 128;
/// The sector size of a new table in bytes.
const SECTOR: u32 = 512;
const REVISION: u32 = 0x0001_0000;
/// The type of the record that covers the disk.
const PROTECTIVE: u8 = 0xee;

/// A GPT in memory.
pub struct GptBytes {
    copy: GptCopy,
    /// The sector of the entries of the first copy.
    entries_at: u64,
    /// The sector of the second header.
    last: u64,
    /// The first and last sector that partitions may use.
    usable: (u64, u64),
    /// Whether the first copy on the device is damaged, so that only the second one is valid.
    is_first_damaged: bool,
}

impl GptBytes {
    /// Creates an empty table of a disk with `len` bytes.
    pub fn new(id: Guid, len: u64) -> Self {
        let mut raw = RawGptHeader::new_zeroed();
        raw.signature = *b"EFI PART";
        raw.revision.set(REVISION);
        raw.header_size.set(small(size_of::<RawGptHeader>()));
        raw.disk_guid = id.to_disk();
        raw.number_of_partition_entries.set(small(ENTRIES));
        raw.size_of_partition_entry.set(small(size_of::<RawGptEntry>()));
        let entries = vec![0; ENTRIES.saturating_mul(size_of::<RawGptEntry>())];
        let mut table = Self {
            copy: GptCopy::empty(raw, SECTOR, entries),
            entries_at: 2,
            last: 0,
            usable: (0, 0),
            is_first_damaged: false,
        };
        table.usable.0 = table.entry_sectors().saturating_add(2);
        table.end_at(len);
        table
    }

    /// Prepares the copy that was read from `device` to be changed. The second copy will be at the end of the
    /// device. Returns `None` if the copy leaves no room for its entries before the first usable sector.
    pub fn of_copy(device: &dyn BlockDevice, copy: GptCopy) -> Option<Self> {
        let is_first_damaged = copy.header.sector != 1;
        let first = first_header(device, copy.header.sector_size);
        let raw = copy.header.raw();
        let (first_usable, last_usable) = (raw.first_usable_lba.get(), raw.last_usable_lba.get());
        let old_last = if is_first_damaged { copy.header.sector } else { raw.alternate_lba.get() };
        let mut table =
            Self { copy, entries_at: 2, last: 0, usable: (first_usable, last_usable), is_first_damaged };
        let highest = first_usable.checked_sub(table.entry_sectors()).filter(|&highest| highest >= 2)?;
        let stored = first.map(|header| header.partition_entry_lba.get());
        let stored = stored.filter(|at| (2..=highest).contains(at));
        table.entries_at = stored.unwrap_or(2);
        table.end_at(device.len());
        if table.last == old_last {
            table.usable.1 = table.usable.1.min(last_usable);
        }
        Some(table)
    }

    /// Moves the second copy to the end of a disk of `len` bytes.
    pub fn end_at(&mut self, len: u64) {
        self.last = len.checked_div(self.sector_size()).unwrap_or(0).saturating_sub(1);
        self.usable.1 = self.last.saturating_sub(self.entry_sectors()).saturating_sub(1);
    }

    /// Returns the sector size in bytes.
    pub fn sector_size(&self) -> u64 {
        self.copy.header.sector_size.into()
    }

    /// Returns the bytes that partitions may use.
    pub fn usable(&self) -> Range<u64> {
        let size = self.sector_size();
        self.usable.0.saturating_mul(size)..self.usable.1.saturating_add(1).saturating_mul(size)
    }

    /// Returns the number of bytes that the second copy takes at the end of the disk.
    pub fn copy_len(&self) -> u64 {
        self.entry_sectors().saturating_add(1).saturating_mul(self.sector_size())
    }

    /// Returns the partitions.
    pub fn table(&self) -> Table {
        self.copy.table()
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.copy.entries.len().checked_div(self.entry_size()).unwrap_or(0)
    }

    /// Returns the entry with the number `number`, from 1.
    pub fn entry_mut(&mut self, number: u32) -> Option<&mut RawGptEntry> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        let size = self.entry_size();
        let bytes = self.copy.entries.chunks_exact_mut(size).nth(index)?;
        RawGptEntry::mut_from_prefix(bytes).ok().map(|(entry, _)| entry)
    }

    /// Replaces all bytes of the entry by zeros.
    pub fn clear(&mut self, number: u32) {
        let size = self.entry_size();
        let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let bytes = index.and_then(|index| self.copy.entries.chunks_exact_mut(size).nth(index));
        bytes.into_iter().for_each(FromZeros::zero);
    }

    /// Sets the GUID of the disk.
    pub fn set_id(&mut self, id: Guid) {
        self.copy.header.set_id(id);
    }

    /// Writes both copies, and a record of the MBR that covers the whole disk. The copy that is valid on the
    /// device is written last.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        let order = if self.is_first_damaged { [true, false] } else { [false, true] };
        for is_first in order {
            self.write_copy(device, is_first)?;
            device.flush()?;
        }
        self.write_protection(device)?;
        device.flush()
    }

    /// Writes the copies and a protective MBR to a device of zeros.
    pub fn write_new(&self, device: &dyn BlockDevice) -> Result<()> {
        self.write_copy(device, false)?;
        self.write_copy(device, true)?;
        device.write_at(0, protective(self.last).as_bytes())
    }

    /// Writes the entries and then the header of one copy.
    fn write_copy(&self, device: &dyn BlockDevice, is_first: bool) -> Result<()> {
        let second_entries = self.last.saturating_sub(self.entry_sectors());
        let (my, other, entries_at) = match is_first {
            true => (1, self.last, self.entries_at),
            false => (self.last, 1, second_entries),
        };
        let mut sector = self.copy.header.bytes.clone();
        if let Ok((raw, _)) = RawGptHeader::mut_from_prefix(&mut sector) {
            raw.my_lba.set(my);
            raw.alternate_lba.set(other);
            raw.first_usable_lba.set(self.usable.0);
            raw.last_usable_lba.set(self.usable.1);
            raw.partition_entry_lba.set(entries_at);
            raw.partition_entry_array_crc32.set(crc32(&self.copy.entries));
        }
        let size = RawGptHeader::of(&sector).map_or(0, |raw| raw.header_size.get());
        let counted = usize::try_from(size).ok().and_then(|size| sector.get(..size));
        let crc = header_crc(counted.unwrap_or(&sector));
        if let Ok((raw, _)) = RawGptHeader::mut_from_prefix(&mut sector) {
            raw.header_crc32.set(crc);
        }
        let at = |sector: u64| sector.saturating_mul(self.sector_size());
        device.write_at(at(entries_at), &self.copy.entries)?;
        device.write_at(at(my), &sector)
    }

    /// Adapts the record of the MBR that covers the disk to its length, or writes the record again if the MBR has no
    /// records. All other bytes of the MBR are kept.
    fn write_protection(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut sector = read_sector(device, 512, 0)?;
        if RawMbr::of(&sector).is_none() {
            return device.write_at(0, protective(self.last).as_bytes());
        }
        let Ok((mbr, _)) = RawMbr::mut_from_prefix(&mut sector) else { return Ok(()) };
        let others = mbr.partition_record.iter().filter(|record| !matches!(record.os_type, 0 | PROTECTIVE));
        let is_hybrid = others.count() > 0;
        let Some(record) = mbr.partition_record.iter_mut().find(|record| record.os_type == PROTECTIVE) else {
            if is_hybrid {
                return Ok(());
            }
            mbr.partition_record = protective(self.last).partition_record;
            return device.write_at(0, &sector);
        };
        let sectors = u32::try_from(self.last).unwrap_or(u32::MAX);
        let is_whole = record.starting_lba.get() == 1 && !is_hybrid;
        // 0xffffffff is valid for a disk of any size.
        if !is_whole || matches!(record.size_in_lba.get(), size if size == sectors || size == u32::MAX) {
            return Ok(());
        }
        record.size_in_lba.set(sectors);
        device.write_at(0, &sector)
    }

    fn entry_size(&self) -> usize {
        usize::try_from(self.copy.header.entry_size).unwrap_or(usize::MAX)
    }

    fn entry_sectors(&self) -> u64 {
        to_u64(self.copy.entries.len()).div_ceil(self.sector_size())
    }
}

/// Returns the first header, even if its checksum is wrong.
fn first_header(device: &dyn BlockDevice, sector_size: u32) -> Option<RawGptHeader> {
    let sector = read_sector(device, sector_size, 1).ok()?;
    RawGptHeader::of(&sector).copied()
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

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
