//! Clusters that are reserved for files and become part of them once they are written.
//!
//! Invariant: the clusters that are reserved for a file follow its last cluster, in order, and are allocated. A
//! caller that cancels a reservation frees its clusters.

use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::Ino;

use crate::pieces::{Piece, last_of, split};
use crate::unit::Cluster;

/// The reservation at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// These clusters are reserved.
    Has(Cluster, u32),
    /// Nothing is reserved there, but everything before it: the last cluster of that.
    Next(Option<Cluster>),
    /// Neither this place nor the one before it is reserved.
    Beyond,
}

/// The reservations of all files.
#[derive(Default)]
pub struct Promises(HashMap<Ino, Vec<Piece>>);

impl Promises {
    /// Returns the reservation of cluster `at` after the end of a file.
    pub fn at(&self, ino: Ino, at: u32) -> Promise {
        let (mut left, mut after) = (at, None);
        for piece @ &(start, len) in self.0.get(&ino).into_iter().flatten() {
            if left < len {
                return Promise::Has(Cluster(start.0.saturating_add(left)), len.saturating_sub(left));
            }
            left = left.saturating_sub(len);
            after = Some(last_of(piece));
        }
        if left == 0 { Promise::Next(after) } else { Promise::Beyond }
    }

    /// Reserves one more piece.
    pub fn push(&mut self, ino: Ino, piece: Piece) {
        self.0.entry(ino).or_default().push(piece);
    }

    /// Ends the reservation of the next `count` clusters, or of as many as exist, and returns them for use.
    pub fn redeem(&mut self, ino: Ino, count: u32) -> Vec<Piece> {
        let (redeemed, left) = split(self.0.remove(&ino).unwrap_or_default(), count);
        if !left.is_empty() {
            self.0.insert(ino, left);
        }
        redeemed
    }

    /// Cancels the reservation of all but the next `keep` clusters. Returns the others.
    pub fn take_back(&mut self, ino: Ino, keep: u32) -> Vec<Piece> {
        let (kept, given) = split(self.0.remove(&ino).unwrap_or_default(), keep);
        if !kept.is_empty() {
            self.0.insert(ino, kept);
        }
        given
    }

    /// Cancels all reservations of all files. Returns their clusters.
    pub fn take_back_all(&mut self) -> Vec<Piece> {
        self.0.drain().flat_map(|(_, promised)| promised).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);

    fn promised() -> Promises {
        let mut promises = Promises::default();
        promises.push(FILE, (Cluster(10), 3));
        promises.push(FILE, (Cluster(20), 2));
        promises
    }

    #[test]
    fn a_promise_is_found_by_its_place_behind_the_file() {
        let promises = promised();
        assert_eq!(promises.at(FILE, 1), Promise::Has(Cluster(11), 2));
        assert_eq!(promises.at(FILE, 3), Promise::Has(Cluster(20), 2));
        assert_eq!(promises.at(FILE, 5), Promise::Next(Some(Cluster(21))));
        assert_eq!(promises.at(FILE, 6), Promise::Beyond);
        assert_eq!(promises.at(Ino(8), 0), Promise::Next(None));
    }

    #[test]
    fn what_is_redeemed_is_promised_no_more() {
        let mut promises = promised();
        assert_eq!(promises.redeem(FILE, 4), [(Cluster(10), 3), (Cluster(20), 1)]);
        assert_eq!(promises.at(FILE, 0), Promise::Has(Cluster(21), 1));
        assert_eq!(promises.redeem(FILE, 9), [(Cluster(21), 1)], "no more than there is");
        assert_eq!(promises.redeem(FILE, 1), []);
    }

    #[test]
    fn what_is_taken_back_leaves_what_comes_before() {
        let mut promises = promised();
        assert_eq!(promises.take_back(FILE, 1), [(Cluster(11), 2), (Cluster(20), 2)]);
        assert_eq!(promises.at(FILE, 0), Promise::Has(Cluster(10), 1));
        assert_eq!(promises.take_back(FILE, 0), [(Cluster(10), 1)]);
        assert_eq!(promises.take_back_all(), []);
    }
}
