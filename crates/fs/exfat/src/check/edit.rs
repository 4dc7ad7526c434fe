//! The edits that repair an issue.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::IntoBytes as _;
use obento_clusters::{Cluster, Piece, Slot};

use crate::dir::Directory;
use crate::raw::{RawEntry, kind};

/// One edit.
pub enum Edit {
    /// Writes bytes at an offset.
    Write(u64, Vec<u8>),
    /// Changes an entry of the FAT.
    Link(Cluster, u32),
    /// Changes bits of the bitmap: first cluster, number of clusters, and whether they are in use.
    Mark(Cluster, u32, bool),
    /// Writes bits of a new bitmap.
    MarkNew {
        /// The first cluster of the bitmap, and the number of its clusters.
        bitmap: Piece,
        /// The first cluster whose bit is written.
        first: Cluster,
        /// Number of bits.
        len: u32,
        /// Whether the clusters are in use.
        in_use: bool,
    },
}

/// Returns the edits that write `entries` from `index` of `dir` on.
pub fn put(dir: &Directory, index: u32, entries: &[RawEntry]) -> Vec<Edit> {
    let slots = (index..).map_while(|index| dir.slot(index));
    slots.zip(entries).map(|(slot, entry)| Edit::Write(slot.offset(), entry.as_bytes().to_vec())).collect()
}

/// Returns the edit that frees an entry. The resulting type is never the one that ends a directory.
pub fn free(slot: Slot, raw: &RawEntry) -> Edit {
    let unused = match raw.EntryType & !kind::IN_USE {
        kind::END => kind::FILE & !kind::IN_USE,
        unused => unused,
    };
    Edit::Write(slot.offset(), vec![unused])
}
