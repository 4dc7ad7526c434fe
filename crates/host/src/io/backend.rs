//! The ways of reading and writing an image.

use std::fmt;

/// How the bytes of an image are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoBackend {
    /// System calls through the page cache.
    #[default]
    Buffered,
    /// System calls without the page cache (`O_DIRECT`). Bytes that are read once do not evict others.
    Direct,
    /// Reads from a mapping of the file, and writes like `Buffered`.
    Mmap,
    /// Many requests at once (`io_uring`).
    Uring,
    /// `Mmap` for pages of a regular file that were read or written before, otherwise `Buffered`. `Buffered` if the
    /// file cannot be mapped.
    Auto,
}

impl IoBackend {
    /// All back ends.
    pub const ALL: [Self; 5] = [Self::Buffered, Self::Direct, Self::Mmap, Self::Uring, Self::Auto];
}

impl fmt::Display for IoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Mmap => "mmap",
            Self::Uring => "uring",
            Self::Auto => "auto",
        })
    }
}
