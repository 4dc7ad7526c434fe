//! What a tree takes in a volume of given features, wherever it comes to lie; and what of it no such volume can hold.

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
use crate::dir::{DirLayout, NAME_MAX, Shape};
use crate::feature::{Incompat, RoCompat};
use crate::format::{LOST_AND_FOUND, LOST_AND_FOUND_NAME, ROOT_INO};
use crate::super_block::SuperBlock;
use crate::xattr::{AttributeSet, LargeValue, LargeValues, SetError, USERS_MAX};

/// How many files that do not fit are told.
const TOLD: usize = 1000;
/// `i_block` with its NUL: what is shorter needs no block.
pub(super) const FAST_TARGET: usize = 60;

/// What a tree takes.
pub(super) struct Needs {
    /// The blocks of directories that have more than one.
    pub directories: BTreeMap<NodeId, u32>,
    /// The attributes of files, by their sets, and how many files have each.
    pub attributes: Vec<(AttributeSet, u32)>,
    /// Values with inodes of their own, and how often each is named.
    pub values: Vec<(LargeValue, u64)>,
    /// lost+found, if the tree has one of its own.
    pub lost_and_found: Option<NodeId>,
    /// Blocks, whole clusters, if no file comes to lie in more pieces than it must.
    pub blocks: u64,
    /// Inodes of the tree and its values. The draft has no inode for the root, nor for a lost+found that the tree has.
    pub inodes: u32,
}

impl Needs {
    /// Counts; what was `received` has its blocks. Fails with `Unfit` or `NoMemory`.
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
            unfit.extend(long.map(|(_, child)| (child, Unfit::Name(max))).take(TOLD.saturating_sub(before)));
            if unfit.len() > before {
                continue;
            }
            match this.node(tree, (sb, received), &sets, id, node) {
                Ok(()) => {}
                Err(Trouble::Unfit(why)) if unfit.len() < TOLD => unfit.push((id, why)),
                Err(Trouble::Unfit(_)) => {}
                Err(Trouble::Error(error)) => return Err(error.into()),
            }
        }
        for (set, users) in &this.attributes {
            if set.block.is_some() {
                let blocks = u64::from(users.div_ceil(USERS_MAX));
                this.blocks = this.blocks.saturating_add(blocks.saturating_mul(sb.cluster_blocks().into()));
            }
        }
        this.count_values(sb);
        if unfit.is_empty() { Ok(this) } else { Err(BuildError::Unfit(unfit)) }
    }

    /// Encodes the sets; those that cannot be are empty here, and told of each file that has them.
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

    /// Counts who names each value - every inode that does, and every block - and what the values take.
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
            let nodes = nodes.saturating_mul(sb.cluster_blocks().into());
            self.blocks = self.blocks.saturating_add(self.value_space(sb, at)).saturating_add(nodes);
        }
    }

    /// Returns the blocks that a value fills.
    pub fn value_blocks(&self, sb: &SuperBlock, at: usize) -> u64 {
        let len = self.values.get(at).map_or(0, |(value, _)| to_u64(value.bytes.len()));
        len.div_ceil(u64::from(sb.block_size).max(1))
    }

    /// The same in whole clusters, which is what each inode that names it is charged with.
    pub fn value_space(&self, sb: &SuperBlock, at: usize) -> u64 {
        let blocks = self.value_blocks(sb, at);
        blocks.checked_next_multiple_of(u64::from(sb.cluster_blocks()).max(1)).unwrap_or(blocks)
    }

    /// Returns how many values with inodes of their own a node names, and the blocks that it is charged with for
    /// them.
    pub fn charge(&self, sb: &SuperBlock, node: &Node) -> (u64, u64) {
        let set = node.attr.xattrs.and_then(|set| self.attributes.get(set.index()));
        let named = set.into_iter().flat_map(|(set, _)| set.named());
        named.fold((0, 0), |(count, blocks): (u64, u64), at| {
            (count.saturating_add(1), blocks.saturating_add(self.value_space(sb, at)))
        })
    }

    /// Lets the sets name values by their inodes, the first of which is `first`; to be done once.
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
    ) -> Result<(), Trouble> {
        if let Some(set) = node.attr.xattrs {
            if let Some(Some(unfit)) = sets.get(set.index()) {
                return Err(Trouble::Unfit(*unfit));
            }
            if let Some((_, users)) = self.attributes.get_mut(set.index()) {
                *users = users.saturating_add(1);
            }
            let held = self.attributes.get(set.index());
            if node.body == Body::Symlink && held.is_some_and(|(set, _)| set.named().next().is_some()) {
                // e2fsck 1.47 tells a link with its target inside by `i_blocks` 0, and would take the target for blocks.
                return Err(Trouble::Unfit(Unfit::Xattrs));
            }
        }
        record::expect_fit(sb, node).map_err(Trouble::Unfit)?;
        let blocks = match node.body {
            Body::Directory => self.directory(tree, sb, id, node)?,
            Body::File { size, .. } => file_blocks(tree, (sb, received), id, node, size)?,
            Body::Symlink => {
                let target = tree.target(node);
                let max = sb.symlink_max();
                if target.is_empty() || target.len() > to_usize(max.into()) {
                    return Err(Trouble::Unfit(Unfit::Target(max)));
                }
                u64::from(target.len() >= FAST_TARGET)
            }
            _ => 0,
        };
        if blocks > 0 {
            let cluster = u64::from(sb.cluster_blocks()).max(1);
            self.blocks =
                self.blocks.saturating_add(blocks.checked_next_multiple_of(cluster).unwrap_or(blocks));
        }
        Ok(())
    }

    fn directory(&mut self, tree: &Tree, sb: &SuperBlock, id: NodeId, node: &Node) -> Result<u64, Trouble> {
        let most = sb.link_max();
        if !sb.ro_compat.contains(RoCompat::DIR_NLINK) && node.links > most.saturating_sub(2) {
            return Err(Trouble::Unfit(Unfit::Links(most)));
        }
        let names = || self.names(tree, id);
        let shape = Shape::of_new(sb, ROOT_INO);
        let mut blocks = 1;
        if !DirLayout::fits_one(&shape, names()) {
            blocks = match DirLayout::new(&shape, names()) {
                Ok(layout) => layout.blocks(),
                Err(Error::NoSpace) => return Err(Trouble::Unfit(Unfit::Directory)),
                Err(error) => return Err(Trouble::Error(error)),
            };
        }
        if Some(id) == self.lost_and_found && blocks == 1 {
            let room = LOST_AND_FOUND.checked_div(sb.block_size.into()).unwrap_or(1);
            blocks = u32::try_from(room).unwrap_or(1).max(1);
        }
        if blocks > 1 {
            self.directories.insert(id, blocks);
        }
        Ok(blocks.into())
    }

    /// The names in a directory; the root has lost+found too, which stands behind those of the tree.
    pub fn names<'t>(&self, tree: &'t Tree, id: NodeId) -> impl Iterator<Item = &'t [u8]> + Clone {
        let more = (id == NodeId::ROOT && self.lost_and_found.is_none()).then_some(LOST_AND_FOUND_NAME);
        tree.children(id).map(|(name, _)| name).chain(more)
    }

    /// Returns how many blocks a directory has.
    pub fn directory_blocks(&self, id: NodeId) -> u32 {
        self.directories.get(&id).copied().unwrap_or(1)
    }
}

