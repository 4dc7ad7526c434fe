//! The changes of an MBR and of the boot records of logical partitions.
//!
//! Invariant: each change is a sequence of writes of single sectors, with a flush after each. After each
//! write the table is valid: a new boot record is written before the link to it.

use std::ops::Range;
use std::sync::Arc;

use obento_base::wire::{FromBytes, FromZeros, IntoBytes};
use obento_base::{Result, wire::to_u64};
use obento_block::{BlockDevice, Overlay};

use super::space::{gaps, overlapped};
use super::{EditError, NewEntry, expect_aligned, expect_inside};
use crate::partition::mbr::{BootRecord, EXTENDED, is_logical, read_empty, read_with_chain};
use crate::partition::raw::{RawMbr, RawMbrEntry};
use crate::partition::{ALIGNMENT, Partition, PartitionType, Scheme, Table, TableNotice, read_sector};

/// The type of the links of a chain.
const LINK: u8 = 0x05;
/// The address of sectors past the range of cylinders, heads and sectors.
const BEYOND_CHS: [u8; 3] = [0xfe, 0xff, 0xff];
/// The bit of GPT attributes that marks the active partition.
const BOOTABLE: u64 = 1 << 2;
const ACTIVE: u8 = 0x80;
/// Linux follows a chain of 100 boot records (`block/partitions/msdos.c`).
const MAX_CHAIN: usize = 100;

/// An MBR with the boot records of its extended partition.
pub(super) struct MbrBytes {
    device: Arc<dyn BlockDevice>,
    /// The device with all changes.
    changed: Overlay<Arc<dyn BlockDevice>>,
    /// The changed sectors: their bytes on the device, in the order of writing.
    writes: Vec<(u64, Vec<u8>)>,
    sector_size: u32,
    chain: Vec<BootRecord>,
    len: u64,
}

/// The record of a partition.
struct Slot {
    /// The sector of the record.
    sector: u64,
    /// The index of the record in it.
    index: usize,
    /// The sector that its first sector is relative to.
    base: u64,
}

impl MbrBytes {
    /// Opens the MBR of `device` for changes. Fails with `Damaged`, `DamagedChain` or `Device`.
    pub(super) fn open(device: Arc<dyn BlockDevice>, sector_size: u32) -> Result<Self, EditError> {
        let (table, chain) = match read_with_chain(&*device, sector_size)? {
            Some(found) => found,
            None => (read_empty(&*device, sector_size)?.ok_or(EditError::Damaged)?, Vec::new()),
        };
        let is_broken = |notice: &TableNotice| {
            matches!(
                notice,
                TableNotice::BrokenChain { .. }
                    | TableNotice::CircularChain { .. }
                    | TableNotice::LongChain { .. }
            )
        };
        if table.notices.iter().any(is_broken) {
            return Err(EditError::DamagedChain);
        }
        let (changed, len) = (Overlay::new(device.clone()), device.len());
        Ok(Self { device, changed, writes: Vec::new(), sector_size, chain, len })
    }

    /// Returns the table with all changes. `old` has the notices.
    pub(super) fn table(&self, old: &Table) -> Result<Table, EditError> {
        let empty = || Table { partitions: Vec::new(), ..old.clone() };
        let mut table = read_with_chain(&self.changed, self.sector_size)?.map_or_else(empty, |found| found.0);
        table.notices.clone_from(&old.notices);
        Ok(table)
    }

    pub(super) fn end_at(&mut self, len: u64) {
        self.len = len;
    }

    /// Returns the bytes that partitions may use: 32-bit sector numbers after the MBR.
    pub(super) fn usable(&self) -> Range<u64> {
        let size = self.size();
        let addressable = u64::from(u32::MAX).saturating_mul(size);
        size..self.len.saturating_sub(self.len.checked_rem(size).unwrap_or(0)).min(addressable)
    }

    pub(super) fn is_logical(&self, number: u32) -> bool {
        self.chain.iter().any(|record| record.number == Some(number))
    }

