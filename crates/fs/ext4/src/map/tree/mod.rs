//! Changing extent trees in memory: nodes are loaded when they are needed, changed, and written by the caller.
//!
//! Two changes exist. [`ExtentTree::splice`] replaces the mappings of a range of the file, which covers inserting,
//! converting and removing. [`ExtentTree::shift_leaf`] moves the mappings of one leaf along the file. `settle.rs`
//! restores the shape of the tree after either.
//! Invariant: the key of an entry is the first key of the node below it, as e2fsck requires (Linux
//! `ext4_ext_correct_indexes`).
//! Invariant: nothing on the volume changes here, so that a failed change is undone by dropping it.
//! Source: Linux `fs/ext4/extents.c`.

mod mapping;
mod node;
mod settle;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::{Deref, Range};

use obento_base::Result;

use super::extents::{Bounds, MAX_DEPTH};
use crate::unit::VolBlock;
use mapping::splice;
use node::{Child, Entries, IndexEntry, TreeNode};
use settle::EntryTrend;

pub(crate) use mapping::{ExtentState, Mapping, push};
pub(crate) use node::{NodeLocation, empty_root, room_in_block};

/// The source of the nodes of a tree.
pub(crate) trait NodeSource {
    type Bytes: Deref<Target = [u8]>;

    /// Returns the node in block `at` after checking it. Its depth must be one less than `parent_depth`, and its
    /// checksum must be right. It must have entries that are in order and within `bounds`.
    fn load(&self, at: VolBlock, parent_depth: u16, bounds: Bounds) -> Result<Self::Bytes>;
}

/// The path to a leaf: each node with the position of the entry that was followed.
type Path = Vec<Step>;

#[derive(Clone, Copy, Debug)]
struct Step {
    node: usize,
    slot: usize,
}

/// The direction in which mappings move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shift {
    /// By this number of blocks towards the start of the file.
    Down(u32),
    /// By this number of blocks towards its end.
    Up(u32),
}

/// An extent tree with those of its nodes that were needed.
pub(crate) struct ExtentTree<'s, S> {
    source: &'s S,
    /// Maximum number of entries of a node that fills a block.
    room: usize,
    /// The root is first. Nodes refer to each other by index, so none is ever removed.
    nodes: Vec<TreeNode>,
    freed: Vec<VolBlock>,
}

impl<'s, S: NodeSource> ExtentTree<'s, S> {
    /// Creates the tree whose root is `i_block`, which was checked. `room` is [`room_in_block`].
    pub fn new(source: &'s S, i_block: &[u8], room: usize) -> Result<Self> {
        let mut nodes = Vec::new();
        nodes.try_reserve(usize::from(MAX_DEPTH))?;
        nodes.push(TreeNode::decode(i_block, NodeLocation::Root)?);
        Ok(Self { source, room, nodes, freed: Vec::new() })
    }

    /// Replaces the mappings of `range` by `new`, which is within it and sorted. The old mappings are added to
    /// `removed`.
    pub fn splice(&mut self, range: Range<u64>, new: &[Mapping], removed: &mut Vec<Mapping>) -> Result<()> {
        let (path, bounds) = self.descend(range.start)?;
        if range.end <= bounds.end {
            return self.splice_leaf(path, &range, new, removed);
        }
        let mut at = range.start;
        while at < range.end {
            let (path, bounds) = self.descend(at)?;
            let part = at..range.end.min(bounds.end);
            self.splice_leaf(path, &part, &[], removed)?;
            at = part.end;
        }
        let (path, _) = self.descend(range.start)?;
        self.splice_leaf(path, &range, new, removed)
    }

    fn splice_leaf(
        &mut self,
        path: Path,
        range: &Range<u64>,
        new: &[Mapping],
        removed: &mut Vec<Mapping>,
    ) -> Result<()> {
        let Some((leaf, list)) = self.leaf_of(&path) else { return Ok(()) };
        if new.is_empty() && !list.iter().any(|mapping| mapping.within(range).is_some()) {
            return Ok(());
        }
        let before = list.len();
        let list = splice(list, range, new, removed)?;
        let trend = if list.len() < before { EntryTrend::Shrank } else { EntryTrend::Grew };
        self.set_entries(leaf, Entries::Leaf(list));
        self.settle(&path, trend)
    }

