//! Space that is reserved for blocks of files, in memory only. It contains blocks that were returned to a caller that
//! has not ended its write. It also contains blocks ahead of appends, so that appended blocks are contiguous.
//!
//! Invariant: no two reservations of a file overlap, in the file or on the volume. With clusters, each is whole
//! clusters.
//! Locking: a leaf lock.

use alloc::vec::Vec;
use core::ops::Range;

use hashbrown::HashMap;
use obento_base::{Error, Ino, Result, Timestamp};
use obento_env::sync::Mutex;
use obento_env::sync::atomic::{AtomicI64, Ordering};

use super::node_space::without;
use super::tree::{ExtentState, Mapping};
use crate::unit::VolBlock;

/// Maximum number of runs ahead of one file: enough for a few streams of appends and writes into holes.
const MOST_AHEAD: usize = 4;
/// Seconds between searches for old reservations.
const LOOK_AFTER: i64 = 5;

/// A run of the volume.
pub(crate) type Run = (VolBlock, u64);

/// The reservations of one file.
#[derive(Debug, Default)]
struct Reservations {
    /// Blocks that were returned to a caller, sorted by file block. With clusters, each is whole clusters.
    handed: Vec<Mapping>,
    /// With clusters, the blocks in `handed` that callers write to. A cluster remains reserved while it has one.
    open: Vec<Range<u64>>,
    /// Blocks ahead; the run that was used last is at the end.
    ahead: Vec<Mapping>,
    /// Time of the last write to the file.
    used: Option<Timestamp>,
}

/// The reservations of all files.
#[derive(Debug, Default)]
pub(crate) struct ReservationTable {
    files: Mutex<HashMap<Ino, Reservations>>,
    /// The second of the last search for old reservations.
    looked: AtomicI64,
}

