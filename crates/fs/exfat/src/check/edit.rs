//! What mends an issue: changes by the places of what they change.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::IntoBytes as _;
use obento_clusters::{Cluster, Slot};

use crate::dir::Directory;
use crate::raw::{RawEntry, kind};

/// One change.
pub enum Edit {
    /// These bytes at this offset.
    Write(u64, Vec<u8>),
    /// An entry of the FAT.
    Link(Cluster, u32),
    /// Bits of the bitmap: from which cluster on, how many, and whether they are in use.
    Mark(Cluster, u32, bool),
}

/// The edits that write `entries` from `index` of `dir` on.
pub fn put(dir: &Directory, index: u32, entries: &[RawEntry]) -> Vec<Edit> {
    let slots = (index..).map_while(|index| dir.slot(index));
    slots.zip(entries).map(|(slot, entry)| Edit::Write(slot.offset(), entry.as_bytes().to_vec())).collect()
}

/// The edit that makes an entry free. What is left of its type never is the type that ends a directory.
pub fn free(slot: Slot, raw: &RawEntry) -> Edit {
    let unused = match raw.EntryType & !kind::IN_USE {
        kind::END => kind::FILE & !kind::IN_USE,
        unused => unused,
    };
    Edit::Write(slot.offset(), vec![unused])
}
