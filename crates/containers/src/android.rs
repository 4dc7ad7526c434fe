//! Android sparse images, as `img2simg` writes them and `fastboot` sends them.
//!
//! Layout, little-endian: a header of at least 28 bytes ([`RawSparseHeader`]), then chunks, each with a header of at
//! least 12 bytes ([`RawChunk`]). A chunk contains raw data, a pattern of 4 bytes, nothing, or a checksum of the disk
//! so far. The header may contain a checksum too; 0 means none.
//!
//! A checksum is the CRC-32 of the disk, in which a chunk without data counts as zeros. `libsparse` writes another value:
//! it counts a pattern as one block and omits chunks without data. Both values are correct here.
//! Source: AOSP `system/core/libsparse/sparse_format.h`, `sparse_read.cpp`, `output_file.cpp`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result as BaseResult;
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le, to_u64, to_usize};
use obento_block::{BlockDevice, check_range};

use crate::checksum::Checksum;
use crate::disk::Disk;
use crate::error::Opening;
use crate::layout::{Extent, Layout, Place};
use crate::{read_bytes, read_raw, zeros};

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
/// The bytes that are read at once for a checksum.
const BUFFER: u64 = 1 << 20;
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
    let mut starts = Vec::new();
    let header = each_chunk(&*file, |start, Chunk { content, blocks }| {
        let place = match content {
            Content::Data(at) => Place::Data(at),
            Content::Fill(pattern) if pattern != [0; 4] => Place::Fill(pattern),
            Content::Fill(_) | Content::Nothing | Content::Checksum(_) => Place::Zeros,
        };
        if blocks > 0 {
            starts.push((start, place));
        }
        Ok(())
    })?;
    let (block, blocks) = (header.block_size.get().into(), header.blocks.get());
    Ok(Disk::plain(file.clone(), Chunks { block, blocks, starts }))
}

/// Returns whether a checksum is wrong. Reads the data only if the image contains a checksum.
pub(crate) fn has_wrong_checksum(file: &dyn BlockDevice) -> Result<bool, Opening> {
    let mut has_chunk = false;
    let header = each_chunk(file, |_, chunk| {
        has_chunk |= matches!(chunk.content, Content::Checksum(_));
        Ok(())
    })?;
    let stored = header.checksum.get();
    if !has_chunk && stored == 0 {
        return Ok(false);
    }
    let mut sums =
        Sums { block: header.block_size.get().into(), disk: Checksum::NONE, written: Checksum::NONE };
    let mut is_wrong = false;
    each_chunk(file, |_, chunk| {
        match chunk.content {
            Content::Checksum(value) => is_wrong |= !sums.have(value),
            _ => sums.add(file, &chunk)?,
        }
        Ok(())
    })?;
    Ok(is_wrong || stored != 0 && !sums.have(stored))
}

/// The checksums of the chunks so far.
struct Sums {
    /// The block size.
    block: u64,
    /// The checksum of the disk.
    disk: Checksum,
    /// The checksum that `libsparse` writes.
    written: Checksum,
}

impl Sums {
    fn have(&self, value: u32) -> bool {
        [self.disk, self.written].iter().any(|sum| sum.value() == value)
    }

    fn add(&mut self, file: &dyn BlockDevice, chunk: &Chunk) -> Result<(), Opening> {
        let blocks = u64::from(chunk.blocks);
        let (disk, written) = match chunk.content {
            Content::Data(at) => {
                let sum = Self::of_data(file, at, blocks.saturating_mul(self.block))?;
                (sum, sum)
            }
            Content::Fill(pattern) => {
                let block = Checksum::of(&pattern).times(self.block >> 2);
                (block.times(blocks), block)
            }
            Content::Nothing => (Checksum::of(&[0]).times(blocks.saturating_mul(self.block)), Checksum::NONE),
            Content::Checksum(_) => (Checksum::NONE, Checksum::NONE),
        };
        (self.disk, self.written) = (self.disk.then(disk), self.written.then(written));
        Ok(())
    }

    fn of_data(file: &dyn BlockDevice, at: u64, len: u64) -> Result<Checksum, Opening> {
        let room = len.min(BUFFER);
        let mut buffer =
            zeros(to_usize(room)).ok_or(Opening::Unsupported("a buffer larger than the memory"))?;
        let (mut sum, mut done) = (Checksum::NONE, 0);
        while done < len {
            let part = buffer.get_mut(..to_usize(len.saturating_sub(done).min(room))).unwrap_or_default();
            file.read_at(at.saturating_add(done), part)?;
            sum = sum.then(Checksum::of(part));
            done = done.saturating_add(to_u64(part.len()).max(1));
        }
        Ok(sum)
    }
}

/// A chunk.
struct Chunk {
    content: Content,
    /// Its length in blocks.
    blocks: u32,
}

/// The content of a chunk.
enum Content {
    /// Data at this offset of the file.
    Data(u64),
    Fill([u8; 4]),
    Nothing,
    /// The checksum of the disk so far.
    Checksum(u32),
}

