//! Compressed images: decoded once into an unnamed temporary file, so that they can be read at offsets.
//!
//! Invariant: hostile bytes are decoded only by decoders written in Rust. [`UnpackLimits`] bound the memory
//! of a decoder and the bytes that it may unpack.
//! Invariant: blocks of zeros become holes, so that an image takes the space of its data and not of its
//! length.

mod decode;
mod frames;
mod limits;
mod pipeline;
mod scratch;
mod stream;

use std::io::Read;
use std::path::Path;

use obento_block::BlockDevice;

use crate::{FileDevice, HostError};
use decode::is_trailing;
pub(crate) use decode::is_truncation;
pub use limits::{UnpackError, UnpackLimits};
pub use scratch::ReservedFile;
pub(crate) use scratch::unnamed;
use scratch::{CHUNK, Scratch, fill};
pub use stream::Stream;

/// The supported compressions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compression {
    /// The format of bzip2(1).
    Bzip2,
    /// RFC 1952.
    Gzip,
    /// The .lzma format of LZMA Utils, the predecessor of .xz.
    Lzma,
    /// The .xz file format.
    Xz,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// How many bytes [`Compression::detect`] needs.
    pub const MAGIC_LEN: usize = 14;

    /// Recognises a compressed stream by its first bytes. The name of the file is not used.
    pub fn detect(start: &[u8]) -> Option<Self> {
        match start {
            // The header of the stream, and the header of its first block or of its end: the first digits of
            // pi and its root.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Self::Bzip2),
            // RFC 1952, section 2.3.1: the only compression method is 8.
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            // The .xz file format, section 2.1.1.1.
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // RFC 8878, sections 3.1.1 and 3.1.2: a frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ if is_lzma(start) => Some(Self::Lzma),
            _ => None,
        }
    }

    /// Returns the name: `bzip2`, `gzip`, `lzma`, `xz`, `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bzip2 => "bzip2",
            Self::Gzip => "gzip",
            Self::Lzma => "lzma",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

/// Returns whether `start` is probably an .lzma header, which has no magic number. As in xz(1), such a header has the
/// usual properties, and a dictionary of 2^n or 2^n + 2^(n-1) bytes. Its length is unknown or below 256 GiB, and the
/// zero that begins the data follows. Source: XZ Utils, doc/lzma-file-format.txt.
fn is_lzma(start: &[u8]) -> bool {
    let Some((&[0x5d, a, b, c, d, ref len @ .., 0], _)) = start.split_first_chunk::<14>() else {
        return false;
    };
    let dictionary = u32::from_le_bytes([a, b, c, d]);
    let len = len.iter().rev().fold(0, |len, &byte| len << 8 | u64::from(byte));
    let is_usual =
        dictionary.is_power_of_two() || dictionary.count_ones() == 2 && dictionary & dictionary << 1 != 0;
    is_usual && dictionary >= 4096 && (len == u64::MAX || len < 256 << 30)
}

/// The progress of decompression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes read.
    pub read: u64,
    /// The total bytes to read, if known.
    pub total: Option<u64>,
    /// Bytes decoded.
    pub decoded: u64,
}

/// How a compressed stream differs from a complete stream that ends with its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incomplete {
    /// The compressed stream is truncated.
    Truncated {
        /// Bytes that were decoded.
        decoded: u64,
    },
    /// The compressed stream is damaged. Decoded bytes may be wrong, because a format may have one checksum for the
    /// whole stream.
    Damaged {
        /// Bytes that were decoded.
        decoded: u64,
        /// The message of the decoder.
        reason: String,
    },
    /// The stream is complete, and its checksums are correct. Data that is not part of it follows.
    Trailing,
}

impl Incomplete {
    /// Returns whether bytes are missing or may be wrong.
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Trailing)
    }
}

/// A decoded image.
#[derive(Debug)]
pub struct Decompressed {
    /// The image, read-only, in an unnamed temporary file.
    pub device: FileDevice,
    /// The damage, if the image is incomplete or may have wrong bytes, or that unknown data follows the stream.
    pub incomplete: Option<Incomplete>,
}

