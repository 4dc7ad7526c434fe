//! What pass 1 finds in a group: issues, inodes, directories, attributes, what owners take.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::issue::Issue;
use super::state::{Dir, Slot};
use crate::quota::{Entries, QuotaKind, entry};

/// What is found in a group.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) issues: Vec<Issue>,
    pub(super) slots: Vec<Slot>,
    pub(super) dirs: Vec<Dir>,
    pub(super) attributes: Attributes,
    pub(super) has_large_files: bool,
    /// Whether there are extent trees, though the super block lacks the feature.
    pub(super) has_foreign_trees: bool,
    pub(super) usage: Usage,
}

/// An attribute whose value is in an inode: that inode, and who names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ValueUse {
    pub(super) value: u32,
    pub(super) owner: u32,
    /// The block that the attribute is in; 0: its owner's inode.
    pub(super) block: u64,
    /// The hash of the value by which the attribute's own goes, for each way of taking the name.
    pub(super) hashes: [u32; 2],
    /// Bytes of the value, as the attribute says.
    pub(super) size: u32,
}

/// An inode that holds a value: how many users it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    pub(super) ino: u32,
    pub(super) users: u64,
    /// One of Lustre's, which belongs to the inode that its time of change names and is not counted.
    pub(super) parent: u32,
    /// Of its value; none in one of Lustre's.
    pub(super) hash: u32,
    /// Bytes of the value.
    pub(super) size: u64,
}

/// What attributes there are.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Blocks, and the inodes that name them.
    pub(super) blocks: Vec<(u64, u32)>,
    pub(super) values: Vec<ValueUse>,
    pub(super) holders: Vec<Holder>,
    /// Inodes with the flag of values that attributes name but do not go by, with what is wrong if they are values.
    pub(super) doubtful: BTreeMap<u32, Vec<Issue>>,
}

/// What owners take.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// By [`QuotaKind::ALL`].
    pub(super) owners: [Entries; 3],
    /// Those of the orphan file, and its bytes.
    pub(super) orphan_file: Option<([u32; 3], u64)>,
}

/// Whether the orphan file is somebody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OrphanFile {
    Counts,
    DoesNot,
}

impl Usage {
    /// Adds what others take.
    pub(super) fn merge(&mut self, other: Self) {
        for (owners, others) in self.owners.iter_mut().zip(other.owners) {
            for (id, taken) in others {
                let (inodes, bytes) = (taken.dqb_curinodes.get(), taken.dqb_curspace.get());
                owners.entry(id).or_insert_with(|| entry(id, 0, 0)).add(inodes, bytes);
            }
        }
        self.orphan_file = self.orphan_file.or(other.orphan_file);
    }

    /// What the owners of a kind take.
    pub(super) fn of(&self, kind: QuotaKind, orphan_file: OrphanFile) -> Entries {
        let nth = QuotaKind::ALL.iter().position(|&known| known == kind).unwrap_or(0);
        let mut all = self.owners.get(nth).cloned().unwrap_or_default();
        if let Some((ids, bytes)) = self.orphan_file.filter(|_| orphan_file == OrphanFile::Counts)
            && let Some(&id) = ids.get(nth)
        {
            all.entry(id).or_insert_with(|| entry(id, 0, 0)).add(1, bytes);
        }
        all
    }
}
