//! VHDX, the format of Hyper-V.
//!
//! Layout, little-endian: a file identifier is at 0, and two headers are at 64 KiB and 128 KiB. The valid header with
//! the higher sequence number counts. Two copies of the region table are at 192 KiB and 256 KiB; they locate the
//! metadata and the block allocation table (BAT). A 64-bit BAT entry has the state of a block in its low 3 bits and its
//! location in MiB from bit 20 on. After each `chunk ratio` blocks the BAT has an entry for a bitmap that only
//! differencing disks use. A log that was not replayed is replayed in memory ([`log`]).
//! Source: Microsoft, \[MS-VHDX\]; qemu `block/vhdx.c`.

mod log;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::crc::crc32c;
use obento_base::wire::{FromBytes, Immutable, KnownLayout, Unaligned, le, to_u64};
use obento_block::BlockDevice;

use crate::blocks::{Blocks, UNALLOCATED};
use crate::disk::Disk;
use crate::error::Opening;
use crate::{read_bytes, read_raw};

const SIGNATURE: &[u8; 8] = b"vhdxfile";
const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const REGION_TABLES: [u64; 2] = [192 << 10, 256 << 10];
const REGION_TABLE_LEN: u64 = 64 << 10;
const HEADER_LEN: u64 = 4096;
const MIB: u64 = 1 << 20;
/// [MS-VHDX] 2.2.3.1 and 2.6.1.2: at most 2,047 entries in both tables.
const ENTRIES_MAX: u64 = 2047;
/// [MS-VHDX] 2.6.2.1.
const BLOCK_SIZES: core::ops::RangeInclusive<u32> = (1 << 20)..=(256 << 20);
/// [MS-VHDX] 2.6.2.2: 64 TiB.
const DISK_MAX: u64 = 64 << 40;

type Guid = [u8; 16];
const NO_GUID: Guid = [0; 16];
const REGION_BAT: Guid = guid(0x2dc2_7766, 0xf623, 0x4200, *b"\x9d\x64\x11\x5e\x9b\xfd\x4a\x08");
const REGION_METADATA: Guid = guid(0x8b7c_a206, 0x4790, 0x4b9a, *b"\xb8\xfe\x57\x5f\x05\x0f\x88\x6e");
const ITEM_PARAMETERS: Guid = guid(0xcaa1_6737, 0xfa36, 0x4d43, *b"\xb3\xb6\x33\xf0\xaa\x44\xe7\x6b");
const ITEM_SIZE: Guid = guid(0x2fa5_4224, 0xcd1b, 0x4876, *b"\xb2\x11\x5d\xbe\xd8\x3b\xf4\xb8");
const ITEM_LOGICAL: Guid = guid(0x8141_bf1d, 0xa96f, 0x4709, *b"\xba\x47\xf2\x33\xa8\xfa\xab\x5f");
const ITEM_PHYSICAL: Guid = guid(0xcda3_48c7, 0x445d, 0x4471, *b"\x9c\xc9\xe9\x88\x52\x51\xc5\x56");
const ITEM_PAGE_83: Guid = guid(0xbeca_12ab, 0xb2e6, 0x4523, *b"\x93\xef\xc3\x09\xe0\x00\xc7\x46");
const ITEM_PARENT: Guid = guid(0xa8d3_5f2d, 0xb30b, 0x454d, *b"\xab\xf7\xd3\xd8\x48\x34\xab\x0c");

/// Payload block states.
const FULLY_PRESENT: u64 = 6;
const PARTIALLY_PRESENT: u64 = 7;
const STATE_MASK: u64 = 7;
const OFFSET_SHIFT: u32 = 20;

const HAS_PARENT: u32 = 2;
const ITEM_REQUIRED: u32 = 4;

