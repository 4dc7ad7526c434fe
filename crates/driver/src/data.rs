//! The location of file data.

/// The result of [`FileSystem::map`](crate::FileSystem::map): an extent of the file that starts at the
/// start of the requested range and has one kind throughout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length in bytes: at least 1, at most the requested length.
    pub len: u64,
    /// Location of the data.
    pub span: Span,
}

/// The kinds of extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// The data is on [`FileSystem::device`](crate::FileSystem::device), starting at this byte offset.
    Mapped(u64),
    /// No blocks are allocated; the data reads as zeros.
    Hole,
    /// Blocks are allocated but were never written; the data reads as zeros.
    Unwritten,
    /// Only the driver can access the data (inline, compressed or journalled data): call
    /// [`FileSystem::read`](crate::FileSystem::read).
    Driver,
}

impl Span {
    /// Returns whether the data is known to be zeros without reading it. `lseek(SEEK_DATA)` skips such
    /// extents.
    pub fn is_zeros(self) -> bool {
        matches!(self, Self::Hole | Self::Unwritten)
    }
}
