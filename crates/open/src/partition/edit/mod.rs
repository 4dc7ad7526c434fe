//! Changes an existing partition table. The bytes of partitions are never written.
//!
//! Changes are made in memory. [`TableEditor::write`] writes them to the device. Unknown entries, reserved bytes,
//! boot code and the other records of a hybrid MBR are preserved byte for byte.
//!
//! Invariant: a new range is within the usable bytes of the disk and overlaps no other partition.
//! Invariant: a power failure during [`TableEditor::write`] leaves a valid table. For a GPT, it is the old or
//! the new table. For an MBR, it is the table after some of the changes, in order. Each change writes single
//! sectors, and the table is valid after each sector.

mod error;
mod mbr;
mod space;

use std::ops::Range;
use std::sync::Arc;

use obento_block::BlockDevice;

pub use error::EditError;
use mbr::MbrBytes;
pub use space::Placement;
use space::{gaps, overlapped};

use super::gpt_bytes::GptBytes;
use super::raw::is_zero;
use super::{DiskId, Guid, Partition, PartitionType, Scheme, Table, TableNotice, gpt};

/// Units of a GPT name.
const NAME_UNITS: usize = 36;

/// A partition to add to a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEntry {
    /// The number, or `None` for the first free number. For an MBR, a number above 4 requests a logical
    /// partition.
    pub number: Option<u32>,
    /// The position.
    pub placement: Placement,
    /// The type.
    pub kind: PartitionType,
    /// The name, which an MBR does not store.
    pub name: String,
    /// The GUID, which an MBR does not store.
    pub uuid: Guid,
    /// The GPT attributes. An MBR stores only bit 2, which marks the active partition.
    pub attributes: u64,
}

/// An open partition table.
///
/// ```no_run
/// # fn grow(device: std::sync::Arc<dyn obento::block::BlockDevice>) -> Result<(), obento::partition::EditError> {
/// use obento::partition::{Table, TableEditor};
///
/// let table = Table::read(&*device)?.expect("a partitioned disk");
/// let mut editor = TableEditor::open(device, &table)?;
/// let start = editor.partition(2)?.start;
/// let end = editor.limit_of(2)?;
/// editor.set_range(2, start..end)?;
/// editor.write()
/// # }
/// ```
pub struct TableEditor {
    device: Arc<dyn BlockDevice>,
    bytes: Bytes,
    table: Table,
}

enum Bytes {
    Gpt(Box<GptBytes>),
    Mbr(MbrBytes),
}

impl TableEditor {
    /// Opens the table of `device`, which was read as `table`.
    ///
    /// # Errors
    ///
    /// - `Damaged`: the GPT has no undamaged copy.
    /// - `DamagedChain`: boot records of an MBR are damaged.
    /// - `Device`: the device failed.
    pub fn open(device: Arc<dyn BlockDevice>, table: &Table) -> Result<Self, EditError> {
        let is_lost =
            |notice: &TableNotice| matches!(notice, TableNotice::DamagedEntries(_) | TableNotice::OnlyMbr(_));
        if table.notices.iter().any(is_lost) {
            return Err(EditError::Damaged);
        }
        let bytes = match table.scheme {
            Scheme::Gpt => {
                let copy = gpt::find(&*device)?.ok_or(EditError::Damaged)?;
                Bytes::Gpt(Box::new(GptBytes::of_copy(&*device, copy).ok_or(EditError::Damaged)?))
            }
            Scheme::Mbr => Bytes::Mbr(MbrBytes::open(device.clone(), table.sector_size)?),
        };
        Ok(Self { device, bytes, table: table.clone() })
    }

    /// Returns the table with all changes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns a partition. Fails with `NoSuchPartition`.
    pub fn partition(&self, number: u32) -> Result<&Partition, EditError> {
        let mut partitions = self.table.partitions.iter();
        partitions.find(|partition| partition.number == number).ok_or(EditError::NoSuchPartition { number })
    }

    /// Returns whether the backup of a GPT is complete: the second copy is at the end of the disk and equals the
    /// first copy. Also returns `true` for an MBR, which has no backup.
    pub fn has_backup(&self) -> bool {
        match self.table.scheme {
            Scheme::Gpt => match gpt::find(&*self.device) {
                Ok(Some(copy)) => copy.header.sector == 1 && gpt::has_equal_backup(&*self.device, &copy),
                _ => false,
            },
            Scheme::Mbr => true,
        }
    }

