//! The space that a tree needs in a volume with given features, for every layout, and the nodes that no such volume can
//! store.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Name};
use obento_driver::tree::{Body, Node};
use obento_driver::{BuildError, NodeId, Tree, Unfit};

use super::map;
use super::received::Received;
use super::record;
use crate::dir::{DirLayout, DirShape, NAME_MAX};
use crate::feature::{Incompat, RoCompat};
use crate::format::{LOST_AND_FOUND, LOST_AND_FOUND_NAME, ROOT_INO};
use crate::super_block::SuperBlock;
use crate::xattr::{AttributeSet, LargeValue, LargeValues, SetError, USERS_MAX};

/// Maximum number of unsuitable files that are reported.
const REPORTED_MAX: usize = 1000;
/// Size of `i_block`, including the NUL: shorter targets need no block.
pub(super) const FAST_TARGET: usize = 60;

/// The space that a tree needs.
pub(super) struct Needs {
    /// The number of blocks of directories that have more than one.
    pub directories: BTreeMap<NodeId, u32>,
    /// The sets of attributes, and the number of files that have each.
    pub attributes: Vec<(AttributeSet, u32)>,
    /// Values in inodes of their own, and the number of references to each.
    pub values: Vec<(LargeValue, u64)>,
    /// lost+found, if the tree contains it.
    pub lost_and_found: Option<NodeId>,
    /// Number of blocks, in whole clusters, if no file is divided more often than necessary.
    pub blocks: u64,
    /// Number of inodes of the tree and its values. The draft has no inode for the root, nor for a lost+found of the
    /// tree.
    pub inodes: u32,
}

impl Needs {
    /// Computes the needs of `tree`. The `received` files already have blocks. Fails with `Unfit` or `NoMemory`.
    pub fn new(tree: &Tree, sb: &SuperBlock, received: Option<&Received>) -> Result<Self, BuildError> {
        let name = Name::new(LOST_AND_FOUND_NAME).map_err(|_| Error::Invalid)?;
        let is_directory = |id: &NodeId| tree.node(*id).is_some_and(|node| node.body == Body::Directory);
        let of_that_name = tree.child(NodeId::ROOT, name);
        let lost_and_found = of_that_name.filter(is_directory);
        let mut this = Self {
            directories: BTreeMap::new(),
            attributes: Vec::new(),
            values: Vec::new(),
            lost_and_found,
            blocks: 0,
            inodes: tree.len(),
        };
        let in_its_place = of_that_name.filter(|_| lost_and_found.is_none());
        let mut unfit: Vec<_> = in_its_place.map(|id| (id, Unfit::Reserved)).into_iter().collect();
        let sets = this.attribute_sets(tree, sb);
        let max = u32::try_from(NAME_MAX).unwrap_or(u32::MAX);
        for (id, node) in tree.nodes() {
            let before = unfit.len();
            let long = tree.children(id).filter(|(name, _)| name.len() > NAME_MAX);
            unfit.extend(
                long.map(|(_, child)| (child, Unfit::Name(max))).take(REPORTED_MAX.saturating_sub(before)),
            );
            if unfit.len() > before {
                continue;
            }
            match this.node(tree, (sb, received), &sets, id, node) {
                Ok(()) => {}
                Err(NeedsError::Unfit(why)) if unfit.len() < REPORTED_MAX => unfit.push((id, why)),
                Err(NeedsError::Unfit(_)) => {}
                Err(NeedsError::Error(error)) => return Err(error.into()),
            }
        }
        for (set, users) in &this.attributes {
            if set.block.is_some() {
                let blocks = u64::from(users.div_ceil(USERS_MAX));
                this.blocks = this.blocks.saturating_add(sb.cluster.len(blocks));
            }
        }
        this.count_values(sb);
        if unfit.is_empty() { Ok(this) } else { Err(BuildError::Unfit(unfit)) }
    }

    /// Encodes the sets. A set that cannot be stored is empty here, and is reported for each file that has it.
    fn attribute_sets(&mut self, tree: &Tree, sb: &SuperBlock) -> Vec<Option<Unfit>> {
        let room = record::attribute_room(sb);
        let mut large = sb.incompat.contains(Incompat::EA_INODE).then(|| LargeValues::new(sb.checksum_seed));
        let mut troubles = Vec::new();
        for list in tree.xattr_sets() {
            let set = AttributeSet::new(list, room, to_usize(sb.block_size.into()), large.as_mut());
            troubles.push(match &set {
                Ok(_) => None,
                Err(SetError::Name) => Some(Unfit::XattrName),
                Err(SetError::TooLarge) if large.is_none() => Some(Unfit::XattrsNeed("ea_inode")),
                Err(SetError::TooLarge) => Some(Unfit::Xattrs),
            });
            self.attributes.push((set.unwrap_or_default(), 0));
        }
        self.values.extend(large.into_iter().flat_map(|large| large.all).map(|value| (value, 0)));
        troubles
    }

