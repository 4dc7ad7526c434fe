//! Clusters that are reserved for files and become part of them once they are written, and the parts of files that open
//! writes will fill.
//!
//! Invariant: the clusters that are reserved for a file follow its last cluster, in order, and are allocated. A
//! caller that cancels a reservation frees its clusters.
//! Invariant: a cluster of a promised part stays allocated for that part until `end_write` or `abandon` ends the
//! promise. A chain has no holes, so a later write, or a change of the size, may make this cluster part of the file
//! earlier. Until the promise ends, the part then reads as zeros. If a crash ends the promise, the part contains
//! arbitrary bytes.
//! Invariant: a reserved cluster without a promise precedes a promised one. It has arbitrary contents, and is zeroed
//! when it becomes part of the file.

use alloc::vec::Vec;
use core::ops::Range;

use hashbrown::HashMap;
use obento_base::Ino;

use crate::pieces::{Piece, last_of, split};
use crate::promises::Promises;
use crate::unit::Cluster;

/// The reservation of one cluster after the end of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reservation {
    /// The cluster is reserved. Contains the reserved cluster, and the number of contiguous reserved clusters
    /// from it.
    Has(Cluster, u32),
    /// The cluster is not reserved, and all clusters between the end of the file and this cluster are.
    /// Contains the last of these clusters; `None` if the cluster is the first one after the end of the file.
    Next(Option<Cluster>),
    /// Neither the cluster nor the cluster before it is reserved.
    Beyond,
}

/// The reservations of one file.
#[derive(Default)]
struct FileReservations {
    pieces: Vec<Piece>,
    promises: Promises,
}

/// The reservations of all files.
#[derive(Default)]
pub struct Reservations(HashMap<Ino, FileReservations>);

impl Reservations {
    /// Returns whether no file has reservations or promised parts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the files that have reservations or promised parts.
    pub fn files(&self) -> Vec<Ino> {
        self.0.keys().copied().collect()
    }

    /// Returns the reservation of cluster `at` after the end of a file; 0 is the first cluster after the end.
    pub fn at(&self, ino: Ino, at: u32) -> Reservation {
        let (mut left, mut after) = (at, None);
        for piece @ &(start, len) in self.pieces(ino) {
            if left < len {
                return Reservation::Has(Cluster(start.0.saturating_add(left)), len.saturating_sub(left));
            }
            left = left.saturating_sub(len);
            after = Some(last_of(piece));
        }
        if left == 0 { Reservation::Next(after) } else { Reservation::Beyond }
    }

    /// Returns the clusters that are reserved for a file.
    pub fn pieces(&self, ino: Ino) -> &[Piece] {
        self.0.get(&ino).map_or(&[], |file| &file.pieces)
    }

    /// Reserves `piece` after the clusters that are reserved for the file.
    pub fn push(&mut self, ino: Ino, piece: Piece) {
        self.0.entry(ino).or_default().pieces.push(piece);
    }

    /// Promises the new part of the first bytes of `range`, to which a caller writes. Bytes before `shown`
    /// can be read already, and are not promised. The promise covers whole blocks.
    ///
    /// Returns the number of first bytes that [`clip`](Self::clip) selects, and whether these bytes were
    /// promised although they can be read.
    pub fn promise(&mut self, ino: Ino, range: Range<u64>, shown: u64, block: u64) -> (u64, bool) {
        let (len, was_promised) = self.clip(ino, &range, shown, block);
        let blocks = whole_blocks(&(range.start..range.start.saturating_add(len)), block);
        let new = blocks.start.max(shown)..blocks.end;
        if !new.is_empty() {
            self.0.entry(ino).or_default().promises.insert(new);
        }
        (len, was_promised)
    }

    /// Returns how many of the first bytes of `range` have the same state, and whether they are promised and
    /// before `shown`.
    pub fn clip(&self, ino: Ino, range: &Range<u64>, shown: u64, block: u64) -> (u64, bool) {
        let len = range.end.saturating_sub(range.start);
        let Some(file) = self.0.get(&ino) else { return (len, false) };
        let start = whole_blocks(range, block).start;
        let (is_promised, end) = file.promises.state_at(start);
        // A block that can be read in part is not a promised one.
        let end = end.checked_next_multiple_of(block).unwrap_or(end);
        let len =
            if end < shown && end > range.start { len.min(end.saturating_sub(range.start)) } else { len };
        (len, is_promised && start < shown)
    }

    /// Returns the parts of `range` that are not promised.
    pub fn unpromised(&self, ino: Ino, range: Range<u64>) -> Vec<Range<u64>> {
        match self.0.get(&ino) {
            Some(file) => file.promises.gaps(&range),
            None => [range].into_iter().filter(|range| !range.is_empty()).collect(),
        }
    }

    /// Ends the promises of the blocks of `range`. Returns the parts that were promised.
    pub fn fulfil(&mut self, ino: Ino, range: &Range<u64>, block: u64) -> Vec<Range<u64>> {
        let Some(file) = self.0.get_mut(&ino) else { return Vec::new() };
        let removed = file.promises.remove(&whole_blocks(range, block));
        self.drop_empty(ino);
        removed
    }

    /// Promises `part` again, for which a promise ended.
    pub fn restore(&mut self, ino: Ino, part: Range<u64>) {
        if !part.is_empty() {
            self.0.entry(ino).or_default().promises.insert(part);
        }
    }

