//! Pass 1, the blocks of an inode: who takes which, in clusters where the volume has them.
//!
//! Invariant: a cluster of a file is one cluster of the volume, and a block lies in it where it lies in the file's.
//! Source: e2fsprogs `e2fsck/pass1.c` `mark_blocks_used`, `has_unaligned_cluster_map`; `pass1b.c`.

use alloc::vec::Vec;

use super::Issue;
use super::blocks::Owned;
use super::inodes::{Look, Mode};
use super::state::{DirRun, State, own_copies};
use crate::unit::VolBlock;

impl Look<'_> {
    /// Takes data blocks for this inode.
    pub(super) fn own(&mut self, owned: &mut Owned, at: u64, start: u64, len: u64) {
        let bits = self.view.sb.cluster_bits;
        let cluster = |block: u64| block.checked_shr(bits).unwrap_or(0);
        let first_of = |cluster: u64| cluster.checked_shl(bits).unwrap_or(u64::MAX);
        let end = start.saturating_add(len);
        if bits > 0 && !self.is_cluster_rule_kept(owned, at, start) {
            self.tell(Issue::ClusterRule { ino: self.ino, at, block: start });
        }
        let shares = bits > 0 && owned.previous != 0 && cluster(owned.previous) == cluster(start);
        let from = if shares { first_of(cluster(start).saturating_add(1)) } else { first_of(cluster(start)) };
        if owned.is_resize {
            // Of it blocks are counted, even where clusters are handed out.
            owned.clusters = owned.clusters.saturating_add(len);
        } else if from < end {
            let count = cluster(end.saturating_sub(1)).saturating_sub(cluster(from)).saturating_add(1);
            owned.clusters = owned.clusters.saturating_add(count);
            self.claim(at, from.max(start), end.saturating_sub(from.max(start)));
        }
        owned.end = owned.end.max(at.saturating_add(len));
        owned.previous = end.saturating_sub(1);
        owned.next = at.saturating_add(len);
        if owned.keep_runs && !self.state.may_keep() {
            owned.keep_runs = false;
            self.tell(Issue::TooManyIllegal { ino: self.ino });
        }
        if owned.keep_runs {
            owned.runs.push(DirRun { at, start: VolBlock(start), len });
        }
    }

    /// Whether a file block lies in its cluster where it lies in the cluster's place in the file, which is one cluster.
    fn is_cluster_rule_kept(&self, owned: &Owned, at: u64, start: u64) -> bool {
        let (sb, bits) = (&self.view.sb, self.view.sb.cluster_bits);
        let inside = u64::from(sb.cluster_blocks()).saturating_sub(1);
        let cluster = |block: u64| block.checked_shr(bits).unwrap_or(0);
        let last = owned.next.saturating_sub(1);
        let is_same = owned.next > 0 && cluster(last) == cluster(at);
        let is_aligned = at & inside == start & inside;
        self.view.is_own(self.ino) || is_aligned && (!is_same || cluster(owned.previous) == cluster(start))
    }

    /// Takes a block of a tree for this inode.
    pub(super) fn own_node(&mut self, owned: &mut Owned, at: u64, block: u64) {
        owned.clusters = owned.clusters.saturating_add(1);
        // Of the resize inode's the doubly indirect block alone lies outside of what the groups keep.
        if !owned.is_resize || !self.view_keeps(block) {
            self.claim(at, block, 1);
        }
    }

    /// Whether a block of the resize inode is one that a group keeps for descriptors.
    fn view_keeps(&self, block: u64) -> bool {
        let sb = &self.view.sb;
        let Some(group) = sb.group_of(VolBlock(block)) else { return false };
        let (start, len) = own_copies(sb, group);
        block >= start.0 && block < start.0.saturating_add(len)
    }

    /// Claims blocks in the bitmap, or, the second time, tells which of them others claim too.
    pub(super) fn claim(&mut self, at: u64, start: u64, len: u64) {
        if self.mode == Mode::Claim {
            self.state.claim(VolBlock(start), len);
            return;
        }
        let (ino, state) = (self.ino, self.state);
        if !state.is_twice(VolBlock(start), len) {
            return;
        }
        // Where files share and share again, whole runs say enough.
        let detailed = state.may_detail(len);
        let runs = if detailed { twice_runs(state, start, at, len) } else { Vec::from([(start, at, len)]) };
        for (start, at, len) in runs {
            if self.view.zones.overlap(VolBlock(start), len) {
                self.tell_twice(Issue::BlockOfVolume { ino, at, block: start });
            } else {
                self.tell_twice(Issue::BlockTwice { ino, at, block: start, len });
            }
        }
    }
}

/// The runs within a run that were claimed twice: block, file block, length.
fn twice_runs(state: &State, start: u64, at: u64, len: u64) -> Vec<(u64, u64, u64)> {
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for inside in 0..len {
        let block = start.saturating_add(inside);
        if !state.is_twice(VolBlock(block), 1) {
            continue;
        }
        match runs.last_mut() {
            Some((first, _, len)) if first.saturating_add(*len) == block => *len = len.saturating_add(1),
            _ => runs.push((block, at.saturating_add(inside), 1)),
        }
    }
    runs
}
