//! Changing the block map of ext2 and ext3 in memory, as `tree` does for extents.
//!
//! Invariant: an indirect block without any numbers is freed, and the number that referred to it is 0.
//! Invariant: nothing on the volume changes here.
//! Source: Linux `fs/ext4/indirect.c` `ext4_ind_map_blocks`, `ext4_ind_remove_space`.
#![allow(clippy::arithmetic_side_effects, reason = "a file block has 32 bits, a block 2^14 numbers")]

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::{Deref, Range};

use obento_base::wire::{FromBytes, le::U32, to_u64, to_usize};
use obento_base::{Error, Result};

use super::indirect::{DIRECT, find_path, numbers};
use super::tree::{ExtentState, Mapping, NodeLocation, push};
use crate::unit::{FileBlock, VolBlock};

/// The source of indirect blocks.
pub(crate) trait PointerSource {
    type Bytes: Deref<Target = [u8]>;

    /// Returns the indirect block `number`, on the path to file block `at`.
    fn load(&self, at: FileBlock, number: u32) -> Result<Self::Bytes>;
}

/// `i_block` or an indirect block.
#[derive(Debug)]
struct PointerBlock {
    home: NodeLocation,
    bytes: Vec<u8>,
    changed: bool,
    /// The parent node and the position in it; meaningless for the root.
    parent: (usize, usize),
}

/// The entry for a block of the file.
enum PointerPlace {
    /// A number of a node. The numbers after it in the node are for the following file blocks.
    Slot { node: usize, slot: usize },
    /// No indirect block: a hole of these file blocks.
    Hole(Range<u64>),
}

/// Whether missing indirect blocks are created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    Leave,
    Make,
}

/// A block map with those of its blocks that were needed.
pub(crate) struct Pointers<'s, S> {
    source: &'s S,
    per_block: usize,
    /// `i_block` is first. Nodes refer to each other by index, so none is ever removed.
    nodes: Vec<PointerBlock>,
    freed: Vec<VolBlock>,
}

impl<'s, S: PointerSource> Pointers<'s, S> {
    /// Returns the block map in `i_block`, with `per_block` numbers in an indirect block.
    pub fn new(source: &'s S, i_block: &[u8], per_block: u32) -> Result<Self> {
        debug_assert!((1..=1 << 14).contains(&per_block), "{per_block} numbers in a block");
        let root =
            PointerBlock { home: NodeLocation::Root, bytes: copy(i_block)?, changed: true, parent: (0, 0) };
        let mut nodes = Vec::new();
        nodes.try_reserve(4)?;
        nodes.push(root);
        Ok(Self { source, per_block: to_usize(per_block.into()), nodes, freed: Vec::new() })
    }

