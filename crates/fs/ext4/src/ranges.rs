//! A set of block numbers, as runs.
//!
//! Invariant: runs are not empty, and neither overlap nor touch.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// A set of numbers, many of which are contiguous.
#[derive(Clone, Default, Debug)]
pub(crate) struct NumberRanges {
    /// Start and end of each run.
    runs: BTreeMap<u64, u64>,
}

impl NumberRanges {
    /// Start and end of each run.
    pub fn runs(&self) -> &BTreeMap<u64, u64> {
        &self.runs
    }

    /// Adds numbers, some of which may already be in the set.
    pub fn insert(&mut self, run: Range<u64>) {
        let Range { mut start, mut end } = run;
        if start >= end {
            return;
        }
        // The previous run, if it reaches here, and all runs that begin inside or directly after.
        if let Some((&before, &reach)) = self.runs.range(..=start).next_back()
            && reach >= start
        {
            start = before;
            end = end.max(reach);
        }
        while let Some((&next, &reach)) = self.runs.range(start..=end).next() {
            end = end.max(reach);
            self.runs.remove(&next);
        }
        self.runs.insert(start, end);
    }

    /// Removes numbers, some of which may not be in the set.
    pub fn remove(&mut self, run: &Range<u64>) {
        for inside in self.within(run) {
            let Some((&start, &end)) = self.runs.range(..=inside.start).next_back() else { continue };
            self.runs.remove(&start);
            if start < inside.start {
                self.runs.insert(start, inside.start);
            }
            if inside.end < end {
                self.runs.insert(inside.end, end);
            }
        }
    }

    /// Returns the parts of `run` that are in the set.
    pub fn within(&self, run: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.runs.range(..run.start).next_back();
        let all = before.into_iter().chain(self.runs.range(run.start..run.end.max(run.start)));
        let inside = all.map(|(&start, &end)| start.max(run.start)..end.min(run.end));
        inside.filter(|inside| inside.start < inside.end).collect()
    }

    /// Returns whether any of `run` is in the set.
    pub fn has_any(&self, run: &Range<u64>) -> bool {
        let before = self.runs.range(..=run.start).next_back();
        let reaches = before.is_some_and(|(_, &end)| end > run.start);
        run.start < run.end && (reaches || self.runs.range(run.start..run.end).next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_contain_the_same_numbers_as_a_set(
            steps in prop::collection::vec((any::<bool>(), 0_u64..60, 0_u64..20), 0..60),
            start in 0_u64..60,
            len in 0_u64..30,
        ) {
            let (mut runs, mut numbers) = (NumberRanges::default(), BTreeSet::new());
            for (inserts, start, len) in steps {
                let run = start..start + len;
                if inserts {
                    runs.insert(run.clone());
                    numbers.extend(run);
                } else {
                    runs.remove(&run);
                    numbers.retain(|number| !run.contains(number));
                }
            }
            let run = start..start + len;
            let wanted: Vec<u64> = run.clone().filter(|number| numbers.contains(number)).collect();
            prop_assert_eq!(runs.within(&run).into_iter().flatten().collect::<Vec<_>>(), wanted.clone());
            prop_assert_eq!(runs.has_any(&run), !wanted.is_empty());
            let ends: Vec<(u64, u64)> = runs.runs().iter().map(|(&start, &end)| (start, end)).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
