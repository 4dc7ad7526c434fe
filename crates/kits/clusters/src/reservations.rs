//! Clusters that are reserved for files and become part of them once they are written.
//!
//! Invariant: the clusters that are reserved for a file follow its last cluster, in order, and are allocated. A
//! caller that cancels a reservation frees its clusters.

use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::Ino;

use crate::pieces::{Piece, last_of, split};
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

/// The reservations of all files.
#[derive(Default)]
pub struct Reservations(HashMap<Ino, Vec<Piece>>);

impl Reservations {
    /// Returns the reservation of cluster `at` after the end of a file; 0 is the first cluster after the end.
    pub fn at(&self, ino: Ino, at: u32) -> Reservation {
        let (mut left, mut after) = (at, None);
        for piece @ &(start, len) in self.0.get(&ino).into_iter().flatten() {
            if left < len {
                return Reservation::Has(Cluster(start.0.saturating_add(left)), len.saturating_sub(left));
            }
            left = left.saturating_sub(len);
            after = Some(last_of(piece));
        }
        if left == 0 { Reservation::Next(after) } else { Reservation::Beyond }
    }

    /// Reserves `piece` after the clusters that are reserved for the file.
    pub fn push(&mut self, ino: Ino, piece: Piece) {
        self.0.entry(ino).or_default().push(piece);
    }

    /// Ends the reservation of the first `count` reserved clusters of a file, or of all if fewer are
    /// reserved. Returns these clusters, which the caller makes part of the file.
    pub fn redeem(&mut self, ino: Ino, count: u32) -> Vec<Piece> {
        let (redeemed, left) = split(self.0.remove(&ino).unwrap_or_default(), count);
        if !left.is_empty() {
            self.0.insert(ino, left);
        }
        redeemed
    }

    /// Cancels the reservations of a file except those of its first `keep` reserved clusters. Returns the
    /// other clusters, which the caller frees.
    pub fn take_back(&mut self, ino: Ino, keep: u32) -> Vec<Piece> {
        let (kept, given) = split(self.0.remove(&ino).unwrap_or_default(), keep);
        if !kept.is_empty() {
            self.0.insert(ino, kept);
        }
        given
    }

    /// Cancels all reservations of all files. Returns their clusters, which the caller frees.
    pub fn take_back_all(&mut self) -> Vec<Piece> {
        self.0.drain().flat_map(|(_, reserved)| reserved).collect()
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(reservations.redeem(FILE, 4), [(Cluster(10), 3), (Cluster(20), 1)]);
        assert_eq!(reservations.at(FILE, 0), Reservation::Has(Cluster(21), 1));
        assert_eq!(reservations.redeem(FILE, 9), [(Cluster(21), 1)], "no more than there is");
        assert_eq!(reservations.redeem(FILE, 1), []);
    }

    #[test]
    fn an_undone_change_leaves_the_earlier_ones() {
        let mut reservations = reserved();
        assert_eq!(reservations.take_back(FILE, 1), [(Cluster(11), 2), (Cluster(20), 2)]);
        assert_eq!(reservations.at(FILE, 0), Reservation::Has(Cluster(10), 1));
        assert_eq!(reservations.take_back(FILE, 0), [(Cluster(10), 1)]);
        assert_eq!(reservations.take_back_all(), []);
    }
}
