//! Compressed images.

use std::io::Read;
use std::path::Path;

use obento_block::BlockDevice;

use crate::{FileDevice, HostError};

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

    /// Recognises a compressed stream by its first bytes.
    pub fn detect(_start: &[u8]) -> Option<Self> {
        todo!()
    }

    /// Its name: `gzip`, `xz`, `zstd`.
    pub fn name(self) -> &'static str {
        todo!()
    }
}

/// How far decompression has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Compressed bytes read.
    pub read: u64,
    /// Compressed bytes in all, if known.
    pub total: Option<u64>,
    /// Bytes decoded.
    pub decoded: u64,
}

/// What to know of an image that was decoded, but not to its end.
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
    /// The image, in a temporary file without a name.
    pub device: FileDevice,
    /// If not all of it is there.
    pub incomplete: Option<Incomplete>,
}

/// How to decompress.
pub struct Options<'a> {
    /// The most bytes to decode.
    pub max_bytes: u64,
    /// Is told now and then how far it has come.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

/// Decodes the stream that starts at the first byte of `device`. `path` is for messages.
pub fn decompress(
    _device: &dyn BlockDevice,
    _path: &Path,
    _compression: Compression,
    _options: Options<'_>,
) -> Result<Decompressed, HostError> {
    todo!()
}

/// Brings what comes from a pipe into a temporary file, so that it can be read at offsets. Compressed streams stay as
/// they are.
pub fn spool(_input: &mut dyn Read, _path: &Path, _options: Options<'_>) -> Result<FileDevice, HostError> {
    todo!()
}