/// Returns the bytes of a GUID, whose first three fields are little-endian.
#[allow(clippy::indexing_slicing, reason = "constant indices of constant arrays, checked by the compiler")]
const fn guid(a: u32, b: u16, c: u16, d: [u8; 8]) -> Guid {
    let (a, b, c) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    signature: [u8; 4],
    checksum: le::U32,
    sequence: le::U64,
    file_write: Guid,
    data_write: Guid,
    log_guid: Guid,
    log_version: le::U16,
    version: le::U16,
    log_length: le::U32,
    log_offset: le::U64,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawRegion {
    guid: Guid,
    offset: le::U64,
    length: le::U32,
    required: le::U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawItem {
    guid: Guid,
    offset: le::U32,
    length: le::U32,
    flags: le::U32,
    reserved: le::U32,
}
/// The length of an entry and of the header of both tables.
const ENTRY_LEN: usize = 32;
const _: () = assert!(size_of::<RawRegion>() == ENTRY_LEN && size_of::<RawItem>() == ENTRY_LEN);

pub(crate) fn is_vhdx(start: &[u8]) -> bool {
    start.starts_with(SIGNATURE)
}

pub(crate) fn open(file: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, Opening> {
    let header = header(&*file)?;
    if header.version.get() != 1 || header.log_version.get() != 0 {
        return Err(Opening::Unsupported("an unknown version"));
    }
    let file = if header.log_guid == NO_GUID { file } else { log::replay(file, &header)? };
    let (bat, metadata) = regions(&*file)?;
    let parameters = Parameters::read(&*file, &metadata)?;
    let blocks = parameters.blocks(&*file, &bat)?;
    Ok(Disk::plain(file, blocks))
}

/// Returns whether the CRC-32C of `bytes` is correct. The field is at 4.
fn has_checksum(bytes: &[u8]) -> bool {
    let (start, rest) = bytes.split_at_checked(4).unwrap_or_default();
    let (field, rest) = rest.split_at_checked(4).unwrap_or_default();
    let sum = [start, &[0; 4], rest].into_iter().fold(!0, crc32c);
    field == (!sum).to_le_bytes()
}

/// Returns the valid header with the higher sequence number.
fn header(file: &dyn BlockDevice) -> Result<RawHeader, Opening> {
    let mut current: Option<RawHeader> = None;
    for offset in HEADERS {
        let Ok(bytes) = read_bytes(file, offset, HEADER_LEN, "header") else { continue };
        let Ok((header, _)) = RawHeader::read_from_prefix(&bytes) else { continue };
        let is_newer = current.as_ref().is_none_or(|current| header.sequence.get() > current.sequence.get());
        if header.signature == *b"head" && has_checksum(&bytes) && is_newer {
            current = Some(header);
        }
    }
    current.ok_or(Opening::damaged("header", "both copies are damaged"))
}

/// Returns the regions of the BAT and of the metadata.
fn regions(file: &dyn BlockDevice) -> Result<(RawRegion, RawRegion), Opening> {
    const TABLE: &str = "region table";
    let mut table = Err(Opening::damaged(TABLE, "both copies are damaged"));
    for offset in REGION_TABLES {
        let bytes = read_bytes(file, offset, REGION_TABLE_LEN, TABLE)?;
        if bytes.starts_with(b"regi") && has_checksum(&bytes) {
            table = Ok(bytes);
            break;
        }
    }
    let table = table?;
    let count = le_at(&table, 8).filter(|&count| u64::from(count) <= ENTRIES_MAX);
    let count = count.ok_or(Opening::damaged(TABLE, "the number of entries is impossible"))?;
    let (mut bat, mut metadata) = (None, None);
    let (_, entries) = table.split_at_checked(16).unwrap_or_default();
    for entry in entries.chunks_exact(ENTRY_LEN).zip(0..count).map(|(entry, _)| entry) {
        let Ok(entry) = RawRegion::read_from_bytes(entry) else { continue };
        match entry.guid {
            REGION_BAT => bat = Some(entry),
            REGION_METADATA => metadata = Some(entry),
            _ if entry.required.get() & 1 != 0 => return Err(Opening::Unsupported("an unknown region")),
            _ => {}
        }
    }
    let missing = Opening::damaged(TABLE, "a region is missing");
    bat.zip(metadata).ok_or(missing)
}

fn le_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|&bytes| u32::from_le_bytes(bytes))
}

/// The metadata that reading needs.
struct Parameters {
    block: u64,
    len: u64,
    sector: u64,
}

impl Parameters {
    fn read(file: &dyn BlockDevice, region: &RawRegion) -> Result<Self, Opening> {
        const TABLE: &str = "metadata table";
        let table = read_bytes(file, region.offset.get(), REGION_TABLE_LEN, TABLE)?;
        if !table.starts_with(b"metadata") {
            return Err(Opening::damaged(TABLE, "the magic number is wrong"));
        }
        let count =
            table.get(10..12).and_then(|bytes| bytes.first_chunk()).map_or(0, |&n| u16::from_le_bytes(n));
        let (mut block, mut len, mut sector) = (None, None, None);
        let (_, entries) = table.split_at_checked(ENTRY_LEN).unwrap_or_default();
        for entry in entries.chunks_exact(ENTRY_LEN).zip(0..count).map(|(entry, _)| entry) {
            let Ok(entry) = RawItem::read_from_bytes(entry) else { continue };
            let at = region.offset.get().saturating_add(entry.offset.get().into());
            match entry.guid {
                ITEM_PARAMETERS => block = Some(read_raw::<[le::U32; 2]>(file, at, "file parameters")?),
                ITEM_SIZE => len = Some(read_raw::<le::U64>(file, at, "virtual disk size")?.get()),
                ITEM_LOGICAL => sector = Some(read_raw::<le::U32>(file, at, "logical sector size")?.get()),
                ITEM_PARENT => return Err(Opening::Unsupported("a parent image (a differencing disk)")),
                ITEM_PHYSICAL | ITEM_PAGE_83 => {}
                _ if entry.flags.get() & ITEM_REQUIRED != 0 => {
                    return Err(Opening::Unsupported("an unknown metadata item"));
                }
                _ => {}
            }
        }
        let missing = || Opening::damaged(TABLE, "an item is missing");
        let [block, flags] = block.ok_or_else(missing)?;
        if flags.get() & HAS_PARENT != 0 {
            return Err(Opening::Unsupported("a parent image (a differencing disk)"));
        }
        let (block, len, sector) = (block.get(), len.ok_or_else(missing)?, sector.ok_or_else(missing)?);
        if !block.is_power_of_two() || !BLOCK_SIZES.contains(&block) {
            return Err(Opening::damaged("file parameters", "the block size is impossible"));
        }
        if !matches!(sector, 512 | 4096) {
            return Err(Opening::damaged("logical sector size", "neither 512 nor 4096"));
        }
        if len == 0 || len > DISK_MAX || !len.is_multiple_of(sector.into()) {
            return Err(Opening::damaged("virtual disk size", "impossible"));
        }
        Ok(Self { block: block.into(), len, sector: sector.into() })
    }

    /// Reads the block allocation table.
    fn blocks(&self, file: &dyn BlockDevice, region: &RawRegion) -> Result<Blocks, Opening> {
        const BAT: &str = "block allocation table";
        // [MS-VHDX] 2.5: the bitmap of a chunk has 2^23 bits, one per sector.
        let ratio = self.sector.saturating_mul(1 << 23).checked_div(self.block).unwrap_or(1).max(1);
        let count = self.len.div_ceil(self.block);
        let bitmaps = count.saturating_sub(1).checked_div(ratio).unwrap_or(0);
        let len = count.saturating_add(bitmaps).saturating_mul(8);
        if len > region.length.get().into() {
            return Err(Opening::damaged(BAT, "too short for the disk"));
        }
        let bytes = read_bytes(file, region.offset.get(), len, BAT)?;
        let row = ratio.saturating_add(1);
        let mut entries = Vec::new();
        let words = bytes.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
        for (index, word) in (0_u64..).zip(words) {
            if index.checked_rem(row) == Some(ratio) {
                continue;
            }
            entries.push(match word & STATE_MASK {
                FULLY_PRESENT => u32::try_from(word >> OFFSET_SHIFT)
                    .ok()
                    .filter(|&entry| entry != UNALLOCATED)
                    .ok_or(Opening::damaged(BAT, "a block is past the end of the file"))?,
                PARTIALLY_PRESENT => {
                    return Err(Opening::Unsupported("a parent image (a differencing disk)"));
                }
                // Not present, undefined, zero, unmapped: no data that a reader may rely on.
                _ => UNALLOCATED,
            });
        }
        debug_assert_eq!(to_u64(entries.len()), count);
        Ok(Blocks { len: self.len, block: self.block, entries, unit: MIB, base: 0 })
    }
}