/// Passes each chunk, with the number of its first block, to `take`. Returns the header.
///
/// # Errors
///
/// Damaged; Unsupported; Device; those of `take`.
fn each_chunk(
    file: &dyn BlockDevice,
    mut take: impl FnMut(u32, Chunk) -> Result<(), Opening>,
) -> Result<RawSparseHeader, Opening> {
    const HEADER: &str = "sparse header";
    let header: RawSparseHeader = read_raw(file, 0, HEADER)?;
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
    let mut reader = Reader { file, at: header_len.into(), chunk_len: chunk_len.into(), block: size.into() };
    let mut next = 0_u32;
    for _ in 0..count {
        let chunk = reader.chunk()?;
        let end = next.checked_add(chunk.blocks).filter(|&end| end <= blocks);
        take(next, chunk)?;
        next = end.ok_or(Opening::damaged("chunk header", "the chunk is past the end of the disk"))?;
    }
    if next != blocks {
        return Err(Opening::damaged(HEADER, "the chunks do not cover the disk"));
    }
    Ok(header)
}

/// Reads one chunk after the other.
struct Reader<'a> {
    file: &'a dyn BlockDevice,
    at: u64,
    chunk_len: u64,
    block: u64,
}

impl Reader<'_> {
    /// Returns the next chunk.
    fn chunk(&mut self) -> Result<Chunk, Opening> {
        const CHUNK: &str = "chunk header";
        let header: RawChunk = read_raw(self.file, self.at, CHUNK)?;
        let (blocks, total) = (header.blocks.get(), u64::from(header.total.get()));
        let data = self.at.saturating_add(self.chunk_len);
        let len = total.checked_sub(self.chunk_len);
        let content = match (header.kind.get(), len) {
            (RAW, Some(len)) if Some(len) == u64::from(blocks).checked_mul(self.block) => Content::Data(data),
            (FILL, Some(4)) => Content::Fill(self.four_bytes(data)?),
            (DONT_CARE, Some(0)) => Content::Nothing,
            (CRC32, Some(4)) if blocks == 0 => Content::Checksum(u32::from_le_bytes(self.four_bytes(data)?)),
            (RAW | FILL | DONT_CARE | CRC32, _) => {
                return Err(Opening::damaged(CHUNK, "the length does not fit the type"));
            }
            _ => return Err(Opening::damaged(CHUNK, "the type is unknown")),
        };
        check_range(self.file.len(), self.at, total)?;
        self.at = self.at.saturating_add(total);
        Ok(Chunk { content, blocks })
    }

    fn four_bytes(&self, at: u64) -> Result<[u8; 4], Opening> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::crc::crc32;
    use obento_block::MemDevice;

    const BLOCK: usize = 8;

    /// An image of one chunk of each kind, and checksums in a chunk and in the header.
    fn image(in_chunk: Option<u32>, in_header: u32) -> MemDevice {
        let mut chunks = Vec::new();
        let mut add = |kind: u16, blocks: u32, data: &[u8]| {
            let total = u32::try_from(data.len()).unwrap() + u32::from(CHUNK_LEN);
            let header = RawChunk {
                kind: kind.into(),
                reserved: 0.into(),
                blocks: blocks.into(),
                total: total.into(),
            };
            chunks.push([header.as_bytes(), data].concat());
        };
        add(RAW, 2, b"sixteen bytes...");
        add(FILL, 3, b"fill");
        add(DONT_CARE, 4, b"");
        if let Some(value) = in_chunk {
            add(CRC32, 0, &value.to_le_bytes());
        }
        let header = RawSparseHeader {
            magic: MAGIC.into(),
            major: MAJOR.into(),
            minor: 0.into(),
            header_size: HEADER_LEN.into(),
            chunk_header_size: CHUNK_LEN.into(),
            block_size: u32::try_from(BLOCK).unwrap().into(),
            blocks: 9.into(),
            chunks: u32::try_from(chunks.len()).unwrap().into(),
            checksum: in_header.into(),
        };
        MemDevice::new([header.as_bytes(), &chunks.concat()].concat())
    }

    #[test]
    fn a_checksum_of_the_disk_is_verified_in_a_chunk_and_in_the_header() {
        let is_wrong = |chunk, header| has_wrong_checksum(&image(chunk, header)).unwrap();
        let disk = [&b"sixteen bytes..."[..], &b"fill".repeat(6), &[0; 4 * BLOCK]].concat();
        // libsparse counts one block of the pattern, and nothing for the last chunk.
        let written = [&b"sixteen bytes..."[..], b"fillfill"].concat();
        for sum in [crc32(&disk), crc32(&written)] {
            assert!(!is_wrong(Some(sum), 0) && !is_wrong(None, sum) && !is_wrong(Some(sum), sum));
            assert!(is_wrong(Some(sum ^ 1), 0) && is_wrong(None, sum ^ 1) && is_wrong(Some(sum), sum ^ 1));
        }
        assert!(!is_wrong(None, 0));
        let opened = open(Arc::new(image(Some(7), 0))).ok().unwrap();
        let mut bytes = [1; 9 * BLOCK];
        opened.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes[..], disk, "the data is shown although the checksum is wrong");
    }
}
