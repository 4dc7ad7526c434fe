//! The parts of a file that open writes will fill.
//!
//! Invariant: the ranges are sorted by their start, are not empty, and do not touch each other.

use alloc::vec::Vec;
use core::ops::Range;

/// Ranges of a file, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promises(Vec<Range<u64>>);

impl Promises {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the end of the last range, or 0.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }

    /// Adds `range`. Ignores an empty range.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let after = self.0.partition_point(|known| known.start <= range.end).max(first);
        let start = self.0.get(first..after).and_then(<[_]>::first).map_or(range.start, |known| known.start);
        let end = self.0.get(first..after).and_then(<[_]>::last).map_or(range.end, |known| known.end);
        let merged = range.start.min(start)..range.end.max(end);
        self.0.splice(first..after, [merged]);
    }

    /// Removes `range`. Returns the parts of it that were present.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut kept, mut removed) = (Vec::new(), Vec::new());
        for known in self.0.drain(..) {
            let common = known.start.max(range.start)..known.end.min(range.end);
            if common.is_empty() {
                kept.push(known);
                continue;
            }
            let rest = [known.start..common.start, common.end..known.end];
            kept.extend(rest.into_iter().filter(|part| !part.is_empty()));
            removed.push(common);
        }
        self.0 = kept;
        removed
    }

    /// Returns the parts of `range` that are not present.
    pub(crate) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), range.start);
        for known in self.0.iter().filter(|known| known.end > range.start && known.start < range.end) {
            gaps.push(at..known.start);
            at = known.end;
        }
        gaps.push(at..range.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// Returns whether `at` is in a range, and the offset at which this range, or the gap, ends.
    pub(crate) fn state_at(&self, at: u64) -> (bool, u64) {
        match self.0.iter().find(|known| known.end > at) {
            Some(known) if known.start <= at => (true, known.end),
            Some(known) => (false, known.start),
            None => (false, u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists contain ranges")]

    use super::*;

    fn promises(ranges: &[Range<u64>]) -> Promises {
        let mut promises = Promises::default();
        ranges.iter().cloned().for_each(|range| promises.insert(range));
        promises
    }

    #[test]
    fn ranges_that_touch_or_overlap_are_merged() {
        assert_eq!(promises(&[10..20, 40..50, 30..35]).0, [10..20, 30..35, 40..50]);
        assert_eq!(promises(&[10..20, 30..40, 20..30]).0, [10..40]);
        assert_eq!(promises(&[10..20, 30..40, 5..60, 7..7]).0, [5..60]);
    }

    #[test]
    fn a_removed_range_is_returned_without_what_was_absent() {
        let mut promises = promises(&[10..20, 30..40]);
        assert_eq!(promises.gaps(&(0..35)), [0..10, 20..30]);
        assert_eq!(promises.remove(&(15..32)), [15..20, 30..32]);
        assert_eq!(promises.0, [10..15, 32..40]);
        assert_eq!(
            [9, 10, 15, 40].map(|at| promises.state_at(at)),
            [(false, 10), (true, 15), (false, 32), (false, u64::MAX)]
        );
    }
}