impl ReservationTable {
    /// Returns whether a search for old reservations is due, and if so records it as done.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let last = self.looked.load(Ordering::Relaxed);
        let is_due = now.secs().saturating_sub(last) >= LOOK_AFTER || now.secs() < last;
        if is_due {
            self.looked.store(now.secs(), Ordering::Relaxed);
        }
        is_due
    }

    /// Returns the reserved part of `range` from its first block on, and records it as returned to a caller.
    pub fn hand_out(&self, ino: Ino, range: &Range<u64>, now: Timestamp) -> Result<Option<Mapping>> {
        let mut table = self.files.lock();
        let Some(reservations) = table.get_mut(&ino) else { return Ok(None) };
        reservations.used = Some(now);
        let starts = |found: &Mapping| found.range().start == range.start;
        let within = |mapping: &Mapping| mapping.within(range).filter(starts);
        if let Some(found) = reservations.handed.iter().find_map(within) {
            return Ok(Some(found));
        }
        let found =
            reservations.ahead.iter().enumerate().find_map(|(at, mapping)| Some((at, within(mapping)?)));
        let Some((at, found)) = found else { return Ok(None) };
        reservations.handed.try_reserve(1)?;
        reservations.ahead.try_reserve(2)?;
        let whole = reservations.ahead.remove(at);
        let ends = [0..found.range().start, found.end()..u64::MAX];
        reservations.ahead.extend(ends.iter().filter_map(|end| whole.within(end)));
        reservations.hand(found);
        Ok(Some(found))
    }

    /// Records that `mapping` was reserved and its blocks in `handed` were returned to a caller. Returns blocks ahead
    /// that are given up.
    pub fn add(&self, ino: Ino, mapping: Mapping, handed: &Range<u64>, now: Timestamp) -> Result<Vec<Run>> {
        let mut table = self.files.lock();
        table.try_reserve(1).map_err(|_| Error::NoMemory)?;
        let reservations = table.entry(ino).or_default();
        reservations.handed.try_reserve(1)?;
        reservations.ahead.try_reserve(2)?;
        reservations.used = Some(now);
        if let Some(handed) = mapping.within(handed) {
            reservations.hand(handed);
        }
        let ends = [0..handed.start, handed.end..u64::MAX];
        reservations.ahead.extend(ends.iter().filter_map(|end| mapping.within(end)));
        let surplus = reservations.ahead.len().saturating_sub(MOST_AHEAD);
        Ok(reservations.ahead.drain(..surplus).map(|mapping| run(&mapping)).collect())
    }

    /// Records that a caller writes to `blocks`, which are parts of clusters.
    pub fn open(&self, ino: Ino, blocks: Range<u64>) -> Result<()> {
        let mut table = self.files.lock();
        let Some(reservations) = table.get_mut(&ino) else { return Ok(()) };
        reservations.close(&blocks)?;
        reservations.open.try_reserve(1)?;
        reservations.open.push(blocks);
        Ok(())
    }

    /// Records that no caller writes to `blocks` any more. Returns whether callers write to other blocks of each of
    /// `clusters`. If memory is short, the blocks count as written to.
    pub fn close(&self, ino: Ino, blocks: &Range<u64>, clusters: [&Range<u64>; 2]) -> [bool; 2] {
        let mut table = self.files.lock();
        let Some(reservations) = table.get_mut(&ino) else { return [false; 2] };
        let _ = reservations.close(blocks);
        let is_open = |cluster: &Range<u64>| {
            reservations.open.iter().any(|open| open.start < cluster.end && cluster.start < open.end)
        };
        clusters.map(is_open)
    }

    /// Returns whether block `at` is ahead of the file, and not returned to a caller.
    pub fn is_ahead(&self, ino: Ino, at: u64) -> bool {
        let table = self.files.lock();
        let ahead = table.get(&ino).map_or(&[][..], |reservations| &reservations.ahead);
        ahead.iter().any(|mapping| mapping.range().contains(&at))
    }

    /// Returns the number of blocks that were returned to callers.
    pub fn handed_blocks(&self, ino: Ino) -> u64 {
        let table = self.files.lock();
        let handed = table.get(&ino).map_or(&[][..], |reservations| &reservations.handed);
        handed.iter().map(|mapping| u64::from(mapping.len)).fold(0, u64::saturating_add)
    }

    /// Returns the start of the first reservation at or after `at`.
    pub fn next_start(&self, ino: Ino, at: u64) -> Option<u64> {
        let table = self.files.lock();
        let reservations = table.get(&ino)?;
        let starts =
            reservations.handed.iter().chain(&reservations.ahead).map(|mapping| mapping.range().start);
        starts.filter(|&start| start >= at).min()
    }

    /// Returns the number of blocks ahead of all files. They count as free, since they are given up if space is
    /// needed.
    pub fn ahead_blocks(&self) -> u64 {
        let table = self.files.lock();
        let ahead = table.values().flat_map(|reservations| &reservations.ahead);
        ahead.map(|mapping| u64::from(mapping.len)).fold(0, u64::saturating_add)
    }

    /// Returns the part of `range` that was returned to callers.
    pub fn handed(&self, ino: Ino, range: &Range<u64>) -> Vec<Mapping> {
        let table = self.files.lock();
        let handed = table.get(&ino).map_or(&[][..], |reservations| &reservations.handed);
        handed.iter().filter_map(|mapping| mapping.within(range)).collect()
    }

    /// Removes and returns the part of `range` that was returned to callers.
    pub fn take_handed(&self, ino: Ino, range: &Range<u64>) -> Vec<Mapping> {
        let mut table = self.files.lock();
        let Some(reservations) = table.get_mut(&ino) else { return Vec::new() };
        let taken: Vec<_> = reservations.handed.iter().filter_map(|mapping| mapping.within(range)).collect();
        if !taken.is_empty() {
            let ends = [0..range.start, range.end..u64::MAX];
            let old = core::mem::take(&mut reservations.handed);
            let kept = old.iter().flat_map(|mapping| ends.iter().filter_map(|end| mapping.within(end)));
            reservations.handed = kept.collect();
            let _ = reservations.close(range);
        }
        taken
    }

    /// Turns the part of `range` that was returned to callers into blocks ahead. Returns blocks ahead that are given
    /// up.
    pub fn put_back(&self, ino: Ino, range: &Range<u64>) -> Vec<Run> {
        let unused = self.take_handed(ino, range);
        let mut table = self.files.lock();
        let Some(reservations) = table.get_mut(&ino) else { return Vec::new() };
        if reservations.ahead.try_reserve(unused.len()).is_err() {
            return unused.iter().map(run).collect();
        }
        unused.into_iter().for_each(|part| reservations.keep(part));
        let surplus = reservations.ahead.len().saturating_sub(MOST_AHEAD);
        reservations.ahead.drain(..surplus).map(|mapping| run(&mapping)).collect()
    }

    /// Removes and returns all reservations of a file.
    pub fn take_all(&self, ino: Ino) -> Vec<Run> {
        let Some(reservations) = self.files.lock().remove(&ino) else { return Vec::new() };
        reservations.handed.iter().chain(&reservations.ahead).map(run).collect()
    }

    /// Removes and returns blocks ahead of files without a write since `then`, or of all files.
    pub fn take_ahead(&self, then: Option<Timestamp>) -> Vec<Run> {
        let mut ended = Vec::new();
        let is_old = |used: Option<Timestamp>| then.is_none_or(|then| used < Some(then));
        self.files.lock().retain(|_, reservations| {
            if is_old(reservations.used) {
                ended.extend(reservations.ahead.drain(..).map(|mapping| run(&mapping)));
            }
            !(reservations.ahead.is_empty() && reservations.handed.is_empty())
        });
        ended
    }
}