    /// Returns whether the MBR beside a GPT contains further records (a hybrid MBR). No change affects these
    /// records.
    pub fn is_hybrid(&self) -> bool {
        let records = || super::mbr::read(&*self.device, self.table.sector_size).ok().flatten();
        self.table.scheme == Scheme::Gpt && records().is_some_and(|table| !table.partitions.is_empty())
    }

    /// Returns the bytes of the disk that partitions may use.
    pub fn usable(&self) -> Range<u64> {
        match &self.bytes {
            Bytes::Gpt(gpt) => gpt.usable(),
            Bytes::Mbr(mbr) => mbr.usable(),
        }
    }

    /// Returns the usable bytes that belong to no partition, outside of an extended partition.
    pub fn free(&self) -> Vec<Range<u64>> {
        gaps(self.usable(), self.outermost().map(Partition::range))
    }

    /// Returns the free bytes in the extended partition, which only logical partitions can use.
    pub fn free_for_logical(&self) -> Vec<Range<u64>> {
        match (&self.bytes, self.container()) {
            (Bytes::Mbr(mbr), Some(container)) => mbr.free_in(&self.table, container),
            _ => Vec::new(),
        }
    }

    /// Returns the offset on the disk up to which the partition can grow, rounded down to a whole sector. The
    /// limit is the start of the next partition or the end of the usable space. For a logical partition, it
    /// is the next boot record or the end of the extended partition. Fails with `NoSuchPartition`.
    pub fn limit_of(&self, number: u32) -> Result<u64, EditError> {
        let partition = self.partition(number)?;
        let others = self.neighbours(partition).filter(|other| other.start >= partition.end());
        let end = match &self.bytes {
            Bytes::Mbr(mbr) if mbr.is_logical(number) => mbr.limit_of(number, self.container()),
            _ => self.usable().end,
        };
        let limit = others.map(|other| other.start).min().unwrap_or(end).min(end);
        let rest = limit.checked_rem(self.table.sector_size.into()).unwrap_or(0);
        Ok(limit.saturating_sub(rest).max(partition.end()))
    }

    /// Adds a partition and returns its number.
    ///
    /// # Errors
    ///
    /// - `WrongType`: the type belongs to the other kind of table.
    /// - `LongName`: the name has more than 36 UTF-16 units.
    /// - `NotInMbr`: an MBR does not store the name or an attribute.
    /// - `DuplicateUuid`: another partition has the same UUID.
    /// - `NumberInUse`: the requested number is in use.
    /// - `BadNumber`: the table has no entry with the requested number.
    /// - `NotNext`: a logical partition cannot have the requested number.
    /// - `Full`: all entries are in use.
    /// - `NoSpace`: no gap is large enough.
    /// - `Unaligned`: a position is not a multiple of the sector size.
    /// - `OutOfRange`: the range is not completely within the usable bytes.
    /// - `Overlaps`: the range overlaps another partition.
    /// - `SecondContainer`: the table already has an extended partition.
    pub fn add(&mut self, new: &NewEntry) -> Result<u32, EditError> {
        self.expect_type(new.kind)?;
        if let Some(number) = new.number
            && self.partition(number).is_ok()
        {
            return Err(EditError::NumberInUse { number });
        }
        let sector_size = u64::from(self.table.sector_size);
        let number = match &mut self.bytes {
            Bytes::Gpt(_) => {
                self.expect_name(&new.name)?;
                self.expect_unused(new.uuid, None)?;
                let number = self.free_number(new.number)?;
                let range = new.placement.choose(&self.free(), 0, sector_size)?;
                self.expect_free(&range, None)?;
                self.edit_gpt(number, |raw| {
                    raw.partition_type_guid = match new.kind {
                        PartitionType::Gpt(guid) => guid.to_disk(),
                        PartitionType::Mbr(_) => [0; 16],
                    };
                    raw.unique_partition_guid = new.uuid.to_disk();
                    raw.set_sectors(&range, sector_size);
                    raw.attributes.set(new.attributes);
                    raw.set_name(&new.name);
                })?;
                number
            }
            Bytes::Mbr(mbr) => {
                let number = mbr.add(&self.table, new)?;
                self.refresh()?;
                number
            }
        };
        Ok(number)
    }

