//! What a check spends on structures that are read again and again, as only damaged or hostile ones are.
//!
//! Invariant: a sound file or directory is read whatever others cost. What nobody else has claimed is read for nothing, of
//! which there is no more than the volume has; of the rest everybody has a little of its own ([`Purse`]), the root as much
//! as the device has blocks, and only more than that comes out of what all share ([`Budget`]).
//! Invariant: what trees cost takes nothing from what directories may.

use core::sync::atomic::{AtomicU64, Ordering};

/// 192 MiB of runs of directories.
const MAX_RUNS: u64 = 1 << 23;
/// Blocks that everybody may read again.
const OWN_NODES: u64 = 16;
const OWN_BLOCKS: u64 = 64;
/// Runs of blocks that others claim too and that every directory may have.
const OWN_RUNS: u64 = 64;
/// Nodes of the format's own files, which are few.
const FORMAT_NODES: u64 = 1 << 16;

/// What all share.
#[derive(Debug)]
pub(super) struct Budget {
    /// How many blocks the device has.
    there: u64,
    /// Blocks of trees that may be read again.
    nodes: AtomicU64,
    /// Blocks of directories that may be read again.
    blocks: AtomicU64,
    /// Runs of directories over blocks that others claim.
    shared_runs: AtomicU64,
    /// Runs of directories at all.
    runs: AtomicU64,
    /// Blocks that may be looked at one by one to tell which of a run were claimed twice.
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

    /// One from which nothing was taken.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.there)
    }

    /// Lets trees be read once more, of which every node costs: as much again as the first time, and the rest.
    pub(super) fn renew_nodes(&self) {
        self.nodes.store(self.there.saturating_mul(2).saturating_add(1 << 16), Ordering::Relaxed);
    }

    /// Takes so many blocks from what may still be looked at one by one.
    pub(super) fn may_detail(&self, blocks: u64) -> bool {
        take_from(&self.details, blocks)
    }
}

/// What one inode has of its own.
#[derive(Debug)]
pub(super) struct Purse {
    nodes: u64,
    blocks: u64,
    runs: u64,
}

impl Purse {
    pub(super) fn new() -> Self {
        Self { nodes: OWN_NODES, blocks: OWN_BLOCKS, runs: OWN_RUNS }
    }

    /// That of the root, without which nothing is found.
    pub(super) fn of_root(budget: &Budget) -> Self {
        let there = budget.there;
        Self { nodes: there.max(OWN_NODES), blocks: there.max(OWN_BLOCKS), runs: there.max(OWN_RUNS) }
    }

    /// That of a file of the format, which is read before anything is claimed.
    pub(super) fn of_format() -> Self {
        Self { nodes: FORMAT_NODES, ..Self::new() }
    }

    /// Pays for a node of a tree that was read before; false if there is nothing left.
    pub(super) fn node(&mut self, budget: &Budget) -> bool {
        pay(&mut self.nodes, &budget.nodes, 1)
    }

    /// Pays for blocks of a directory that others have too.
    pub(super) fn blocks(&mut self, budget: &Budget, count: u64) -> bool {
        pay(&mut self.blocks, &budget.blocks, count)
    }

    /// Pays for keeping a run of a directory.
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

/// Takes `amount` from what is left, if there is so much.
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
        let mut hostile = Purse::new();
        while hostile.node(&budget) {}
        while hostile.blocks(&budget, 1) {}
        assert!(!Purse::new().blocks(&budget, OWN_BLOCKS + 1));
        let mut sound = Purse::new();
        assert!((0..OWN_NODES).all(|_| sound.node(&budget)) && !sound.node(&budget));
        assert!(sound.blocks(&budget, OWN_BLOCKS) && !sound.blocks(&budget, 1));
        assert!(Purse::of_root(&Budget::new(1 << 20)).blocks(&budget, 1 << 20));
    }

    #[test]
    fn what_trees_cost_takes_nothing_from_directories() {
        let budget = Budget::new(10);
        let mut hostile = Purse::new();
        while hostile.node(&budget) {}
        assert!(Purse::new().blocks(&budget, 1 << 10));
    }
}
