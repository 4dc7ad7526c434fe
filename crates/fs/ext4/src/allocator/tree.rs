//! A tree of maxima: finds a group with at least a given number without examining each.
//!
//! Layout: a binary tree in an array, with the root at 1 and the leaves from `width` on. A node contains the larger
//! of its two children. A change and a search take as many steps as the tree is deep.
#![allow(clippy::arithmetic_side_effects, reason = "the nodes are in memory")]

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_usize;

/// Numbers by place, and their maxima.
#[derive(Debug)]
pub struct MaxTree {
    nodes: Vec<u32>,
    width: usize,
    len: u32,
}

impl MaxTree {
    /// Creates a tree of `len` zeros. Fails with `NoMemory`.
    pub fn new(len: u32) -> Result<Self> {
        let width = to_usize(u64::from(len).max(1).next_power_of_two());
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(width * 2)?;
        nodes.resize(width * 2, 0);
        Ok(Self { nodes, width, len })
    }

    fn node(&self, at: usize) -> u32 {
        self.nodes.get(at).copied().unwrap_or(0)
    }

    fn leaf(&self, place: u32) -> usize {
        self.width + to_usize(place.into())
    }

    /// Returns the number at `place`.
    pub fn get(&self, place: u32) -> u32 {
        self.node(self.leaf(place))
    }

    /// Returns the largest number.
    pub fn max(&self) -> u32 {
        self.node(1)
    }

    /// Changes the number at `place`.
    pub fn set(&mut self, place: u32, value: u32) {
        let mut at = self.leaf(place);
        let Some(leaf) = self.nodes.get_mut(at).filter(|_| place < self.len) else { return };
        *leaf = value;
        while at > 1 {
            at /= 2;
            let larger = self.node(at * 2).max(self.node((at * 2) | 1));
            match self.nodes.get_mut(at) {
                Some(node) if *node != larger => *node = larger,
                _ => return,
            }
        }
    }

    /// Returns the first place from `from` on, with wrap-around, that has at least `least`, which is not 0.
    pub fn next_with(&self, from: u32, least: u32) -> Option<u32> {
        self.first_from(from, least).or_else(|| self.first_from(0, least))
    }

    fn first_from(&self, from: u32, least: u32) -> Option<u32> {
        if from >= self.len {
            return None;
        }
        // Walk up until a subtree to the right contains such a leaf, then down to the leftmost such leaf.
        let mut at = self.leaf(from);
        while self.node(at) < least {
            while at & 1 == 1 {
                at /= 2;
            }
            if at == 0 {
                return None;
            }
            at |= 1;
        }
        while at < self.width {
            let left = at * 2;
            at = if self.node(left) >= least { left } else { left | 1 };
        }
        u32::try_from(at.checked_sub(self.width)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_next_place_with_enough_is_the_one_that_a_walk_finds() {
        for len in [1_u32, 2, 3, 7, 8, 21] {
            let mut tree = MaxTree::new(len).unwrap();
            let values: Vec<u32> = (0..len).map(|n| n.wrapping_mul(2_654_435_761) >> 28).collect();
            for (place, &value) in values.iter().enumerate() {
                tree.set(place as u32, value);
            }
            assert_eq!(tree.max(), values.iter().copied().max().unwrap());
            for from in 0..len {
                for least in 1..17 {
                    let round = (from..len).chain(0..from);
                    let expected = round.into_iter().find(|&place| values[place as usize] >= least);
                    assert_eq!(tree.next_with(from, least), expected, "{len} {from} {least}");
                }
            }
        }
    }

    #[test]
    fn a_missing_place_is_neither_set_nor_found() {
        let mut tree = MaxTree::new(3).unwrap();
        tree.set(3, 9);
        assert_eq!((tree.max(), tree.next_with(0, 1), tree.get(3)), (0, None, 0));
    }
}
