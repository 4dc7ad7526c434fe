//! The trees: from a root to the leaf of a position.
//!
//! Invariant: a descent has at most [`DEPTH_MAX`] steps, since each child is one level below its parent. A walk moves to
//! greater positions with every leaf, and passes at most as many leaves as the device has room for.
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`struct bch_btree_ptr_v2`, `BTREE_MAX_DEPTH`), `extents_format.h`,
//! `btree_journal_iter.c`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{ControlFlow, RangeInclusive};

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::{BlockDevice, Key as SlotKey, Slots};

use super::id;
use super::key::{Key, OwnedKey, Pos, kind};
use super::node::{self, Context, Node};
use crate::layout::bytes::{bits, u16_at, u64_at};
use crate::layout::super_block::{SECTOR, SuperBlock};

/// Most levels of a tree.
const DEPTH_MAX: u8 = 4;
/// Largest decoded node that a slot of the cache may contain, for the number of slots.
const NODE_COST: usize = 512 << 10;

/// A reference to a node.
#[derive(Clone, Debug)]
pub struct Child {
    /// Sectors at which copies of the node start.
    sectors: Vec<u64>,
    /// Sequence number that the node must have.
    pub seq: Option<u64>,
    /// Bytes that were written.
    pub written: Option<u64>,
    /// Whether the bounds replace those of the node (`BTREE_PTR_RANGE_UPDATED`).
    pub is_range_updated: bool,
    /// First position.
    pub min: Pos,
    /// Last position.
    pub max: Pos,
    /// Level; leaves have 0.
    pub level: u8,
}

impl Child {
    /// Decodes the pointer in a key.
    fn decode(key: Key<'_>, level: u8, device: u8) -> Option<Self> {
        let (start, seq, written, flags, min) = match key.kind {
            kind::BTREE_PTR => (0, None, None, 0, Pos::MIN),
            kind::BTREE_PTR_V2 => {
                let written = Some(u64::from(u16_at(key.value, 16)?).saturating_mul(SECTOR));
                let written = written.filter(|&bytes| bytes > 0);
                let min = Pos::decode(key.value.get(20..)?)?;
                (40, Some(u64_at(key.value, 8)?), written, u16_at(key.value, 18)?, min)
            }
            _ => return None,
        };
        let words = key.value.get(start..)?.chunks_exact(8).filter_map(|word| u64_at(word, 0));
        let own = words.filter(|&word| bits(word, 0, 1) == 1 && bits(word, 48, 56) == device.into());
        let sectors = own.map(|word| bits(word, 4, 48)).collect();
        Some(Self { sectors, seq, written, is_range_updated: flags & 1 == 1, min, max: key.pos, level })
    }

    /// Returns the whole range of a tree that has no root.
    fn nothing() -> Self {
        let sectors = Vec::new();
        Self {
            sectors,
            seq: None,
            written: None,
            is_range_updated: true,
            min: Pos::MIN,
            max: Pos::MAX,
            level: 0,
        }
    }
}

/// Ranges of sequence numbers.
///
/// Invariant: they are sorted and do not touch each other, so that a search does not depend on their number.
#[derive(Clone, Debug, Default)]
pub struct Ignored(Vec<(u64, u64)>);

impl Ignored {
    /// Sorts ranges and joins those that touch. The end of a range is not part of it.
    pub fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        ranges.dedup_by(|(start, end), (_, last)| {
            let touches = *start <= *last;
            if touches {
                *last = (*last).max(*end);
            }
            touches
        });
        Self(ranges)
    }

    fn contains(&self, seq: u64) -> bool {
        let before = self.0.partition_point(|&(start, _)| start <= seq);
        before.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|&(_, end)| seq < end)
    }
}

/// The changes of the journal that the nodes do not contain.
#[derive(Debug, Default)]
pub struct Overlay {
    /// The newest key of each position.
    pub keys: BTreeMap<(u8, u8, Pos), OwnedKey>,
    /// Sequence numbers of the journal that never happened.
    pub ignored: Ignored,
    /// The newest sequence number; sets with greater ones are ignored.
    pub newest: Option<u64>,
}

impl Overlay {
    /// Returns the keys of a range.
    pub fn keys(&self, tree: u8, level: u8, range: RangeInclusive<Pos>) -> impl Iterator<Item = Key<'_>> {
        let (start, end) = range.into_inner();
        let range = (start <= end).then_some((tree, level, start)..=(tree, level, end));
        range.into_iter().flat_map(|range| self.keys.range(range)).map(|(_, key)| key.borrow())
    }

    /// Returns whether a set with this sequence number is ignored (`bch2_journal_seq_is_blacklisted`).
    pub fn is_ignored(&self, seq: u64) -> bool {
        self.newest.is_some_and(|newest| seq > newest) || self.ignored.contains(seq)
    }
}

/// The trees of a volume.
pub struct Trees {
    device: Arc<dyn BlockDevice>,
    roots: BTreeMap<u8, Child>,
    overlay: Overlay,
    nodes: Slots<Place, Arc<Node>>,
}

/// A node and the range for which it was decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    tree: u8,
    level: u8,
    sector: u64,
    min: Pos,
    max: Pos,
}

impl SlotKey for Place {
    fn number(&self) -> u64 {
        (self.sector, self.tree.into()).number()
    }
}

/// A leaf, and the last position for which it is responsible.
struct Leaf {
    node: Result<Arc<Node>>,
    max: Pos,
}

