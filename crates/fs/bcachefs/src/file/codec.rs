//! Decompression.
//!
//! Source: Linux `fs/bcachefs/compress.c` (`__bio_uncompress`), `bcachefs_format.h` (`BCH_COMPRESSION_TYPES`); the LZ4
//! block format description of the lz4 project.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use obento_base::{Error, Feature, Result};

use crate::layout::bytes::{u16_at, u32_at};

/// A compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// None, also for data that does not compress.
    #[default]
    None,
    /// LZ4 blocks.
    Lz4,
    /// Deflate without a header.
    Gzip,
    /// A frame of Zstandard after its length.
    Zstd,
}

impl Compression {
    /// Decodes the number of a compression.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: the number is not known.
    pub fn decode(number: u64) -> Result<Self> {
        Ok(match number {
            0 | 5 => Self::None,
            1 | 3 => Self::Lz4,
            2 => Self::Gzip,
            4 => Self::Zstd,
            _ => return Err(Error::Unsupported(Feature::Named("this type of compression"))),
        })
    }

    /// Decompresses `data` to exactly `output.len()` bytes. Returns `None` for damaged data. Nothing of `data` after the
    /// end of the compressed bytes counts.
    pub fn decompress(self, data: &[u8], output: &mut [u8]) -> Option<()> {
        match self {
            Self::None => output.copy_from_slice(data.get(..output.len())?),
            Self::Lz4 => lz4(data, output)?,
            Self::Gzip => {
                let mut state = alloc::boxed::Box::<DecompressorOxide>::default();
                let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
                let (status, _, len) = decompress(&mut state, data, output, 0, flags);
                (status == TINFLStatus::Done && len == output.len()).then_some(())?;
            }
            Self::Zstd => {
                let len = usize::try_from(u32_at(data, 0)?).ok()?;
                let frame = data.get(4..)?.get(..len)?;
                let mut decoder = ruzstd::decoding::FrameDecoder::new();
                (decoder.decode_all(frame, output).ok()? == output.len()).then_some(())?;
            }
        }
        Some(())
    }
}

/// Decompresses an LZ4 block until `output` is full.
fn lz4(mut data: &[u8], output: &mut [u8]) -> Option<()> {
    let mut at = 0_usize;
    while at < output.len() {
        let (&token, rest) = data.split_first()?;
        data = rest;
        let literals = length(usize::from(token >> 4), &mut data)?;
        let copied = literals.min(output.len().checked_sub(at)?);
        output.get_mut(at..)?.get_mut(..copied)?.copy_from_slice(data.get(..copied)?);
        at = at.checked_add(copied)?;
        if at == output.len() {
            break;
        }
        data = data.get(literals..)?;
        let distance = usize::from(u16_at(data, 0)?);
        data = data.get(2..)?;
        let matched = length(usize::from(token & 15), &mut data)?.checked_add(4)?;
        let from = at.checked_sub(distance).filter(|&from| from < at)?;
        let end = at.checked_add(matched)?.min(output.len());
        // The source may overlap the target: bytes that were just written repeat.
        for offset in 0..end.checked_sub(at)? {
            let byte = *output.get(from.checked_add(offset)?)?;
            *output.get_mut(at.checked_add(offset)?)? = byte;
        }
        at = end;
    }
    Some(())
}

/// Extends a length of 15 by further bytes, of which the last one is below 255.
fn length(start: usize, data: &mut &[u8]) -> Option<usize> {
    let mut total = start;
    if start == 15 {
        loop {
            let (&byte, rest) = data.split_first()?;
            *data = rest;
            total = total.checked_add(byte.into())?;
            if byte < 255 {
                break;
            }
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_may_overlap_and_padding_is_ignored() {
        // "abc", then 9 bytes from 3 back, then the literal "x".
        let data = [0x35, b'a', b'b', b'c', 3, 0, 0x10, b'x', 0, 0, 0, 0];
        let mut output = [0; 13];
        Compression::Lz4.decompress(&data, &mut output).unwrap();
        assert_eq!(&output, b"abcabcabcabcx");
        assert_eq!(Compression::Lz4.decompress(&data[..5], &mut output), None);
        assert_eq!(Compression::Lz4.decompress(&[0x05, 1, 0], &mut output), None);
    }

    #[test]
    fn deflate_data_has_no_header() {
        let packed = miniz_oxide::deflate::compress_to_vec(&[7; 4096], 6);
        let mut output = [0; 4096];
        Compression::Gzip.decompress(&[&packed[..], &[0; 99]].concat(), &mut output).unwrap();
        assert_eq!(output, [7; 4096]);
        assert_eq!(Compression::Gzip.decompress(&packed, &mut [0; 4095]), None);
    }
}
