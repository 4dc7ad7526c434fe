//! Clusters of a group that are free in the bitmap but not available: freed by a transaction that is not durable, or
//! reserved in memory.
//!
//! Invariant: ranges are not empty, disjoint, and within the group.
#![allow(clippy::arithmetic_side_effects, reason = "a group has at most 2^19 clusters")]

use alloc::collections::BTreeMap;
use core::ops::Range;

use super::bits;

/// Ranges of clusters by their start.
#[derive(Debug, Default)]
pub struct HeldRanges {
    ranges: BTreeMap<u32, u32>,
    count: u32,
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldSearch {
    /// The run to use; empty if no run was found.
    pub run: Range<u32>,
    /// The longest run of the group, if all of it was examined.
    pub largest: Option<u32>,
}

impl HeldRanges {
    /// Returns the number of held clusters.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Holds `range`, no part of which is held.
    pub fn insert(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        self.count += range.end - range.start;
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &reach)) = self.ranges.range(..start).next_back()
            && reach == start
        {
            self.ranges.remove(&before);
            start = before;
        }
        if let Some(reach) = self.ranges.remove(&end) {
            end = reach;
        }
        self.ranges.insert(start, end);
    }

    /// Ends the hold on `range`.
    pub fn remove(&mut self, range: Range<u32>) {
        let mut at = range.start;
        while at < range.end {
            let Some((start, end)) = self.overlapping(at..range.end) else { return };
            self.ranges.remove(&start);
            let (cut_start, cut_end) = (start.max(at), end.min(range.end));
            if start < cut_start {
                self.ranges.insert(start, cut_start);
            }
            if cut_end < end {
                self.ranges.insert(cut_end, end);
            }
            self.count -= cut_end - cut_start;
            at = cut_end;
        }
    }

    /// Returns the first held range that overlaps `range`.
    fn overlapping(&self, range: Range<u32>) -> Option<(u32, u32)> {
        let before = self.ranges.range(..=range.start).next_back().filter(|&(_, &end)| end > range.start);
        let found = before.or_else(|| self.ranges.range(range).next());
        found.map(|(&start, &end)| (start, end))
    }

    /// Returns the first run of clusters in `range` that are free in `bitmap` and not held, at most `most` long.
    /// Returns an empty run at the end of the range if no cluster is available.
    fn next_run(&self, bitmap: &[u8], range: Range<u32>, most: u32) -> Range<u32> {
        let mut at = range.start;
        loop {
            at = bits::next_clear(bitmap, at..range.end);
            if at >= range.end {
                return range.end..range.end;
            }
            let limit = match self.overlapping(at..range.end) {
                Some((start, end)) if start <= at => {
                    at = end;
                    continue;
                }
                Some((start, _)) => start,
                None => range.end,
            };
            return at..bits::next_set(bitmap, at..limit.min(at.saturating_add(most)));
        }
    }

    /// Returns the available part of `len` clusters, from `at` on.
    pub fn run_at(&self, bitmap: &[u8], at: u32, len: u32, end: u32) -> Range<u32> {
        let range = at..at.saturating_add(len).min(end);
        let run = self.next_run(bitmap, range, len);
        if run.start == at { run } else { at..at }
    }

    /// Returns a run of `want` clusters among the first `end`: the first one from `goal` on, then from the start, or
    /// else the longest run. `want` is not 0.
    pub fn search(&self, bitmap: &[u8], goal: u32, want: u32, end: u32) -> HeldSearch {
        let mut best = 0..0;
        let goal = if goal < end { goal } else { 0 };
        let mut largest = 0;
        // The first part is examined to its end, since `goal` may divide its last run.
        for part in [goal..end, 0..end] {
            let mut at = part.start;
            while at < part.end {
                // A run that is long enough is not examined to its end.
                let run = self.next_run(bitmap, at..part.end, want);
                let len = run.end - run.start;
                if len >= want {
                    let run = run.start..run.start + want;
                    return HeldSearch { run, largest: None };
                }
                if len > largest {
                    (best, largest) = (run.clone(), len);
                }
                at = run.end.max(at + 1);
            }
            if goal == 0 {
                break;
            }
        }
        HeldSearch { run: best, largest: Some(largest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn held_ranges_merge_split_and_are_counted() {
        let mut held = HeldRanges::default();
        for range in [10..20, 30..40, 20..30] {
            held.insert(range);
        }
        assert_eq!((held.ranges.len(), held.count()), (1, 30));
        held.remove(15..35);
        assert_eq!(held.ranges.iter().map(|(&a, &b)| (a, b)).collect::<Vec<_>>(), [(10, 15), (35, 40)]);
        held.remove(0..100);
        assert_eq!((held.ranges.len(), held.count()), (0, 0));
    }

    #[test]
    fn a_search_takes_the_first_run_that_is_long_enough_from_the_goal_on() {
        let mut map = vec![0_u8; 32];
        bits::set(&mut map, 0..16);
        bits::set(&mut map, 20..40);
        bits::set(&mut map, 100..256);
        let mut held = HeldRanges::default();
        held.insert(50..60);
        let search = |goal, want| held.search(&map, goal, want, 256).run;
        assert_eq!(search(0, 4), 16..20);
        assert_eq!(search(17, 4), 40..44);
        assert_eq!(search(0, 10), 40..50);
        assert_eq!(search(0, 11), 60..71);
        assert_eq!(search(90, 11), 60..71);
        assert_eq!(held.search(&map, 90, 41, 256), HeldSearch { run: 60..100, largest: Some(40) });
        assert_eq!(held.run_at(&map, 45, 20, 256), 45..50);
        assert_eq!(held.run_at(&map, 55, 20, 256), 55..55);
        assert_eq!(held.run_at(&map, 60, 20, 70), 60..70);
    }

    #[test]
    fn a_full_group_has_no_run() {
        let held = HeldRanges::default();
        assert_eq!(held.search(&[0xff; 8], 3, 1, 64), HeldSearch { run: 0..0, largest: Some(0) });
        assert_eq!(held.search(&[0; 8], 3, 1, 3), HeldSearch { run: 0..1, largest: None });
    }
}