    /// Removes a partition from the table. In an MBR, the numbers of the following logical partitions change.
    ///
    /// # Errors
    ///
    /// 1. `NoSuchPartition`: the table has no such partition.
    /// 2. `ContainerInUse`: the partition is extended and contains a logical partition.
    pub fn delete(&mut self, number: u32) -> Result<(), EditError> {
        if self.partition(number)?.kind.is_container()
            && let Some(inner) = self.table.partitions.iter().find(|inner| inner.number > 4)
        {
            return Err(EditError::ContainerInUse { number: inner.number });
        }
        match &mut self.bytes {
            Bytes::Gpt(gpt) => gpt.clear(number),
            Bytes::Mbr(mbr) => mbr.delete(number)?,
        }
        self.refresh()
    }

    /// Changes the range of a partition. Does not move the bytes of the partition.
    ///
    /// # Errors
    ///
    /// 1. `NoSuchPartition`: the table has no such partition.
    /// 2. `Unaligned`: a position is not a multiple of the sector size, or the range is empty.
    /// 3. `OutOfRange`: the range is not completely within the usable bytes.
    /// 4. `Overlaps`: the range overlaps another partition.
    /// 5. `ContainerInUse`: the partition is extended, and a logical partition would be outside of it.
    pub fn set_range(&mut self, number: u32, range: Range<u64>) -> Result<(), EditError> {
        let partition = self.partition(number)?;
        self.expect_free(&range, Some(partition))?;
        if partition.kind.is_container() {
            let inner = self.table.partitions.iter().filter(|inner| inner.number > 4);
            let cut = inner.clone().find(|inner| inner.end() > range.end || range.start != partition.start);
            if let Some(cut) = cut {
                return Err(EditError::ContainerInUse { number: cut.number });
            }
        }
        let sector_size = self.table.sector_size.into();
        if let Bytes::Mbr(mbr) = &mut self.bytes {
            mbr.set_range(number, &range)?;
            return self.refresh();
        }
        self.edit_gpt(number, |raw| raw.set_sectors(&range, sector_size))
    }

    /// Sets the type. Fails with the first of these errors: `WrongType`, `NoSuchPartition`, `Container`.
    pub fn set_kind(&mut self, number: u32, kind: PartitionType) -> Result<(), EditError> {
        self.expect_type(kind)?;
        if self.partition(number)?.kind.is_container() || kind.is_container() {
            return Err(EditError::Container);
        }
        match (&mut self.bytes, kind) {
            (Bytes::Mbr(mbr), PartitionType::Mbr(kind)) => {
                mbr.edit(number, |raw| raw.os_type = kind)?;
                self.refresh()
            }
            (_, PartitionType::Gpt(guid)) => {
                self.edit_gpt(number, |raw| raw.partition_type_guid = guid.to_disk())
            }
            _ => Err(EditError::WrongType { scheme: self.table.scheme }),
        }
    }

    /// Sets the name. Fails with `NoSuchPartition`, `LongName` or `NotInMbr`.
    pub fn set_name(&mut self, number: u32, name: &str) -> Result<(), EditError> {
        self.partition(number)?;
        self.expect_name(name)?;
        self.edit_gpt(number, |raw| raw.set_name(name))
    }

    /// Sets the GUID. Fails with `NoSuchPartition`, `NotInMbr` or `DuplicateUuid`.
    pub fn set_uuid(&mut self, number: u32, uuid: Guid) -> Result<(), EditError> {
        self.partition(number)?;
        if self.table.scheme == Scheme::Mbr {
            return Err(EditError::NotInMbr { what: "UUID" });
        }
        self.expect_unused(uuid, Some(number))?;
        self.edit_gpt(number, |raw| raw.unique_partition_guid = uuid.to_disk())
    }