    /// Moves the mappings at or after `from` in the leaf of `at`, and returns the file blocks that belonged to that
    /// leaf. The caller processes the leaves in an order in which moved mappings do not collide: upwards for
    /// [`Shift::Down`].
    pub fn shift_leaf(&mut self, at: u64, from: u64, shift: Shift) -> Result<Bounds> {
        let (path, bounds) = self.descend(at)?;
        let Some((leaf, list)) = self.leaf_of(&path) else { return Ok(bounds) };
        // A mapping across `from` is divided there; the parts are merged again where possible.
        let mut moved = Vec::new();
        let mut list = splice(list, &(from..u64::MAX), &[], &mut moved)?;
        if moved.is_empty() {
            return Ok(bounds);
        }
        for mapping in &mut moved {
            mapping.start = match shift {
                Shift::Down(by) => mapping.start.saturating_sub(by),
                Shift::Up(by) => mapping.start.saturating_add(by),
            };
        }
        let end = list.last().map_or(0, Mapping::end);
        list = splice(&list, &(end..u64::MAX), &moved, &mut Vec::new())?;
        self.set_entries(leaf, Entries::Leaf(list));
        self.settle(&path, EntryTrend::Grew)?;
        Ok(bounds)
    }

    /// Returns the last mappings in `range`, at most `most` of them and all in one leaf, in order. Also returns the
    /// file block from which on nothing else in `range` is mapped.
    pub fn last_in(&mut self, range: &Range<u64>, most: usize) -> Result<(Vec<Mapping>, u64)> {
        let (path, bounds) = self.descend(range.end.saturating_sub(1))?;
        let start = range.start.max(bounds.start);
        let part = start..range.end;
        let Some((_, list)) = self.leaf_of(&path) else { return Ok((Vec::new(), start)) };
        let mut found = node::reserve(most.min(list.len()))?;
        let mut touching = list.iter().rev().filter_map(|mapping| mapping.within(&part));
        found.extend(touching.by_ref().take(most));
        let from = if touching.next().is_none() {
            start
        } else {
            found.last().map_or(start, |mapping| mapping.start.into())
        };
        found.reverse();
        Ok((found, from))
    }

    /// Returns the mapping that contains the start of `range`, or the first one after it that starts in `range`.
    pub fn first_in(&mut self, range: &Range<u64>) -> Result<Option<Mapping>> {
        let mut at = range.start;
        while at < range.end {
            let (path, bounds) = self.descend(at)?;
            let part = at..range.end.min(bounds.end);
            let found = self.leaf_of(&path).and_then(|(_, list)| {
                let after = list.partition_point(|mapping| mapping.end() <= at);
                list.get(after)?.within(&part)
            });
            if found.is_some() {
                return Ok(found);
            }
            at = part.end;
        }
        Ok(None)
    }

    /// Returns the last mapping that starts before `at`.
    pub fn before(&mut self, at: u64) -> Result<Option<Mapping>> {
        let Some(last) = at.checked_sub(1) else { return Ok(None) };
        let (path, bounds) = self.descend(last)?;
        let found = self.leaf_of(&path).and_then(|(_, list)| {
            let after = list.partition_point(|mapping| u64::from(mapping.start) < at);
            list.get(after.checked_sub(1)?).copied()
        });
        // If the leaf has no mapping before `at`, the previous leaf may have one.
        match found {
            Some(mapping) => Ok(Some(mapping)),
            None if bounds.start == 0 => Ok(None),
            None => {
                let (path, _) = self.descend(bounds.start.saturating_sub(1))?;
                Ok(self.leaf_of(&path).and_then(|(_, list)| list.last().copied()))
            }
        }
    }

