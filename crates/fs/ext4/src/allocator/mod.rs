//! Allocation of blocks and inodes.
//!
//! A group's bitmap is read with the first allocation or free in the group, and changed in the transaction of that.
//! Counts, flags and checksums stay in memory until the commit ([`Allocator::write_back`]), so that an allocation
//! changes one block. Two trees choose the group: one over an upper bound of the longest free run, and one over the
//! number of free inodes. The time of a search therefore hardly depends on the size of the volume.
//!
//! Invariant: a freed cluster is *held*, neither allocated nor discarded, until its transaction is durable. A
//! reserved cluster is held until it is published or released.
//! Invariant: for each group, `tree >= longest run of clusters that are free and not held`.
//! Invariant: `available` is the sum over all groups of the free clusters minus the held ones.
//! Locking: the mutexes of groups, never two at a time. Below them, one at a time: the mutexes of the trees, of the
//! freed clusters and of the dirty groups. All are leaves below a transaction.
//! Source: Linux `fs/ext4/mballoc.c`, `balloc.c`, `ialloc.c`, for the format; the search is obento's own.
#![allow(clippy::arithmetic_side_effects, reason = "the sums of numbers of 32 bits fit 64 bits")]

pub(crate) mod bits;
mod blocks;
mod group;
mod held;
mod inodes;
#[cfg(test)]
mod tests;
mod tree;
mod trim;
mod write_back;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_env::sync::Mutex;
use obento_env::sync::atomic::{AtomicU64, Ordering};
use obento_journal::Tid;

use crate::group::Totals;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;
use crate::usage::kept_clusters;
use crate::volume::Volume;
use group::Group;
use tree::MaxTree;

pub use blocks::{BlockRun, Freed};
pub(crate) use group::{
    BitmapKind, bitmap_checksum, compare_sum, encode_descriptor, fresh_block_bitmap, fresh_inode_bitmap,
};
pub use inodes::InodeClass;

/// The clusters that one transaction freed, by groups.
type FreedBy = (Tid, Vec<(u32, Range<u32>)>);

/// The blocks and inodes of a volume that is open for changes.
pub struct Allocator {
    volume: Arc<Volume>,
    groups: Vec<Mutex<Group>>,
    /// An upper bound of each group's longest free run in clusters.
    runs: Mutex<MaxTree>,
    /// The approximate number of each group's free inodes; it is exact about zero.
    inodes: Mutex<MaxTree>,
    /// Clusters that were freed by transactions that are not durable.
    freed: Mutex<VecDeque<FreedBy>>,
    /// Groups whose descriptors the next commit writes.
    dirty: Mutex<BTreeSet<u64>>,
    /// Number of clusters that can be allocated now.
    available: AtomicU64,
    /// Number of clusters with clear bits, for the super block.
    free_clusters: AtomicU64,
    free_inodes: AtomicU64,
    directories: AtomicU64,
    /// Number of clusters that are freed and held.
    waiting: AtomicU64,
    /// Number of clusters that file data leaves to metadata, so that reserved data can always be mapped.
    kept: u64,
    /// Spreads directories that have no better place.
    turn: AtomicU64,
}

impl Allocator {
    /// Creates the allocator of `volume`, whose descriptors are all intact. Fails with `NoMemory`, or if the device
    /// fails.
    pub fn new(volume: Arc<Volume>) -> Result<Self> {
        let sb = volume.super_block();
        let mut groups = Vec::new();
        groups.try_reserve_exact(to_usize(sb.groups.into()))?;
        let (mut runs, mut inodes) = (MaxTree::new(sb.groups)?, MaxTree::new(sb.groups)?);
        let (mut clusters, mut free_inodes, mut directories) = (0_u64, 0_u64, 0_u64);
        for index in 0..sb.groups {
            let group = Group::new(volume.group(index)?);
            runs.set(index, group.available());
            inodes.set(index, group.descriptor.free_inodes);
            clusters += u64::from(group.available());
            free_inodes += u64::from(group.descriptor.free_inodes);
            directories += u64::from(group.descriptor.used_dirs);
            groups.push(Mutex::new(group));
        }
        let kept = kept_clusters(sb);
        Ok(Self {
            volume,
            groups,
            runs: Mutex::new(runs),
            inodes: Mutex::new(inodes),
            freed: Mutex::default(),
            dirty: Mutex::default(),
            available: AtomicU64::new(clusters),
            free_clusters: AtomicU64::new(clusters),
            free_inodes: AtomicU64::new(free_inodes),
            directories: AtomicU64::new(directories),
            waiting: AtomicU64::new(0),
            kept,
            turn: AtomicU64::new(0),
        })
    }

    fn super_block(&self) -> &SuperBlock {
        self.volume.super_block()
    }

    fn group(&self, index: u32) -> Result<&Mutex<Group>> {
        self.groups.get(to_usize(index.into())).ok_or(Error::NoSpace)
    }

    /// Returns the free space for `statfs`. It includes clusters that wait for a commit, and excludes reservations.
    pub fn totals(&self) -> Totals {
        let clusters = self.available.load(Ordering::Relaxed);
        Totals {
            free_blocks: clusters.saturating_add(self.waiting.load(Ordering::Relaxed)),
            free_inodes: self.free_inodes.load(Ordering::Relaxed),
        }
    }

    /// Returns the counts for the super block once this transaction is committed.
    pub fn counts(&self) -> Totals {
        Totals {
            free_blocks: self.free_clusters.load(Ordering::Relaxed),
            free_inodes: self.free_inodes.load(Ordering::Relaxed),
        }
    }

    /// Returns whether a commit would make blocks available.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns the group and the cluster within it that contain `block`, or the very first ones if it is outside of
    /// the volume.
    fn place_of(&self, block: VolBlock) -> (u32, u32) {
        let sb = self.super_block();
        let Some(group) = sb.group_of(block) else { return (0, 0) };
        (group, sb.clusters_in_group(group, block, 1).start)
    }

    /// Returns the first block of a cluster.
    fn block_of(&self, group: u32, cluster: u32) -> VolBlock {
        self.super_block().cluster_start(group, cluster)
    }

    fn note_dirty(&self, index: u32) {
        self.dirty.lock().insert(index.into());
    }

    fn hint(&self, index: u32) -> u32 {
        self.runs.lock().get(index)
    }

    /// Records the longest free run of a group, whose lock the caller holds.
    fn note_run(&self, index: u32, longest: u32, group: &Group) {
        self.runs.lock().set(index, longest.min(group.available()));
    }
}

/// Computes `counter += more - less`.
fn count(counter: &AtomicU64, more: u32, less: u32) {
    // Each update waits for the previous one of another thread.
    if more > 0 {
        counter.fetch_add(more.into(), Ordering::Relaxed);
    }
    if less > 0 {
        counter.fetch_sub(less.into(), Ordering::Relaxed);
    }
}
