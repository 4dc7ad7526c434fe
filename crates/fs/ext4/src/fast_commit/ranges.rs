//! The blocks of a file whose mapping a fast commit changed.
//!
//! Invariant: the ranges do not overlap, since setting a range removes it from the others.

use alloc::collections::BTreeMap;

use crate::map::{Blocks, MappedRun};
use crate::unit::{FileBlock, VolBlock};

/// Ranges of file blocks and their new places. Blocks outside of them did not change.
#[derive(Clone, Default, Debug)]
pub(super) struct MovedRanges(BTreeMap<u32, MappedRun>);

/// The mapping of a file block in fast commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockOverlay {
    /// This run is the new mapping.
    Run(MappedRun),
    /// Unchanged, for at least this number of blocks.
    Base(u32),
}

impl MovedRanges {
    /// Maps `run` at file block `at`.
    pub(super) fn set(&mut self, at: u32, run: MappedRun) {
        // A file has fewer than 2^32 blocks.
        let end = at.saturating_add(run.len);
        if let Some((&start, &before)) = self.0.range(..at).next_back() {
            self.cut(start, before, at, end);
        }
        while let Some((&start, &covered)) = self.0.range(at..end).next() {
            self.cut(start, covered, at, end);
        }
        if end > at {
            self.0.insert(at, MappedRun { len: end.saturating_sub(at), place: run.place });
        }
    }

    /// Removes `at..end` from the run at `start`.
    fn cut(&mut self, start: u32, run: MappedRun, at: u32, end: u32) {
        let run_end = start.saturating_add(run.len);
        if run_end <= at || start >= end {
            return;
        }
        self.0.remove(&start);
        if start < at {
            self.0.insert(start, MappedRun { len: at.saturating_sub(start), place: run.place });
        }
        if run_end > end {
            let place = advance(run.place, end.saturating_sub(start));
            self.0.insert(end, MappedRun { len: run_end.saturating_sub(end), place });
        }
    }

    /// Returns the ranges in order: the first file block and its new mapping.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, MappedRun)> {
        self.0.iter().map(|(&at, &run)| (at, run))
    }

    /// Returns the mapping of file block `at`.
    pub(super) fn get(&self, at: FileBlock) -> BlockOverlay {
        if let Some((&start, &run)) = self.0.range(..=at.0).next_back() {
            let into = at.0.saturating_sub(start);
            if into < run.len {
                let (len, place) = (run.len.saturating_sub(into), advance(run.place, into));
                return BlockOverlay::Run(MappedRun { len, place });
            }
        }
        let next = self.0.range(at.0..).next();
        BlockOverlay::Base(next.map_or(u32::MAX, |(&start, _)| start.saturating_sub(at.0)))
    }
}

/// Returns the place `by` blocks later.
fn advance(place: Blocks, by: u32) -> Blocks {
    let on = |block: VolBlock| VolBlock(block.0.saturating_add(by.into()));
    match place {
        Blocks::Mapped(block) => Blocks::Mapped(on(block)),
        Blocks::Unwritten(block) => Blocks::Unwritten(on(block)),
        Blocks::Hole => Blocks::Hole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapped(len: u32, block: u64) -> MappedRun {
        MappedRun { len, place: Blocks::Mapped(VolBlock(block)) }
    }

    #[test]
    fn a_later_range_cuts_the_earlier_one_in_two() {
        let mut ranges = MovedRanges::default();
        ranges.set(10, mapped(10, 100));
        ranges.set(13, MappedRun { len: 2, place: Blocks::Hole });
        assert_eq!(ranges.get(FileBlock(11)), BlockOverlay::Run(mapped(2, 101)));
        assert_eq!(ranges.get(FileBlock(14)), BlockOverlay::Run(MappedRun { len: 1, place: Blocks::Hole }));
        assert_eq!(ranges.get(FileBlock(15)), BlockOverlay::Run(mapped(5, 105)));
        assert_eq!(
            (ranges.get(FileBlock(4)), ranges.get(FileBlock(20))),
            (BlockOverlay::Base(6), BlockOverlay::Base(u32::MAX))
        );
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_list_of_blocks(sets in prop::collection::vec((0_u32..40, 0_u32..20, 0_u64..9), 0..20)) {
            let mut ranges = MovedRanges::default();
            let mut model = [None; 64];
            for (at, len, base) in sets {
                ranges.set(at, mapped(len, base * 1000));
                for i in 0..len {
                    model[usize::try_from(at + i).unwrap()] = Some(base * 1000 + u64::from(i));
                }
            }
            for at in 0..64 {
                let run = match ranges.get(FileBlock(at)) { BlockOverlay::Run(run) => Some(run), BlockOverlay::Base(_) => None };
                let found = run.map(|run| match run.place { Blocks::Mapped(block) => block.0, _ => 0 });
                prop_assert_eq!(found, model[usize::try_from(at).unwrap()]);
            }
        }
    }
}
