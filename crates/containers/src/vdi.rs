//! VDI, the format of VirtualBox.
//!
//! Layout, little-endian: a text of 64 bytes, then the signature at 64, the version at 68, and the header of
//! [`RawVdiHeader`] from 72 on. The block map has one 32-bit entry per block. An entry is the number of the block in
//! the data area, or [`FREE`] or [`ZERO`] for a block that reads as zeros.
//! Source: VirtualBox `src/VBox/Storage/VDICore.h`; qemu `block/vdi.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};
use obento_block::BlockDevice;

use crate::blocks::{Blocks, UNALLOCATED};
use crate::disk::Disk;
use crate::error::Opening;
use crate::{read_bytes, read_raw};

pub(crate) const SIGNATURE: u32 = 0xbeda_107f;
const SIGNATURE_AT: usize = 64;
pub(crate) const VERSION_1_1: u32 = 0x0001_0001;
/// A block that was never written.
pub(crate) const FREE: u32 = u32::MAX;
/// A block that was discarded.
const ZERO: u32 = u32::MAX - 1;
pub(crate) const NORMAL: u32 = 1;
const FIXED: u32 = 2;
/// The block sizes that this decoder accepts. VirtualBox and qemu create 1 MiB.
const BLOCK_SIZES: core::ops::RangeInclusive<u32> = 4096..=(256 << 20);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub(crate) struct RawVdiHeader {
    pub text: [u8; 64],
    pub signature: le::U32,
    pub version: le::U32,
    pub header_size: le::U32,
    pub image_type: le::U32,
    pub flags: le::U32,
    pub comment: [u8; 256],
    pub blocks_offset: le::U32,
    pub data_offset: le::U32,
    pub geometry: [le::U32; 3],
    pub sector_size: le::U32,
    pub reserved: le::U32,
    pub disk_size: le::U64,
    pub block_size: le::U32,
    /// Bytes before each block that belong to VirtualBox.
    pub block_extra: le::U32,
    pub blocks: le::U32,
    pub blocks_allocated: le::U32,
    pub uuid_create: [u8; 16],
    pub uuid_modify: [u8; 16],
    pub uuid_link: [u8; 16],
    pub uuid_parent: [u8; 16],
}
const _: () = assert!(size_of::<RawVdiHeader>() == 0x1c8);

pub(crate) fn is_vdi(start: &[u8]) -> bool {
    start.get(SIGNATURE_AT..).is_some_and(|rest| rest.starts_with(&SIGNATURE.to_le_bytes()))
}

pub(crate) fn open(file: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, Opening> {
    const HEADER: &str = "header";
    let header: RawVdiHeader = read_raw(&*file, 0, HEADER)?;
    if header.version.get() != VERSION_1_1 {
        return Err(Opening::Unsupported("a version other than 1.1"));
    }
    if !matches!(header.image_type.get(), NORMAL | FIXED) || header.uuid_parent != [0; 16] {
        return Err(Opening::Unsupported("a parent image (a differencing disk)"));
    }
    let size = header.block_size.get();
    if !size.is_power_of_two() || !BLOCK_SIZES.contains(&size) {
        return Err(Opening::damaged(HEADER, "the block size is impossible"));
    }
    let block = u64::from(size);
    let (len, count) = (header.disk_size.get(), header.blocks.get());
    if len.div_ceil(block) > u64::from(count) {
        return Err(Opening::damaged(HEADER, "the size of the disk does not fit its number of blocks"));
    }
    let offset = u64::from(header.blocks_offset.get());
    let table = read_bytes(&*file, offset, u64::from(count).saturating_mul(4), "block map")?;
    let unit = block.saturating_add(header.block_extra.get().into());
    let base = u64::from(header.data_offset.get()).saturating_add(header.block_extra.get().into());
    let entries: Vec<u32> = table
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&bytes| match u32::from_le_bytes(bytes) {
            FREE | ZERO => UNALLOCATED,
            entry => entry,
        })
        .collect();
    Ok(Disk::plain(file, Blocks { len, block, entries, unit, base }))
}