impl Reservations {
    /// Removes `blocks` from those that callers write to. Changes nothing if memory is short.
    fn close(&mut self, blocks: &Range<u64>) -> Result<()> {
        self.open = without(&self.open, blocks)?;
        Ok(())
    }

    /// Records a part as returned to a caller. Memory for it was reserved.
    fn hand(&mut self, part: Mapping) {
        let at = self.handed.partition_point(|mapping| mapping.start < part.start);
        match at.checked_sub(1).and_then(|last| self.handed.get_mut(last)) {
            Some(last) if last.is_followed_by(&part) => last.len = last.len.saturating_add(part.len),
            _ => self.handed.insert(at, part),
        }
    }

    /// Records a part as blocks ahead, merged with what follows it. Memory for it was reserved.
    fn keep(&mut self, part: Mapping) {
        match self.ahead.iter_mut().find(|next| part.is_followed_by(next)) {
            Some(next) => *next = Mapping { len: part.len.saturating_add(next.len), ..part },
            None => self.ahead.push(part),
        }
    }
}

/// Returns a reservation of the `len` blocks at `place` for those of the file from `start` on.
pub(crate) fn reservation(start: u32, place: VolBlock, len: u32) -> Mapping {
    Mapping { start, len, place, state: ExtentState::Unwritten }
}

fn run(mapping: &Mapping) -> Run {
    (mapping.place, mapping.len.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(12);

    fn now(secs: i64) -> Timestamp {
        Timestamp::new(secs, 0)
    }

    #[test]
    fn appends_use_reserved_blocks_in_order() {
        let table = ReservationTable::default();
        assert_eq!(table.hand_out(INO, &(0..1), now(0)), Ok(None));
        assert_eq!(table.add(INO, reservation(0, VolBlock(100), 16), &(0..1), now(0)), Ok(Vec::new()));
        assert_eq!(table.take_handed(INO, &(0..1)), [reservation(0, VolBlock(100), 1)]);
        assert_eq!(table.hand_out(INO, &(1..3), now(0)), Ok(Some(reservation(1, VolBlock(101), 2))));
        assert_eq!(table.hand_out(INO, &(3..90), now(0)), Ok(Some(reservation(3, VolBlock(103), 13))));
        assert_eq!(table.handed(INO, &(2..9)), [reservation(2, VolBlock(102), 7)]);
        assert_eq!(table.hand_out(INO, &(16..17), now(0)), Ok(None));
        assert_eq!(table.take_all(INO), [(VolBlock(101), 15)]);
    }

    #[test]
    fn handed_out_blocks_outlive_the_reservation() {
        let table = ReservationTable::default();
        table.add(INO, reservation(8, VolBlock(100), 16), &(10..12), now(5)).unwrap();
        assert_eq!(table.take_ahead(Some(now(5))), []);
        assert_eq!(table.take_ahead(Some(now(6))), [(VolBlock(100), 2), (VolBlock(104), 12)]);
        assert_eq!(table.hand_out(INO, &(10..12), now(7)), Ok(Some(reservation(10, VolBlock(102), 2))));
        assert_eq!(table.take_handed(INO, &(11..12)), [reservation(11, VolBlock(103), 1)]);
        assert_eq!(table.take_all(INO), [(VolBlock(102), 1)]);
    }

    #[test]
    fn reserved_unused_blocks_are_kept_for_the_next_append() {
        let table = ReservationTable::default();
        table.add(INO, reservation(0, VolBlock(100), 32), &(0..16), now(0)).unwrap();
        assert_eq!(table.take_handed(INO, &(0..2)), [reservation(0, VolBlock(100), 2)]);
        assert_eq!(table.put_back(INO, &(2..16)), []);
        assert_eq!((table.handed(INO, &(0..32)), table.ahead_blocks()), (std::vec![], 30));
        assert_eq!(table.hand_out(INO, &(2..30), now(0)), Ok(Some(reservation(2, VolBlock(102), 28))));
        assert_eq!(table.put_back(Ino(13), &(2..30)), []);
    }

    #[test]
    fn too_many_reservations_end_the_oldest() {
        let table = ReservationTable::default();
        for n in 0..4_u32 {
            let place = VolBlock(u64::from(n) * 1000);
            assert_eq!(table.add(INO, reservation(n * 100, place, 8), &(0..0), now(0)), Ok(Vec::new()));
        }
        let ended = table.add(INO, reservation(900, VolBlock(9000), 8), &(900..901), now(0));
        assert_eq!(ended, Ok(std::vec![(VolBlock(0), 8)]));
    }
}