    /// Returns the end up to which a logical partition can grow: the next boot record, or the end of the
    /// extended partition.
    pub(super) fn limit_of(&self, number: u32, container: Option<&Partition>) -> u64 {
        let own = self.chain.iter().find(|record| record.number == Some(number));
        let own = own.map_or(0, |record| record.sector);
        let later = self.chain.iter().filter(|record| record.sector > own);
        let next = later.map(|record| record.sector.saturating_mul(self.size())).min();
        next.unwrap_or_else(|| container.map_or(0, Partition::end))
    }

    /// Adds a partition. Fails with the errors of [`TableEditor::add`](super::TableEditor::add).
    pub(super) fn add(&mut self, table: &Table, new: &NewEntry) -> Result<u32, EditError> {
        if !new.name.is_empty() {
            return Err(EditError::NotInMbr { what: "name" });
        }
        if new.attributes & !BOOTABLE != 0 {
            return Err(EditError::NotInMbr { what: "attribute except 'active'" });
        }
        let PartitionType::Mbr(kind) = new.kind else {
            return Err(EditError::WrongType { scheme: Scheme::Mbr });
        };
        let container = table.partitions.iter().find(|partition| partition.kind.is_container());
        if new.kind.is_container() && container.is_some() {
            return Err(EditError::SecondContainer);
        }
        let within = |container: &Partition| {
            let start = new.placement.start;
            start.is_some_and(|start| container.range().contains(&start))
        };
        match (new.number, container) {
            (Some(number @ 1..=4), _) => self.add_primary(table, new, kind, number),
            (Some(_), Some(container)) => self.add_logical(table, new, kind, container),
            (Some(number), None) => Err(EditError::BadNumber { scheme: Scheme::Mbr, number }),
            (None, Some(container)) if within(container) => self.add_logical(table, new, kind, container),
            (None, container) => {
                let free = self.free_record()?;
                let added = match free {
                    Some(number) => self.add_primary(table, new, kind, number),
                    None => Err(EditError::Full { count: 4 }),
                };
                match (added, container) {
                    (Err(EditError::Full { .. } | EditError::NoSpace { .. }), Some(container))
                        if !new.kind.is_container() =>
                    {
                        self.add_logical(table, new, kind, container)
                    }
                    (added, _) => added,
                }
            }
        }
    }

    fn free_record(&self) -> Result<Option<u32>, EditError> {
        let (_, mbr) = self.sector(0)?;
        let free = (1..).zip(&mbr.partition_record).find(|(_, record)| record.os_type == 0);
        Ok(free.map(|(number, _)| number))
    }

    fn add_primary(
        &mut self,
        table: &Table,
        new: &NewEntry,
        kind: u8,
        number: u32,
    ) -> Result<u32, EditError> {
        let outermost = || table.partitions.iter().filter(|partition| partition.number <= 4);
        let free = gaps(self.usable(), outermost().map(Partition::range));
        let range = new.placement.choose(&free, 0, self.size())?;
        expect_aligned(&range, self.size())?;
        expect_inside(&range, &self.usable())?;
        if let Some(number) = overlapped(&range, outermost()) {
            return Err(EditError::Overlaps { number });
        }
        if new.kind.is_container() {
            let sector = range.start.checked_div(self.size()).unwrap_or(0);
            self.put(sector, self.empty_boot_record())?;
        }
        let (slot, size) = (self.slot(number)?, self.size());
        self.edit_at(&slot, |raw| *raw = record(kind, new.attributes, slot.base, &range, size))?;
        self.keep_one_active(number, new.attributes)?;
        Ok(number)
    }

    /// Returns the bytes of the extended partition `container` that no boot record and no logical partition uses.
    pub(super) fn free_in(&self, table: &Table, container: &Partition) -> Vec<Range<u64>> {
        let size = self.size();
        let records = self.chain.iter().map(|record| {
            let start = record.sector.saturating_mul(size);
            start..start.saturating_add(size)
        });
        let logical = table.partitions.iter().filter(|partition| partition.number > 4);
        gaps(container.range(), records.chain(logical.map(Partition::range)))
    }

