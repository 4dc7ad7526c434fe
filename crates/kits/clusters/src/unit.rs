//! Types for locations on a volume, one for each unit.

use core::fmt;

use obento_base::Ino;

/// Size of a directory entry in bytes.
pub const ENTRY: u32 = 32;
/// Size of a directory entry in bytes, for calculations with offsets.
pub const ENTRY_LEN: u64 = 32;

/// A cluster number; the first cluster is 2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cluster(pub u32);

impl Cluster {
    /// Returns whether a volume with `clusters` clusters contains this cluster.
    pub fn is_one_of(self, clusters: u32) -> bool {
        self.0 >= 2 && self.0.saturating_sub(2) < clusters
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of a directory entry: its byte offset on the volume divided by 32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u64);

impl Slot {
    /// Returns the byte offset on the volume.
    pub fn offset(self) -> u64 {
        self.0.saturating_mul(u64::from(ENTRY))
    }

    /// Returns the inode number of a file whose entry is here. No entry is in the boot sector, so the number is
    /// greater than the root's.
    pub fn ino(self) -> Ino {
        Ino(self.0)
    }
}
