//! Allocates clusters.
//!
//! Invariant: a cluster that the volume on disk may still refer to is not allocated. A freed cluster is held until
//! the commit that frees it is over. The search is next fit, as in Linux and Windows. It starts at the hint, so that
//! files are contiguous and freed clusters are not reused at once.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};

use crate::pieces::{Piece, last_of};
use crate::unit::Cluster;

/// The clusters of a volume that is open for changes.
pub struct Allocator {
    /// One bit per cluster, set if the cluster is in use or held. The lowest bit of the first word is cluster 2, as
    /// in the bitmap of exFAT.
    used: Vec<u64>,
    /// One past the last cluster.
    end: u32,
    free: u32,
    next: u32,
    /// One bit per cluster, set if nothing on disk refers to the cluster before the next commit.
    fresh: Vec<u64>,
    /// The runs of set bits in `fresh`.
    fresh_runs: Vec<(Cluster, u32)>,
    /// Freed clusters that must not be allocated before the next commit is over.
    held: Vec<(Cluster, u32)>,
}

/// Returns the index of the word of `cluster`, and its bit in that word.
fn bit(cluster: u32) -> (usize, u64) {
    let at = cluster.saturating_sub(2);
    (to_usize(u64::from(at >> 6)), 1 << (at & 63))
}

impl Allocator {
    /// Creates the allocator of a volume with `clusters` clusters. `free_among` returns a bit for each of 64
    /// clusters, set if the cluster is free. The lowest bit is the cluster that is passed. `new` ignores the
    /// bits of clusters past the last one. Fails with `NoMemory`, or with the errors of `free_among`.
    pub fn new(
        clusters: u32,
        hint: Option<Cluster>,
        mut free_among: impl FnMut(Cluster) -> Result<u64>,
    ) -> Result<Self> {
        let end = clusters.saturating_add(2);
        let words = to_usize(u64::from(clusters).div_ceil(64));
        let mut used = Vec::new();
        used.try_reserve_exact(words)?;
        used.resize(words, u64::MAX);
        let mut fresh = Vec::new();
        fresh.try_reserve_exact(words)?;
        fresh.resize(words, 0);
        let next = hint.filter(|hint| hint.is_one_of(clusters)).map_or(2, |hint| hint.0);
        let mut this = Self { used, end, free: 0, next, fresh, fresh_runs: Vec::new(), held: Vec::new() };
        for (word, first) in this.used.iter_mut().zip((2..end).step_by(64)) {
            let left = end.saturating_sub(first).min(64);
            let free = free_among(Cluster(first))? & u64::MAX >> 64_u32.saturating_sub(left);
            *word = !free;
            this.free = this.free.saturating_add(free.count_ones());
        }
        Ok(this)
    }

    fn clear(&mut self, cluster: u32) {
        let (word, mask) = bit(cluster);
        if let Some(word) = self.used.get_mut(word) {
            *word &= !mask;
        }
    }

    fn set(&mut self, cluster: u32) {
        let (word, mask) = bit(cluster);
        if let Some(word) = self.used.get_mut(word) {
            *word |= mask;
        }
    }

    fn is_used(&self, cluster: u32) -> bool {
        let (word, mask) = bit(cluster);
        cluster >= self.end || self.used.get(word).is_none_or(|word| word & mask != 0)
    }

    /// Returns the first cluster of `from..to` that is free.
    fn find(&self, from: u32, to: u32) -> Option<u32> {
        self.first(from, to, u64::MAX)
    }

    /// Returns the first cluster of `from..to` whose bit is set after `flip` was applied to its word.
    fn first(&self, from: u32, to: u32, flip: u64) -> Option<u32> {
        let mut at = from.saturating_sub(2);
        let to = to.saturating_sub(2);
        while at < to {
            let word = to_usize(u64::from(at >> 6));
            let hits = (self.used.get(word)? ^ flip) & u64::MAX << (at & 63);
            if hits != 0 {
                let found = (at & !63).saturating_add(hits.trailing_zeros());
                return (found < to).then_some(found.saturating_add(2));
            }
            at = (at & !63).saturating_add(64);
        }
        None
    }

    /// Returns the first run of free clusters at or after `from`. Held clusters are not free.
    pub fn free_run(&self, from: Cluster) -> Option<Piece> {
        let start = self.find(from.0, self.end)?;
        let end = self.first(start, self.end, 0).unwrap_or(self.end);
        Some((Cluster(start), end.saturating_sub(start)))
    }

