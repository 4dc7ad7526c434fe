//! The results of pass 1 for a group: issues, inodes, directories, attributes, usage of owners.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::issue::Issue;
use super::state::{Dir, InodeSlot};
use crate::quota::{Entries, QuotaKind, entry};

/// The results for a group.
#[derive(Debug, Default)]
pub(super) struct GroupResults {
    pub(super) issues: Vec<Issue>,
    pub(super) slots: Vec<InodeSlot>,
    pub(super) dirs: Vec<Dir>,
    pub(super) attributes: Attributes,
    pub(super) has_large_files: bool,
    /// Whether there are extent trees, although the super block lacks the feature.
    pub(super) has_foreign_trees: bool,
    pub(super) usage: Usage,
}

/// An attribute whose value is in an inode: that inode, and the user of the attribute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ValueUse {
    pub(super) value: u32,
    pub(super) owner: u32,
    /// The block that contains the attribute; 0 for its owner's inode.
    pub(super) block: u64,
    /// The hash of the value from which the attribute's hash follows, for each treatment of the name.
    pub(super) hashes: [u32; 2],
    /// Size of the value according to the attribute.
    pub(super) size: u32,
}

/// An inode that contains a value, and its reference count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    pub(super) ino: u32,
    pub(super) users: u64,
    /// The owner of a value of Lustre, which is in its change time. Such a value is not counted.
    pub(super) parent: u32,
    /// The hash of the value; not used for a value of Lustre.
    pub(super) hash: u32,
    /// Size of the value in bytes.
    pub(super) size: u64,
}

/// The attributes of the volume.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Blocks, and the inodes that refer to them.
    pub(super) blocks: Vec<(u64, u32)>,
    pub(super) values: Vec<ValueUse>,
    pub(super) holders: Vec<Holder>,
    /// Inodes with the flag of values to which attributes refer but which they do not confirm, with the issues if
    /// they are values.
    pub(super) doubtful: BTreeMap<u32, Vec<Issue>>,
}

/// The usage of owners.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// Indexed like [`QuotaKind::ALL`].
    pub(super) owners: [Entries; 3],
}

impl Usage {
    /// Adds the usage of `other`.
    pub(super) fn merge(&mut self, other: Self) {
        for (owners, others) in self.owners.iter_mut().zip(other.owners) {
            for (id, taken) in others {
                let (inodes, bytes) = (taken.dqb_curinodes.get(), taken.dqb_curspace.get());
                owners.entry(id).or_insert_with(|| entry(id, 0, 0)).add(inodes, bytes);
            }
        }
    }

    /// Returns the usage of the owners of a kind.
    pub(super) fn of(&self, kind: QuotaKind) -> Entries {
        let nth = QuotaKind::ALL.iter().position(|&known| known == kind).unwrap_or(0);
        self.owners.get(nth).cloned().unwrap_or_default()
    }
}