    /// Replaces the mappings of `range` by `new`, which is within it, sorted and written. The old mappings are added
    /// to `removed`. Fails with `FileTooBig` past the reach of three levels, or for a volume block past 32 bits, or
    /// with the errors of reading.
    pub fn splice(&mut self, range: Range<u64>, new: &[Mapping], removed: &mut Vec<Mapping>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            at = self.clear(&(at..range.end), removed)?;
        }
        for mapping in new {
            self.set(mapping)?;
        }
        // Only now, since blocks that were cleared and set again may use the same indirect blocks.
        self.drop_empty();
        Ok(())
    }

    /// Clears the part of `range` that one node covers. Returns the end of that part.
    fn clear(&mut self, range: &Range<u64>, removed: &mut Vec<Mapping>) -> Result<u64> {
        let Some((node, slots, end)) = self.slots(range, Missing::Leave)? else { return Ok(range.end) };
        let Some(slots) = slots else { return Ok(end) };
        let Some(node) = self.nodes.get_mut(node) else { return Ok(end) };
        let list = numbers_mut(&mut node.bytes).get_mut(slots).unwrap_or_default();
        for (at, number) in (range.start..).zip(list) {
            if let Some(mapping) = one(at, number.get()) {
                push(removed, mapping)?;
                number.set(0);
                node.changed = true;
            }
        }
        Ok(end)
    }

    fn set(&mut self, mapping: &Mapping) -> Result<()> {
        let mut rest = mapping.range();
        while !rest.is_empty() {
            let found = self.slots(&rest, Missing::Make)?.ok_or(Error::FileTooBig)?;
            let (id, Some(slots), end) = found else { return Err(Error::FileTooBig) };
            let part = mapping.within(&(rest.start..end)).ok_or(Error::FileTooBig)?;
            let Some(node) = self.nodes.get_mut(id) else { break };
            let list = numbers_mut(&mut node.bytes).get_mut(slots).unwrap_or_default();
            for (block, number) in (part.place.0..).zip(list) {
                number.set(u32::try_from(block).map_err(|_| Error::FileTooBig)?);
            }
            node.changed = true;
            rest.start = end;
        }
        Ok(())
    }

    /// Returns the numbers for `range` in one node, if it exists, and the end of the range that they map. Returns
    /// `None` past the last block that can be mapped.
    #[expect(clippy::type_complexity, reason = "one use")]
    fn slots(
        &mut self,
        range: &Range<u64>,
        missing: Missing,
    ) -> Result<Option<(usize, Option<Range<usize>>, u64)>> {
        let Some(place) = self.find(range.start, missing)? else { return Ok(None) };
        Ok(Some(match place {
            PointerPlace::Hole(hole) => (0, None, hole.end.min(range.end)),
            PointerPlace::Slot { node, slot } => {
                let room = if node == 0 { to_usize(DIRECT) } else { self.per_block };
                let len = to_usize(range.end - range.start).min(room - slot);
                (node, Some(slot..slot + len), range.start + to_u64(len))
            }
        }))
    }

    /// Returns the entry for file block `at`, or `None` past the last block that can be mapped.
    fn find(&mut self, at: u64, missing: Missing) -> Result<Option<PointerPlace>> {
        let Ok(file_block) = u32::try_from(at).map(FileBlock) else { return Ok(None) };
        let per_block = to_u64(self.per_block);
        let Some(path) = find_path(file_block, per_block) else { return Ok(None) };
        let (mut node, mut slot, mut inside) = (0, path.root, path.inside);
        let mut span = per_block.pow(path.levels);
        for _ in 0..path.levels {
            let Some(child) = self.child(file_block, node, slot, missing)? else {
                let start = at - inside;
                return Ok(Some(PointerPlace::Hole(start..start + span)));
            };
            // A plain division by a variable contains a call that panics.
            span = span.checked_div(per_block).unwrap_or(1).max(1);
            node = child;
            slot = to_usize(inside.checked_div(span).unwrap_or(0));
            inside = inside.checked_rem(span).unwrap_or(0);
        }
        Ok(Some(PointerPlace::Slot { node, slot }))
    }

    /// Returns the node to which number `slot` of `parent` refers.
    fn child(
        &mut self,
        at: FileBlock,
        parent: usize,
        slot: usize,
        missing: Missing,
    ) -> Result<Option<usize>> {
        let is_child = |node: &PointerBlock| node.parent == (parent, slot) && node.home != NodeLocation::Gone;
        if let Some(found) = self.nodes.iter().skip(1).position(is_child) {
            return Ok(Some(found + 1));
        }
        let number = self.nodes.get(parent).and_then(|node| numbers(&node.bytes).get(slot));
        let (home, bytes) = match (number.map_or(0, |number| number.get()), missing) {
            (0, Missing::Leave) => return Ok(None),
            (0, Missing::Make) => (NodeLocation::New, zeros(self.per_block * 4)?),
            (number, _) => {
                (NodeLocation::Block(VolBlock(number.into())), copy(&self.source.load(at, number)?)?)
            }
        };
        let id = self.nodes.len();
        self.nodes.try_reserve(1)?;
        self.nodes.push(PointerBlock {
            home,
            bytes,
            changed: home == NodeLocation::New,
            parent: (parent, slot),
        });
        Ok(Some(id))
    }

    /// Frees changed nodes without numbers, from the leaves up: a node comes after its parent.
    fn drop_empty(&mut self) {
        for id in (1..self.nodes.len()).rev() {
            let is_used = |node: &PointerBlock| {
                let leads = numbers(&node.bytes).iter().any(|number| number.get() != 0);
                leads
                    || self.nodes.iter().any(|child| child.parent.0 == id && child.home == NodeLocation::New)
            };
            if self
                .nodes
                .get(id)
                .is_none_or(|node| !node.changed || node.home == NodeLocation::Gone || is_used(node))
            {
                continue;
            }
            let Some(node) = self.nodes.get_mut(id) else { continue };
            if let NodeLocation::Block(block) | NodeLocation::Fresh(block) = node.home {
                self.freed.push(block);
            }
            node.home = NodeLocation::Gone;
            let (parent, slot) = node.parent;
            self.set_number(parent, slot, 0);
        }
    }

    fn set_number(&mut self, node: usize, slot: usize, to: u32) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        if let Some(number) = numbers_mut(&mut node.bytes).get_mut(slot) {
            number.set(to);
            node.changed = true;
        }
    }

    /// Returns the last mappings in `range`, at most `most` of them, in order. Also returns the file block from which
    /// on nothing else in `range` is mapped.
    pub fn last_in(&mut self, range: &Range<u64>, most: usize) -> Result<(Vec<Mapping>, u64)> {
        let last = range.end.saturating_sub(1);
        let (id, slot) = match self.find(last, Missing::Leave)? {
            None => return Ok((Vec::new(), range.start.max(self.end().min(last)))),
            Some(PointerPlace::Hole(hole)) => return Ok((Vec::new(), hole.start.max(range.start))),
            Some(PointerPlace::Slot { node, slot }) => (node, slot),
        };
        let back = to_usize(last.saturating_sub(range.start)).min(slot);
        let start = last - to_u64(back);
        let list = self.nodes.get(id).map(|node| numbers(&node.bytes)).unwrap_or_default();
        let list = list.get(slot - back..=slot).unwrap_or_default();
        let mut found = Vec::new();
        for (at, number) in (start..).zip(list) {
            if let Some(mapping) = one(at, number.get()) {
                push(&mut found, mapping)?;
            }
        }
        let surplus = found.len().saturating_sub(most);
        let kept = found.split_off(surplus);
        let from = if surplus == 0 { start } else { kept.first().map_or(start, |m| m.start.into()) };
        Ok((kept, from))
    }

    /// Returns the mapping that contains `range.start`, or the first one after it that starts in `range`. It may
    /// continue after the returned part.
    pub fn first_in(&mut self, range: &Range<u64>) -> Result<Option<Mapping>> {
        let mut at = range.start;
        while at < range.end {
            let Some((id, slots, end)) = self.slots(&(at..range.end), Missing::Leave)? else {
                return Ok(None);
            };
            let list = self.nodes.get(id).map(|node| numbers(&node.bytes)).unwrap_or_default();
            let list = slots.and_then(|slots| list.get(slots)).unwrap_or_default();
            let mut found: Option<Mapping> = None;
            for (at, number) in (at..).zip(list) {
                match (&mut found, one(at, number.get())) {
                    (None, next) => found = next,
                    (Some(run), Some(next)) if run.is_followed_by(&next) => run.len += 1,
                    (Some(_), _) => break,
                }
            }
            if found.is_some() {
                return Ok(found);
            }
            at = end;
        }
        Ok(None)
    }

    /// Returns the last mapping that starts before `at`, if it is near.
    pub fn before(&mut self, at: u64) -> Result<Option<Mapping>> {
        let end = at.min(self.end());
        if end == 0 {
            return Ok(None);
        }
        Ok(self.last_in(&(0..end), 1)?.0.pop())
    }

    /// Returns the file block after the last one that can be mapped.
    pub fn end(&self) -> u64 {
        let per_block = to_u64(self.per_block);
        let below = (1..=3).fold(DIRECT, |sum, levels| sum + per_block.pow(levels));
        below.min(u32::MAX.into())
    }

    /// Returns the number of nodes that need a block.
    pub fn new_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| node.home == NodeLocation::New).count()
    }

    /// Assigns a block to each new node. Fails with `FileTooBig` for a block past 32 bits.
    pub fn place_new(&mut self, mut next: impl FnMut() -> Option<VolBlock>) -> Result<()> {
        for id in 1..self.nodes.len() {
            let Some(node) = self.nodes.get_mut(id).filter(|node| node.home == NodeLocation::New) else {
                continue;
            };
            let Some(block) = next() else { continue };
            node.home = NodeLocation::Fresh(block);
            let (parent, slot) = node.parent;
            self.set_number(parent, slot, u32::try_from(block.0).map_err(|_| Error::FileTooBig)?);
        }
        Ok(())
    }

    /// Returns the nodes whose bytes must be written, including the root.
    pub fn changed(&self) -> impl Iterator<Item = (usize, NodeLocation)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.changed && node.home != NodeLocation::Gone)
            .map(|(id, node)| (id, node.home))
    }

    /// Returns the blocks that no longer contain numbers.
    pub fn freed(&self) -> &[VolBlock] {
        &self.freed
    }

    /// Writes node `id` to `bytes`.
    pub fn encode(&self, id: usize, bytes: &mut [u8]) {
        let Some(node) = self.nodes.get(id) else { return };
        bytes.iter_mut().zip(&node.bytes).for_each(|(to, from)| *to = *from);
    }
}

/// Returns the mapping of one block for `number`, or `None` for a hole.
fn one(at: u64, number: u32) -> Option<Mapping> {
    let start = u32::try_from(at).ok()?;
    let mapping = Mapping { start, len: 1, place: VolBlock(number.into()), state: ExtentState::Written };
    (number != 0).then_some(mapping)
}

fn numbers_mut(bytes: &mut [u8]) -> &mut [U32] {
    let len = bytes.len() / 4;
    <[U32]>::mut_from_prefix_with_elems(bytes, len).map_or(&mut [], |(numbers, _)| numbers)
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}
