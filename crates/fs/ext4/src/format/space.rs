//! The allocated blocks as runs. A new volume of any size has few runs.
//!
//! Invariant: runs are between the first data block and the end of the volume.
//! Source: e2fsprogs `lib/ext2fs/alloc.c` `ext2fs_get_free_blocks2`, `ext2fs_new_block3`, `ext2fs_new_range`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits the size of the volume")]

use core::ops::Range;

use obento_driver::FormatError;

use crate::ranges::NumberRanges;
use crate::size::ClusterSize;

/// The blocks of a new volume.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    taken: NumberRanges,
    blocks: Range<u64>,
    /// The size of clusters, once blocks are allocated in clusters.
    cluster: ClusterSize,
}

impl Space {
    /// Creates the state in which `blocks`, those of the volume, are free.
    pub fn new(blocks: Range<u64>) -> Self {
        Self { taken: NumberRanges::default(), blocks, cluster: ClusterSize::ONE }
    }

    /// Allocates blocks, some of which may already be allocated.
    pub fn take(&mut self, run: Range<u64>) {
        self.taken.insert(run.start.max(self.blocks.start)..run.end.min(self.blocks.end));
    }

    /// From now on, allocates whole clusters. Clusters that are partly allocated become
    /// allocated.
    pub fn by_clusters(&mut self, cluster: ClusterSize) {
        self.cluster = cluster;
        let runs = core::mem::take(&mut self.taken);
        for (&start, &end) in runs.runs() {
            self.take(cluster.round_down(start)..cluster.round_up(end));
        }
    }

    /// Returns the first of `len` contiguous free blocks at or after `from` and before `to`.
    fn first_free(&self, from: u64, to: u64, len: u64) -> Option<u64> {
        let mut at = from.max(self.blocks.start);
        if let Some((_, &end)) = self.taken.runs().range(..=at).next_back() {
            at = at.max(end);
        }
        loop {
            let end = at.checked_add(len).filter(|&end| end <= self.blocks.end && at < to)?;
            match self.taken.runs().range(at..end).next() {
                Some((_, &reach)) => at = reach,
                None => return Some(at),
            }
        }
    }

    /// Returns the first of `len` free blocks at or after `start` and before `finish`. If `finish` is not after
    /// `start`, searches from `start` to the end and then from the beginning, as `ext2fs_get_free_blocks2` does.
    pub fn find(&self, start: u64, finish: u64, len: u64) -> Option<u64> {
        let len = len.max(1);
        let finish = if finish == 0 { start } else { finish };
        if finish > start {
            return self.first_free(start, finish, len);
        }
        let wrapped = || self.first_free(self.blocks.start, finish, len);
        self.first_free(start, self.blocks.end, len).or_else(wrapped)
    }

    /// Allocates the first free block or cluster at or after `goal`, else the first of all. Fails with `TooSmall`.
    pub fn allocate(&mut self, goal: u64) -> Result<u64, FormatError> {
        let block = self.free_from(goal)?;
        self.take(block..block + u64::from(self.cluster.blocks()));
        Ok(block)
    }

    /// Returns the first free block or cluster at or after `goal`, else the first of all. Fails with `TooSmall`.
    fn free_from(&self, goal: u64) -> Result<u64, FormatError> {
        let goal = if goal >= self.blocks.end { 0 } else { goal };
        let end = self.blocks.end;
        let found =
            self.first_free(self.cluster.round_down(goal), end, 1).or_else(|| self.first_free(0, end, 1));
        found.ok_or_else(|| self.full())
    }

    /// Allocates up to `len` contiguous blocks, in whole clusters, at or after `goal`, else from the beginning. Fails
    /// with `TooSmall`.
    pub fn allocate_run(&mut self, goal: u64, len: u64) -> Result<Range<u64>, FormatError> {
        // Before anything is allocated, since an allocated run is merged with adjacent ones.
        let start = self.free_from(goal)?;
        let limit = self.cluster.round_up(start + len);
        let first = start + u64::from(self.cluster.blocks());
        let end = self.taken.runs().range(start..limit.max(first)).next().map_or(limit, |(&next, _)| next);
        let end = end.min(self.blocks.end).max(first.min(self.blocks.end));
        self.take(start..end);
        Ok(start..end.min(start + len))
    }

