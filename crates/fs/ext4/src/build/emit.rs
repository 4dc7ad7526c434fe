//! Writing a tree: directories, long link targets, attributes and inodes, but not the data of files.
//!
//! Each kind is written from front to back, in the order in which it was laid out.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits the size of the volume")]

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, FileKind};
use obento_driver::tree::{Body, Node};
use obento_driver::{FormatError, NodeId, Tree};

use super::layout::Layout;
use super::map;
use super::needs::{Needs, body_blocks};
use super::record::{self, Facts};
use crate::dir::{DirLayout, DirShape, NewEntry};
use crate::format::{Draft, FIRST_INO, LOST_AND_FOUND_NAME, Output, zeroed};
use crate::inode::InodeFlags;
use crate::unit::VolBlock;

/// The use of an inode.
enum Recorded<'a> {
    /// A node, and the number of earlier nodes with the same set of attributes.
    Node(NodeId, &'a Node, u32),
    /// The value at this index.
    Value(usize),
}

/// Writes a tree.
pub(super) struct Emit<'a> {
    pub tree: &'a Tree,
    pub needs: &'a Needs,
    pub layout: &'a Layout,
    pub draft: &'a Draft,
}

impl Emit<'_> {
    /// Writes everything. Fails with `NoMemory`, or if the device fails.
    pub fn write(&self, output: &mut Output<'_>) -> Result<(), FormatError> {
        self.write_directories(output)?;
        self.write_attributes(output)?;
        self.write_values(output)?;
        self.write_inodes(output)
    }

    fn byte_of(&self, block: u64) -> u64 {
        self.draft.sb.block_size.len(block)
    }

    /// Returns the volume block of block `at` of a node.
    fn block(&self, id: NodeId, at: u64) -> u64 {
        if let Some(start) = self.layout.start(id) {
            return start + at;
        }
        let pieces = self.layout.map(id).map(|map| map.pieces.as_slice()).unwrap_or_default();
        let holds = |piece: &&crate::format::Piece| {
            at.checked_sub(piece.at.into()).is_some_and(|inside| inside < piece.len.into())
        };
        let found = pieces.iter().find(holds);
        found.map_or(0, |piece| piece.block + at - u64::from(piece.at))
    }

    fn write_directories(&self, output: &mut Output<'_>) -> Result<(), FormatError> {
        let mut parents = Vec::new();
        parents.try_reserve_exact(to_usize(self.tree.len().into())).map_err(Error::from)?;
        parents.resize(to_usize(self.tree.len().into()), NodeId::ROOT);
        let mut block = self.draft.zeroed()?;
        for (id, node) in self.tree.nodes() {
            match node.body {
                Body::Directory => {
                    for (_, child) in self.tree.children(id) {
                        if let Some(parent) = parents.get_mut(map::index(child)) {
                            *parent = id;
                        }
                    }
                    let parent = parents.get(map::index(id)).copied().unwrap_or(NodeId::ROOT);
                    self.write_directory(output, id, parent)?;
                }
                Body::Symlink if self.layout.start(id).is_some() => {
                    block.fill(0);
                    block.iter_mut().zip(self.tree.target(node)).for_each(|(to, from)| *to = *from);
                    output.write(self.byte_of(self.block(id, 0)), &block)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write_directory(
        &self,
        output: &mut Output<'_>,
        id: NodeId,
        parent: NodeId,
    ) -> Result<(), FormatError> {
        let ino = self.layout.ino(id);
        let shape = DirShape::of_new(&self.draft.sb, ino);
        let layout = DirLayout::new(&shape, self.needs.names(self.tree, id))?;
        let children: Vec<(&[u8], NodeId)> = self.tree.children(id).collect();
        let entry = |at: u32| match children.get(to_usize(at.into())) {
            Some(&(name, child)) => {
                let kind = self.tree.node(child).map_or(FileKind::Regular, |node| node.body.kind());
                NewEntry { name, ino: self.layout.ino(child), kind }
            }
            None => NewEntry { name: LOST_AND_FOUND_NAME, ino: FIRST_INO, kind: FileKind::Directory },
        };
        let mut at = 0_u64;
        let mut write = |block: &[u8]| -> Result<(), FormatError> {
            output.write(self.byte_of(self.block(id, at)), block)?;
            at += 1;
            Ok(())
        };
        layout.write(&shape, (ino, self.layout.ino(parent)), entry, &mut write)?;
        // lost+found has space before it is needed.
        let mut blank = self.draft.zeroed()?;
        shape.blank_block(&mut blank);
        (layout.blocks()..self.needs.directory_blocks(id)).try_for_each(|_| write(&blank))
    }

    fn write_attributes(&self, output: &mut Output<'_>) -> Result<(), FormatError> {
        for (at, (set, users)) in self.needs.attributes.iter().enumerate() {
            let mut left = *users;
            let mut user = 0_u32;
            while let Some(number) = self.layout.attribute_block(at, user).filter(|_| left > 0) {
                let here = left.min(crate::xattr::USERS_MAX);
                let bytes = set.block_at(VolBlock(number), here, &self.draft.sb);
                output.write(self.byte_of(number), &bytes)?;
                left -= here;
                user += here;
            }
        }
        Ok(())
    }

    fn write_values(&self, output: &mut Output<'_>) -> Result<(), FormatError> {
        let block_size = self.draft.sb.block_size;
        for (at, (value, _)) in self.needs.values.iter().enumerate() {
            let pieces = self.layout.value_map(at).map(|map| map.pieces.as_slice()).unwrap_or_default();
            for (range, offset) in map::runs(pieces, block_size) {
                let end = to_usize(range.end).min(value.bytes.len());
                let part = value.bytes.get(to_usize(range.start)..end).unwrap_or_default();
                let mut whole = zeroed(to_usize(range.end - range.start))?;
                whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                output.write(offset, &whole)?;
            }
        }
        Ok(())
    }

    /// Returns all nodes, each with the number of earlier nodes with the same set of attributes.
    fn counted(&self) -> impl Iterator<Item = (NodeId, &Node, u32)> {
        let mut users = alloc::vec![0_u32; self.needs.attributes.len()];
        self.tree.nodes().map(move |(id, node)| {
            let users = node.attr.xattrs.and_then(|set| users.get_mut(set.index()));
            let user = users.map_or(0, |users| {
                let before = *users;
                *users = before + 1;
                before
            });
            (id, node, user)
        })
    }

    /// Returns the last inode in the inode table block that contains the last of the inodes of every volume.
    fn last_shared(&self) -> u32 {
        let sb = &self.draft.sb;
        let last = self.layout.first_ino() - 1;
        // The table of a group begins a block, and the first group may have fewer inodes than every volume has.
        let (_, index) = sb.inode_index(last.into()).unwrap_or_default();
        let (before, inside) = (last - 1 - index, index + 1);
        inside.next_multiple_of(sb.inodes_per_block()).min(sb.inodes_per_group) + before
    }

    /// Returns the records that share blocks with the inodes of every volume.
    pub fn shared_records(&self) -> Result<Vec<(u32, Vec<u8>)>, FormatError> {
        let last = self.last_shared();
        let mut records = Vec::new();
        for (ino, what) in self.inodes().filter(|(ino, _)| *ino <= last) {
            let mut record = zeroed(self.draft.sb.inode_size.into())?;
            self.record(&what, &mut record);
            records.push((ino, record));
        }
        Ok(records)
    }

    /// Returns all inodes of the tree and of its values, by their numbers.
    fn inodes(&self) -> impl Iterator<Item = (u32, Recorded<'_>)> {
        let nodes =
            self.counted().map(|(id, node, user)| (self.layout.ino(id), Recorded::Node(id, node, user)));
        let values = 0..self.needs.values.len();
        nodes.chain(values.map(|at| (self.layout.value_ino(at), Recorded::Value(at))))
    }

    /// Writes the inode tables except [`Self::shared_records`].
    fn write_inodes(&self, output: &mut Output<'_>) -> Result<(), FormatError> {
        let last = self.last_shared();
        let mut block = self.draft.zeroed()?;
        let mut at = None;
        for (ino, what) in self.inodes().filter(|(ino, _)| *ino > last) {
            let (byte, start) = self.draft.record_place(ino);
            if let Some(before) = at.replace(byte).filter(|&before| before != byte) {
                output.write(before, &block)?;
                block.fill(0);
            }
            let end = start + usize::from(self.draft.sb.inode_size);
            if let Some(record) = block.get_mut(start..end) {
                self.record(&what, record);
            }
        }
        match at {
            Some(at) => Ok(output.write(at, &block)?),
            None => Ok(()),
        }
    }

    /// Returns all nodes, each with the number of its inodes and bytes on the volume, including those of its values.
    pub fn spaces(&self) -> impl Iterator<Item = (&Node, u64, u64)> {
        self.counted().map(|(id, node, user)| {
            let (values, _) = self.needs.charge(&self.draft.sb, node);
            (node, values + 1, self.byte_of(self.facts(id, node, user).blocks))
        })
    }

    fn record(&self, what: &Recorded<'_>, record: &mut [u8]) {
        match *what {
            Recorded::Node(id, node, user) => self.node_record(id, node, user, record),
            Recorded::Value(at) => self.value_record(at, record),
        }
    }

    fn value_record(&self, at: usize, record: &mut [u8]) {
        let sb = &self.draft.sb;
        let (Some((value, users)), Some(map)) = (self.needs.values.get(at), self.layout.value_map(at)) else {
            return;
        };
        let facts = Facts {
            ino: self.layout.value_ino(at),
            size: to_u64(value.bytes.len()),
            blocks: map.owned,
            flags: record::map_flags(sb) | InodeFlags::EA_INODE,
            i_block: map.i_block,
            attributes: &[],
            attribute_block: 0,
        };
        record::fill_value(sb, &facts, (value.hash, *users), record);
    }

    /// Fills in the record of a node, which is user number `user` of its set of attributes.
    fn node_record(&self, id: NodeId, node: &Node, user: u32, record: &mut [u8]) {
        let facts = self.facts(id, node, user);
        let mut node = *node;
        if id == NodeId::ROOT && self.needs.lost_and_found.is_none() {
            node.links = node.links.saturating_add(1);
        }
        record::fill(&self.draft.sb, &node, &facts, record);
    }

    /// Returns the properties of a node's record that do not follow from the node.
    fn facts(&self, id: NodeId, node: &Node, user: u32) -> Facts<'_> {
        let sb = &self.draft.sb;
        let mut facts = Facts {
            ino: self.layout.ino(id),
            size: 0,
            blocks: 0,
            flags: InodeFlags::empty(),
            i_block: [0; 60],
            attributes: &[],
            attribute_block: 0,
        };
        let mut own = 0;
        match node.body {
            Body::Directory => {
                own = self.needs.directory_blocks(id).into();
                facts.size = self.byte_of(own);
                facts.flags = record::map_flags(sb);
                let is_large = own > 1 && Some(id) != self.needs.lost_and_found;
                let has_index = DirShape::of_new(sb, facts.ino).new_index.is_some();
                facts.flags.set(InodeFlags::INDEX, is_large && has_index || self.is_indexed(id, own));
            }
            Body::File { size, .. } => {
                facts.size = size;
                own = body_blocks(sb, size);
                facts.flags = record::map_flags(sb);
            }
            Body::Symlink => {
                let target = self.tree.target(node);
                facts.size = to_u64(target.len());
                if self.layout.start(id).is_some() {
                    (own, facts.flags) = (1, record::map_flags(sb));
                } else {
                    facts.i_block.iter_mut().zip(target).for_each(|(to, from)| *to = *from);
                }
            }
            _ => {}
        }
        self.map(id, node, own, &mut facts);
        if let Some(set) = node.attr.xattrs {
            let held = self.needs.attributes.get(set.index());
            facts.attributes = held.map(|(set, _)| set.inside.as_slice()).unwrap_or_default();
            if let Some(block) = self.layout.attribute_block(set.index(), user) {
                facts.attribute_block = block;
                facts.blocks += u64::from(sb.cluster_blocks());
            }
            facts.blocks += self.needs.charge(sb, node).1;
        }
        facts
    }

    /// Returns whether the lost+found of a tree has so many names that it has an index.
    fn is_indexed(&self, id: NodeId, blocks: u64) -> bool {
        blocks > 1
            && Some(id) == self.needs.lost_and_found
            && DirLayout::new(&DirShape::of_new(&self.draft.sb, FIRST_INO), self.needs.names(self.tree, id))
                .is_ok_and(|layout| layout.is_indexed())
    }

    /// Fills in the map of a node with `own` blocks, including holes, and the number of blocks that it owns. A node
    /// with a first block and without a map of its own has no holes.
    fn map(&self, id: NodeId, node: &Node, own: u64, facts: &mut Facts<'_>) {
        let sb = &self.draft.sb;
        if let Some(map) = self.layout.map(id) {
            (facts.i_block, facts.blocks) = (map.i_block, map.owned);
        } else if let Some(start) = self.layout.start(id) {
            facts.i_block = map::simple(sb, start, own).unwrap_or(facts.i_block);
            facts.blocks = sb.cluster.round_up(own);
        } else if matches!(node.body, Body::File { .. }) && facts.flags.contains(InodeFlags::EXTENTS) {
            facts.i_block = crate::map::empty_root();
        }
    }
}
