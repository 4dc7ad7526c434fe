//! The bytes of a file: which node contains each of them.
//!
//! Source: Linux `fs/jffs2/readinode.c` (`jffs2_build_inode_fragtree`), `fs/jffs2/nodelist.c`
//! (`jffs2_truncate_fragtree`).
//!
//! Invariant: pieces are sorted and do not overlap. What no piece covers is a hole.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::codec::number;
use crate::nodes::Inode;

/// Unit of holes.
pub const PAGE: u64 = 4096;
/// Most pieces that are joined to one hole.
const JOINED: usize = 4096;

/// A range of a file that one node contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First byte.
    pub start: u64,
    /// End.
    pub end: u64,
    /// The node. Its range may be larger.
    pub node: Inode,
}

/// Where the bytes of a file are.
#[derive(PartialEq, Eq, Debug)]
pub struct Content {
    size: u64,
    pieces: Vec<Piece>,
}

/// Returns the size of a regular file: that of the newest node, but not more than there are bytes.
pub fn size(nodes: &[Inode]) -> u64 {
    let claimed = nodes.last().map_or(0, |node| node.size.into());
    let end = nodes.iter().map(Inode::end).max().unwrap_or(0);
    // Nodes without data do not extend a file.
    claimed.min(end)
}

impl Content {
    /// Overlays nodes, the oldest first.
    pub fn new(nodes: &[Inode]) -> Self {
        let mut map: BTreeMap<u64, (u64, Inode)> = BTreeMap::new();
        for node in nodes.iter().filter(|node| node.len > 0) {
            let (start, end) = (u64::from(node.offset), node.end());
            // The piece that reaches over the start is cut, and split if it reaches over the end as well.
            if let Some((_, (old_end, old))) = map.range_mut(..start).next_back()
                && *old_end > start
            {
                let (rest, whole) = (*old_end, *old);
                *old_end = start;
                if rest > end {
                    map.insert(end, (rest, whole));
                }
            }
            while let Some((&at, &(old_end, old))) = map.range(start..end).next() {
                map.remove(&at);
                if old_end > end {
                    map.insert(end, (old_end, old));
                }
            }
            map.insert(start, (end, *node));
        }
        let size = size(nodes);
        let pieces = map.into_iter().take_while(|(start, _)| *start < size);
        let pieces = pieces.map(|(start, (end, node))| Piece { start, end: end.min(size), node }).collect();
        Self { size, pieces }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the piece that contains `at`, or the next one after a hole.
    pub fn from(&self, at: u64) -> Option<&Piece> {
        self.pieces.get(self.index(at))
    }

    fn index(&self, at: u64) -> usize {
        self.pieces.partition_point(|piece| piece.end <= at)
    }

    /// Returns the end of the zeros that are not stored, from the multiple of a page at or before `at`. The end is a
    /// multiple of a page as well, or `u64::MAX` if there is no data after `at`.
    pub fn hole(&self, at: u64) -> Option<u64> {
        if at >= self.size {
            return Some(u64::MAX);
        }
        let start = at.checked_sub(at.checked_rem(PAGE)?)?;
        let mut end = start;
        let first = self.index(start);
        let mut pieces = self.pieces.get(first..).unwrap_or_default().iter().take(JOINED);
        loop {
            match pieces.next() {
                Some(piece) if piece.node.codec == number::ZERO => end = piece.end,
                Some(piece) => {
                    end = end.max(piece.start);
                    break;
                }
                None => break,
            }
        }
        if end >= self.size || self.index(end) >= self.pieces.len() {
            return Some(u64::MAX);
        }
        let end = end.checked_sub(end.checked_rem(PAGE)?)?;
        (end > at).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(version: u32, offset: u32, len: u32, size: u32) -> Inode {
        Inode { ino: 2, version, at: version, offset, len, stored: len, size, mode: 0o100_644, codec: 0 }
    }

    fn pieces(nodes: &[Inode]) -> Vec<(u64, u64, u32)> {
        Content::new(nodes).pieces.iter().map(|piece| (piece.start, piece.end, piece.node.version)).collect()
    }

    #[test]
    fn newer_nodes_hide_older_ones() {
        let nodes = [node(1, 0, 100, 100), node(2, 40, 20, 100), node(3, 90, 30, 120)];
        assert_eq!(pieces(&nodes), [(0, 40, 1), (40, 60, 2), (60, 90, 1), (90, 120, 3)]);
        let nodes = [node(1, 10, 10, 20), node(2, 30, 10, 40), node(3, 0, 50, 50)];
        assert_eq!(pieces(&nodes), [(0, 50, 3)]);
    }

    #[test]
    fn a_file_ends_where_its_newest_node_says() {
        assert_eq!(pieces(&[node(1, 0, 100, 100), node(2, 0, 0, 30)]), [(0, 30, 1)]);
        assert_eq!(size(&[node(1, 0, 100, 100), node(2, 0, 0, 300)]), 100);
    }

    #[test]
    fn holes_are_whole_pages() {
        let zeros = Inode { codec: number::ZERO, ..node(2, 5000, 11_000, 20_000) };
        let content = Content::new(&[node(1, 0, 5000, 5000), zeros, node(3, 16_000, 4000, 20_000)]);
        assert_eq!(
            [0, 4096, 8192, 12_287, 12_288].map(|at| content.hole(at)),
            [None, None, Some(12_288), Some(12_288), None]
        );
        assert_eq!(content.hole(20_480), Some(u64::MAX));
    }
}
