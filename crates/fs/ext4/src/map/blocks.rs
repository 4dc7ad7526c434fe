//! A part of the mapping of a file.

use crate::unit::VolBlock;

/// A run of file blocks of one kind, from the requested block on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedRun {
    /// Number of blocks, at least 1.
    pub len: u32,
    /// The place of the blocks.
    pub place: Blocks,
}

/// The kinds of a [`MappedRun`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks {
    /// On the volume from this block on.
    Mapped(VolBlock),
    /// Allocated from this block on, but never written.
    Unwritten(VolBlock),
    /// Not allocated.
    Hole,
}