    /// Adds a logical partition behind all others in the chain.
    fn add_logical(
        &mut self,
        table: &Table,
        new: &NewEntry,
        kind: u8,
        container: &Partition,
    ) -> Result<u32, EditError> {
        let logical = || table.partitions.iter().filter(|partition| partition.number > 4);
        let number = u32::try_from(logical().count()).unwrap_or(u32::MAX).saturating_add(5);
        if let Some(wrong) = new.number.filter(|&wrong| wrong != number) {
            return Err(EditError::NotNext { number: wrong, next: number });
        }
        if self.chain.len() >= MAX_CHAIN {
            return Err(EditError::Full { count: MAX_CHAIN });
        }
        let size = self.size();
        let is_first = matches!(self.chain.as_slice(), [BootRecord { number: None, .. }]);
        let free = self.free_in(table, container);
        // A partition that uses the first boot record needs no other one.
        let lead = if is_first { 0 } else { size };
        let range = new.placement.choose(&free, lead, size)?;
        expect_aligned(&range, size)?;
        let gap = free
            .iter()
            .find(|gap| gap.contains(&range.start) && range.start.saturating_sub(gap.start) >= lead);
        let gap = gap.cloned().ok_or_else(|| match overlapped(&range, logical()) {
            Some(number) => EditError::Overlaps { number },
            None => EditError::NoSpace { largest: 0 },
        })?;
        expect_inside(&range, &container.range())?;
        if let Some(number) = overlapped(&range, logical()) {
            return Err(EditError::Overlaps { number });
        }
        expect_inside(&range, &gap)?;
        let sector = match self.chain.first() {
            Some(first) if is_first => first.sector,
            _ => {
                let before = range.start.saturating_sub(ALIGNMENT).max(gap.start);
                before.checked_div(size).unwrap_or(0)
            }
        };
        let mut bytes = if is_first { self.sector(sector)?.0 } else { self.empty_boot_record() };
        with_record(&mut bytes, 0, |raw| *raw = record(kind, new.attributes, sector, &range, size));
        self.put(sector, bytes)?;
        if !is_first {
            self.link_last(sector, &range, container)?;
        }
        Ok(number)
    }

    /// Adds a link to the boot record in `sector` to the last boot record.
    fn link_last(&mut self, sector: u64, range: &Range<u64>, container: &Partition) -> Result<(), EditError> {
        let last = self.chain.last().ok_or(EditError::DamagedChain)?.sector;
        let base = container.start.checked_div(self.size()).unwrap_or(0);
        let (_, mbr) = self.sector(last)?;
        let is_free = |index: &usize| mbr.partition_record.get(*index).is_some_and(|raw| raw.os_type == 0);
        let index = [1, 0].into_iter().find(is_free).ok_or(EditError::DamagedChain)?;
        let (slot, size) = (Slot { sector: last, index, base }, self.size());
        let whole = sector.saturating_mul(size)..range.end;
        self.edit_at(&slot, |raw| *raw = record(LINK, 0, base, &whole, size))
    }

    /// Removes a partition. Fails with `NoSuchPartition` or `Device`.
    pub(super) fn delete(&mut self, number: u32) -> Result<(), EditError> {
        let at = self.chain.iter().position(|record| record.number == Some(number));
        let previous = at.and_then(|at| self.chain.get(at.checked_sub(1)?)).copied();
        let (Some(at), Some(previous)) = (at, previous) else {
            // The first boot record stays: it is the start of the extended partition.
            let slot = self.slot(number)?;
            return self.edit_at(&slot, RawMbrEntry::zero);
        };
        let own = self.chain.get(at).ok_or(EditError::NoSuchPartition { number })?.sector;
        let (_, mbr) = self.sector(own)?;
        let next = mbr.partition_record.iter().take(2).find(|raw| EXTENDED.contains(&raw.os_type)).copied();
        let link = self.link(previous, 0)?;
        self.edit_at(&link, |raw| *raw = next.unwrap_or_else(RawMbrEntry::new_zeroed))
    }