    /// Ends the reservation of the first `count` reserved clusters of a file. Returns these clusters, which the caller
    /// makes part of the file. Fails with `None`, and changes nothing, if fewer clusters are reserved.
    pub fn redeem(&mut self, ino: Ino, count: u32) -> Option<Vec<Piece>> {
        let reserved = self.pieces(ino).iter().fold(0, |sum: u32, piece| sum.saturating_add(piece.1));
        if reserved < count {
            return None;
        }
        let Some(file) = self.0.get_mut(&ino) else { return Some(Vec::new()) };
        let (redeemed, left) = split(core::mem::take(&mut file.pieces), count);
        file.pieces = left;
        self.drop_empty(ino);
        Some(redeemed)
    }

    /// Cancels the reservations of the clusters that follow all promised parts of a file, which has `linked` clusters
    /// of `cluster_size` bytes. Returns these clusters, which the caller frees.
    pub fn trim(&mut self, ino: Ino, linked: u32, cluster_size: u64) -> Vec<Piece> {
        let Some(file) = self.0.get_mut(&ino) else { return Vec::new() };
        let needed = file.promises.end().div_ceil(cluster_size.max(1));
        let keep = u32::try_from(needed).unwrap_or(u32::MAX).saturating_sub(linked);
        let (kept, given) = split(core::mem::take(&mut file.pieces), keep);
        file.pieces = kept;
        self.drop_empty(ino);
        given
    }

    /// Cancels all reservations and promises of a file. Returns the clusters, which the caller frees.
    pub fn take_back(&mut self, ino: Ino) -> Vec<Piece> {
        self.0.remove(&ino).map_or(Vec::new(), |file| file.pieces)
    }

    /// Cancels all reservations of all files. Returns their clusters, which the caller frees.
    pub fn take_back_all(&mut self) -> Vec<Piece> {
        self.0.drain().flat_map(|(_, file)| file.pieces).collect()
    }

    fn drop_empty(&mut self, ino: Ino) {
        if self.0.get(&ino).is_some_and(|file| file.pieces.is_empty() && file.promises.is_empty()) {
            self.0.remove(&ino);
        }
    }
}

/// Returns the blocks that `range` touches.
fn whole_blocks(range: &Range<u64>, block: u64) -> Range<u64> {
    let start = range.start.saturating_sub(range.start.checked_rem(block).unwrap_or(0));
    start..range.end.checked_next_multiple_of(block).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists contain ranges")]

    use super::*;

    const FILE: Ino = Ino(7);

    fn reserved() -> Reservations {
        let mut reservations = Reservations::default();
        reservations.push(FILE, (Cluster(10), 3));
        reservations.push(FILE, (Cluster(20), 2));
        reservations
    }

    #[test]
    fn a_reservation_is_found_by_its_place_after_the_file() {
        let reservations = reserved();
        assert_eq!(reservations.at(FILE, 1), Reservation::Has(Cluster(11), 2));
        assert_eq!(reservations.at(FILE, 3), Reservation::Has(Cluster(20), 2));
        assert_eq!(reservations.at(FILE, 5), Reservation::Next(Some(Cluster(21))));
        assert_eq!(reservations.at(FILE, 6), Reservation::Beyond);
        assert_eq!(reservations.at(Ino(8), 0), Reservation::Next(None));
    }

    #[test]
    fn used_reservations_are_released() {
        let mut reservations = reserved();
        assert_eq!(reservations.redeem(FILE, 4), Some([(Cluster(10), 3), (Cluster(20), 1)].into()));
        assert_eq!(reservations.at(FILE, 0), Reservation::Has(Cluster(21), 1));
        assert_eq!(reservations.redeem(FILE, 9), None, "fewer are reserved");
        assert_eq!(reservations.redeem(FILE, 1), Some([(Cluster(21), 1)].into()));
        assert!(reservations.is_empty());
    }

    #[test]
    fn an_abandoned_write_releases_only_clusters_that_no_later_write_needs() {
        let mut reservations = reserved();
        // Two clusters for the first write, and two for the second one.
        assert_eq!(reservations.promise(FILE, 0..200, 0, 100), (200, false));
        assert_eq!(reservations.promise(FILE, 200..330, 0, 100), (130, false));
        assert_eq!(reservations.fulfil(FILE, &(0..200), 100), [0..200]);
        assert_eq!(reservations.trim(FILE, 0, 100), [(Cluster(21), 1)]);
        assert_eq!(reservations.unpromised(FILE, 0..400), [0..200]);
        assert_eq!(reservations.fulfil(FILE, &(200..330), 100), [200..400]);
        assert_eq!(reservations.trim(FILE, 0, 100), [(Cluster(10), 3), (Cluster(20), 1)]);
        assert!(reservations.is_empty());
    }

    #[test]
    fn a_promised_part_that_can_be_read_ends_the_runs_around_it() {
        let mut reservations = Reservations::default();
        reservations.promise(FILE, 250..420, 200, 100);
        assert_eq!(reservations.clip(FILE, &(0..900), 200, 100), (900, false), "nothing of it can be read");
        assert_eq!(reservations.clip(FILE, &(0..900), 900, 100), (200, false));
        assert_eq!(reservations.clip(FILE, &(210..900), 900, 100), (290, true));
        assert_eq!(reservations.clip(FILE, &(500..900), 900, 100), (400, false));
        assert_eq!(reservations.take_back(FILE), []);
    }
}
