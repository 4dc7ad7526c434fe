//! Where the bytes of a file live.

/// What [`FileSystem::map`](crate::FileSystem::map) answers: a run of the file from the start of the range that was
/// asked for, all of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// How many bytes it covers: at least 1 and at most the length asked for.
    pub len: u64,
    /// Where they are.
    pub span: Span,
}

/// The kinds of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// On [`FileSystem::device`](crate::FileSystem::device), from this byte offset on.
    Mapped(u64),
    /// Nowhere: reads as zeros.
    Hole,
    /// Allocated but never written: reads as zeros.
    Unwritten,
    /// Known to the driver alone (inline, compressed or journalled data): call
    /// [`FileSystem::read`](crate::FileSystem::read).
    Driver,
}

impl Span {
    /// Whether the bytes are zeros that take no reading. `lseek(SEEK_DATA)` skips these.
    pub fn is_zeros(self) -> bool {
        matches!(self, Self::Hole | Self::Unwritten)
    }
}
