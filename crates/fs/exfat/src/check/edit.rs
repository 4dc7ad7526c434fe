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

/// The edit that makes an entry free.
pub fn free(slot: Slot, raw: &RawEntry) -> Edit {
    Edit::Write(slot.offset(), vec![raw.EntryType & !kind::IN_USE])
}
