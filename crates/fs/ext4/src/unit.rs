//! Types for block numbers, by their unit.

use core::fmt;

/// A block of the volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolBlock(pub u64);

/// A block of a file. 32 bits, which is the limit of the format's extents and sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileBlock(pub u32);

impl VolBlock {
    /// Returns the block `count` blocks later, or `None` past 64 bits.
    pub fn checked_add(self, count: u64) -> Option<Self> {
        self.0.checked_add(count).map(Self)
    }
}

impl FileBlock {
    /// Returns the next block, or `None` after the last possible block of a file.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for VolBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FileBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
