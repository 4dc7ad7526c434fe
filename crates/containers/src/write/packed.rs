//! A raw disk as independent compressed streams, one after the other.
//!
//! Each unit is a gzip member, an xz stream or a zstd frame. Programs unpack all of them in sequence. After zstd
//! frames, a table of their sizes allows programs to read a part of the disk without unpacking the rest.
//! Source: zstd `contrib/seekable_format/zstd_seekable_compression_format.md`.

use alloc::vec::Vec;

use super::{Content, Packing, Patch, TooLarge, Writer};

/// A compressed stream format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// zstd.
    Zstd,
}

const UNIT: u64 = 1 << 20;
/// The magic number of a skippable frame, and of the end of a table.
const SKIPPABLE: u32 = 0x184d_2a5e;
const SEEKABLE: u32 = 0x8f92_eab1;
/// The seekable format stores the number of frames in 32 bits, and the length of the table.
const FRAMES_MAX: u64 = 1 << 27;

pub(super) struct Packed {
    stream: Stream,
    len: u64,
    /// The compressed length of each unit.
    frames: Vec<u32>,
}

impl Packed {
    pub fn new(stream: Stream) -> Self {
        Self { stream, len: 0, frames: Vec::new() }
    }
}

impl Writer for Packed {
    fn unit(&self) -> u64 {
        UNIT
    }

    fn packing(&self) -> Packing {
        Packing::Stream(self.stream)
    }

    fn place(&mut self, content: Content, _count: u64, _patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let at = self.len;
        if let Content::Packed(len) = content {
            self.len = at.saturating_add(len.into());
            self.frames.push(len);
        }
        Ok(at)
    }

    fn finish(&mut self, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let count = obento_base::wire::to_u64(self.frames.len());
        if self.stream != Stream::Zstd || count > FRAMES_MAX {
            return Ok(self.len);
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let mut bytes = Vec::new();
        let mut word = |value: u32| bytes.extend_from_slice(&value.to_le_bytes());
        word(SKIPPABLE);
        word(count.saturating_mul(8).saturating_add(9));
        for &len in &self.frames {
            word(len);
            word(u32::try_from(UNIT).unwrap_or(0));
        }
        word(count);
        // Without checksums.
        bytes.push(0);
        bytes.extend_from_slice(&SEEKABLE.to_le_bytes());
        let at = self.len;
        self.len = at.saturating_add(obento_base::wire::to_u64(bytes.len()));
        patches.push(Patch { at, bytes });
        Ok(self.len)
    }
}
