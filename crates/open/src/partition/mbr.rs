//! The master boot record and the chain of extended boot records.
//!
//! An extended partition contains a chain of boot records. The first record of each is a logical partition,
//! relative to that boot record. The second is the next boot record, relative to the extended partition.
//!
//! Invariant: the walk along the chain ends, because no boot record is read twice and at most [`MAX_RECORDS`]
//! are read.

use std::collections::BTreeSet;

use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::BlockDevice;

use super::raw::{RawMbr, RawMbrEntry};
use super::{Detail, DiskId, PartitionType, Scheme, Table, TableNotice, read_sector};

/// Maximum number of boot records of an extended partition, with or without a logical partition. Linux follows 100
/// boot records (block/partitions/msdos.c). Disks of other systems may have more.
pub(super) const MAX_RECORDS: usize = 252;
/// The type of a record that only protects a GPT.
const PROTECTIVE: u8 = 0xee;
/// Types of extended partitions: CHS, LBA, Linux.
pub(super) const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The first bytes of a disk of AIX: `IBMA` in EBCDIC.
const AIX: &[u8] = b"\xc9\xc2\xd4\xc1";
/// GPT's attribute "legacy BIOS bootable" (UEFI specification, table 5.8).
const BOOTABLE: u64 = 1 << 2;

/// Returns whether the MBR has a record that protects a GPT. Fails with the errors of the device.
pub fn protects_gpt(device: &dyn BlockDevice) -> Result<bool> {
    if device.len() < 512 {
        return Ok(false);
    }
    let sector = read_sector(device, 512, 0)?;
    let records = RawMbr::of(&sector).map(|mbr| mbr.partition_record);
    Ok(records.is_some_and(|records| records.iter().any(|entry| entry.os_type == PROTECTIVE)))
}

/// Reads the MBR, with sectors of `sector_size` bytes. Returns `None` if sector 0 has no signature or no
/// valid records.
pub fn read(device: &dyn BlockDevice, sector_size: u32) -> Result<Option<Table>> {
    Ok(read_with_chain(device, sector_size)?.map(|(table, _)| table))
}

/// Reads an MBR without partitions: sector 0 has a signature, no boot code and empty records. Fails with the errors
/// of the device.
pub fn read_empty(device: &dyn BlockDevice, sector_size: u32) -> Result<Option<Table>> {
    if device.len() < 512 {
        return Ok(None);
    }
    let sector = read_sector(device, 512, 0)?;
    let has_data = |bytes: &[u8]| bytes.iter().any(|&byte| byte != 0);
    let records = sector.get(446..510).is_none_or(has_data);
    let mbr = RawMbr::of(&sector).filter(|mbr| !records && !has_data(&mbr.boot_code));
    Ok(mbr.map(|mbr| decode(device, mbr, sector_size).0))
}

/// A boot record of an extended partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BootRecord {
    /// The sector.
    pub(super) sector: u64,
    /// The number of the logical partition in it.
    pub(super) number: Option<u32>,
}

/// Like [`read`], and returns the boot records of the extended partition in the order of their chain.
pub(super) fn read_with_chain(
    device: &dyn BlockDevice,
    sector_size: u32,
) -> Result<Option<(Table, Vec<BootRecord>)>> {
    if device.len() < 512 {
        return Ok(None);
    }
    let sector = read_sector(device, 512, 0)?;
    let Some(mbr) = RawMbr::of(&sector) else { return Ok(None) };
    // The boot sector of a FAT or NTFS volume has the same signature, with code in place of the records. So
    // has a boot sector of AIX (block/partitions/msdos.c `msdos_partition`, `aix_magic_present`).
    let is_used = mbr.partition_record.iter().any(|entry| entry.os_type != 0);
    let is_valid = mbr.partition_record.iter().all(|entry| matches!(entry.boot_indicator, 0 | 0x80));
    if !is_used || !is_valid || mbr.boot_code.starts_with(AIX) {
        return Ok(None);
    }
    Ok(Some(decode(device, mbr, sector_size)))
}

fn decode(device: &dyn BlockDevice, mbr: &RawMbr, sector_size: u32) -> (Table, Vec<BootRecord>) {
    let signature = mbr.disk_signature.get();
    let mut table = Table {
        scheme: Scheme::Mbr,
        sector_size,
        id: DiskId::Signature(signature),
        partitions: Vec::new(),
        notices: Vec::new(),
    };
    for (number, entry) in (1..).zip(&mbr.partition_record) {
        if !matches!(entry.os_type, 0 | PROTECTIVE) {
            add(&mut table, signature, number, 0, entry);
        }
    }
    let extended = mbr.partition_record.iter().find(|entry| EXTENDED.contains(&entry.os_type));
    let mut chain = Vec::new();
    if let Some(extended) = extended {
        read_logical(device, &mut table, signature, extended.starting_lba.get().into(), &mut chain);
    }
    (table, chain)
}

fn read_logical(
    device: &dyn BlockDevice,
    table: &mut Table,
    signature: u32,
    base: u64,
    chain: &mut Vec<BootRecord>,
) {
    let (mut at, mut number, mut seen) = (base, 4_u32, BTreeSet::new());
    loop {
        if chain.len() >= MAX_RECORDS {
            table.notices.push(TableNotice::LongChain { after: number });
            return;
        }
        if !seen.insert(at) {
            table.notices.push(TableNotice::CircularChain { after: number });
            return;
        }
        let records = match boot_record(device, table.sector_size, at) {
            Ok(records) => records,
            Err(error) => {
                table.notices.push(TableNotice::BrokenChain { after: number, error });
                return;
            }
        };
        let logical = records.iter().take(2).find(|entry| is_logical(entry));
        if let Some(entry) = logical {
            number = number.saturating_add(1);
            add(table, signature, number, at, entry);
        }
        chain.push(BootRecord { sector: at, number: logical.map(|_| number) });
        match records.iter().take(2).find(|entry| EXTENDED.contains(&entry.os_type)) {
            Some(next) => at = base.saturating_add(next.starting_lba.get().into()),
            None => return,
        }
    }
}

/// Returns whether a record of a boot record is a logical partition.
pub(super) fn is_logical(entry: &RawMbrEntry) -> bool {
    entry.os_type != 0 && !EXTENDED.contains(&entry.os_type)
}

fn boot_record(device: &dyn BlockDevice, sector_size: u32, sector: u64) -> Result<[RawMbrEntry; 4]> {
    let bytes = read_sector(device, sector_size, sector)?;
    let found =
        bytes.get(510..512).map_or(0, |bytes| bytes.iter().rev().fold(0, |all, &b| all << 8 | u64::from(b)));
    let bad = Corrupt::Magic { structure: Structure::PartitionTable, block: sector, found, expected: 0xaa55 };
    RawMbr::of(&bytes).map(|mbr| mbr.partition_record).ok_or(Error::Corrupt(bad))
}

fn add(table: &mut Table, signature: u32, number: u32, base: u64, entry: &RawMbrEntry) {
    let first = base.saturating_add(entry.starting_lba.get().into());
    let detail = Detail {
        kind: PartitionType::Mbr(entry.os_type),
        name: Vec::new(),
        uuid: format!("{signature:08x}-{number:02x}"),
        attributes: if entry.boot_indicator == 0x80 { BOOTABLE } else { 0 },
    };
    table.add(number, first, Some(entry.size_in_lba.get().into()), detail);
}