    /// Returns the bits of clusters in use or held. The lowest bit of the first word is cluster 2; bits past the last
    /// cluster are set.
    pub fn bits(&self) -> &[u64] {
        &self.used
    }

    /// Returns the number of free clusters, including the held ones.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Returns the cluster at which the next search starts.
    pub fn next(&self) -> Cluster {
        Cluster(self.next)
    }

    /// Returns whether a commit would free clusters.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the freed clusters that are held.
    pub fn held(&self) -> &[(Cluster, u32)] {
        &self.held
    }

    /// Allocates at most `want` contiguous clusters, directly after `after` if possible. Returns the first one and
    /// their number. Fails with `NoSpace`.
    pub fn take(&mut self, after: Option<Cluster>, want: u32) -> Result<(Cluster, u32)> {
        let goal = after.map(|last| last.0.saturating_add(1)).filter(|&goal| goal < self.end);
        let start = match goal.filter(|&goal| !self.is_used(goal)) {
            Some(goal) => goal,
            None => self
                .find(self.next, self.end)
                .or_else(|| self.find(2, self.next.min(self.end)))
                .ok_or(Error::NoSpace)?,
        };
        let mut len = 0;
        while len < want.max(1) && !self.is_used(start.saturating_add(len)) {
            self.set(start.saturating_add(len));
            len = len.saturating_add(1);
        }
        self.free = self.free.saturating_sub(len);
        self.next = start.saturating_add(len);
        if self.next >= self.end {
            self.next = 2;
        }
        Ok((Cluster(start), len))
    }

    /// Allocates `want` clusters after `after`, in as few pieces as possible. Fails with `NoSpace`, and then
    /// allocates none.
    pub fn take_all(&mut self, after: Option<Cluster>, want: u32) -> Result<Vec<Piece>> {
        let (mut pieces, mut left, mut after) = (Vec::new(), want, after);
        while left > 0 {
            match self.take(after, left) {
                Ok(piece) => {
                    after = Some(last_of(&piece));
                    left = left.saturating_sub(piece.1);
                    pieces.push(piece);
                }
                Err(error) => {
                    self.give_back_all(&pieces);
                    return Err(error);
                }
            }
        }
        Ok(pieces)
    }

    /// [Frees](Allocator::give_back) each cluster of `pieces`.
    pub fn give_back_all(&mut self, pieces: &[Piece]) {
        for &(start, len) in pieces {
            (start.0..start.0.saturating_add(len)).for_each(|cluster| self.give_back(Cluster(cluster)));
        }
    }

    /// Frees `cluster` at once. Nothing on disk may have referred to the cluster since it was allocated.
    pub fn give_back(&mut self, cluster: Cluster) {
        self.clear(cluster.0);
        let (word, mask) = bit(cluster.0);
        if let Some(word) = self.fresh.get_mut(word) {
            *word &= !mask;
        }
        self.free = self.free.saturating_add(1);
    }

    /// Holds a freed run: counts its clusters as free, but does not allocate them before
    /// [`release`](Self::release). Fails with `NoMemory`, and then changes nothing.
    pub fn hold(&mut self, start: Cluster, len: u32) -> Result<()> {
        self.held.try_reserve(1)?;
        match self.held.last_mut() {
            Some((first, count)) if first.0.saturating_add(*count) == start.0 => {
                *count = count.saturating_add(len);
            }
            _ => self.held.push((start, len)),
        }
        self.free = self.free.saturating_add(len);
        Ok(())
    }

    /// Records that a run is fresh: metadata in memory refers to the run, and nothing on disk does before the
    /// next commit. Fails with `NoMemory`, and then changes nothing.
    pub fn name(&mut self, start: Cluster, len: u32) -> Result<()> {
        self.fresh_runs.try_reserve(1)?;
        self.fresh_runs.push((start, len));
        for cluster in start.0..start.0.saturating_add(len) {
            let (word, mask) = bit(cluster);
            if let Some(word) = self.fresh.get_mut(word) {
                *word |= mask;
            }
        }
        Ok(())
    }

    /// Returns whether `cluster` is fresh ([`name`](Self::name)).
    pub fn is_fresh(&self, cluster: Cluster) -> bool {
        let (word, mask) = bit(cluster.0);
        self.fresh.get(word).is_some_and(|word| word & mask != 0)
    }

