//! Android sparse images. Neighbouring units with the same contents are one chunk.
//!
//! Zeros are a pattern and not "don't care", which leaves the old contents of a flash memory.

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, to_u64};

use super::{Content, Patch, TooLarge, Writer, at_most, units};
use crate::android::{CHUNK_LEN, FILL, HEADER_LEN, MAGIC, MAJOR, RAW, RawChunk, RawSparseHeader};

const UNIT: u64 = 4096;
/// The number of blocks has 32 bits.
const MAX: u64 = 0xffff_ffff * UNIT;
/// The most blocks of a chunk, whose length has 32 bits.
const CHUNK_BLOCKS: u32 = (1 << 20) - 1;

pub(super) struct Sparse {
    blocks: u32,
    chunks: u32,
    /// The end of the complete chunks.
    at: u64,
    /// The present chunk and its number of blocks.
    current: Option<(Content, u32)>,
}

impl Sparse {
    pub fn new(len: u64) -> Result<Self, TooLarge> {
        let blocks = u32::try_from(units(at_most(len, MAX)?, UNIT)).map_err(|_| TooLarge { max: MAX })?;
        Ok(Self { blocks, chunks: 0, at: HEADER_LEN.into(), current: None })
    }

    /// Returns the length of the data of `blocks` blocks in the file.
    fn data_len(content: Content, blocks: u32) -> u64 {
        if content == Content::Data { u64::from(blocks).saturating_mul(UNIT) } else { 4 }
    }

    /// Writes the header of the present chunk.
    fn close(&mut self, patches: &mut Vec<Patch>) {
        let Some((content, blocks)) = self.current.take() else { return };
        let len = Self::data_len(content, blocks).saturating_add(CHUNK_LEN.into());
        let kind = if content == Content::Data { RAW } else { FILL };
        let header = RawChunk {
            kind: kind.into(),
            reserved: 0.into(),
            blocks: blocks.into(),
            total: u32::try_from(len).unwrap_or(u32::MAX).into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        match content {
            Content::Fill(pattern) => bytes.extend_from_slice(&pattern),
            Content::Zeros => bytes.extend_from_slice(&[0; 4]),
            Content::Data | Content::Packed(_) => {}
        }
        patches.push(Patch { at: self.at, bytes });
        self.at = self.at.saturating_add(len);
        self.chunks = self.chunks.saturating_add(1);
    }
}

impl Writer for Sparse {
    fn unit(&self) -> u64 {
        UNIT
    }

    fn stores_patterns(&self) -> bool {
        true
    }

    fn place(&mut self, content: Content, count: u64, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let mut left = u32::try_from(count).unwrap_or(u32::MAX);
        let mut location = self.at;
        while left > 0 {
            let known = match self.current {
                Some((current, blocks)) if current == content && blocks < CHUNK_BLOCKS => blocks,
                _ => {
                    self.close(patches);
                    0
                }
            };
            let data = self.at.saturating_add(CHUNK_LEN.into());
            location = data.saturating_add(u64::from(known).saturating_mul(UNIT));
            let taken = left.min(CHUNK_BLOCKS.saturating_sub(known));
            self.current = Some((content, known.saturating_add(taken)));
            left = left.saturating_sub(taken);
        }
        Ok(location)
    }

    fn finish(&mut self, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        self.close(patches);
        let header = RawSparseHeader {
            magic: MAGIC.into(),
            major: MAJOR.into(),
            minor: 0.into(),
            header_size: HEADER_LEN.into(),
            chunk_header_size: CHUNK_LEN.into(),
            block_size: u32::try_from(UNIT).unwrap_or(0).into(),
            blocks: self.blocks.into(),
            chunks: self.chunks.into(),
            checksum: 0.into(),
        };
        let bytes = header.as_bytes().to_vec();
        debug_assert_eq!(to_u64(bytes.len()), u64::from(HEADER_LEN));
        patches.push(Patch { at: 0, bytes });
        Ok(self.at)
    }
}
