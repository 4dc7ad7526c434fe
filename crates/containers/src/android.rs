//! Android sparse images, as `img2simg` writes them and `fastboot` sends them.
//!
//! Layout, little-endian: a header of at least 28 bytes ([`RawSparseHeader`]), then chunks, each with a header of at
//! least 12 bytes ([`RawChunk`]). A chunk contains raw data, a pattern of 4 bytes, nothing, or a checksum of the disk
//! so far, which is not verified.
//! Source: AOSP `system/core/libsparse/sparse_format.h`, `sparse_read.cpp`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result as BaseResult;
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};
use obento_block::{BlockDevice, check_range};

use crate::disk::Disk;
use crate::error::Opening;
use crate::layout::{Extent, Layout, Place};
use crate::{read_bytes, read_raw};

pub(crate) const MAGIC: u32 = 0xed26_ff3a;
pub(crate) const MAJOR: u16 = 1;
pub(crate) const RAW: u16 = 0xcac1;
pub(crate) const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;
pub(crate) const HEADER_LEN: u16 = 28;
pub(crate) const CHUNK_LEN: u16 = 12;
/// The block sizes that this decoder accepts. The usual size is 4096.
const BLOCK_SIZES: core::ops::RangeInclusive<u32> = 4..=(64 << 20);
/// The most chunks. They take 48 bytes of memory each.
const CHUNKS_MAX: u32 = 4 << 20;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub(crate) struct RawSparseHeader {
    pub magic: le::U32,
    pub major: le::U16,
    pub minor: le::U16,
    pub header_size: le::U16,
    pub chunk_header_size: le::U16,
    pub block_size: le::U32,
    pub blocks: le::U32,
    pub chunks: le::U32,
    pub checksum: le::U32,
}
const _: () = assert!(size_of::<RawSparseHeader>() == 28);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub(crate) struct RawChunk {
    pub kind: le::U16,
    pub reserved: le::U16,
    pub blocks: le::U32,
    /// The length of the chunk in the file with its header.
    pub total: le::U32,
}
const _: () = assert!(size_of::<RawChunk>() == 12);

pub(crate) fn is_android_sparse(start: &[u8]) -> bool {
    start.starts_with(&MAGIC.to_le_bytes())
        && start.get(4..).is_some_and(|rest| rest.starts_with(&MAJOR.to_le_bytes()))
}

/// The chunks of the image, sorted by their first block, without gaps.
struct Chunks {
    block: u64,
    blocks: u32,
    starts: Vec<(u32, Place)>,
}

pub(crate) fn open(file: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, Opening> {
    const HEADER: &str = "sparse header";
    let header: RawSparseHeader = read_raw(&*file, 0, HEADER)?;
    let (header_len, chunk_len) = (header.header_size.get(), header.chunk_header_size.get());
    if header_len < HEADER_LEN || chunk_len < CHUNK_LEN {
        return Err(Opening::damaged(HEADER, "the length of the headers is impossible"));
    }
    let size = header.block_size.get();
    if !size.is_multiple_of(4) || !BLOCK_SIZES.contains(&size) {
        return Err(Opening::damaged(HEADER, "the block size is impossible"));
    }
    let (blocks, count) = (header.blocks.get(), header.chunks.get());
    if count > CHUNKS_MAX {
        return Err(Opening::Unsupported("more than 4 million chunks"));
    }
    let mut reader =
        Reader { file: &*file, at: header_len.into(), chunk_len: chunk_len.into(), block: size.into() };
    let (mut starts, mut next) = (Vec::new(), 0_u32);
    for _ in 0..count {
        let (place, len) = reader.chunk()?;
        if len > 0 {
            starts.push((next, place));
        }
        next = next
            .checked_add(len)
            .filter(|&end| end <= blocks)
            .ok_or(Opening::damaged("chunk header", "the chunk is past the end of the disk"))?;
    }
    if next != blocks {
        return Err(Opening::damaged(HEADER, "the chunks do not cover the disk"));
    }
    Ok(Disk::plain(file.clone(), Chunks { block: size.into(), blocks, starts }))
}

/// Reads one chunk after the other.
struct Reader<'a> {
    file: &'a dyn BlockDevice,
    at: u64,
    chunk_len: u64,
    block: u64,
}

impl Reader<'_> {
    /// Returns the location of the data of the next chunk, and its length in blocks.
    fn chunk(&mut self) -> Result<(Place, u32), Opening> {
        const CHUNK: &str = "chunk header";
        let header: RawChunk = read_raw(self.file, self.at, CHUNK)?;
        let (blocks, total) = (header.blocks.get(), u64::from(header.total.get()));
        let data = self.at.saturating_add(self.chunk_len);
        let len = total.checked_sub(self.chunk_len);
        let place = match (header.kind.get(), len) {
            (RAW, Some(len)) if Some(len) == u64::from(blocks).checked_mul(self.block) => Place::Data(data),
            (FILL, Some(4)) => match self.pattern(data)? {
                [0, 0, 0, 0] => Place::Zeros,
                pattern => Place::Fill(pattern),
            },
            (DONT_CARE, Some(0)) => Place::Zeros,
            (CRC32, Some(4)) if blocks == 0 => Place::Zeros,
            (RAW | FILL | DONT_CARE | CRC32, _) => {
                return Err(Opening::damaged(CHUNK, "the length does not fit the type"));
            }
            _ => return Err(Opening::damaged(CHUNK, "the type is unknown")),
        };
        if check_range(self.file.len(), self.at, total).is_err() {
            return Err(Opening::damaged("chunk", "it is past the end of the file"));
        }
        self.at = self.at.saturating_add(total);
        Ok((place, blocks))
    }

    fn pattern(&self, at: u64) -> Result<[u8; 4], Opening> {
        let bytes = read_bytes(self.file, at, 4, "chunk")?;
        Ok(bytes.first_chunk().copied().unwrap_or_default())
    }
}

impl Layout for Chunks {
    fn len(&self) -> u64 {
        u64::from(self.blocks).saturating_mul(self.block)
    }

    fn locate(&self, _file: &Arc<dyn BlockDevice>, offset: u64, _want: u64) -> BaseResult<Extent> {
        let bytes = |block: u32| u64::from(block).saturating_mul(self.block);
        let after = self.starts.partition_point(|&(start, _)| bytes(start) <= offset);
        let (start, place) = after
            .checked_sub(1)
            .and_then(|index| self.starts.get(index))
            .copied()
            .unwrap_or((0, Place::Zeros));
        let end = self.starts.get(after).map_or(self.len(), |&(start, _)| bytes(start));
        let inside = offset.saturating_sub(bytes(start));
        let place = match place {
            Place::Data(at) => Place::Data(at.saturating_add(inside)),
            other => other,
        };
        Ok(Extent { len: end.saturating_sub(offset), place })
    }
}
