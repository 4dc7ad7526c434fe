//! Places on a volume, by what they count.

use core::fmt;

use obento_base::Ino;

/// Bytes of a directory entry.
pub const ENTRY: u32 = 32;
/// The same, to divide offsets by.
pub const ENTRY_LEN: u64 = 32;

/// A cluster of the volume; the first is 2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cluster(pub u32);

impl Cluster {
    /// Returns whether this is one of the clusters of a volume that has `clusters` of them.
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
    /// Returns where it starts on the volume.
    pub fn offset(self) -> u64 {
        self.0.saturating_mul(u64::from(ENTRY))
    }

    /// The inode number of what has its entry here: no entry lies in the boot sector, so that it is more than the root's.
    pub fn ino(self) -> Ino {
        Ino(self.0)
    }
}