/// The options of decompression.
#[derive(Default)]
pub struct Options<'a> {
    /// The limits.
    pub limits: UnpackLimits,
    /// The length of the original file, if the stream itself was unpacked from one. The limits are
    /// proportional to that length.
    pub file_len: Option<u64>,
    /// The file to decode to. `None` creates a new file.
    pub room: Option<ReservedFile>,
    /// Receives the progress every few hundred KiB.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

/// Decodes the stream that starts at the first byte of `device`. `path` is for messages. Several members,
/// streams or frames may follow each other, and zeros may follow the last one. Other bytes are `Damaged` if they begin as
/// a member does, because they may be a damaged member, and otherwise `Trailing`.
///
/// # Errors
///
/// - Unpack if a limit is reached.
/// - Damaged if no byte can be decoded.
/// - System for the temporary file.
pub fn decompress(
    device: &dyn BlockDevice,
    path: &Path,
    compression: Compression,
    mut options: Options<'_>,
) -> Result<Decompressed, HostError> {
    let limits = options.limits;
    let refused = |error| HostError::Unpack { operation: "decompress", path: path.into(), error };
    let mut scratch = Scratch::new(options.room.take())?;
    let total = Some(device.len());
    let failure = pipeline::run(device, compression, limits.memory, |chunk: &pipeline::Chunk| {
        scratch.take(chunk.bytes())?;
        limits
            .check(chunk.read.min(options.file_len.unwrap_or(u64::MAX)), scratch.written())
            .map_err(refused)?;
        if scratch.position() > limits.longest() {
            return Err(refused(UnpackError::Bytes { limit: limits.longest() }));
        }
        if let Some(progress) = &mut options.progress {
            progress(Progress { read: chunk.read, total, decoded: scratch.position() });
        }
        Ok(())
    })?;
    if let Some(error) = failure.as_ref().and_then(UnpackError::of) {
        return Err(refused(error));
    }
    let decoded = scratch.position();
    let incomplete = match failure {
        None => None,
        Some(error) if is_trailing(&error) => Some(Incomplete::Trailing),
        Some(error) if decoded == 0 => {
            let format = compression.name();
            let reason =
                if is_truncation(&error) { "the data ends too early".into() } else { reason(&error) };
            return Err(HostError::Damaged { path: path.into(), format, reason });
        }
        Some(error) if is_truncation(&error) => Some(Incomplete::Truncated { decoded }),
        Some(error) => Some(Incomplete::Damaged { decoded, reason: reason(&error) }),
    };
    Ok(Decompressed { device: scratch.into_device(path)?, incomplete })
}

/// Returns the message of a decoder in lower case, without the names of its types.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = match text.split_once(": ") {
        Some((what, types)) if types.contains('(') => what,
        _ => &text,
    };
    in_lower_case(text)
}

/// Returns a message of another crate, which starts with a capital letter, in the form of the messages of this program.
pub(crate) fn in_lower_case(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next();
    match (first, letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(letters).collect(),
        _ => message.to_owned(),
    }
}

/// Fills `start` with the first bytes of the stream that starts at the first byte of `device`. Returns their number, which
/// is smaller if the stream ends, or cannot be decoded further within `limits`.
pub fn decode_start(
    device: &dyn BlockDevice,
    compression: Compression,
    limits: &UnpackLimits,
    start: &mut [u8],
) -> usize {
    pipeline::start(device, compression, limits.memory, start)
}

/// Copies the bytes of a pipe to a temporary file, so that they can be read at offsets. A compressed stream stays
/// compressed. Fails with `Stream` if `input` cannot be read, and with `System` for the temporary file.
pub fn spool(
    input: &mut dyn Read,
    path: &Path,
    mut progress: Option<&mut dyn FnMut(Progress)>,
) -> Result<FileDevice, HostError> {
    let mut scratch = Scratch::new(None)?;
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
        if let Some(progress) = &mut progress {
            let done = scratch.position();
            progress(Progress { read: done, total: None, decoded: done });
        }
    }
}

#[cfg(test)]
mod tests;
