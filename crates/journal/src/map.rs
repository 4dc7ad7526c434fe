//! The locations of the blocks of a journal on its device.
//!
//! Invariant: runs are sorted by the block number of the journal and do not overlap, since [`Runs::push`] rejects any
//! other run.

use alloc::vec::Vec;

use obento_base::{Corrupt, Error, Feature, Result, Structure};

/// Maximum number of runs. Every real journal has fewer runs. The limit bounds memory to 16 MiB for any contents of an
/// inode.
const MAX_RUNS: usize = 1 << 20;

/// Blocks of the journal that are contiguous on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First block of the journal.
    pub at: u32,
    /// Block number of this block on the device.
    pub block: u64,
    /// Number of blocks.
    pub len: u32,
}

impl Run {
    /// Returns the journal block after the run.
    fn end(&self) -> u32 {
        self.at.saturating_add(self.len)
    }
}

/// The blocks of a journal, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Runs(Vec<Run>);

impl Runs {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Creates the list for a journal device, on which journal and device have the same block numbers.
    pub fn identity(len: u32) -> Self {
        Self(Vec::from([Run { at: 0, block: 0, len }]))
    }

    /// Appends `run`. A gap between the last run and `run` is a hole.
    ///
    /// # Errors
    ///
    /// 1. `Corrupt`: the run starts before the end of the last one, or a block number exceeds its type.
    /// 2. `Unsupported`: the journal has too many runs.
    pub fn push(&mut self, run: Run) -> Result<()> {
        if run.at < self.len()
            || run.at.checked_add(run.len).is_none()
            || run.block.checked_add(run.len.into()).is_none()
        {
            let (at, start, len) = (run.at.into(), run.block, run.len.into());
            return Err(Corrupt::BlockRange { structure: Structure::Journal, at, start, len }.into());
        }
        if let Some(last) = self.0.last_mut()
            && last.end() == run.at
            && last.block.saturating_add(last.len.into()) == run.block
        {
            last.len = last.len.saturating_add(run.len);
            return Ok(());
        }
        if self.0.len() >= MAX_RUNS {
            return Err(Error::Unsupported(Feature::Named("a journal in more than 2^20 pieces")));
        }
        self.0.try_reserve(1)?;
        self.0.push(run);
        Ok(())
    }

    /// Checks that no block of the device occurs twice in the journal. Fails with `Corrupt` otherwise. Without this
    /// check, a small image could contain a log that takes hours to read.
    pub fn check_distinct(&self) -> Result<()> {
        let mut places: Vec<(u64, &Run)> = Vec::new();
        places.try_reserve_exact(self.0.len())?;
        places.extend(self.0.iter().map(|run| (run.block, run)));
        places.sort_unstable_by_key(|&(block, _)| block);
        let pairs = places.iter().zip(places.iter().skip(1));
        match pairs.into_iter().find(|((start, run), (next, _))| start.saturating_add(run.len.into()) > *next)
        {
            None => Ok(()),
            Some((_, (start, run))) => {
                let (structure, at, len) = (Structure::Journal, run.at.into(), run.len.into());
                Err(Corrupt::BlockRange { structure, at, start: *start, len }.into())
            }
        }
    }

    /// Returns the length of the journal in blocks, including holes.
    pub fn len(&self) -> u32 {
        self.0.last().map_or(0, Run::end)
    }

    /// Returns whether the journal has no blocks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the runs.
    pub fn iter(&self) -> impl Iterator<Item = &Run> {
        self.0.iter()
    }

    /// Returns the journal block that is stored in block `block` of the device, or `None` if the block
    /// belongs to no run.
    pub fn position(&self, block: u64) -> Option<u32> {
        self.0.iter().find_map(|run| {
            let into = u32::try_from(block.checked_sub(run.block)?).ok().filter(|&into| into < run.len)?;
            run.at.checked_add(into)
        })
    }

    /// Returns the block of the device that contains journal block `at`, or `None` in a hole or past the
    /// end.
    pub fn find(&self, at: u32) -> Option<u64> {
        let after = self.0.partition_point(|run| run.at <= at);
        let run = self.0.get(after.checked_sub(1)?)?;
        let into = at.checked_sub(run.at).filter(|&into| into < run.len)?;
        run.block.checked_add(into.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_in_its_run_and_holes_have_none() {
        let mut runs = Runs::new();
        for (at, block, len) in [(0, 100, 2), (2, 102, 2), (6, 50, 1)] {
            runs.push(Run { at, block, len }).unwrap();
        }
        assert_eq!(runs.iter().count(), 2);
        assert_eq!((runs.position(103), runs.position(50), runs.position(104)), (Some(3), Some(6), None));
        let found: Vec<_> = (0..8).map(|at| runs.find(at)).collect();
        assert_eq!(found, [Some(100), Some(101), Some(102), Some(103), None, None, Some(50), None]);
    }

    #[test]
    fn a_block_that_comes_twice_is_corrupt() {
        let mut runs = Runs::new();
        for (at, block, len) in [(0, 100, 10), (10, 50, 50), (60, 110, 5)] {
            runs.push(Run { at, block, len }).unwrap();
        }
        assert_eq!(runs.check_distinct(), Ok(()));
        runs.push(Run { at: 65, block: 99, len: 2 }).unwrap();
        let twice = Corrupt::BlockRange { structure: Structure::Journal, at: 65, start: 99, len: 2 };
        assert_eq!(runs.check_distinct(), Err(twice.into()));
    }

    #[test]
    fn runs_out_of_order_are_refused() {
        let mut runs = Runs::new();
        runs.push(Run { at: 4, block: 1, len: 4 }).unwrap();
        assert!(runs.push(Run { at: 7, block: 9, len: 1 }).is_err());
        assert!(runs.push(Run { at: u32::MAX, block: 9, len: 2 }).is_err());
    }
}