    /// Sets the attributes. An MBR stores only bit 2. If a primary partition becomes active, all other primary
    /// partitions become inactive. Fails with `NoSuchPartition` or `NotInMbr`.
    pub fn set_attributes(&mut self, number: u32, attributes: u64) -> Result<(), EditError> {
        self.partition(number)?;
        if let Bytes::Mbr(mbr) = &mut self.bytes {
            mbr.set_attributes(number, attributes)?;
            return self.refresh();
        }
        self.edit_gpt(number, |raw| raw.attributes.set(attributes))
    }

    /// Sets the identity of the disk. Fails with `WrongType` if the identity belongs to the other kind of table.
    pub fn set_id(&mut self, id: DiskId) -> Result<(), EditError> {
        match (&mut self.bytes, id) {
            (Bytes::Gpt(gpt), DiskId::Guid(id)) => gpt.set_id(id),
            (Bytes::Mbr(mbr), DiskId::Signature(id)) => mbr.set_signature(id)?,
            _ => return Err(EditError::WrongType { scheme: self.table.scheme }),
        }
        self.refresh()
    }

    /// Prepares the table for a disk of `len` bytes: the second copy of a GPT will be at its end. Call this before an
    /// image is shortened to `len`, or after it was extended to `len`.
    ///
    /// # Errors
    ///
    /// - `PastEnd`: a partition does not fit.
    pub fn end_at(&mut self, len: u64) -> Result<(), EditError> {
        match &mut self.bytes {
            Bytes::Gpt(gpt) => gpt.end_at(len),
            Bytes::Mbr(mbr) => mbr.end_at(len),
        }
        expect_ends(&self.table.partitions, &self.usable(), self.copy_len())
    }

    /// Writes the table to the device.
    ///
    /// # Errors
    ///
    /// - `PastEnd`: the disk is shorter than the table requires.
    /// - `Device`: the device failed.
    pub fn write(&mut self) -> Result<(), EditError> {
        match &mut self.bytes {
            Bytes::Gpt(gpt) => {
                // The copy at the end must not overwrite a partition of a truncated disk.
                expect_ends(&self.table.partitions, &gpt.usable(), gpt.copy_len())?;
                Ok(gpt.write(&*self.device)?)
            }
            Bytes::Mbr(mbr) => Ok(mbr.write()?),
        }
    }

    /// Returns the number of bytes that the table takes at the end of the disk.
    pub fn copy_len(&self) -> u64 {
        match &self.bytes {
            Bytes::Gpt(gpt) => gpt.copy_len(),
            Bytes::Mbr(_) => 0,
        }
    }

    /// Returns the partitions that are not logical.
    fn outermost(&self) -> impl Iterator<Item = &Partition> {
        let is_gpt = self.table.scheme == Scheme::Gpt;
        self.table.partitions.iter().filter(move |partition| is_gpt || partition.number <= 4)
    }

    fn container(&self) -> Option<&Partition> {
        self.table.partitions.iter().find(|partition| partition.kind.is_container())
    }

    /// Returns the other partitions of the same kind: logical partitions, or partitions that are not logical.
    fn neighbours<'t>(&'t self, of: &'t Partition) -> impl Iterator<Item = &'t Partition> {
        let is_logical = |number: u32| self.table.scheme == Scheme::Mbr && number > 4;
        let others = self.table.partitions.iter();
        others.filter(move |other| {
            other.number != of.number && is_logical(other.number) == is_logical(of.number)
        })
    }

    /// Checks that `range` is aligned, is usable, and overlaps no partition except `own`. Fails with
    /// `Unaligned`, `OutOfRange` or `Overlaps`.
    fn expect_free(&self, range: &Range<u64>, own: Option<&Partition>) -> Result<(), EditError> {
        expect_aligned(range, self.table.sector_size.into())?;
        let usable = match own {
            // A logical partition is within the extended one, which `mbr` checks.
            Some(own) if self.table.scheme == Scheme::Mbr && own.number > 4 => 0..u64::MAX,
            _ => self.usable(),
        };
        expect_inside(range, &usable)?;
        let hit = match own {
            Some(own) => overlapped(range, self.neighbours(own)),
            None => overlapped(range, self.outermost()),
        };
        hit.map_or(Ok(()), |number| Err(EditError::Overlaps { number }))
    }

