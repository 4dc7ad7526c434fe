//! The layout of a whole directory all of whose names are known.
//!
//! Layout: one block if all entries fit. Otherwise, with indexes, it contains the root in block 0, the nodes level by
//! level, and then the leaves in the order of their hashes. Without indexes, it contains consecutive blocks of names.
//! Invariant: a leaf whose first hash is the last one of the leaf before it has the continuation bit in the index.
//! Source: Linux Documentation/filesystems/ext4/directory.rst; e2fsprogs `e2fsck/rehash.c` `copy_dir_entries`,
//! `calculate_tree`.
#![allow(clippy::arithmetic_side_effects, reason = "a block gets only as many names as fit")]

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, to_usize};
use obento_base::{Error, Result};

use super::hash::{CONTINUED, Hasher, NameHash};
use super::index::{INFO, NODE_TABLE, ROOT_TABLE};
use super::leaf::{FreeSlot, NewEntry, needed, write};
use super::shape::DirShape;
use crate::raw::RawDxEntry;

/// The filled part of a leaf in eighths. The rest is for later names.
const FILL: u32 = 7;

/// The division of a directory into blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DirLayout {
    /// Indices of the entries in the order in which they are written.
    order: Vec<u32>,
    /// For each block of names: where its entries end in `order`, and its hash in the index.
    leaves: Vec<Leaf>,
    /// The number of nodes of each level, from below the root down; empty without an index.
    levels: Vec<u32>,
    is_indexed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leaf {
    end: usize,
    hash: u32,
}

impl DirLayout {
    /// Returns whether a directory with only these names fits one block.
    pub(crate) fn fits_one<'n>(shape: &DirShape, names: impl Iterator<Item = &'n [u8]>) -> bool {
        let room = shape.records_end() - dots();
        let sizes = names.map(|name| needed(name.len()));
        sizes.fold(0, u32::saturating_add) <= room
    }

    /// Computes the layout of a directory with these names. Fails with `Unsupported`, `NoMemory`, or with `NoSpace`
    /// if an index cannot contain them all.
    pub(crate) fn new<'n>(shape: &DirShape, names: impl Iterator<Item = &'n [u8]> + Clone) -> Result<Self> {
        let mut this = Self { order: Vec::new(), leaves: Vec::new(), levels: Vec::new(), is_indexed: false };
        match shape.new_index {
            Some(version) if !Self::fits_one(shape, names.clone()) => this.by_hash(shape, version, names)?,
            _ => this.by_name(shape, names)?,
        }
        Ok(this)
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u32 {
        let root = u32::from(self.is_indexed);
        let nodes = self.levels.iter().copied().fold(root, u32::saturating_add);
        nodes.saturating_add(u32::try_from(self.leaves.len()).unwrap_or(u32::MAX))
    }

    /// Returns whether its inode has the flag `INDEX`.
    pub(crate) fn is_indexed(&self) -> bool {
        self.is_indexed
    }

    fn by_name<'n>(&mut self, shape: &DirShape, names: impl Iterator<Item = &'n [u8]>) -> Result<()> {
        let mut used = dots();
        for (at, name) in (0_u32..).zip(names) {
            let size = needed(name.len());
            if used + size > shape.records_end() {
                self.close_leaf(0)?;
                used = 0;
            }
            used += size;
            self.order.try_reserve(1)?;
            self.order.push(at);
        }
        self.close_leaf(0)
    }

    fn by_hash<'n>(
        &mut self,
        shape: &DirShape,
        version: u8,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<()> {
        let hasher = Hasher::new(version, shape.chars, shape.hash_seed)?;
        let mut entries: Vec<(NameHash, u32, u32)> = Vec::new();
        entries.try_reserve(names.size_hint().0)?;
        for (at, name) in (0_u32..).zip(names) {
            entries.try_reserve(1)?;
            entries.push((hasher.hash(name), at, needed(name.len())));
        }
        entries.sort_unstable();
        self.order.try_reserve_exact(entries.len())?;
        let room = shape.records_end() / 8 * FILL;
        let (mut used, mut low, mut last) = (0_u32, 0, None);
        for (hash, at, size) in entries {
            if used > 0 && used + size > room {
                self.close_leaf(low)?;
                used = 0;
                low = if last == Some(hash.major) { hash.major | CONTINUED } else { hash.major };
            }
            used += size;
            last = Some(hash.major);
            self.order.push(at);
        }
        self.close_leaf(low)?;
        self.is_indexed = true;
        self.divide_index(shape)
    }

    fn close_leaf(&mut self, hash: u32) -> Result<()> {
        self.leaves.try_reserve(1)?;
        self.leaves.push(Leaf { end: self.order.len(), hash });
        Ok(())
    }

    /// Counts the nodes between the root and the leaves.
    fn divide_index(&mut self, shape: &DirShape) -> Result<()> {
        let (root, node) = (shape.table_limit(ROOT_TABLE), shape.table_limit(NODE_TABLE));
        let mut below = u32::try_from(self.leaves.len()).unwrap_or(u32::MAX);
        while below > root.into() {
            below = below.div_ceil(u32::from(node).max(1));
            self.levels.insert(0, below);
        }
        let levels = u8::try_from(self.levels.len()).unwrap_or(u8::MAX).saturating_add(1);
        if levels > shape.max_levels { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Passes each block of the directory to `sink`, from the first on. `entries` returns the entry at an index of
    /// the list.
    pub(crate) fn write<'n, E: From<Error>>(
        &self,
        shape: &DirShape,
        (dir, parent): (u32, u32),
        entry: impl Fn(u32) -> NewEntry<'n>,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut block = Vec::new();
        block.try_reserve_exact(to_usize(shape.block_size.into())).map_err(Error::from)?;
        block.resize(to_usize(shape.block_size.into()), 0);
        if self.is_indexed {
            self.write_index(shape, (dir, parent), &mut block, &mut sink)?;
        }
        let mut start = 0;
        for (at, leaf) in self.leaves.iter().enumerate() {
            shape.blank_block(&mut block);
            let mut slot = FreeSlot { offset: 0, len: shape.records_end(), used: 0 };
            if at == 0 && !self.is_indexed {
                shape.first_block(&mut block, dir, parent);
                let offset = needed(1);
                slot = FreeSlot { offset, len: shape.records_end() - offset, used: needed(2) };
            }
            for &place in self.order.get(start..leaf.end).unwrap_or_default() {
                let entry = entry(place);
                shape.put(&mut block, slot, &entry);
                let (offset, len) = (slot.offset + slot.used, slot.len - slot.used);
                slot = FreeSlot { offset, len, used: needed(entry.name.len()) };
            }
            shape.seal(&mut block);
            sink(&block)?;
            start = leaf.end;
        }
        Ok(())
    }

    fn write_index<E: From<Error>>(
        &self,
        shape: &DirShape,
        (dir, parent): (u32, u32),
        block: &mut [u8],
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let node = u32::from(shape.table_limit(NODE_TABLE)).max(1);
        // For each level below the root, including the leaves: its first block, and the hash of each of its blocks.
        let hashes: Vec<u32> = self.leaves.iter().map(|leaf| leaf.hash).collect();
        let mut tables = Vec::from([hashes]);
        for _ in &self.levels {
            let below = tables.first().map_or(&[][..], |hashes| hashes);
            let above = below.iter().step_by(to_usize(node.into())).copied().collect();
            tables.insert(0, above);
        }
        let mut first = 1_u32;
        shape.first_block(block, dir, parent);
        shape.make_root(block, shape.new_index.unwrap_or(0), first);
        let top = tables.first().map_or(&[][..], |hashes| hashes);
        let levels = u8::try_from(self.levels.len()).unwrap_or(u8::MAX);
        write(block, u32::try_from(INFO).unwrap_or(0).saturating_add(6), &[levels]);
        let entries = table(top, first);
        write(block, u32::try_from(ROOT_TABLE).unwrap_or(0), &entries);
        shape.set_count(block, ROOT_TABLE, u16::try_from(top.len()).unwrap_or(u16::MAX));
        sink(block)?;
        for (level, below) in self.levels.iter().zip(tables.iter().skip(1)) {
            first = first.saturating_add(*level);
            let mut child = first;
            for part in below.chunks(to_usize(node.into())) {
                shape.make_node(block, &table(part, child), u16::try_from(part.len()).unwrap_or(u16::MAX));
                sink(block)?;
                child = child.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
            }
        }
        Ok(())
    }
}