    /// Returns the number of nodes that need a block.
    pub fn new_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| node.home == NodeLocation::New).count()
    }

    /// Assigns a block to each new node.
    pub fn place_new(&mut self, mut next: impl FnMut() -> Option<VolBlock>) {
        for node in self.nodes.iter_mut().filter(|node| node.home == NodeLocation::New) {
            if let Some(block) = next() {
                node.home = NodeLocation::Fresh(block);
            }
        }
    }

    /// Returns the nodes whose bytes must be written, including the root.
    pub fn changed(&self) -> impl Iterator<Item = (usize, NodeLocation)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.changed && node.home != NodeLocation::Gone)
            .map(|(id, node)| (id, node.home))
    }

    /// Returns the blocks that no longer contain a node.
    pub fn freed(&self) -> &[VolBlock] {
        &self.freed
    }

    /// Writes node `id` to `bytes`, with its checksum if there is a `seed` and the node has a block of its own.
    pub fn encode(&self, id: usize, bytes: &mut [u8], seed: Option<u32>) {
        let Some(node) = self.nodes.get(id) else { return };
        let place = |child: usize| match self.nodes.get(child).map(|node| node.home) {
            Some(NodeLocation::Block(block) | NodeLocation::Fresh(block)) => block,
            _ => VolBlock(0),
        };
        node.encode(bytes, place);
        if let Some(seed) = seed.filter(|_| node.home != NodeLocation::Root) {
            node.seal(bytes, seed);
        }
    }

    /// Returns the path to the leaf of `at`, and the file blocks of that leaf. Blocks before the first key belong to
    /// the first child.
    fn descend(&mut self, at: u64) -> Result<(Path, Bounds)> {
        let mut path = node::reserve(usize::from(MAX_DEPTH).saturating_add(1))?;
        let (mut node, mut bounds) = (0, Bounds::ALL);
        loop {
            let Some((slot, entry, end)) = self.child_slot(node, at, bounds.end) else {
                path.push(Step { node, slot: 0 });
                return Ok((path, bounds));
            };
            path.push(Step { node, slot });
            let start = u64::from(entry.start);
            node = self.child(node, slot, Bounds { start, end })?;
            bounds = Bounds { start: if slot == 0 { bounds.start } else { start }, end };
        }
    }

    /// Returns the entry of an inner node to follow for `at`, and the end of its range, or `None` for a leaf.
    fn child_slot(&self, node: usize, at: u64, end: u64) -> Option<(usize, IndexEntry, u64)> {
        let Entries::Inner(list) = &self.nodes.get(node)?.entries else { return None };
        let slot = list.partition_point(|entry| u64::from(entry.start) <= at).saturating_sub(1);
        let end = list.get(slot.saturating_add(1)).map_or(end, |next| next.start.into());
        Some((slot, *list.get(slot)?, end))
    }

    /// Returns the node below an entry, loaded if necessary. The depth of a loaded node is one less than its
    /// parent's.
    fn child(&mut self, parent: usize, slot: usize, bounds: Bounds) -> Result<usize> {
        let id = self.nodes.len();
        let Some(parent) = self.nodes.get_mut(parent) else { return Ok(0) };
        let depth = parent.depth;
        let Entries::Inner(list) = &mut parent.entries else { return Ok(0) };
        let Some(entry) = list.get_mut(slot) else { return Ok(0) };
        let at = match entry.child {
            Child::Loaded(id) => return Ok(id),
            Child::Stored(at) => at,
        };
        let node = TreeNode::decode(&self.source.load(at, depth, bounds)?, NodeLocation::Block(at))?;
        entry.child = Child::Loaded(id);
        self.nodes.try_reserve(1)?;
        self.nodes.push(node);
        Ok(id)
    }

    fn leaf_of(&self, path: &Path) -> Option<(usize, &[Mapping])> {
        let id = path.last()?.node;
        match &self.nodes.get(id)?.entries {
            Entries::Leaf(list) => Some((id, list)),
            Entries::Inner(_) => None,
        }
    }

    fn set_entries(&mut self, id: usize, entries: Entries) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.entries = entries;
            node.changed = true;
        }
    }
}
