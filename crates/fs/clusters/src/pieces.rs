//! Clusters that lie together.

use alloc::vec::Vec;

use crate::unit::Cluster;

/// Clusters that lie together: the first, and how many.
pub type Piece = (Cluster, u32);

/// Returns the last cluster of a piece.
pub fn last_of(&(start, len): &Piece) -> Cluster {
    Cluster(start.0.saturating_add(len.saturating_sub(1)))
}

/// The first `count` clusters, or as many as there are, and the others.
pub fn split(pieces: Vec<Piece>, count: u32) -> (Vec<Piece>, Vec<Piece>) {
    let (mut left, mut head) = (count, Vec::new());
    let mut tail = pieces;
    tail.retain_mut(|(start, len)| {
        let taken = left.min(*len);
        if taken > 0 {
            head.push((*start, taken));
        }
        left = left.saturating_sub(taken);
        (*start, *len) = (Cluster(start.0.saturating_add(taken)), len.saturating_sub(taken));
        *len > 0
    });
    (head, tail)
}