    /// Counts the references to each value, from inodes and from blocks, and the space of the values.
    fn count_values(&mut self, sb: &SuperBlock) {
        for (set, users) in &self.attributes {
            let inside = set.named_inside.iter().map(|at| (*at, *users));
            let in_blocks = set.named_in_block.iter().map(|at| (*at, users.div_ceil(USERS_MAX)));
            for (at, count) in inside.chain(in_blocks) {
                if let Some((_, users)) = self.values.get_mut(at) {
                    *users = users.saturating_add(count.into());
                }
            }
        }
        let count = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.inodes = self.inodes.saturating_add(count);
        for at in 0..self.values.len() {
            let whole = 0..self.value_blocks(sb, at);
            let nodes = match sb.incompat.contains(Incompat::EXTENT) {
                true => 0,
                false => map::indirect_blocks(sb.block_size, core::slice::from_ref(&whole)),
            };
            let nodes = sb.cluster.len(nodes);
            self.blocks = self.blocks.saturating_add(self.value_space(sb, at)).saturating_add(nodes);
        }
    }

    /// Returns the number of blocks of a value.
    pub fn value_blocks(&self, sb: &SuperBlock, at: usize) -> u64 {
        let len = self.values.get(at).map_or(0, |(value, _)| to_u64(value.bytes.len()));
        sb.block_size.needed(len)
    }

    /// Returns the number of blocks of a value in whole clusters, which each inode that refers to it is charged with.
    pub fn value_space(&self, sb: &SuperBlock, at: usize) -> u64 {
        sb.cluster.round_up(self.value_blocks(sb, at))
    }

    /// Returns the number of values in separate inodes that a node refers to, and the number of blocks that count
    /// against the node for them.
    pub fn charge(&self, sb: &SuperBlock, node: &Node) -> (u64, u64) {
        let set = node.attr.xattrs.and_then(|set| self.attributes.get(set.index()));
        let named = set.into_iter().flat_map(|(set, _)| set.named());
        named.fold((0, 0), |(count, blocks): (u64, u64), at| {
            (count.saturating_add(1), blocks.saturating_add(self.value_space(sb, at)))
        })
    }

    /// Sets the inodes of values in the sets, the first of which is `first`. Callers must call this once.
    pub fn name_values(&mut self, first: u32) {
        self.attributes.iter_mut().for_each(|(set, _)| set.name_values(first));
    }

    fn node(
        &mut self,
        tree: &Tree,
        (sb, received): (&SuperBlock, Option<&Received>),
        sets: &[Option<Unfit>],
        id: NodeId,
        node: &Node,
    ) -> Result<(), NeedsError> {
        if let Some(set) = node.attr.xattrs {
            if let Some(Some(unfit)) = sets.get(set.index()) {
                return Err(NeedsError::Unfit(*unfit));
            }
            if let Some((_, users)) = self.attributes.get_mut(set.index()) {
                *users = users.saturating_add(1);
            }
            let held = self.attributes.get(set.index());
            if node.body == Body::Symlink && held.is_some_and(|(set, _)| set.named().next().is_some()) {
                // e2fsck 1.47 recognises a target in the inode by `i_blocks` 0, and would take the target for block
                // numbers.
                return Err(NeedsError::Unfit(Unfit::Xattrs));
            }
        }
        record::expect_fit(sb, node).map_err(NeedsError::Unfit)?;
        let blocks = match node.body {
            Body::Directory => self.directory(tree, sb, id, node)?,
            Body::File { size, .. } => file_blocks(tree, (sb, received), id, node, size)?,
            Body::Symlink => {
                let target = tree.target(node);
                let max = sb.symlink_max();
                if target.is_empty() || target.len() > to_usize(max.into()) {
                    return Err(NeedsError::Unfit(Unfit::Target(max)));
                }
                u64::from(target.len() >= FAST_TARGET)
            }
            _ => 0,
        };
        if blocks > 0 {
            self.blocks = self.blocks.saturating_add(sb.cluster.round_up(blocks));
        }
        Ok(())
    }

