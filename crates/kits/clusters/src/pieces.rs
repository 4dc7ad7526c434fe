//! Runs of contiguous clusters.

use alloc::vec::Vec;

use crate::unit::Cluster;

/// Contiguous clusters: the first one, and their number.
pub type Piece = (Cluster, u32);

/// Returns the last cluster of a piece.
pub fn last_of(&(start, len): &Piece) -> Cluster {
    Cluster(start.0.saturating_add(len.saturating_sub(1)))
}

/// Returns the clusters of a piece.
pub fn clusters_of((start, len): Piece) -> impl Iterator<Item = Cluster> + use<> {
    (start.0..start.0.saturating_add(len)).map(Cluster)
}

/// Splits `pieces` after `count` clusters.
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
