//! The structures of partition tables on disk.

use std::ops::Range;

use obento_base::wire::le::{U16, U32, U64};
use obento_base::wire::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// GPT header (UEFI specification, table 5.5). Offsets in bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawGptHeader {
    /// 0: `EFI PART`.
    pub signature: [u8; 8],
    /// 8: 0x00010000.
    pub revision: U32,
    /// 12: at least 92 and at most a sector.
    pub header_size: U32,
    /// 16: CRC-32 of the header with this field zero.
    pub header_crc32: U32,
    /// 20
    pub reserved: U32,
    /// 24: the sector of this header.
    pub my_lba: U64,
    /// 32: the sector of the other header.
    pub alternate_lba: U64,
    /// 40
    pub first_usable_lba: U64,
    /// 48
    pub last_usable_lba: U64,
    /// 56
    pub disk_guid: [u8; 16],
    /// 72: the sector where the entries begin.
    pub partition_entry_lba: U64,
    /// 80
    pub number_of_partition_entries: U32,
    /// 84: 128 times a power of two.
    pub size_of_partition_entry: U32,
    /// 88: CRC-32 of all entries.
    pub partition_entry_array_crc32: U32,
}
const _: () = assert!(size_of::<RawGptHeader>() == 92);

/// GPT entry (UEFI specification, table 5.6).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawGptEntry {
    /// 0: zero for an unused entry.
    pub partition_type_guid: [u8; 16],
    /// 16
    pub unique_partition_guid: [u8; 16],
    /// 32
    pub starting_lba: U64,
    /// 40: the last sector, inclusive.
    pub ending_lba: U64,
    /// 48
    pub attributes: U64,
    /// 56: UTF-16, ended by a zero if shorter.
    pub partition_name: [U16; 36],
}
const _: () = assert!(size_of::<RawGptEntry>() == 128);

/// Legacy MBR and extended boot record (UEFI specification, table 5.1).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawMbr {
    /// 0
    pub boot_code: [u8; 440],
    /// 440
    pub disk_signature: U32,
    /// 444
    pub unknown: U16,
    /// 446
    pub partition_record: [RawMbrEntry; 4],
    /// 510: 0xaa55.
    pub signature: U16,
}
const _: () = assert!(size_of::<RawMbr>() == 512);

/// MBR partition record (UEFI specification, table 5.2).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawMbrEntry {
    /// 0: 0x80 for the active partition, otherwise 0.
    pub boot_indicator: u8,
    /// 1: cylinder, head and sector, which are not used.
    pub starting_chs: [u8; 3],
    /// 4: 0 for an unused record.
    pub os_type: u8,
    /// 5
    pub ending_chs: [u8; 3],
    /// 8
    pub starting_lba: U32,
    /// 12
    pub size_in_lba: U32,
}
const _: () = assert!(size_of::<RawMbrEntry>() == 16);

impl RawGptHeader {
    /// Returns the header at the start of a sector, if it has the signature of a header.
    pub fn of(sector: &[u8]) -> Option<&Self> {
        let (header, _) = Self::ref_from_prefix(sector).ok()?;
        (&header.signature == b"EFI PART").then_some(header)
    }
}

impl RawGptEntry {
    /// Sets the first and last sector to those of `range` in bytes.
    pub fn set_sectors(&mut self, range: &Range<u64>, sector_size: u64) {
        let sector = |bytes: u64| bytes.checked_div(sector_size).unwrap_or(0);
        self.starting_lba.set(sector(range.start));
        self.ending_lba.set(sector(range.end).saturating_sub(1));
    }

    /// Sets the name. Stores at most the first 36 UTF-16 units.
    pub fn set_name(&mut self, name: &str) {
        let units = name.encode_utf16().chain(std::iter::repeat(0));
        self.partition_name.iter_mut().zip(units).for_each(|(to, unit)| to.set(unit));
    }
}

impl RawMbr {
    /// Returns the boot record at the start of a sector, if it has the signature of a boot record.
    pub fn of(sector: &[u8]) -> Option<&Self> {
        let (mbr, _) = Self::ref_from_prefix(sector).ok()?;
        (mbr.signature.get() == 0xaa55).then_some(mbr)
    }
}

/// Returns whether all bytes of `raw` are zero.
pub fn is_zero(raw: &[u8]) -> bool {
    raw.iter().all(|&byte| byte == 0)
}

/// Returns the CRC of the header in `bytes`, which are the checksummed bytes. The CRC field itself counts as
/// zero.
pub fn header_crc(bytes: &[u8]) -> u32 {
    let mut bytes = bytes.to_vec();
    if let Some(field) = bytes.get_mut(16..20) {
        field.zero();
    }
    obento_base::crc::crc32(&bytes)
}