    fn directory(
        &mut self,
        tree: &Tree,
        sb: &SuperBlock,
        id: NodeId,
        node: &Node,
    ) -> Result<u64, NeedsError> {
        let most = sb.link_max();
        if !sb.ro_compat.contains(RoCompat::DIR_NLINK) && node.links > most.saturating_sub(2) {
            return Err(NeedsError::Unfit(Unfit::Links(most)));
        }
        let names = || self.names(tree, id);
        let shape = DirShape::of_new(sb, ROOT_INO);
        let mut blocks = 1;
        if !DirLayout::fits_one(&shape, names()) {
            blocks = match DirLayout::new(&shape, names()) {
                Ok(layout) => layout.blocks(),
                Err(Error::NoSpace) => return Err(NeedsError::Unfit(Unfit::Directory)),
                Err(error) => return Err(NeedsError::Error(error)),
            };
        }
        if Some(id) == self.lost_and_found && blocks == 1 {
            let room = sb.block_size.whole(LOST_AND_FOUND);
            blocks = u32::try_from(room).unwrap_or(1).max(1);
        }
        if blocks > 1 {
            self.directories.insert(id, blocks);
        }
        Ok(blocks.into())
    }

    /// Returns the names in a directory. The root also contains lost+found, after the names of the tree.
    pub fn names<'t>(&self, tree: &'t Tree, id: NodeId) -> impl Iterator<Item = &'t [u8]> + Clone {
        let more = (id == NodeId::ROOT && self.lost_and_found.is_none()).then_some(LOST_AND_FOUND_NAME);
        tree.children(id).map(|(name, _)| name).chain(more)
    }

    /// Returns the number of blocks of a directory.
    pub fn directory_blocks(&self, id: NodeId) -> u32 {
        self.directories.get(&id).copied().unwrap_or(1)
    }
}

enum NeedsError {
    Unfit(Unfit),
    Error(Error),
}

/// Returns the number of blocks of a regular file, including the blocks of its map that its length determines.
fn file_blocks(
    tree: &Tree,
    (sb, received): (&SuperBlock, Option<&Received>),
    id: NodeId,
    node: &Node,
    size: u64,
) -> Result<u64, NeedsError> {
    let extents = sb.incompat.contains(Incompat::EXTENT);
    let max = sb.file_size_max(extents);
    if size > max {
        return Err(NeedsError::Unfit(Unfit::Size(max)));
    }
    let most = sb.link_max();
    if node.links > most {
        return Err(NeedsError::Unfit(Unfit::Links(most)));
    }
    let mut blocks = 0_u64;
    let ranges = data_blocks(tree, sb, id, node);
    if received.and_then(|received| received.pieces_of(node)).is_none() {
        for range in &ranges {
            blocks = blocks.saturating_add(sb.cluster.round_up(range.end.saturating_sub(range.start)));
        }
    }
    let nodes =
        if extents { map::least_nodes(sb, &ranges) } else { map::indirect_blocks(sb.block_size, &ranges) };
    Ok(blocks.saturating_add(sb.cluster.len(nodes)))
}

/// Returns the number of blocks of a file of `size` bytes, including holes.
pub(super) fn body_blocks(sb: &SuperBlock, size: u64) -> u64 {
    sb.block_size.needed(size)
}

/// Returns the blocks of a regular file that contain data, as ordered ranges that do not touch. They begin and end at
/// cluster boundaries, since places are assigned to clusters.
pub(super) fn data_blocks(tree: &Tree, sb: &SuperBlock, id: NodeId, node: &Node) -> Vec<Range<u64>> {
    let Body::File { size, data: Some(_) } = node.body else { return Vec::new() };
    let whole = 0..size;
    let ranges = tree.data_ranges(id).unwrap_or(core::slice::from_ref(&whole));
    blocks_of(sb, size, ranges)
}

/// Returns such ranges for a file of `size` bytes with data in `ranges`.
pub(super) fn blocks_of(sb: &SuperBlock, size: u64, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let (block, cluster) = (sb.block_size, sb.cluster);
    let end = body_blocks(sb, size);
    let mut blocks: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let start = cluster.round_down(block.whole(range.start));
        let end = cluster.round_up(block.needed(range.end)).min(end);
        match blocks.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ if start < end => blocks.push(start..end),
            _ => {}
        }
    }
    blocks
}
