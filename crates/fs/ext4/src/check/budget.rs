//! Limits on repeated reads of the same structures, which occur only on damaged or hostile volumes.
//!
//! Invariant: an intact file or directory is read whatever other files cost. Blocks that no other file has claimed
//! are read without limit, since there are no more of them than the volume has. For other blocks each inode has a
//! small allowance ([`InodeBudget`]), that of the root is the number of blocks of the device, and only reads beyond it use
//! the shared allowance ([`Budget`]).
//! Invariant: the allowances of trees and of directories are separate.

use core::sync::atomic::{AtomicU64, Ordering};

/// 192 MiB of runs of directories.
const MAX_RUNS: u64 = 1 << 23;
/// Number of blocks that each inode may read again.
const OWN_NODES: u64 = 16;
const OWN_BLOCKS: u64 = 64;
/// Number of runs over blocks of other files that each directory may have.
const OWN_RUNS: u64 = 64;
/// Number of nodes of the format's own files, which are few.
const FORMAT_NODES: u64 = 1 << 16;

/// The shared allowance.
#[derive(Debug)]
pub(super) struct Budget {
    /// Number of blocks of the device.
    there: u64,
    /// Number of blocks of trees that may be read again.
    nodes: AtomicU64,
    /// Number of blocks of directories that may be read again.
    blocks: AtomicU64,
    /// Number of runs of directories over blocks that other files claim.
    shared_runs: AtomicU64,
    /// Total number of runs of directories.
    runs: AtomicU64,
    /// Number of blocks that may be examined one by one to find those of a run that were claimed twice.
    details: AtomicU64,
}

impl Budget {
    pub(super) fn new(there: u64) -> Self {
        Self {
            there,
            nodes: AtomicU64::new(there.saturating_add(1 << 16)),
            blocks: AtomicU64::new(there.saturating_mul(2).saturating_add(1 << 16)),
            shared_runs: AtomicU64::new(there.saturating_add(1 << 10)),
            runs: AtomicU64::new(MAX_RUNS),
            details: AtomicU64::new(there.saturating_mul(2).saturating_add(1 << 20)),
        }
    }

    /// Returns an unused allowance for the same device.
    pub(super) fn renewed(&self) -> Self {
        Self::new(self.there)
    }

    /// Renews the allowance for another walk through all trees, in which every node is a repeated read.
    pub(super) fn renew_nodes(&self) {
        self.nodes.store(self.there.saturating_mul(2).saturating_add(1 << 16), Ordering::Relaxed);
    }

    /// Uses up `blocks` of the blocks that may be examined one by one. Returns false if the allowance is used up.
    pub(super) fn may_detail(&self, blocks: u64) -> bool {
        take_from(&self.details, blocks)
    }
}

/// The allowance of one inode.
#[derive(Debug)]
pub(super) struct InodeBudget {
    nodes: u64,
    blocks: u64,
    runs: u64,
}

impl InodeBudget {
    pub(super) fn new() -> Self {
        Self { nodes: OWN_NODES, blocks: OWN_BLOCKS, runs: OWN_RUNS }
    }

    /// Returns the allowance of the root, without which nothing is found.
    pub(super) fn of_root(budget: &Budget) -> Self {
        let there = budget.there;
        Self { nodes: there.max(OWN_NODES), blocks: there.max(OWN_BLOCKS), runs: there.max(OWN_RUNS) }
    }

    /// Returns the allowance of a file of the format, which is read before anything is claimed.
    pub(super) fn of_format() -> Self {
        Self { nodes: FORMAT_NODES, ..Self::new() }
    }

    /// Uses up one repeated read of a tree's node. Returns false if the allowance is used up.
    pub(super) fn node(&mut self, budget: &Budget) -> bool {
        pay(&mut self.nodes, &budget.nodes, 1)
    }

    /// Uses up `count` blocks of a directory that other files also claim. Returns false if the allowance is used up.
    pub(super) fn blocks(&mut self, budget: &Budget, count: u64) -> bool {
        pay(&mut self.blocks, &budget.blocks, count)
    }

    /// Uses up one stored run of a directory. Returns false if the allowance is used up.
    pub(super) fn run(&mut self, budget: &Budget, is_shared: bool) -> bool {
        take_from(&budget.runs, 1) && (!is_shared || pay(&mut self.runs, &budget.shared_runs, 1))
    }
}

fn pay(own: &mut u64, shared: &AtomicU64, amount: u64) -> bool {
    match own.checked_sub(amount) {
        Some(left) => {
            *own = left;
            true
        }
        None => take_from(shared, amount),
    }
}

/// Subtracts `amount` from `left`, if that is large enough.
fn take_from(left: &AtomicU64, amount: u64) -> bool {
    let less = |left: u64| left.checked_sub(amount);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reads_a_little_after_another_has_spent_all_that_is_shared() {
        let budget = Budget::new(10);
        let mut hostile = InodeBudget::new();
        while hostile.node(&budget) {}
        while hostile.blocks(&budget, 1) {}
        assert!(!InodeBudget::new().blocks(&budget, OWN_BLOCKS + 1));
        let mut sound = InodeBudget::new();
        assert!((0..OWN_NODES).all(|_| sound.node(&budget)) && !sound.node(&budget));
        assert!(sound.blocks(&budget, OWN_BLOCKS) && !sound.blocks(&budget, 1));
        assert!(InodeBudget::of_root(&Budget::new(1 << 20)).blocks(&budget, 1 << 20));
    }

    #[test]
    fn the_cost_of_trees_takes_nothing_from_directories() {
        let budget = Budget::new(10);
        let mut hostile = InodeBudget::new();
        while hostile.node(&budget) {}
        assert!(InodeBudget::new().blocks(&budget, 1 << 10));
    }
}