    fn full(&self) -> FormatError {
        FormatError::TooSmall { what: "the metadata", len: self.blocks.end }
    }

    /// Returns the allocated runs of `range`.
    pub fn taken_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before =
            self.taken.runs().range(..range.start).next_back().filter(|&(_, &end)| end > range.start);
        let (from, to) = (range.start, range.end.max(range.start));
        let inside = self.taken.runs().range(from..to);
        before.into_iter().chain(inside).map(move |(&start, &end)| start.max(from)..end.min(to))
    }

    /// Returns the number of allocated blocks of `range`.
    pub fn count_in(&self, range: Range<u64>) -> u64 {
        self.taken_in(range).map(|run| run.end - run.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::BlockSize;
    use std::vec::Vec;

    fn clusters(log: u32) -> ClusterSize {
        ClusterSize::from_log(log, BlockSize::MIN).unwrap()
    }

    fn runs(space: &Space) -> Vec<Range<u64>> {
        space.taken_in(0..u64::MAX).collect()
    }

    #[test]
    fn runs_that_touch_or_overlap_become_one() {
        let mut space = Space::new(1..100);
        for run in [10..12, 20..25, 12..15, 0..2, 30..40, 22..33, 99..200, 50..50] {
            space.take(run);
        }
        assert_eq!(runs(&space), [1..2, 10..15, 20..40, 99..100]);
        assert_eq!(space.count_in(12..31), 3 + 11);
        assert_eq!(space.taken_in(38..60).last(), Some(38..40));
    }

    #[test]
    fn free_runs_are_found_from_a_goal_on_and_within_bounds() {
        let mut space = Space::new(1..100);
        space.take(1..10);
        space.take(20..30);
        assert_eq!(space.find(5, 90, 3), Some(10));
        assert_eq!(space.find(5, 90, 11), Some(30));
        assert_eq!(space.find(12, 20, 9), None);
        assert_eq!(space.find(95, 50, 6), Some(10), "wraps");
        assert_eq!((space.allocate(25), space.allocate(0), space.allocate(1000)), (Ok(30), Ok(10), Ok(11)));
        assert_eq!(space.allocate_run(12, 100), Ok(12..20));
        assert_eq!(space.allocate_run(90, 100), Ok(90..100));
        assert_eq!(space.allocate_run(95, 5), Ok(31..36));
    }

    #[test]
    fn a_run_ends_before_used_clusters_however_near_they_are() {
        for near in 1..5 {
            for log in [0, 2] {
                let (cluster, mut space) = (1 << log, Space::new(0..400));
                space.by_clusters(clusters(log));
                let wall = 200..220;
                space.take(wall.clone());
                let goal = wall.start - near * cluster;
                assert_eq!(space.allocate_run(goal, 50), Ok(goal..wall.start), "{near} {cluster}");
                assert_eq!(space.allocate_run(goal, 50), Ok(wall.end..wall.end + 50), "{near} {cluster}");
            }
        }
    }

    #[test]
    fn clusters_are_taken_whole() {
        let mut space = Space::new(0..64);
        space.take(1..6);
        space.by_clusters(clusters(2));
        assert_eq!(space.taken_in(0..64).last(), Some(0..8));
        assert_eq!(space.allocate(3), Ok(8));
        assert_eq!(space.allocate_run(14, 5), Ok(12..17));
        assert_eq!(space.taken_in(0..64).last(), Some(0..20));
    }

    #[test]
    fn a_full_volume_gives_nothing() {
        let mut space = Space::new(0..4);
        space.take(0..4);
        assert!(space.allocate(0).is_err() && space.find(0, 4, 1).is_none());
    }
}
