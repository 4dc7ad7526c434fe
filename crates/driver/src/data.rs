//! The location of file data.

/// The result of [`FileSystem::map`](crate::FileSystem::map): an extent that starts at the start of the requested
/// range. All bytes of the extent have the same kind of location. The bytes of a `Mapped` extent are contiguous on the
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length in bytes: at least 1, at most the requested length.
    pub len: u64,
    /// Location of the data.
    pub span: Span,
}

/// The location of the data of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// The data is on [`FileSystem::device`](crate::FileSystem::device), starting at this byte offset.
    Mapped(u64),
    /// No blocks are allocated; the data reads as zeros.
    Hole,
    /// Blocks are allocated but were never written; the data reads as zeros.
    Unwritten,
    /// Only the driver can access the data, because the data is inline, compressed, journalled, or in memory.
    /// The caller must call [`FileSystem::read`](crate::FileSystem::read).
    Driver,
}

impl Span {
    /// Returns whether the extent is a hole or unwritten, and therefore reads as zeros. `lseek(SEEK_DATA)` skips such
    /// extents. If the result is `false`, the data may still consist of zeros only.
    pub fn is_zeros(self) -> bool {
        matches!(self, Self::Hole | Self::Unwritten)
    }
}
