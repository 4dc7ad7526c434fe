//! The codecs of data.
//!
//! A node contains at most a page of a file, which has 4 KiB on most machines and 64 KiB on some. Invariant: nothing outside
//! of the output is written, and the output is never larger than [`OUTPUT_MAX`].

mod lzo;
mod rtime;
mod rubin;
mod zlib;

use alloc::vec::Vec;

use obento_base::Feature;

/// Most bytes of a compressed node after decompression: pages are smaller.
pub const OUTPUT_MAX: u32 = 1 << 20;

/// Codecs by their numbers (`JFFS2_COMPR_`).
pub mod number {
    /// The data as it is.
    pub const NONE: u8 = 0;
    /// Zeros, which are not stored.
    pub const ZERO: u8 = 1;
    /// Repeated runs (`compr_rtime.c`).
    pub const RTIME: u8 = 2;
    /// An arithmetic coder with fixed probabilities (`compr_rubin.c`).
    pub const RUBIN_MIPS: u8 = 3;
    /// Never used by any writer.
    pub const COPY: u8 = 4;
    /// An arithmetic coder with probabilities in the data (`compr_rubin.c`).
    pub const DYN_RUBIN: u8 = 5;
    /// Deflate in the format of zlib.
    pub const ZLIB: u8 = 6;
    /// LZO1X.
    pub const LZO: u8 = 7;
    /// LZMA, in the patched kernels of OpenWrt and others.
    pub const LZMA: u8 = 8;
}

/// The reason why data cannot be decompressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecError {
    /// The data is not that of the codec.
    Damaged,
    /// The codec is unknown.
    Unknown,
    /// The codec is known and not supported.
    Unsupported(Feature),
}

/// Returns the name of a codec.
pub fn name(codec: u8) -> Option<&'static str> {
    Some(match codec {
        number::NONE => "none",
        number::ZERO => "zero",
        number::RTIME => "rtime",
        number::RUBIN_MIPS => "rubinmips",
        number::COPY => "copy",
        number::DYN_RUBIN => "dynrubin",
        number::ZLIB => "zlib",
        number::LZO => "lzo",
        number::LZMA => "lzma",
        _ => return None,
    })
}

/// Fills `output` with the decompressed `input`.
///
/// # Errors
///
/// See [`CodecError`].
pub fn decompress(codec: u8, input: &[u8], output: &mut [u8]) -> Result<(), CodecError> {
    let done = match codec {
        number::NONE | number::COPY => match input.get(..output.len()) {
            Some(input) => {
                output.copy_from_slice(input);
                Some(())
            }
            None => None,
        },
        number::ZERO => {
            output.fill(0);
            Some(())
        }
        number::RTIME => rtime::decompress(input, output),
        number::RUBIN_MIPS => rubin::decompress(input, output, rubin::Model::Dynamic),
        number::DYN_RUBIN => rubin::decompress(input, output, rubin::Model::Mips),
        number::ZLIB => zlib::decompress(input, output),
        number::LZO => lzo::decompress(input, output),
        number::LZMA => return Err(CodecError::Unsupported(Feature::Named("LZMA compression"))),
        _ => return Err(CodecError::Unknown),
    };
    done.ok_or(CodecError::Damaged)
}

/// Returns the compressed `input`, or `None` if it is not shorter or the codec is not for writing.
pub fn compress(codec: u8, input: &[u8]) -> Option<Vec<u8>> {
    match codec {
        number::RTIME => rtime::compress(input),
        number::ZLIB => zlib::compress(input),
        _ => None,
    }
}