    /// Changes the position. Fails with `NoSuchPartition`, `OutOfRange` or `Device`.
    pub(super) fn set_range(&mut self, number: u32, range: &Range<u64>) -> Result<(), EditError> {
        let slot = self.slot(number)?;
        let at = self.chain.iter().position(|record| record.number == Some(number));
        if let Some(at) = at {
            let Some((table, _)) = read_with_chain(&self.changed, self.sector_size)? else {
                return Err(EditError::Damaged);
            };
            let container = table.partitions.iter().find(|partition| partition.kind.is_container());
            let first = slot.sector.saturating_add(1).saturating_mul(self.size());
            expect_inside(range, &(first..self.limit_of(number, container)))?;
            let previous = at.checked_sub(1).and_then(|at| self.chain.get(at)).copied();
            if let (Some(previous), Some(container)) = (previous, container) {
                self.resize_link(previous, &slot, range, container)?;
            }
        }
        self.place(&slot, range)
    }

    /// Changes the length in the link to the boot record `slot`.
    fn resize_link(
        &mut self,
        previous: BootRecord,
        slot: &Slot,
        range: &Range<u64>,
        container: &Partition,
    ) -> Result<(), EditError> {
        let base = container.start.checked_div(self.size()).unwrap_or(0);
        let link = self.link(previous, base)?;
        self.place(&link, &(slot.sector.saturating_mul(self.size())..range.end))
    }

    /// Returns the place of the link in a boot record to the next one.
    fn link(&self, of: BootRecord, base: u64) -> Result<Slot, EditError> {
        let (_, mbr) = self.sector(of.sector)?;
        let index = mbr.partition_record.iter().take(2).position(|raw| EXTENDED.contains(&raw.os_type));
        Ok(Slot { sector: of.sector, index: index.ok_or(EditError::DamagedChain)?, base })
    }

    /// Changes the record of a partition. Fails with `NoSuchPartition` or `Device`.
    pub(super) fn edit(&mut self, number: u32, edit: impl FnOnce(&mut RawMbrEntry)) -> Result<(), EditError> {
        let slot = self.slot(number)?;
        self.edit_at(&slot, edit)
    }

    /// Sets the attributes. Fails with `NoSuchPartition`, `NotInMbr` or `Device`.
    pub(super) fn set_attributes(&mut self, number: u32, attributes: u64) -> Result<(), EditError> {
        if attributes & !BOOTABLE != 0 {
            return Err(EditError::NotInMbr { what: "attribute except 'active'" });
        }
        self.edit(number, |raw| raw.boot_indicator = indicator(attributes))?;
        self.keep_one_active(number, attributes)
    }

    pub(super) fn set_signature(&mut self, signature: u32) -> Result<(), EditError> {
        let (mut bytes, _) = self.sector(0)?;
        if let Ok((mbr, _)) = RawMbr::mut_from_prefix(&mut bytes) {
            mbr.disk_signature.set(signature);
        }
        self.put(0, bytes)
    }

    /// Writes all changes in their order, with a flush after each.
    pub(super) fn write(&mut self) -> Result<()> {
        for (offset, bytes) in std::mem::take(&mut self.writes) {
            self.device.write_at(offset, &bytes)?;
            self.device.flush()?;
        }
        Ok(())
    }

    /// Makes the other primary partitions inactive if `number` is a primary partition that is now active.
    fn keep_one_active(&mut self, number: u32, attributes: u64) -> Result<(), EditError> {
        if number > 4 || attributes & BOOTABLE == 0 {
            return Ok(());
        }
        let (mut bytes, _) = self.sector(0)?;
        if let Ok((mbr, _)) = RawMbr::mut_from_prefix(&mut bytes) {
            let others = (1..).zip(&mut mbr.partition_record).filter(|(other, _)| *other != number);
            others.for_each(|(_, record)| record.boot_indicator = 0);
        }
        self.put(0, bytes)
    }

