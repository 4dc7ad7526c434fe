//! Restoring the shape of a tree after a leaf changed. Nodes that are too full are split, empty nodes are removed, and
//! a sparse node is merged with its neighbour. The root gets a level or absorbs the only node below it.
//!
//! Source: Linux `fs/ext4/extents.c` `ext4_ext_split`, `ext4_ext_grow_indepth`, `ext4_ext_rm_idx`,
//! `ext4_ext_try_to_merge_up`.
#![allow(clippy::arithmetic_side_effects, reason = "the entries are in memory")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};

use super::mapping::MAX_UNWRITTEN;
use super::node::{Child, Entries, IndexEntry, NodeLocation, TreeNode, reserve};
use super::{Bounds, ExtentTree, Mapping, NodeSource, Path, Step};
use crate::map::extents::MAX_DEPTH;

/// Whether a node has fewer entries than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryTrend {
    Grew,
    Shrank,
}

/// The division of the entries of a node that is too full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Division {
    /// Evenly.
    Even,
    /// All nodes but the last are full: at the end of the file, where the next entries will be added.
    Front,
}

/// Maximum number of extents that exist only while space is published in parts: a part divides an extent of unwritten
/// blocks, at both ends and at the maximum length of an extent.
const PARTIAL: usize = 3;

