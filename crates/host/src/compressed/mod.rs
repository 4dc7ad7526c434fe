//! Compressed images: decoded once, into a temporary file without a name, so that they can be read at offsets.
//!
//! Invariant: hostile bytes meet decoders written in Rust only, and none of them may ask for more than
//! 100 MiB of memory.
//! Invariant: blocks of zeros become holes, so that an image takes the space of its data and not of its length.

mod decode;
mod pipeline;
mod scratch;
mod stream;

use std::io::Read;
use std::path::Path;

use obento_block::BlockDevice;

use crate::{FileDevice, HostError};
pub(crate) use decode::is_truncation;
pub(crate) use scratch::unnamed;
use scratch::{CHUNK, Scratch, fill};
pub use stream::Stream;

/// The most memory for a decoder's window in bytes: `xz -9` and `zstd -19` take 64 MiB and 8 MiB.
const MEMORY_MAX: u32 = 100 << 20;

/// The compressions that are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// The .xz file format.
    Xz,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// How many bytes [`Compression::detect`] wants to see.
    pub const MAGIC_LEN: usize = 6;

    /// Recognises a compressed stream by its first bytes, whatever the file's name.
    pub fn detect(start: &[u8]) -> Option<Self> {
        match start {
            // RFC 1952, section 2.3.1: the only compression method is 8.
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            // The .xz file format, section 2.1.1.1.
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // RFC 8878, sections 3.1.1 and 3.1.2: a frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name: `gzip`, `xz`, `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

/// How far decompression has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes read.
    pub read: u64,
    /// Bytes to read in all, if known.
    pub total: Option<u64>,
    /// Bytes decoded.
    pub decoded: u64,
}

/// Why an image was not decoded to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incomplete {
    /// The compressed stream ends too early.
    Truncated {
        /// Bytes that could be decoded.
        decoded: u64,
    },
    /// The compressed stream is damaged.
    Damaged {
        /// Bytes that could be decoded.
        decoded: u64,
        /// The decoder's words.
        reason: String,
    },
}

/// A decoded image.
#[derive(Debug)]
pub struct Decompressed {
    /// The image, read-only, in a temporary file without a name.
    pub device: FileDevice,
    /// If not all of it is there.
    pub incomplete: Option<Incomplete>,
}

/// How to decompress.
pub struct Options<'a> {
    /// The most bytes to decode.
    pub max_bytes: u64,
    /// Is told every few hundred KiB how far it has come.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

impl Default for Options<'_> {
    /// No limit, nobody to tell.
    fn default() -> Self {
        Self { max_bytes: u64::MAX, progress: None }
    }
}

/// Decodes the stream that starts at the first byte of `device`. `path` is for messages. Several members, streams or
/// frames follow each other; what stands behind the last one is ignored. Errors: Limit; Damaged if nothing at all can
/// be decoded; System for the temporary file.
pub fn decompress(
    device: &dyn BlockDevice,
    path: &Path,
    compression: Compression,
    mut options: Options<'_>,
) -> Result<Decompressed, HostError> {
    let mut scratch = Scratch::new(path, options.max_bytes)?;
    let total = Some(device.len());
    let failure = pipeline::run(device, compression, |chunk: &pipeline::Chunk| {
        scratch.take(chunk.bytes())?;
        if let Some(progress) = &mut options.progress {
            progress(Progress { read: chunk.read, total, decoded: scratch.position() });
        }
        Ok(())
    })?;
    let decoded = scratch.position();
    let incomplete = match failure {
        None => None,
        Some(error) if decoded == 0 => {
            let format = compression.name();
            let reason = if is_truncation(&error) { "it ends too early".into() } else { error.to_string() };
            return Err(HostError::Damaged { path: path.into(), format, reason });
        }
        Some(error) if is_truncation(&error) => Some(Incomplete::Truncated { decoded }),
        Some(error) => Some(Incomplete::Damaged { decoded, reason: error.to_string() }),
    };
    Ok(Decompressed { device: scratch.into_device(path)?, incomplete })
}

/// Brings what comes from a pipe into a temporary file, so that it can be read at offsets. A compressed stream stays
/// one. Errors: Limit; Stream if `input` cannot be read; System for the temporary file.
pub fn spool(input: &mut dyn Read, path: &Path, mut options: Options<'_>) -> Result<FileDevice, HostError> {
    let mut scratch = Scratch::new(path, options.max_bytes)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let (len, failure) = fill(input, &mut buffer);
        if let Some(error) = failure {
            return Err(HostError::io("read", path, &error));
        }
        if len == 0 {
            return scratch.into_device(path);
        }
        scratch.take(buffer.get(..len).unwrap_or_default())?;
        if let Some(progress) = &mut options.progress {
            let done = scratch.position();
            progress(Progress { read: done, total: None, decoded: done });
        }
    }
}

#[cfg(test)]
mod tests;
