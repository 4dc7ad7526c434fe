//! Allocates clusters.
//!
//! Invariant: a cluster that the volume on disk may still refer to is not allocated. A freed cluster is held until
//! the commit that frees it is over. The search is next fit, as in Linux and Windows. It starts at the hint, so that
//! files are contiguous and freed clusters are not reused at once.

use alloc::vec::Vec;

use obento_base::{Error, Result};

use crate::bits::Bits;
use crate::pieces::{Piece, last_of};
use crate::unit::Cluster;

/// The clusters of a volume that is open for changes.
pub struct Allocator {
    /// The clusters in use or held. Invariant: the pages of clusters that were allocated or freed since the volume was
    /// opened are in memory, so that freeing these clusters needs no memory.
    used: Bits,
    /// One past the last cluster.
    end: u32,
    free: u32,
    next: u32,
    /// Clusters to which nothing on disk refers before the next commit.
    fresh: Bits,
    /// Freed clusters that must not be allocated before the next commit is over.
    held: Vec<(Cluster, u32)>,
}

impl Allocator {
    /// Creates the allocator of a volume with `clusters` clusters, of which `used` are in use.
    pub fn new(clusters: u32, hint: Option<Cluster>, used: Bits) -> Self {
        let end = clusters.saturating_add(2);
        let next = hint.filter(|hint| hint.is_one_of(clusters)).map_or(2, |hint| hint.0);
        let free = clusters.saturating_sub(used.count(2..end));
        Self { used, end, free, next, fresh: Bits::default(), held: Vec::new() }
    }

    /// Returns the first run of free clusters of `from..to`.
    fn find(&self, from: u32, to: u32) -> Option<Piece> {
        self.used.gaps(from..to).next()
    }

    /// Returns the first run of free clusters at or after `from`. Held clusters are not free.
    pub fn free_run(&self, from: Cluster) -> Option<Piece> {
        self.find(from.0.max(2), self.end)
    }

    /// Returns the clusters in use or held.
    pub fn used(&self) -> &Bits {
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
    /// their number. Fails with `NoSpace` or `NoMemory`.
    pub fn take(&mut self, after: Option<Cluster>, want: u32) -> Result<(Cluster, u32)> {
        let goal = after.map(|last| last.0.saturating_add(1)).filter(|&goal| goal < self.end);
        let start = match goal.filter(|&goal| !self.used.has(Cluster(goal))) {
            Some(goal) => goal,
            None => {
                let found = self.find(self.next, self.end);
                let found = found.or_else(|| self.find(2, self.next.min(self.end)));
                found.map(|(start, _)| start.0).ok_or(Error::NoSpace)?
            }
        };
        let most = start.saturating_add(want.max(1)).min(self.end);
        let len = self.find(start, most).map_or(0, |(_, len)| len);
        self.used.make_writable(Cluster(start), len)?;
        self.used.set_run(Cluster(start), len)?;
        self.free = self.free.saturating_sub(len);
        self.next = start.saturating_add(len);
        if self.next >= self.end {
            self.next = 2;
        }
        Ok((Cluster(start), len))
    }

    /// Allocates `want` clusters after `after`, in as few pieces as possible. Fails with `NoSpace` or `NoMemory`,
    /// and then allocates none.
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

    /// Frees the clusters of `pieces` at once. They were allocated since the volume was opened, and nothing on disk may
    /// have referred to them since.
    pub fn give_back_all(&mut self, pieces: &[Piece]) {
        for &(start, len) in pieces {
            // These pages are in memory, so no change fails.
            let _ = self.used.unset_run(start, len);
            let _ = self.fresh.unset_run(start, len);
            self.free = self.free.saturating_add(len);
        }
    }

    /// [Frees](Self::give_back_all) `cluster` at once.
    pub fn give_back(&mut self, cluster: Cluster) {
        self.give_back_all(&[(cluster, 1)]);
    }

    /// Holds a freed run: counts its clusters as free, but does not allocate them before
    /// [`release`](Self::release). Fails with `NoMemory`, and then changes nothing.
    pub fn hold(&mut self, start: Cluster, len: u32) -> Result<()> {
        self.held.try_reserve(1)?;
        self.used.make_writable(start, len)?;
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
        self.fresh.make_writable(start, len)?;
        self.fresh.set_run(start, len)
    }

    /// Returns whether `cluster` is fresh ([`name`](Self::name)).
    pub fn is_fresh(&self, cluster: Cluster) -> bool {
        self.fresh.has(cluster)
    }

    /// Frees the held clusters, and ends the freshness of all clusters. The caller calls this method after a
    /// commit. Returns the freed clusters.
    pub fn release(&mut self) -> Vec<Piece> {
        self.fresh = Bits::default();
        let freed = core::mem::take(&mut self.held);
        for &(start, len) in &freed {
            // `hold` has made these pages writable, so no change fails.
            let _ = self.used.unset_run(start, len);
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_free(clusters: u32) -> Allocator {
        Allocator::new(clusters, None, Bits::default())
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

    fn used(clusters: &Allocator) -> Vec<(u32, u32)> {
        clusters.used().runs(2..clusters.end).map(|(start, len)| (start.0, len)).collect()
    }

    #[test]
    fn clusters_outside_of_the_volume_are_neither_free_nor_used() {
        let mut bits = Bits::default();
        bits.set_run(Cluster(0), 4).unwrap();
        bits.set_run(Cluster(70), 1000).unwrap();
        let mut clusters = Allocator::new(70, None, bits);
        assert_eq!((clusters.free(), used(&clusters)), (66, [(2, 2), (70, 2)].into()));
        assert_eq!(clusters.take(None, 100), Ok((Cluster(4), 66)));
        assert_eq!(clusters.take(None, 100), Err(Error::NoSpace));
    }

    #[test]
    fn a_volume_of_two_to_the_32nd_clusters_allocates_pages_for_its_changes_only() {
        let mut bits = Bits::default();
        bits.set_run(Cluster(0), 1 << 31).unwrap();
        let mut clusters = Allocator::new(u32::MAX - 10, None, bits);
        assert_eq!(clusters.take(None, 3), Ok((Cluster(1 << 31), 3)));
        clusters.hold(Cluster(1000), 5).unwrap();
        clusters.name(Cluster(1 << 31), 3).unwrap();
        assert_eq!((clusters.used.pages_in_memory(), clusters.fresh.pages_in_memory()), (2, 1));
        clusters.release();
        assert_eq!(clusters.free(), u32::MAX - 10 - (1 << 31) + 2 - 3 + 5);
        assert_eq!(clusters.free_run(Cluster(2)), Some((Cluster(1000), 5)));
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
        assert_eq!(used(&clusters), [(2, 8), (13, 53)]);
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
