//! Files that the Windows overlay filter stores compressed: the unnamed stream is a hole, and `WofCompressedData`
//! contains chunks.
//!
//! Layout: the ends of all chunks but the last, relative to the end of this table, and then the chunks. An end has 4
//! bytes, or 8 if the file has 4 GiB or more. A chunk that is as long as its data is not compressed.
//! Source: MS-FSCC 2.1.2.x and wofapi.h, `FILE_PROVIDER_EXTERNAL_INFO_V1`; libfsntfs documentation, "Windows Overlay
//! Filter (WOF) compressed data".

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Feature, Result};

use super::compressed::broken;
use super::{lzx, xpress};
use crate::layout::bytes::{u32_at, u64_at};

/// The name of the stream with the chunks, in UTF-16.
pub const STREAM: [u8; 34] = *b"W\0o\0f\0C\0o\0m\0p\0r\0e\0s\0s\0e\0d\0D\0a\0t\0a\0";

/// The compression of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// XPRESS in chunks of so many bytes.
    Xpress(u32),
    /// LZX in chunks of 32 KiB.
    Lzx,
}

impl Method {
    /// Decodes the data of a reparse point of the filter.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: the file is in a WIM archive, or compressed by another method.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let word = |at| u32_at(data, at).unwrap_or(u32::MAX);
        match (word(0), word(4)) {
            (1, 2) => {}
            (1, 1) => return Err(Error::Unsupported(Feature::Named("a file in a WIM archive (WOF)"))),
            _ => {
                return Err(Error::Unsupported(Feature::Named(
                    "an unknown provider of the overlay filter (WOF)",
                )));
            }
        }
        match (word(8), word(12)) {
            (1, 0) => Ok(Self::Xpress(4 << 10)),
            (1, 1) => Ok(Self::Lzx),
            (1, 2) => Ok(Self::Xpress(8 << 10)),
            (1, 3) => Ok(Self::Xpress(16 << 10)),
            _ => {
                Err(Error::Unsupported(Feature::Named("an unknown compression of the overlay filter (WOF)")))
            }
        }
    }

    /// Returns the bytes of a chunk of data.
    pub fn chunk(self) -> u64 {
        match self {
            Self::Xpress(size) => size.into(),
            Self::Lzx => to_u64(lzx::CHUNK),
        }
    }

    /// Returns chunk `number` of a file of `size` bytes. `read` reads the stream with the chunks, which has `stored`
    /// bytes.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the table or the chunk is damaged.
    pub fn read(
        self,
        ino: u64,
        size: u64,
        stored: u64,
        number: u64,
        read: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let chunk = self.chunk();
        let error = || broken(ino, number, 1);
        let chunks = size.div_ceil(chunk);
        let start = number.checked_mul(chunk).filter(|_| number < chunks).ok_or_else(error)?;
        let width = if size > u64::from(u32::MAX) { 8_u64 } else { 4 };
        let table = chunks.saturating_sub(1).saturating_mul(width);
        let end_of = |number: u64| -> Result<u64> {
            if number == chunks {
                return stored.checked_sub(table).ok_or_else(error);
            }
            let Some(entry) = number.checked_sub(1) else { return Ok(0) };
            let mut bytes = [0; 8];
            let word = bytes.get_mut(..to_usize(width)).ok_or_else(error)?;
            read(entry.saturating_mul(width), word)?;
            u64_at(&bytes, 0).ok_or_else(error)
        };
        let (from, to) = (end_of(number)?, end_of(number.saturating_add(1))?);
        let len = size.saturating_sub(start).min(chunk);
        // No chunk is longer than its data, or it would be stored as it is.
        let packed_len =
            to.checked_sub(from).filter(|&packed| packed > 0 && packed <= len).ok_or_else(error)?;
        let place =
            table.checked_add(from).filter(|at| at.saturating_add(packed_len) <= stored).ok_or_else(error)?;
        let mut packed = vec![0; to_usize(packed_len)];
        read(place, &mut packed)?;
        if packed_len == len {
            return Ok(packed);
        }
        let mut data = vec![0; to_usize(len)];
        let done = match self {
            Self::Xpress(_) => xpress::decompress(&packed, &mut data),
            Self::Lzx => lzx::decompress(&packed, &mut data),
        };
        done.ok_or_else(error)?;
        Ok(data)
    }
}