    /// Frees the held clusters, and ends the freshness of all clusters. The caller calls this method after a
    /// commit. Returns the freed clusters.
    pub fn release(&mut self) -> Vec<Piece> {
        for (start, len) in core::mem::take(&mut self.fresh_runs) {
            for cluster in start.0..start.0.saturating_add(len) {
                let (word, mask) = bit(cluster);
                if let Some(word) = self.fresh.get_mut(word) {
                    *word &= !mask;
                }
            }
        }
        let freed = core::mem::take(&mut self.held);
        for &(start, len) in &freed {
            (start.0..start.0.saturating_add(len)).for_each(|cluster| self.clear(cluster));
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_free(clusters: u32) -> Allocator {
        Allocator::new(clusters, None, |_| Ok(u64::MAX)).unwrap()
    }

    #[test]
    fn clusters_are_allocated_once_and_in_runs_after_existing_ones() {
        let mut clusters = all_free(100);
        assert_eq!(clusters.take(None, 60), Ok((Cluster(2), 60)));
        assert_eq!(clusters.take(Some(Cluster(61)), 60), Ok((Cluster(62), 40)), "no more than there are");
        assert_eq!((clusters.free(), clusters.take(None, 1)), (0, Err(Error::NoSpace)));
        clusters.give_back(Cluster(101));
        assert_eq!(clusters.take(Some(Cluster(50)), 5), Ok((Cluster(101), 1)));
    }

    #[test]
    fn free_clusters_are_found_by_words_and_end_with_the_volume() {
        let mut clusters = Allocator::new(70, None, |first| Ok(u64::MAX << (first.0 & 1))).unwrap();
        assert_eq!((clusters.free(), clusters.bits()), (70, &[0, !0x3f][..]));
        clusters = Allocator::new(70, None, |_| Ok(!1)).unwrap();
        assert_eq!((clusters.free(), clusters.bits()), (68, &[1, !0x3e][..]));
    }

    #[test]
    fn a_request_that_does_not_fit_allocates_nothing() {
        let mut clusters = all_free(10);
        clusters.take(None, 8).unwrap();
        clusters.give_back_all(&[(Cluster(2), 2), (Cluster(6), 1)]);
        assert_eq!(clusters.take_all(Some(Cluster(4)), 6), Err(Error::NoSpace));
        assert_eq!(clusters.free(), 5);
        let pieces = clusters.take_all(Some(Cluster(5)), 5).unwrap();
        assert_eq!(pieces, [(Cluster(6), 1), (Cluster(10), 2), (Cluster(2), 2)]);
    }

    #[test]
    fn freed_clusters_are_not_reused_until_they_are_released() {
        let mut clusters = all_free(64);
        clusters.take(None, 64).unwrap();
        clusters.hold(Cluster(10), 2).unwrap();
        clusters.hold(Cluster(12), 1).unwrap();
        assert_eq!((clusters.held(), clusters.free()), (&[(Cluster(10), 3)][..], 3));
        assert_eq!(clusters.take(None, 1), Err(Error::NoSpace));
        clusters.release();
        assert_eq!(clusters.bits(), [!(7 << 8)]);
        assert_eq!(clusters.take(None, 9), Ok((Cluster(10), 3)));
    }

    #[test]
    fn runs_of_free_clusters_end_at_used_or_held_ones_and_at_the_end_of_the_volume() {
        let mut clusters = all_free(200);
        clusters.take(None, 70).unwrap();
        clusters.give_back(Cluster(10));
        clusters.give_back(Cluster(11));
        clusters.hold(Cluster(20), 5).unwrap();
        assert_eq!(clusters.free_run(Cluster(2)), Some((Cluster(10), 2)));
        assert_eq!(clusters.free_run(Cluster(11)), Some((Cluster(11), 1)));
        assert_eq!(clusters.free_run(Cluster(12)), Some((Cluster(72), 130)), "and not what is held");
        assert_eq!(clusters.free_run(Cluster(202)), None);
        clusters.release();
        assert_eq!(clusters.free_run(Cluster(12)), Some((Cluster(20), 5)));
    }

    #[test]
    fn a_named_number_is_fresh_until_it_is_released() {
        let mut clusters = all_free(10);
        clusters.take(None, 3).unwrap();
        clusters.name(Cluster(3), 2).unwrap();
        assert_eq!([2, 3, 4, 5].map(|n| clusters.is_fresh(Cluster(n))), [false, true, true, false]);
        clusters.release();
        assert!(!clusters.is_fresh(Cluster(3)));
    }
}