enum Trouble {
    Unfit(Unfit),
    Error(Error),
}

/// Returns the blocks of a regular file, those of its map among them as far as its length tells.
fn file_blocks(
    tree: &Tree,
    (sb, received): (&SuperBlock, Option<&Received>),
    id: NodeId,
    node: &Node,
    size: u64,
) -> Result<u64, Trouble> {
    let extents = sb.incompat.contains(Incompat::EXTENT);
    let max = sb.file_size_max(extents);
    if size > max {
        return Err(Trouble::Unfit(Unfit::Size(max)));
    }
    let most = sb.link_max();
    if node.links > most {
        return Err(Trouble::Unfit(Unfit::Links(most)));
    }
    let cluster = u64::from(sb.cluster_blocks()).max(1);
    let mut blocks = 0_u64;
    let ranges = data_blocks(tree, sb, id, node);
    if received.and_then(|received| received.pieces_of(node)).is_none() {
        for range in &ranges {
            let len = range.end.saturating_sub(range.start);
            blocks = blocks.saturating_add(len.checked_next_multiple_of(cluster).unwrap_or(len));
        }
    }
    let nodes =
        if extents { map::least_nodes(sb, &ranges) } else { map::indirect_blocks(sb.block_size, &ranges) };
    Ok(blocks.saturating_add(nodes.saturating_mul(cluster)))
}

/// Returns how many blocks a file of `size` bytes has, holes among them.
pub(super) fn body_blocks(sb: &SuperBlock, size: u64) -> u64 {
    size.div_ceil(u64::from(sb.block_size).max(1))
}

/// The blocks of a regular file that hold data, as ranges in order that do not touch. They begin and end with clusters, in which
/// blocks of a file have their places.
pub(super) fn data_blocks(tree: &Tree, sb: &SuperBlock, id: NodeId, node: &Node) -> Vec<Range<u64>> {
    let Body::File { size, data: Some(_) } = node.body else { return Vec::new() };
    let whole = 0..size;
    let ranges = tree.data_ranges(id).unwrap_or(core::slice::from_ref(&whole));
    blocks_of(sb, size, ranges)
}

/// Returns the same for a file of `size` bytes with data in `ranges`.
pub(super) fn blocks_of(sb: &SuperBlock, size: u64, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let block = u64::from(sb.block_size).max(1);
    let cluster = u64::from(sb.cluster_blocks()).max(1);
    let end = body_blocks(sb, size);
    let mut blocks: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let start = range.start.checked_div(block).unwrap_or(0);
        let start = start.saturating_sub(start.checked_rem(cluster).unwrap_or(0));
        let end = range.end.div_ceil(block).checked_next_multiple_of(cluster).unwrap_or(end).min(end);
        match blocks.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ if start < end => blocks.push(start..end),
            _ => {}
        }
    }
    blocks
}