impl Trees {
    /// Creates the trees from the keys of their roots.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        super_block: &SuperBlock,
        roots: &BTreeMap<u8, (u8, OwnedKey)>,
        overlay: Overlay,
        cache: usize,
    ) -> Result<Self> {
        let mut children = BTreeMap::new();
        for (&tree, (level, key)) in roots {
            let damaged = || {
                let structure = Structure::Tree(id::name(tree));
                Corrupt::Field { structure, field: "root", block: 0, offset: 0, found: u64::from(key.kind) }
            };
            if *level >= DEPTH_MAX {
                return Err(damaged().into());
            }
            let child = Child::decode(key.borrow(), *level, super_block.device).ok_or_else(damaged)?;
            children.insert(tree, child);
        }
        let slots = cache.checked_div(NODE_COST).unwrap_or(0).clamp(8, 256);
        Ok(Self { device, roots: children, overlay, nodes: Slots::new(slots) })
    }

    /// Passes the keys from `from` on to `f`, until it breaks. A node that cannot be read is passed as an error, and the
    /// walk continues after it.
    pub fn walk(
        &self,
        super_block: &SuperBlock,
        tree: u8,
        from: Pos,
        f: &mut dyn FnMut(Result<Key<'_>>) -> ControlFlow<()>,
    ) {
        let mut at = Some(from);
        // Each leaf that a sound tree has takes a node of the device.
        let node = u64::from(super_block.node_sectors()).saturating_mul(SECTOR);
        let mut budget =
            self.device.len().checked_div(node).unwrap_or(0).saturating_mul(2).saturating_add(16);
        while let Some(start) = at {
            let Some(leaf) = self.leaf(super_block, tree, start) else { return };
            let flow = match leaf.node {
                Err(error) => f(Err(error)),
                Ok(node) => (node.first_from(start)..)
                    .map_while(|index| node.key(index))
                    .try_for_each(|key| f(Ok(key))),
            };
            if flow.is_break() {
                return;
            }
            budget = budget.saturating_sub(1);
            if budget == 0 {
                let structure = Structure::Tree(id::name(tree));
                let error = Corrupt::Field { structure, field: "leaves", block: 0, offset: 0, found: 0 };
                let _ = f(Err(error.into()));
                return;
            }
            at = leaf.max.next();
        }
    }

    /// Returns the leaf of a position, or `None` past the last one.
    fn leaf(&self, super_block: &SuperBlock, tree: u8, from: Pos) -> Option<Leaf> {
        let mut child = match self.roots.get(&tree) {
            Some(root) => Child { min: Pos::MIN, ..root.clone() },
            None => Child::nothing(),
        };
        loop {
            let node = match self.node(super_block, tree, &child) {
                Ok(node) => node,
                Err(error) => return Some(Leaf { node: Err(error), max: child.max }),
            };
            if child.level == 0 {
                return Some(Leaf { node: Ok(node), max: child.max });
            }
            let index = node.first_from(from);
            let key = node.key(index)?;
            let min = match index.checked_sub(1).and_then(|before| node.key(before)) {
                Some(before) => before.pos.next()?,
                None => child.min,
            };
            let below = child.level.saturating_sub(1);
            child = match Child::decode(key, below, super_block.device) {
                Some(next) => Child { min: min.max(next.min), ..next },
                None => {
                    let structure = Structure::Tree(id::name(tree));
                    let found = key.kind.into();
                    let error = Corrupt::Field { structure, field: "pointer", block: 0, offset: 0, found };
                    return Some(Leaf { node: Err(error.into()), max: key.pos });
                }
            };
        }
    }

    /// Reads a node, from the first of its copies that can be used.
    fn node(&self, super_block: &SuperBlock, tree: u8, child: &Child) -> Result<Arc<Node>> {
        let sector = child.sectors.first().copied().unwrap_or(0);
        let key = Place { tree, level: child.level, sector, min: child.min, max: child.max };
        if let Some(node) = self.nodes.get(&key) {
            return Ok(node);
        }
        let structure = Structure::Tree(id::name(tree));
        if child.sectors.is_empty() && child.seq.is_none() {
            let node = node::empty(child, tree, &self.overlay);
            let error = Corrupt::Field { structure, field: "keys", block: 0, offset: 0, found: 0 };
            return node.map(Arc::new).ok_or_else(|| error.into());
        }
        let context = Context { super_block, overlay: &self.overlay };
        let error = Corrupt::Field { structure, field: "pointers", block: 0, offset: 0, found: 0 };
        let mut first = Error::from(error);
        for (index, &sector) in child.sectors.iter().enumerate() {
            match self.read(super_block, tree, child, sector, &context) {
                Ok(node) => return Ok(self.nodes.put(key, Arc::new(node))),
                Err(error) if index == 0 => first = error,
                Err(_) => {}
            }
        }
        Err(first)
    }

    fn read(
        &self,
        super_block: &SuperBlock,
        tree: u8,
        child: &Child,
        sector: u64,
        context: &Context<'_>,
    ) -> Result<Node> {
        let len = u64::from(super_block.node_sectors()).saturating_mul(SECTOR);
        let len = child.written.map_or(len, |written| written.min(len));
        let mut bytes = vec![0; to_usize(len)];
        self.device.read_at(sector.saturating_mul(SECTOR), &mut bytes)?;
        let block = sector.checked_div(super_block.block_sectors.into()).unwrap_or(0);
        node::decode(&bytes, tree, child, block, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_of_sequence_numbers_are_joined() {
        let ignored = Ignored::new(vec![(30, 20), (5, 7), (1, 3), (6, 9), (9, 10), (2, 2), (12, u64::MAX)]);
        assert_eq!(ignored.0, [(1, 3), (5, 10), (12, u64::MAX)]);
        let found: Vec<u64> = (0..14).filter(|&seq| ignored.contains(seq)).collect();
        assert_eq!(found, [1, 2, 5, 6, 7, 8, 9, 12, 13]);
    }
}