    fn slot(&self, number: u32) -> Result<Slot, EditError> {
        if let Some(index @ 0..=3) = number.checked_sub(1) {
            let index = usize::try_from(index).unwrap_or(0);
            return Ok(Slot { sector: 0, index, base: 0 });
        }
        let found = self.chain.iter().find(|record| record.number == Some(number));
        let sector = found.ok_or(EditError::NoSuchPartition { number })?.sector;
        let (_, mbr) = self.sector(sector)?;
        let index = mbr.partition_record.iter().take(2).position(is_logical);
        Ok(Slot { sector, index: index.ok_or(EditError::DamagedChain)?, base: sector })
    }

    fn edit_at(&mut self, slot: &Slot, edit: impl FnOnce(&mut RawMbrEntry)) -> Result<(), EditError> {
        let (mut bytes, _) = self.sector(slot.sector)?;
        with_record(&mut bytes, slot.index, edit);
        self.put(slot.sector, bytes)
    }

    fn place(&mut self, slot: &Slot, range: &Range<u64>) -> Result<(), EditError> {
        let size = self.size();
        self.edit_at(slot, |raw| fill(raw, slot.base, range, size))
    }

    /// Returns a sector with all changes, and its boot record.
    fn sector(&self, sector: u64) -> Result<(Vec<u8>, RawMbr), EditError> {
        let bytes = read_sector(&self.changed, if sector == 0 { 512 } else { self.sector_size }, sector)?;
        let (mbr, _) = RawMbr::read_from_prefix(&bytes).map_err(|_| EditError::Damaged)?;
        Ok((bytes, mbr))
    }

    /// Changes a sector. Consecutive changes of one sector are one write.
    fn put(&mut self, sector: u64, bytes: Vec<u8>) -> Result<(), EditError> {
        let offset = sector.saturating_mul(self.size());
        self.changed.write_at(offset, &bytes)?;
        match self.writes.last_mut() {
            Some((last, old)) if *last == offset => *old = bytes,
            _ => self.writes.push((offset, bytes)),
        }
        self.chain =
            read_with_chain(&self.changed, self.sector_size)?.map_or_else(Vec::new, |(_, chain)| chain);
        Ok(())
    }

    fn empty_boot_record(&self) -> Vec<u8> {
        let mut raw = RawMbr::new_zeroed();
        raw.signature.set(0xaa55);
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(usize::try_from(self.size()).unwrap_or(512).max(bytes.len()), 0);
        debug_assert!(to_u64(bytes.len()) >= self.size());
        bytes
    }

    fn size(&self) -> u64 {
        self.sector_size.into()
    }
}

/// Returns a record of `range`, relative to sector `base`.
fn record(kind: u8, attributes: u64, base: u64, range: &Range<u64>, sector_size: u64) -> RawMbrEntry {
    let mut raw = RawMbrEntry::new_zeroed();
    raw.os_type = kind;
    raw.boot_indicator = indicator(attributes);
    fill(&mut raw, base, range, sector_size);
    raw
}

/// Sets the position in a record, relative to sector `base`.
fn fill(raw: &mut RawMbrEntry, base: u64, range: &Range<u64>, sector_size: u64) {
    let sector = |bytes: u64| bytes.checked_div(sector_size).unwrap_or(0);
    let number = |sectors: u64| u32::try_from(sectors).unwrap_or(u32::MAX);
    raw.starting_chs = BEYOND_CHS;
    raw.ending_chs = BEYOND_CHS;
    raw.starting_lba.set(number(sector(range.start).saturating_sub(base)));
    raw.size_in_lba.set(number(sector(range.end.saturating_sub(range.start))));
}

fn indicator(attributes: u64) -> u8 {
    if attributes & BOOTABLE == 0 { 0 } else { ACTIVE }
}

fn with_record(sector: &mut [u8], index: usize, edit: impl FnOnce(&mut RawMbrEntry)) {
    if let Ok((mbr, _)) = RawMbr::mut_from_prefix(sector)
        && let Some(raw) = mbr.partition_record.get_mut(index)
    {
        edit(raw);
    }
}