impl<S: NodeSource> ExtentTree<'_, S> {
    /// Returns the maximum number of new nodes if `new`, the mappings that fill `range`, become part of the tree in
    /// parts, in the order of the file. Leaves the tree with these mappings.
    ///
    /// Holes that are filled in parts never have more extents than those that are filled at once; other extents do. If a
    /// node must be divided, its division may leave a full node where the next extent belongs, which is then divided
    /// evenly. So each level gets at most two more nodes, and the tree one more level.
    pub fn nodes_to_publish(&mut self, range: &Range<u64>, new: &[Mapping]) -> Result<usize> {
        let depth = self.nodes.first().map_or(0, |root| usize::from(root.depth));
        let has_room = self.first_in(range)?.is_none() || self.have_room(range, new.len() + PARTIAL)?;
        self.splice(range.clone(), new, &mut Vec::new())?;
        let fresh = self.new_nodes();
        Ok(if fresh == 0 && has_room { 0 } else { fresh * 2 + depth * 2 + 1 })
    }

    /// Returns whether `runs` reserved runs fill the holes of `range`, in parts, without a new node, as far as is known
    /// without planning the change. This is the case for most appends.
    pub fn has_room(&mut self, range: &Range<u64>, runs: usize) -> Result<bool> {
        let partial = if self.first_in(range)?.is_some() { PARTIAL } else { 0 };
        // A run that is longer than an extent becomes several.
        let more = to_usize((range.end - range.start) / u64::from(MAX_UNWRITTEN));
        self.have_room(range, runs + more + partial)
    }

    /// Returns whether `range` is in one leaf that has room for `more` extents. A change of several leaves moves the extents
    /// of all of them to the first one.
    fn have_room(&mut self, range: &Range<u64>, more: usize) -> Result<bool> {
        let (path, bounds) = self.descend(range.start)?;
        let leaf = path.last().map_or(0, |step| step.node);
        Ok(bounds.end >= range.end && self.len(leaf) + more <= self.room_of(leaf))
    }

    /// Restores the nodes of `path`, from the leaf up.
    pub(super) fn settle(&mut self, path: &Path, mut trend: EntryTrend) -> Result<()> {
        let mut shrank = trend == EntryTrend::Shrank;
        let deal = if self.is_last(path) { Division::Front } else { Division::Even };
        for pair in path.windows(2).rev() {
            let [parent, child] = pair else { break };
            trend = self.settle_child(*parent, child.node, trend, deal)?;
            shrank |= trend == EntryTrend::Shrank;
        }
        while self.len(0) > self.room_of(0) {
            self.grow(deal)?;
        }
        if shrank {
            self.shrink_root();
        }
        Ok(())
    }

    /// Returns whether `path` leads to the last leaf.
    fn is_last(&self, path: &Path) -> bool {
        let inner = path.split_last().map_or(&[][..], |(_, inner)| inner);
        inner.iter().all(|step| step.slot + 1 == self.len(step.node))
    }

    /// Restores one node below `parent`. Returns the trend of `parent`.
    fn settle_child(
        &mut self,
        parent: Step,
        id: usize,
        trend: EntryTrend,
        deal: Division,
    ) -> Result<EntryTrend> {
        let len = self.len(id);
        if len == 0 {
            self.drop_child(parent, id);
            return Ok(EntryTrend::Shrank);
        }
        self.fix_key(parent, id);
        if len > self.room_of(id) {
            self.split(parent, id, deal)?;
            return Ok(EntryTrend::Grew);
        }
        let sparse = trend == EntryTrend::Shrank && len * 4 <= self.room_of(id);
        if sparse && self.join(parent)? { Ok(EntryTrend::Shrank) } else { Ok(EntryTrend::Grew) }
    }

    /// Writes the first key of `id` into the entry that refers to it.
    fn fix_key(&mut self, parent: Step, id: usize) {
        let Some(key) = self.nodes.get(id).and_then(|node| node.entries.first_key()) else { return };
        let Some(node) = self.nodes.get_mut(parent.node) else { return };
        let Entries::Inner(list) = &mut node.entries else { return };
        if let Some(entry) = list.get_mut(parent.slot).filter(|entry| entry.start != key) {
            entry.start = key;
            node.changed = true;
        }
    }

    /// Removes an empty node from its parent.
    fn drop_child(&mut self, parent: Step, id: usize) {
        self.discard(id);
        if let Some(node) = self.nodes.get_mut(parent.node) {
            if let Entries::Inner(list) = &mut node.entries
                && parent.slot < list.len()
            {
                list.remove(parent.slot);
            }
            node.changed = true;
        }
    }

    /// Marks a node as freed.
    fn discard(&mut self, id: usize) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        match node.home {
            NodeLocation::Block(block) | NodeLocation::Fresh(block) => self.freed.push(block),
            NodeLocation::Root | NodeLocation::New | NodeLocation::Gone => {}
        }
        node.home = NodeLocation::Gone;
    }

    /// Divides the entries of `id` between it and new nodes after it.
    fn split(&mut self, parent: Step, id: usize, deal: Division) -> Result<()> {
        let (len, room) = (self.len(id), self.room_of(id).max(1));
        let pieces = len.div_ceil(room).max(2);
        let share = if deal == Division::Front { room } else { len.div_ceil(pieces) };
        let first = self.nodes.len();
        self.nodes.try_reserve(pieces)?;
        let mut fresh = reserve(pieces)?;
        let Some(node) = self.nodes.get_mut(id) else { return Ok(()) };
        let depth = node.depth;
        let mut rest = node.entries.split_off(share);
        node.changed = true;
        while let Some(start) = rest.first_key() {
            let others = rest.split_off(share);
            fresh.push(IndexEntry { start, child: Child::Loaded(first + fresh.len()) });
            self.nodes.push(TreeNode {
                depth,
                entries: rest,
                ..TreeNode::empty(NodeLocation::New, self.room)
            });
            rest = others;
        }
        let Some(node) = self.nodes.get_mut(parent.node) else { return Ok(()) };
        node.changed = true;
        if let Entries::Inner(list) = &mut node.entries {
            list.try_reserve(fresh.len())?;
            let at = (parent.slot + 1).min(list.len());
            list.splice(at..at, fresh);
        }
        Ok(())
    }

    /// Merges the node below `parent` with its neighbour if both together fill at most three quarters of a node.
    /// Returns whether it did.
    fn join(&mut self, parent: Step) -> Result<bool> {
        let slot = parent.slot.saturating_sub(1);
        let Some((_, left_bounds)) = self.entry_bounds(parent.node, slot) else { return Ok(false) };
        let Some((right, right_bounds)) = self.entry_bounds(parent.node, slot + 1) else {
            return Ok(false);
        };
        // The range of the last entry is unknown here, so a node below it cannot be checked.
        if matches!(right.child, Child::Stored(_)) && right_bounds.end == Bounds::ALL.end {
            return Ok(false);
        }
        let left = self.child(parent.node, slot, left_bounds)?;
        let right = self.child(parent.node, slot + 1, right_bounds)?;
        let both = self.len(left) + self.len(right);
        if both * 4 > self.room_of(left) * 3 {
            return Ok(false);
        }
        let Some(node) = self.nodes.get_mut(right) else { return Ok(false) };
        let mut entries = node.entries.split_off(0);
        if let Some(node) = self.nodes.get_mut(left) {
            node.entries.append(&mut entries);
            node.changed = true;
        }
        self.drop_child(Step { node: parent.node, slot: slot + 1 }, right);
        Ok(true)
    }

    fn entry_bounds(&self, node: usize, slot: usize) -> Option<(IndexEntry, Bounds)> {
        let Entries::Inner(list) = &self.nodes.get(node)?.entries else { return None };
        let entry = *list.get(slot)?;
        let end = list.get(slot + 1).map_or(Bounds::ALL.end, |next| next.start.into());
        Some((entry, Bounds { start: entry.start.into(), end }))
    }

    /// Moves the root's entries into a new node below it, and divides that one if it is too full.
    fn grow(&mut self, deal: Division) -> Result<()> {
        let id = self.nodes.len();
        self.nodes.try_reserve(1)?;
        let mut list = reserve(2)?;
        let room = self.room;
        let Some(root) = self.nodes.first_mut() else { return Ok(()) };
        if root.depth >= MAX_DEPTH {
            return Err(Error::NoSpace);
        }
        list.push(IndexEntry { start: root.entries.first_key().unwrap_or(0), child: Child::Loaded(id) });
        let entries = core::mem::replace(&mut root.entries, Entries::Inner(list));
        let depth = root.depth;
        root.depth = depth + 1;
        root.changed = true;
        self.nodes.push(TreeNode { depth, entries, ..TreeNode::empty(NodeLocation::New, room) });
        if self.len(id) > room { self.split(Step { node: 0, slot: 0 }, id, deal) } else { Ok(()) }
    }

    /// Moves the only node below the root into it as long as it fits; an empty root is a leaf.
    fn shrink_root(&mut self) {
        for _ in 0..=MAX_DEPTH {
            let only = match self.nodes.first().map(|root| &root.entries) {
                Some(Entries::Inner(list)) if list.is_empty() => None,
                Some(Entries::Inner(list)) => match list.as_slice() {
                    [IndexEntry { child: Child::Loaded(id), .. }] if self.len(*id) <= self.room_of(0) => {
                        Some(*id)
                    }
                    _ => return,
                },
                _ => return,
            };
            let taken = only.and_then(|id| {
                let node = self.nodes.get_mut(id)?;
                Some((node.depth, node.entries.split_off(0)))
            });
            if let Some(id) = only {
                self.discard(id);
            }
            let (depth, entries) = taken.unwrap_or((0, Entries::Leaf(alloc::vec::Vec::new())));
            if let Some(root) = self.nodes.first_mut() {
                (root.depth, root.entries, root.changed) = (depth, entries, true);
            }
        }
    }

    fn len(&self, id: usize) -> usize {
        self.nodes.get(id).map_or(0, |node| node.entries.len())
    }

    fn room_of(&self, id: usize) -> usize {
        self.nodes.get(id).map_or(0, |node| node.room)
    }
}
