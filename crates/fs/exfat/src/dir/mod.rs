//! Directories: the places of their bytes, and their entry sets.
//!
//! Layout: entries of 32 bytes in the clusters of the directory. An entry of type 0 ends the directory; an entry
//! whose bit 7 is clear is free.
//! Invariant: a directory has at most [`MAX_SLOTS`] entries, since its clusters are not followed further.

mod index;
mod list;
mod scan;

use alloc::vec::Vec;

use obento_base::{Corrupt, Error, Ino, Structure};
use obento_clusters::unit::{ENTRY, ENTRY_LEN, Slot};
use obento_clusters::{Cluster, Placed, Run};
use obento_env::sync::Mutex;

use crate::set::Flaw;

pub use self::index::Index;
pub use self::list::Location;
pub use self::scan::Scan;

/// 256 MiB: specification, 7.4 ("the size of a directory"); Linux has the same (`MAX_EXFAT_DENTRIES`).
pub const MAX_SLOTS: u32 = 1 << 23;

/// A directory that has been read.
pub struct Directory {
    /// Inode number.
    pub ino: Ino,
    /// Inode number of the parent.
    pub parent: Ino,
    /// The clusters.
    pub runs: Vec<Run>,
    /// Number of entries per cluster.
    pub per_cluster: u32,
    /// The byte offset of cluster 2.
    pub data_start: u64,
    /// Number of entries for which there is space.
    pub slots: u32,
    /// The reason why the rest of the directory cannot be read.
    pub damage: Option<Error>,
    /// The names by their hashes, once a name was looked up.
    pub index: Mutex<Option<Index>>,
}

impl Placed for Directory {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn runs(&self) -> &[Run] {
        &self.runs
    }
}

impl Directory {
    /// Returns the place of entry `index`.
    pub fn slot(&self, index: u32) -> Option<Slot> {
        if index >= self.slots {
            return None;
        }
        let at = index.checked_div(self.per_cluster)?;
        let within = index.checked_rem(self.per_cluster)?;
        let run = self.runs.get(self.runs.partition_point(|run| run.at <= at).checked_sub(1)?)?;
        let cluster = run.start.0.checked_add(at.checked_sub(run.at)?)?.checked_sub(2)?;
        let before = u64::from(cluster).saturating_mul(self.per_cluster.into());
        let start = self.data_start / ENTRY_LEN;
        Some(Slot(start.saturating_add(before).saturating_add(within.into())))
    }

    /// Returns the byte offset of the end of the contiguous clusters that contain entry `index`.
    fn run_end(&self, index: u32) -> u64 {
        let at = index.checked_div(self.per_cluster).unwrap_or(0);
        let after = self.runs.partition_point(|run| run.at <= at);
        let run = after.checked_sub(1).and_then(|before| self.runs.get(before));
        let clusters = run.map_or(0, |run| run.start.0.saturating_add(run.len).saturating_sub(2));
        let size = u64::from(self.per_cluster).saturating_mul(ENTRY_LEN);
        self.data_start.saturating_add(u64::from(clusters).saturating_mul(size))
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        u64::from(self.slots).saturating_mul(ENTRY.into())
    }

    /// Returns the last cluster.
    pub fn last(&self) -> Option<Cluster> {
        self.runs.last().map(|run| run.last())
    }

    /// Returns the number of clusters.
    pub fn clusters(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.at.saturating_add(run.len))
    }

    /// Returns the error for the set at `slot`.
    pub fn corrupt(&self, slot: Slot, flaw: Flaw, sector_size: u32) -> Error {
        let size = u64::from(sector_size);
        let structure = Structure::Directory(self.ino);
        let block = slot.offset().checked_div(size).unwrap_or(0);
        let (field, at, found) = flaw.field();
        if let Flaw::Checksum { found, expected } = flaw {
            let (found, expected) = (found.into(), expected.into());
            return Corrupt::Checksum { structure, block, found, expected }.into();
        }
        let offset = slot.offset().checked_rem(size).and_then(|offset| u32::try_from(offset).ok());
        let offset = offset.unwrap_or(0).saturating_add(at);
        Corrupt::Field { structure, field, block, offset, found }.into()
    }
}