/// Returns the size of `.` and `..`.
fn dots() -> u32 {
    needed(1) + needed(2)
}

/// Returns the entries of a table for blocks from `first` on with these hashes.
fn table(hashes: &[u32], first: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (block, &hash) in (first..).zip(hashes) {
        bytes.extend_from_slice(RawDxEntry { hash: hash.into(), block: block.into() }.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::testing;
    use std::format;
    use std::string::String;

    #[test]
    fn the_blocks_that_are_counted_are_those_that_are_written() {
        for (files, index) in
            [(0, None), (5, Some(1)), (200, None), (200, Some(1)), (30_000, Some(1)), (30_000, Some(2))]
        {
            let names: Vec<String> = (0..files).map(|at| format!("a file with number {at}")).collect();
            let shape = DirShape { new_index: index, max_levels: 2, ..testing::shape(1024) };
            let layout = DirLayout::new(&shape, names.iter().map(|name| name.as_bytes())).unwrap();
            let mut blocks = 0;
            let entry = |at: u32| NewEntry {
                name: names[usize::try_from(at).unwrap()].as_bytes(),
                ino: at + 12,
                kind: obento_base::FileKind::Regular,
            };
            let count = |block: &[u8]| {
                assert_eq!(block.len(), 1024);
                blocks += 1;
                Ok::<_, Error>(())
            };
            layout.write(&shape, (2, 2), entry, count).unwrap();
            assert_eq!(blocks, layout.blocks(), "{files} names");
            assert_eq!(layout.is_indexed(), index.is_some() && files > 5);
        }
    }

    #[test]
    fn more_names_than_the_levels_allow_are_refused() {
        let names: Vec<String> = (0..6000).map(|at| format!("{at:0250}")).collect();
        let shape = DirShape { new_index: Some(1), max_levels: 1, ..testing::shape(1024) };
        assert_eq!(DirLayout::new(&shape, names.iter().map(|name| name.as_bytes())), Err(Error::NoSpace));
    }
}
