//! The limits of unpacking: bytes, and memory of a decoder.
//!
//! Without an explicit limit, a stream may unpack to [`BYTES_ALWAYS`], or to [`RATIO`] times its own length
//! if that is more. Real data is far below this limit, and a small file that fills a disk is far above it.

use std::{fmt, io};

use obento_base::Quantity;

/// The bytes that any stream may unpack to.
const BYTES_ALWAYS: u64 = 1 << 30;
/// The bytes that each byte of a stream may unpack to. Source code, logs and root file systems stay below 20.
/// Zeros, which an image stores as holes, are not counted; `convert` counts a part of them.
const RATIO: u64 = 100;
/// The longest image, including holes, if the caller sets no limit.
const LONGEST: u64 = 1 << 40;
/// The memory of a decoder, if the caller sets no limit. `zstd --long=27` needs 128 MiB, and the largest
/// usual dictionary of xz 192 MiB.
const MEMORY: u64 = 256 << 20;

/// The limits of unpacking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnpackLimits {
    /// The most bytes that a stream may unpack to. `None` allows 1 GiB, or 100 times the length of the stream
    /// if that is more. Holes are not counted. Blocks of sparse files are counted in full. An image with its holes
    /// has at most 1 TiB.
    pub bytes: Option<u64>,
    /// The most bytes of memory that a decoder may use for its window. The extended attributes, link targets and
    /// maps of holes that a build reads may use as many.
    pub memory: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self { bytes: None, memory: MEMORY }
    }
}

impl UnpackLimits {
    /// Returns how many bytes a stream of `len` bytes may unpack to.
    pub fn bytes_for(&self, len: u64) -> u64 {
        self.bytes.unwrap_or(BYTES_ALWAYS.saturating_add(len.saturating_mul(RATIO)))
    }

    /// Checks that `read` bytes may unpack to `unpacked` bytes.
    pub(super) fn check(&self, read: u64, unpacked: u64) -> Result<(), UnpackError> {
        let limit = self.bytes_for(read);
        if unpacked <= limit { Ok(()) } else { Err(UnpackError::Bytes { limit }) }
    }

    /// Returns the most bytes of an image, including holes.
    pub(super) fn longest(&self) -> u64 {
        self.bytes.unwrap_or(LONGEST)
    }
}

/// The reason why a stream is not unpacked further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnpackError {
    /// The stream unpacks to more bytes than the limit.
    #[error("its contents exceed the limit of {}", Size(*limit))]
    Bytes {
        /// The limit.
        limit: u64,
    },
    /// The decoder needs more memory than the limit.
    #[error(
        "decompression needs {} of memory, and the limit is {}",
        match needed { Some(needed) => Size(*needed).to_string(), None => "more".into() },
        Size(*limit)
    )]
    Memory {
        /// The required memory, if it is known.
        needed: Option<u64>,
        /// The limit.
        limit: u64,
    },
}

impl UnpackError {
    /// Returns the limit that `error` of a decoder reports, if it reports one.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref().copied())
    }
}

impl From<UnpackError> for io::Error {
    fn from(error: UnpackError) -> Self {
        Self::other(error)
    }
}

/// A number of bytes, rounded up to whole MiB.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 20 => write!(f, "{}", Quantity::new(bytes, "byte")),
            bytes if bytes.is_multiple_of(1 << 30) => write!(f, "{} GiB", bytes >> 30),
            bytes => write!(f, "{} MiB", bytes.div_ceil(1 << 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_unpacking_grows_with_the_length_of_the_stream() {
        let default = UnpackLimits::default();
        assert_eq!(default.check(0, 1 << 30), Ok(()));
        assert_eq!(default.check(10, (1 << 30) + 1001), Err(UnpackError::Bytes { limit: (1 << 30) + 1000 }));
        assert_eq!(default.check(u64::MAX, u64::MAX), Ok(()));
        let given = UnpackLimits { bytes: Some(5), ..default };
        assert_eq!((given.check(0, 5), given.longest()), (Ok(()), 5));
        let error = io::Error::from(given.check(100, 6).unwrap_err());
        assert_eq!(UnpackError::of(&error), Some(UnpackError::Bytes { limit: 5 }));
        let memory = UnpackError::Memory { needed: Some(2 << 30), limit: 256 << 20 };
        assert_eq!(memory.to_string(), "decompression needs 2 GiB of memory, and the limit is 256 MiB");
    }
}
