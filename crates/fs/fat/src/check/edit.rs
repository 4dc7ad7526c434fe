//! The edits that repair issues.

use alloc::vec::Vec;

use super::choices::UndecidedEntries;
use crate::unit::Cluster;

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Writes bytes at an offset.
    Write {
        /// The offset.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Changes an entry of the FAT.
    Link {
        /// The cluster of the entry.
        cluster: Cluster,
        /// The new value.
        value: u32,
    },
    /// Frees a chain without an owner.
    Free {
        /// Its first cluster.
        first: Cluster,
        /// Number of clusters.
        clusters: u32,
    },
    /// Turns a chain without an owner into a file in the root directory, or frees it if there is no space.
    Save {
        /// Its first cluster.
        first: Cluster,
        /// Number of clusters.
        clusters: u32,
    },
    /// Makes the copies of the FAT equal, according to the choices.
    Settle(UndecidedEntries),
    /// Makes a copy of the FAT that is not in use equal to the one that is, after all other edits.
    Mirror {
        /// The copy.
        copy: u8,
    },
    /// Updates the count of FSInfo, as after any edit.
    FreeCount,
}

impl Edit {
    /// Writes `bytes`.
    pub fn write(offset: u64, bytes: &[u8]) -> Self {
        Self::Write { offset, bytes: bytes.to_vec() }
    }
}
