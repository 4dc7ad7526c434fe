//! VHD, the format of Virtual PC, Hyper-V and Azure.
//!
//! Layout, big-endian: a fixed disk is the disk, then a footer of 512 bytes ([`RawFooter`]). A dynamic disk
//! has a copy of the footer at 0, a header ([`RawDynamic`]), a table with one 32-bit sector number per block,
//! and a footer. Each block begins with a bitmap of its sectors, rounded up to whole sectors.
//!
//! The bitmaps are ignored, as qemu does: a block is allocated as a whole and is filled with zeros.
//! The size of the disk is the current size in the footer. Virtual PC, and qemu for files of some creators, use
//! the size of the geometry instead, which is smaller by less than one cylinder.
//! Source: Microsoft, "Virtual Hard Disk Image Format Specification", version 1.0; qemu `block/vpc.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, be, to_u64};
use obento_block::{BlockDevice, Slice};

use crate::blocks::Blocks;
use crate::disk::Disk;
use crate::error::Opening;
use crate::{SECTOR, read_bytes, read_raw};

pub(crate) const COOKIE: &[u8; 8] = b"conectix";
const DYNAMIC_COOKIE: &[u8; 8] = b"cxsparse";
pub(crate) const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;
/// The block sizes that this decoder accepts. The default is 2 MiB.
const BLOCK_SIZES: core::ops::RangeInclusive<u32> = 4096..=(256 << 20);
const SECTOR_BYTES: u64 = 512;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub(crate) struct RawFooter {
    pub cookie: [u8; 8],
    pub features: be::U32,
    pub version: be::U32,
    pub data_offset: be::U64,
    pub timestamp: be::U32,
    pub creator: [u8; 4],
    pub creator_version: be::U32,
    pub creator_host: be::U32,
    pub original_size: be::U64,
    pub current_size: be::U64,
    pub geometry: be::U32,
    pub disk_type: be::U32,
    pub checksum: be::U32,
    pub unique_id: [u8; 16],
    pub saved_state: u8,
    pub reserved: [u8; 427],
}
const _: () = assert!(size_of::<RawFooter>() == SECTOR);

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawDynamic {
    cookie: [u8; 8],
    data_offset: be::U64,
    table_offset: be::U64,
    version: be::U32,
    max_entries: be::U32,
    block_size: be::U32,
    checksum: be::U32,
    /// The parent of a differencing disk and reserved bytes.
    rest: [u8; 984],
}
const _: () = assert!(size_of::<RawDynamic>() == 1024);

/// Returns the checksum of a structure whose checksum field is at `at`: the inverted sum of all other bytes.
pub(crate) fn checksum(bytes: &[u8], at: usize) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u32, |sum, &byte| sum.wrapping_add(byte.into()));
    let field = bytes.get(at..at.saturating_add(4)).unwrap_or_default();
    !sum(bytes).wrapping_sub(sum(field))
}

/// The position of the checksum in a footer and in a dynamic header.
pub(crate) const FOOTER_CHECKSUM: usize = 64;
const DYNAMIC_CHECKSUM: usize = 36;

/// Decodes a footer. Returns `None` if the cookie or the checksum is wrong.
fn footer(bytes: &[u8]) -> Option<RawFooter> {
    let footer = RawFooter::read_from_bytes(bytes).ok().filter(|footer| footer.cookie == *COOKIE)?;
    (checksum(bytes, FOOTER_CHECKSUM) == footer.checksum.get()).then_some(footer)
}

pub(crate) fn is_dynamic(start: &[u8]) -> bool {
    start.starts_with(COOKIE)
}

/// Returns whether the last sector of a file of `len` bytes is the footer of a fixed disk.
pub(crate) fn is_fixed(end: &[u8], len: u64) -> bool {
    footer(end)
        .is_some_and(|footer| footer.disk_type.get() == FIXED && is_whole(footer.current_size.get(), len))
}

/// Returns whether a fixed disk of `size` bytes and its footer fit in a file of `len` bytes.
fn is_whole(size: u64, len: u64) -> bool {
    size > 0 && size.checked_add(SECTOR_BYTES).is_some_and(|end| end <= len)
}

pub(crate) fn open(file: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, Opening> {
    let end = file.len().saturating_sub(SECTOR_BYTES);
    let (first, last) = (sector(&*file, 0)?, sector(&*file, end)?);
    // The specification recommends the footer, and the copy if the footer is damaged. An interrupted
    // extension leaves the copy intact.
    let Some(footer) = footer(&first).or_else(|| footer(&last)) else {
        return Err(Opening::damaged("footer", "the checksum is wrong"));
    };
    match footer.disk_type.get() {
        FIXED if is_whole(footer.current_size.get(), file.len()) => {
            Ok(Arc::new(Slice::new(file, 0..footer.current_size.get())?))
        }
        FIXED => Err(Opening::damaged("footer", "the disk is longer than the file")),
        DYNAMIC => dynamic(file, &footer),
        DIFFERENCING => Err(Opening::Unsupported("a parent image (a differencing disk)")),
        _ => Err(Opening::Unsupported("an unknown disk type")),
    }
}

fn sector(file: &dyn BlockDevice, offset: u64) -> Result<Vec<u8>, Opening> {
    read_bytes(file, offset, SECTOR_BYTES, "footer")
}

fn dynamic(file: Arc<dyn BlockDevice>, footer: &RawFooter) -> Result<Arc<dyn BlockDevice>, Opening> {
    const HEADER: &str = "dynamic disk header";
    let bytes = read_bytes(&*file, footer.data_offset.get(), to_u64(size_of::<RawDynamic>()), HEADER)?;
    let header: RawDynamic = read_raw(&*file, footer.data_offset.get(), HEADER)?;
    if header.cookie != *DYNAMIC_COOKIE {
        return Err(Opening::damaged(HEADER, "the magic number is wrong"));
    }
    if checksum(&bytes, DYNAMIC_CHECKSUM) != header.checksum.get() {
        return Err(Opening::damaged(HEADER, "the checksum is wrong"));
    }
    let size = header.block_size.get();
    if !size.is_power_of_two() || !BLOCK_SIZES.contains(&size) {
        return Err(Opening::damaged(HEADER, "the block size is impossible"));
    }
    let (block, len) = (u64::from(size), footer.current_size.get());
    let count = len.div_ceil(block);
    if len == 0 || count > u64::from(header.max_entries.get()) {
        return Err(Opening::damaged(HEADER, "the size of the disk does not fit its number of blocks"));
    }
    let table =
        read_bytes(&*file, header.table_offset.get(), count.saturating_mul(4), "block allocation table")?;
    // The entry of an unused block is `UNALLOCATED`, all ones.
    let entries = table.as_chunks::<4>().0.iter().map(|&bytes| u32::from_be_bytes(bytes)).collect();
    // One bit per sector, in whole sectors.
    let base = block.div_ceil(8 * SECTOR_BYTES).next_multiple_of(SECTOR_BYTES);
    Ok(Disk::plain(file, Blocks { len, block, entries, unit: SECTOR_BYTES, base }))
}
