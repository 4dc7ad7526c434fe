//! Pass 1, the owners of blocks, in clusters if the volume has them.
//!
//! Invariant: a cluster of a file is one cluster of the volume, and a block has the same offset in both.
//! Source: e2fsprogs `e2fsck/pass1.c` `mark_blocks_used`, `has_unaligned_cluster_map`; `pass1b.c`.

use alloc::vec::Vec;

use super::inode_check::Owned;
use super::inode_check::{InodeCheck, Mode};
use super::issue::Issue;
use super::state::{CheckState, DirRun, own_copies};
use super::view::View;
use crate::feature::Incompat;
use crate::map::check::numbers;
use crate::size::ClusterSize;
use crate::unit::VolBlock;

impl InodeCheck<'_> {
    /// Claims data blocks for this inode.
    pub(super) fn own(&mut self, owned: &mut Owned, at: u64, start: u64, len: u64) {
        let size = self.view.sb.cluster;
        let is_clustered = size != ClusterSize::ONE;
        let cluster = |block: u64| size.whole(block);
        let first_of = |cluster: u64| u64::from(size.blocks()).saturating_mul(cluster);
        let end = start.saturating_add(len);
        if is_clustered && !self.is_cluster_rule_kept(owned, at, start) {
            self.emit(Issue::ClusterRule { ino: self.ino, at, block: start });
        }
        let shares = is_clustered && owned.previous != 0 && cluster(owned.previous) == cluster(start);
        let from = if shares { first_of(cluster(start).saturating_add(1)) } else { first_of(cluster(start)) };
        let mut is_shared = false;
        if owned.is_resize {
            // Its blocks are counted in blocks, even with clusters.
            owned.clusters = owned.clusters.saturating_add(len);
        } else if from < end {
            let count = cluster(end.saturating_sub(1)).saturating_sub(cluster(from)).saturating_add(1);
            owned.clusters = owned.clusters.saturating_add(count);
            is_shared = self.claim(at, from.max(start), end.saturating_sub(from.max(start)));
        }
        owned.end = owned.end.max(at.saturating_add(len));
        owned.previous = end.saturating_sub(1);
        owned.next = at.saturating_add(len);
        if owned.keep_runs && !self.allowance.run(&self.state.budget, is_shared) {
            owned.keep_runs = false;
            self.emit(Issue::TooManyIllegal { ino: self.ino });
        }
        if owned.keep_runs {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            owned.runs.push(DirRun { at, start: VolBlock(start), len, is_shared });
        }
    }

    /// Returns whether a file block has the same offset in its volume cluster as in its file cluster, and whether the
    /// file cluster is one volume cluster. The format's own files are exempt.
    fn is_cluster_rule_kept(&self, owned: &Owned, at: u64, start: u64) -> bool {
        let size = self.view.sb.cluster;
        let cluster = |block: u64| size.whole(block);
        let last = owned.next.saturating_sub(1);
        let is_same = owned.next > 0 && cluster(last) == cluster(at);
        let is_aligned = size.inside(at) == size.inside(start);
        self.view.is_own(self.ino) || is_aligned && (!is_same || cluster(owned.previous) == cluster(start))
    }

    /// Claims a block of a tree for this inode. Returns whether it was not read before.
    pub(super) fn own_node(&mut self, owned: &mut Owned, at: u64, block: u64) -> bool {
        owned.clusters = owned.clusters.saturating_add(1);
        // Only the doubly indirect block of the resize inode is outside of the reserved blocks of the groups. Other
        // numbers in it claim nothing.
        let is_doubly =
            || numbers(&self.raw.i_block).get(13).is_some_and(|number| u64::from(number.get()) == block);
        let is_claimed = !owned.is_resize || is_doubly() && !keeps(self.view, block);
        is_claimed && !self.claim(at, block, 1) && self.mode == Mode::Claim
    }

    /// Claims blocks in the bitmap, or in the second round reports the blocks that other files also claim. Returns
    /// whether there are any.
    pub(super) fn claim(&mut self, at: u64, start: u64, len: u64) -> bool {
        if self.mode == Mode::Claim {
            return self.state.claim(VolBlock(start), len);
        }
        let (ino, state) = (self.ino, self.state);
        if !state.is_twice(VolBlock(start), len) {
            return false;
        }
        // If many files share many blocks, whole runs are reported.
        let runs = match state.budget.may_detail(len) {
            true => twice_runs(self.view, state, start, at, len),
            false => Vec::from([ClaimedRun {
                start,
                at,
                len,
                is_own: self.view.zones.overlap(VolBlock(start), len),
            }]),
        };
        for ClaimedRun { start, at, len, is_own } in runs {
            self.report_twice(match is_own {
                true => Issue::BlockOfVolume { ino, at, block: start, len },
                false => Issue::BlockTwice { ino, at, block: start, len },
            });
        }
        true
    }
}

/// Returns whether a group reserves a block for descriptors.
fn keeps(view: &View, block: u64) -> bool {
    let Some(group) = view.sb.group_of(VolBlock(block)) else { return false };
    let (start, len) = own_copies(&view.sb, group);
    block >= start.0 && block < start.0.saturating_add(len)
}

/// Returns whether a block belongs to the volume itself, as in [`CheckState::take_metadata`].
pub(super) fn is_own(view: &View, block: u64) -> bool {
    let mmp = view.sb.incompat.contains(Incompat::MMP) && view.sb.raw.s_mmp_block.get() == block;
    mmp || view.zones.overlap(VolBlock(block), 1) || keeps(view, block)
}

/// Contiguous blocks that were claimed twice.
struct ClaimedRun {
    start: u64,
    at: u64,
    len: u64,
    /// Whether they belong to the volume itself.
    is_own: bool,
}

/// Returns the parts of a run that were claimed twice.
fn twice_runs(view: &View, state: &CheckState, start: u64, at: u64, len: u64) -> Vec<ClaimedRun> {
    let mut runs: Vec<ClaimedRun> = Vec::new();
    for inside in 0..len {
        let block = start.saturating_add(inside);
        if !state.is_twice(VolBlock(block), 1) {
            continue;
        }
        let is_own = is_own(view, block);
        match runs.last_mut() {
            Some(run) if run.start.saturating_add(run.len) == block && run.is_own == is_own => {
                run.len = run.len.saturating_add(1);
            }
            _ => runs.push(ClaimedRun { start: block, at: at.saturating_add(inside), len: 1, is_own }),
        }
    }
    runs
}
