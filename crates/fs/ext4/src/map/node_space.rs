//! Blocks that are reserved for nodes of maps: for writes that callers accepted and will publish later.
//!
//! Invariant: an entry exists as long as a part of its range is neither published nor released.
//! Locking: a leaf lock.

use alloc::vec::Vec;
use core::ops::Range;

use hashbrown::HashMap;
use obento_base::{Error, Ino, Result};
use obento_env::sync::Mutex;
use obento_env::sync::atomic::{AtomicBool, Ordering};

use crate::allocator::BlockRun;

/// The blocks for the nodes of one range of a file.
#[derive(Debug)]
struct RangeNodes {
    /// The parts of the range, in file blocks, that are neither published nor released.
    left: Vec<Range<u64>>,
    runs: Vec<BlockRun>,
}

/// The blocks for nodes of all files.
#[derive(Debug, Default)]
pub(crate) struct NodeSpaceTable {
    files: Mutex<HashMap<Ino, Vec<RangeNodes>>>,
    /// Whether there are any entries: writes test this first.
    any: AtomicBool,
}

impl NodeSpaceTable {
    /// Records that `runs` are reserved for the nodes that `blocks` of a file need. If memory is short, returns `runs`.
    pub fn add(&self, ino: Ino, blocks: Range<u64>, runs: Vec<BlockRun>) -> Result<(), Vec<BlockRun>> {
        let mut files = self.files.lock();
        let mut left = Vec::new();
        if files.try_reserve(1).is_err() || left.try_reserve_exact(1).is_err() {
            return Err(runs);
        }
        let entries = files.entry(ino).or_default();
        if entries.try_reserve(1).is_err() {
            return Err(runs);
        }
        left.push(blocks);
        entries.push(RangeNodes { left, runs });
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes and returns up to `count` runs that are reserved for nodes of `blocks`. Fails with `NoMemory`, and then
    /// removes nothing: without these runs, a full volume has no room for the nodes.
    pub fn take(&self, ino: Ino, blocks: &Range<u64>, count: usize) -> Result<Vec<BlockRun>> {
        let mut taken = Vec::new();
        if count == 0 || !self.has_any() {
            return Ok(taken);
        }
        taken.try_reserve_exact(count)?;
        let mut files = self.files.lock();
        let entries = files.get_mut(&ino).map_or(&mut [][..], Vec::as_mut_slice);
        for entry in entries.iter_mut().filter(|entry| entry.left.iter().any(|left| overlap(left, blocks))) {
            while taken.len() < count
                && let Some(run) = entry.runs.pop()
            {
                taken.push(run);
            }
        }
        Ok(taken)
    }

    /// Returns a run that [`Self::take`] removed to the ranges of `blocks`. Returns whether one of these ranges still
    /// exists. Needs no memory.
    pub fn put_back(&self, ino: Ino, blocks: &Range<u64>, run: BlockRun) -> bool {
        let mut files = self.files.lock();
        let entries = files.get_mut(&ino).map_or(&mut [][..], Vec::as_mut_slice);
        let mut entries =
            entries.iter_mut().filter(|entry| entry.left.iter().any(|left| overlap(left, blocks)));
        // The list from which the run was removed still has the room.
        let entry = entries.find(|entry| entry.runs.len() < entry.runs.capacity());
        entry.map(|entry| entry.runs.push(run)).is_some()
    }

    /// Records that `blocks` were published or released. Returns the runs that no range needs any more. If memory is
    /// short, they stay reserved until the file has no user.
    pub fn end(&self, ino: Ino, blocks: &Range<u64>) -> Vec<BlockRun> {
        let mut ended = Vec::new();
        if !self.has_any() {
            return ended;
        }
        let mut files = self.files.lock();
        let Some(entries) = files.get_mut(&ino) else { return ended };
        entries.retain_mut(|entry| {
            if let Ok(left) = without(&entry.left, blocks) {
                entry.left = left;
            }
            let is_over = entry.left.is_empty() && ended.try_reserve(entry.runs.len()).is_ok();
            if is_over {
                ended.append(&mut entry.runs);
            }
            !is_over
        });
        if entries.is_empty() {
            files.remove(&ino);
        }
        self.any.store(!files.is_empty(), Ordering::Release);
        ended
    }

    /// Removes and returns all runs of a file.
    pub fn take_all(&self, ino: Ino) -> Vec<BlockRun> {
        self.end(ino, &(0..u64::MAX))
    }

    fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns `ranges`, which do not overlap, without `part`.
pub(super) fn without(ranges: &[Range<u64>], part: &Range<u64>) -> Result<Vec<Range<u64>>> {
    let mut left = Vec::new();
    // At most one of the ranges leaves two parts.
    left.try_reserve(ranges.len().saturating_add(1)).map_err(|_| Error::NoMemory)?;
    for range in ranges {
        let parts = [range.start..range.end.min(part.start), range.start.max(part.end)..range.end];
        left.extend(parts.into_iter().filter(|part| !part.is_empty()));
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::VolBlock;

    const INO: Ino = Ino(12);

    fn run(start: u64) -> BlockRun {
        BlockRun { start: VolBlock(start), len: 1 }
    }

    #[test]
    fn nodes_stay_reserved_until_the_whole_range_is_published_or_released() {
        let table = NodeSpaceTable::default();
        assert_eq!(table.take(INO, &(0..9), 1), Ok(Vec::new()));
        table.add(INO, 10..20, std::vec![run(1), run(2), run(3)]).unwrap();
        table.add(INO, 30..31, std::vec![run(4)]).unwrap();
        assert_eq!(table.take(INO, &(0..10), 1), Ok(Vec::new()));
        assert_eq!(table.take(Ino(13), &(10..11), 1), Ok(Vec::new()));
        assert_eq!(table.take(INO, &(10..12), 1), Ok(std::vec![run(3)]));
        assert_eq!(table.end(INO, &(10..14)), []);
        assert_eq!(table.take(INO, &(10..14), 1), Ok(Vec::new()), "the range has ended");
        assert_eq!(table.end(INO, &(16..40)), [run(4)]);
        assert_eq!(table.end(INO, &(14..16)), [run(1), run(2)]);
        assert!(!table.has_any());
    }

    #[test]
    fn a_run_that_is_not_used_returns_to_its_range_until_the_range_ends() {
        let table = NodeSpaceTable::default();
        table.add(INO, 10..20, std::vec![run(1), run(2)]).unwrap();
        assert_eq!(table.take(INO, &(15..16), 2), Ok(std::vec![run(2), run(1)]));
        assert!(!table.put_back(INO, &(20..21), run(1)) && !table.put_back(Ino(13), &(15..16), run(1)));
        assert!(table.put_back(INO, &(15..16), run(1)) && table.put_back(INO, &(15..16), run(2)));
        assert_eq!(table.take(INO, &(15..16), 1), Ok(std::vec![run(2)]));
        assert_eq!(table.end(INO, &(0..30)), [run(1)]);
        assert!(!table.put_back(INO, &(15..16), run(2)));
    }

    #[test]
    fn a_file_without_users_has_no_nodes_reserved() {
        let table = NodeSpaceTable::default();
        table.add(INO, 10..20, std::vec![run(1)]).unwrap();
        table.add(Ino(13), 10..20, std::vec![run(2)]).unwrap();
        assert_eq!(table.take_all(INO), [run(1)]);
        assert_eq!(table.take(Ino(13), &(19..20), 7), Ok(std::vec![run(2)]));
        assert_eq!(table.take_all(Ino(13)), []);
        assert!(!table.has_any());
    }
}
