//! Directories: the places of their bytes, and their entries.
//!
//! Layout: entries of 32 bytes in the cluster chain of the directory. The root directory of FAT12 and FAT16 has a
//! separate region instead. The parts of a long name directly precede their short entry. The first entry that begins
//! with 0 ends the directory.
//! Invariant: a directory has at most [`MAX_SLOTS`] entries, since its chain is not followed further.
//! Invariant: no cluster belongs to two known directories, so no directory contains itself.

mod index;
mod list;
mod scan;

use alloc::vec::Vec;

use obento_base::wire::FromBytes as _;
use obento_base::{Error, Ino};
use obento_clusters::{Placed, Run};

use crate::inode::Kind;
use crate::name::ShortName;
use crate::raw::RawEntry;
use crate::unit::{ENTRY, ENTRY_LEN, Slot};

pub use self::index::{Index, LARGE, MAX_INDEXES, MAX_NAMES, hash};
pub use self::list::Location;
pub use self::scan::Scan;

/// fatgen103, "FAT Directory Structure": 65,536 entries, or 2 MiB; Linux has the same (`FAT_MAX_DIR_ENTRIES`).
pub const MAX_SLOTS: u32 = 1 << 16;

/// The place of the bytes of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Contiguous, outside of the clusters: byte offset.
    Region(u64),
    /// In clusters.
    Runs {
        /// The runs.
        runs: Vec<Run>,
        /// Number of entries per cluster.
        per_cluster: u32,
        /// The byte offset of cluster 2.
        data_start: u64,
    },
}

/// A directory that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Inode number.
    pub ino: Ino,
    /// Inode number of the parent.
    pub parent: Ino,
    /// The place of the bytes.
    pub place: Place,
    /// Number of entries for which there is space.
    pub slots: u32,
    /// The reason why the rest of the directory cannot be read.
    pub damage: Option<Error>,
}

impl Placed for Directory {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn runs(&self) -> &[Run] {
        if let Place::Runs { runs, .. } = &self.place { runs } else { &[] }
    }
}

impl Directory {
    /// Returns the place of entry `index`.
    pub fn slot(&self, index: u32) -> Option<Slot> {
        if index >= self.slots {
            return None;
        }
        match &self.place {
            Place::Region(start) => Some(Slot((start / ENTRY_LEN).saturating_add(index.into()))),
            Place::Runs { runs, per_cluster, data_start } => {
                let at = index.checked_div(*per_cluster)?;
                let within = index.checked_rem(*per_cluster)?;
                let run = runs.get(runs.partition_point(|run| run.at <= at).checked_sub(1)?)?;
                let cluster = run.start.0.checked_add(at.checked_sub(run.at)?)?.checked_sub(2)?;
                let before = u64::from(cluster).saturating_mul(u64::from(*per_cluster));
                let start = data_start / ENTRY_LEN;
                Some(Slot(start.saturating_add(before).saturating_add(within.into())))
            }
        }
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        u64::from(self.slots).saturating_mul(ENTRY.into())
    }
}

/// Returns the label among adjacent entries, if there is one before the end of the directory.
pub fn label_in(bytes: &[u8]) -> Option<ShortName> {
    for entry in bytes.chunks_exact(size_of::<RawEntry>()) {
        let raw = RawEntry::read_from_bytes(entry).ok()?;
        match raw.kind() {
            Kind::End => return None,
            Kind::Label => return Some(raw.name()),
            _ => {}
        }
    }
    None
}