    fn expect_type(&self, kind: PartitionType) -> Result<(), EditError> {
        let is_right = match (self.table.scheme, kind) {
            (Scheme::Gpt, PartitionType::Gpt(guid)) => !is_zero(guid.as_bytes()),
            (Scheme::Mbr, PartitionType::Mbr(number)) => number != 0,
            _ => false,
        };
        if is_right { Ok(()) } else { Err(EditError::WrongType { scheme: self.table.scheme }) }
    }

    fn expect_name(&self, name: &str) -> Result<(), EditError> {
        let units = name.encode_utf16().count();
        match self.table.scheme {
            Scheme::Mbr => Err(EditError::NotInMbr { what: "name" }),
            Scheme::Gpt if units > NAME_UNITS => Err(EditError::LongName { units }),
            Scheme::Gpt => Ok(()),
        }
    }

    fn expect_unused(&self, uuid: Guid, own: Option<u32>) -> Result<(), EditError> {
        let text = uuid.to_string();
        let mut others = self.table.partitions.iter().filter(|other| Some(other.number) != own);
        let other = others.find(|other| other.uuid == text);
        other.map_or(Ok(()), |other| Err(EditError::DuplicateUuid { number: other.number }))
    }

    /// Returns the requested or the first free number of a GPT entry. An entry that cannot be decoded is in
    /// use.
    fn free_number(&mut self, requested: Option<u32>) -> Result<u32, EditError> {
        let Bytes::Gpt(gpt) = &mut self.bytes else { return Err(EditError::Damaged) };
        let count = gpt.count().min(super::MAX_PARTITIONS);
        let last = u32::try_from(count).unwrap_or(u32::MAX);
        let mut is_free = |number| gpt.entry_mut(number).is_some_and(|raw| is_zero(&raw.partition_type_guid));
        match requested {
            Some(number) if !(1..=last).contains(&number) => {
                Err(EditError::BadNumber { scheme: Scheme::Gpt, number })
            }
            Some(number) if is_free(number) => Ok(number),
            Some(number) => Err(EditError::NumberInUse { number }),
            None => (1..=last).find(|&number| is_free(number)).ok_or(EditError::Full { count }),
        }
    }

    fn edit_gpt(
        &mut self,
        number: u32,
        edit: impl FnOnce(&mut super::raw::RawGptEntry),
    ) -> Result<(), EditError> {
        let Bytes::Gpt(gpt) = &mut self.bytes else { return Err(EditError::Damaged) };
        edit(gpt.entry_mut(number).ok_or(EditError::NoSuchPartition { number })?);
        self.refresh()
    }

    /// Decodes the changed bytes.
    fn refresh(&mut self) -> Result<(), EditError> {
        self.table = match &self.bytes {
            Bytes::Gpt(gpt) => gpt.table(),
            Bytes::Mbr(mbr) => mbr.table(&self.table)?,
        };
        Ok(())
    }
}

fn expect_aligned(range: &Range<u64>, sector_size: u64) -> Result<(), EditError> {
    let is_aligned = |at: u64| at.is_multiple_of(sector_size);
    match range.start < range.end && is_aligned(range.start) && is_aligned(range.end) {
        true => Ok(()),
        false => Err(EditError::Unaligned { sector_size }),
    }
}

fn expect_inside(range: &Range<u64>, usable: &Range<u64>) -> Result<(), EditError> {
    if usable.start <= range.start && range.end <= usable.end {
        return Ok(());
    }
    let (start, end, first, last) = (range.start, range.end, usable.start, usable.end);
    Err(EditError::OutOfRange { start, end, first, last })
}

/// Checks that no partition ends after the usable bytes, which `copy` bytes of the table follow. Fails with `PastEnd`
/// and the last partition. A partition that starts before the usable bytes is not an error.
fn expect_ends(partitions: &[Partition], usable: &Range<u64>, copy: u64) -> Result<(), EditError> {
    let last = partitions.iter().max_by_key(|partition| partition.end());
    match last.filter(|partition| partition.end() > usable.end) {
        None => Ok(()),
        Some(last) => {
            let (number, end) = (last.number, last.end());
            Err(EditError::PastEnd { number, end, needed: end.saturating_add(copy) })
        }
    }
}
