//! The chosen values of the entries in which the copies of the FAT differ.
//!
//! Invariant: at most [`MOST`] values are stored. Further ones wait for the next pass.
//! Invariant: at most [`EFFORT`] links are followed for each cluster in use. Later chains are those of the copy that is read.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_clusters::Bits;

use crate::unit::Cluster;

/// Maximum number of stored values.
pub const MOST: usize = 1 << 16;
/// The links for each cluster in use.
const EFFORT: u64 = 64;

/// The choices where copies differ.
#[derive(Default)]
pub struct Choices {
    /// The copies that differ from the copy that is read, and the entry from which on they are compared.
    pub copies: Vec<(u8, Cluster)>,
    /// Chosen values of entries, with all their bits, that differ from the copy that is read.
    pub values: BTreeMap<u32, u32>,
    /// Entries that no copy decides.
    pub doubtful: BTreeSet<u32>,
    /// Clusters that follow another one in every copy, once they are needed.
    pub followers: Option<Bits>,
    /// Links that may still be followed. Each cluster belongs to one chain of a copy, unless an image is made to cost much.
    pub links: u64,
}

impl Choices {
    /// Creates the state of a volume with `used` clusters in use, of which these copies differ.
    pub fn new(copies: Vec<(u8, Cluster)>, used: u32) -> Self {
        let links = u64::from(used).saturating_add(to_u64(MOST)).saturating_mul(EFFORT);
        Self { copies, links, ..Self::default() }
    }

    /// Returns the chosen value of an entry, if it differs from the copy that is read.
    pub fn value(&self, cluster: Cluster) -> Option<u32> {
        self.values.get(&cluster.0).copied()
    }

    /// Returns the chosen values that `doubt` allows to be written.
    pub fn values(&self, doubt: UndecidedEntries) -> impl Iterator<Item = (Cluster, u32)> + '_ {
        let values = self.values.iter().map(|(&cluster, &value)| (Cluster(cluster), value));
        values.filter(move |&(cluster, _)| self.may_write(cluster, doubt))
    }

    /// Returns whether the entry of `cluster` may be made equal in all copies.
    pub fn may_write(&self, cluster: Cluster, doubt: UndecidedEntries) -> bool {
        doubt == UndecidedEntries::Decide || !self.doubtful.contains(&cluster.0)
    }

    /// Drops the values that were written.
    pub fn written(&mut self, doubt: UndecidedEntries) {
        let doubtful = &self.doubtful;
        self.values.retain(|cluster, _| doubt == UndecidedEntries::Keep && doubtful.contains(cluster));
    }

    /// Returns whether further choices wait for the next pass.
    pub fn is_full(&self) -> bool {
        self.values.len().max(self.doubtful.len()) >= MOST
    }
}

/// The treatment of entries that no copy decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndecidedEntries {
    /// They stay different.
    Keep,
    /// The best chain is written.
    Decide,
}
