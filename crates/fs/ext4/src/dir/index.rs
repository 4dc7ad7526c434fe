//! The index of a directory ("htree"): a tree from hashes to blocks of entries.
//!
//! Layout: block 0 is the root, whose table follows `.`, `..` and `dx_root_info`. Nodes below it look like one unused
//! record. The first entry of a table has no hash: it covers all hashes below that of the second one.
//! Invariant: a path has at most as many frames as the super block's features allow levels, so that a cycle of nodes
//! ends. Callers that visit successive leaves bound their number.
//! Source: Linux Documentation/filesystems/ext4/directory.rst; `dx_probe`, `ext4_htree_next_block` in
//! fs/ext4/namei.c.
#![allow(clippy::arithmetic_side_effects, reason = "a table and its entries are within their block")]

use alloc::vec::Vec;

use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::Block;
use zerocopy::FromBytes;

use super::block::BlockStore;
use super::grow::Growth;
use super::hash::{CONTINUED, Hasher};
use super::node::entry_at;
use super::record::record_len;
use crate::raw::{RawDirEntry, RawDxCountLimit, RawDxEntry, RawDxRootInfo};

/// Offset of `dx_root_info` after `.` and `..`, of 12 bytes each.
pub(super) const INFO: usize = 24;
pub(super) const ROOT_TABLE: usize = 32;
pub(super) const NODE_TABLE: usize = 8;
pub(super) const ENTRY: usize = size_of::<RawDxEntry>();
/// The bits of `dx_entry.block` that are a block number (`dx_get_block`).
pub(super) const BLOCK_MASK: u32 = 0x0fff_ffff;
/// `EXT2_HASH_FLAG_INCOMPAT`.
const FLAG_INCOMPATIBLE: u8 = 1;

/// The root of an index, and its contents.
pub(super) struct DirIndex<'a> {
    store: BlockStore<'a>,
    root: IndexNode,
    levels: u8,
    /// The hash function of this directory.
    pub(super) hasher: Hasher,
}

/// A block of entries according to the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexLeaf {
    /// Block of the directory.
    pub(super) at: u32,
    /// Its lowest hash, with the continuation bit.
    pub(super) low: u32,
    /// The lowest hash of the next leaf, with the continuation bit, if there is one.
    pub(super) next: Option<u32>,
}

impl IndexLeaf {
    /// Returns the lowest and the highest hash of this leaf.
    pub(super) fn range(&self) -> (u32, u32) {
        let low = self.low & !CONTINUED;
        let high = match self.next {
            None => u32::MAX,
            Some(next) if next & CONTINUED != 0 => next & !CONTINUED,
            Some(next) => next.saturating_sub(2),
        };
        (low, high.max(low))
    }

    /// Returns whether entries with this hash may also be in the next leaf.
    pub(super) fn continues(&self, hash: u32) -> bool {
        self.next.is_some_and(|next| next & !CONTINUED == hash)
    }
}

impl<'a> DirIndex<'a> {
    /// Reads the root and checks its contents. Fails with `Corrupt`, or with `Unsupported` for an unknown hash.
    pub(super) fn open(store: BlockStore<'a>) -> Result<Self> {
        let block = store.read(0)?;
        let shape = store.shape;
        check_dots(&store, &block)?;
        let info = block.get(INFO..).and_then(|bytes| RawDxRootInfo::ref_from_prefix(bytes).ok());
        let Some((&info, _)) = info else { return Err(bad(&store, &block, "dx_root", 0, 0)) };
        for (field, offset, found, right) in [
            ("reserved_zero", 0, info.reserved_zero.get(), info.reserved_zero.get() == 0),
            ("info_length", 5, info.info_length.into(), info.info_length == 8),
            ("unused_flags", 7, info.unused_flags.into(), info.unused_flags & FLAG_INCOMPATIBLE == 0),
        ] {
            if !right {
                return Err(bad(&store, &block, field, INFO + offset, found));
            }
        }
        if info.indirect_levels >= shape.max_levels {
            let structure = Structure::DirectoryIndex(shape.dir);
            let (found, expected) = (info.indirect_levels.into(), (shape.max_levels - 1).into());
            return Err(Corrupt::Depth { structure, block: block.number(), found, expected }.into());
        }
        let root = IndexNode::decode(&store, block, ROOT_TABLE)?;
        let hasher = Hasher::new(info.hash_version, shape.chars, shape.hash_seed)?;
        Ok(Self { store, root, levels: info.indirect_levels, hasher })
    }

    /// Returns a path to the first leaf that may contain `hash`, or without one to the first leaf. [`IndexPath::descend`]
    /// must be called next.
    pub(super) fn path(&'a self, hash: Option<u32>) -> IndexPath<'a> {
        let at = self.root.position(hash);
        IndexPath {
            index: self,
            frames: Vec::from([Frame { node: self.root.clone(), at, low: 0 }]),
            target: hash,
        }
    }

    /// Checks every node below the root. The hashes must be in order, each leaf must be a block of the directory, and
    /// leaves must not outnumber the blocks.
    pub(super) fn check(&self) -> Result<()> {
        let mut path = self.path(None);
        path.descend()?;
        let mut budget = self.store.shape.blocks;
        loop {
            let Some(leaf) = path.leaf() else { return Ok(()) };
            // A leaf that starts with the hash of the leaf before it has the continuation bit; otherwise hashes are
            // unique.
            let ordered = leaf.next.is_none_or(|next| next > leaf.low & !CONTINUED);
            budget = match budget.checked_sub(1) {
                Some(left) if ordered && leaf.at < self.store.shape.blocks && leaf.at != 0 => left,
                _ => return Err(path.bad_entry()),
            };
            if !path.advance()? {
                return Ok(());
            }
        }
    }
}

/// Checks a node below the root as a walk through it would.
pub(super) fn check_node(store: &BlockStore<'_>, block: Block) -> Result<()> {
    IndexNode::decode(store, block, NODE_TABLE).map(drop)
}

/// Returns whether the place of a node's table contains only zeros.
pub(super) fn has_no_table(bytes: &[u8]) -> bool {
    bytes.get(NODE_TABLE..NODE_TABLE + ENTRY).is_some_and(|entry| entry.iter().all(|&byte| byte == 0))
}

/// A path from the root to a leaf.
pub(super) struct IndexPath<'a> {
    index: &'a DirIndex<'a>,
    frames: Vec<Frame>,
    /// The hash that is searched on the way down.
    target: Option<u32>,
}

#[derive(Clone)]
struct Frame {
    node: IndexNode,
    at: u16,
    /// The lowest hash of this node according to its parent.
    low: u32,
}

impl Frame {
    fn low(&self) -> u32 {
        if self.at == 0 { self.low } else { self.node.hash(self.at).unwrap_or(self.low) }
    }

    fn next(&self) -> Option<u32> {
        self.node.hash(self.at.checked_add(1)?)
    }
}

impl IndexPath<'_> {
    /// Descends to the leaf. Fails at a damaged node; `advance` then skips it.
    pub(super) fn descend(&mut self) -> Result<()> {
        while let Some(frame) =
            self.frames.last().filter(|_| self.frames.len() <= usize::from(self.index.levels))
        {
            let (low, at) = (frame.low(), frame.node.child(frame.at));
            let store = &self.index.store;
            let node = IndexNode::decode(store, store.read(at)?, NODE_TABLE)?;
            let at = node.position(self.target);
            self.frames.push(Frame { node, at, low });
        }
        Ok(())
    }

    /// Moves to the next leaf. Returns false after the last one. After an error, the damaged part of the tree is
    /// skipped.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.target = None;
        while let Some(frame) = self.frames.last_mut() {
            if frame.next().is_some() {
                frame.at += 1;
                return self.descend().map(|()| true);
            }
            self.frames.pop();
        }
        Ok(false)
    }

    /// Returns the leaf at the end of the path, if `descend` or `advance` reached one.
    pub(super) fn leaf(&self) -> Option<IndexLeaf> {
        let frame = self.frames.last().filter(|_| self.frames.len() > usize::from(self.index.levels))?;
        let next = self.frames.iter().rev().find_map(Frame::next);
        Some(IndexLeaf { at: frame.node.child(frame.at), low: frame.low(), next })
    }

    /// Returns the step that creates space for one more leaf beside the leaf at the end of the path. The step is the
    /// lowest change that is possible by itself. Fails with `NoSpace` if the tree has its maximum height and is full.
    pub(super) fn growth(&self, leaf: Block) -> Result<Growth> {
        let fork = |frame: &Frame| NodeEntry { node: frame.node.clone(), at: frame.at };
        let shape = self.index.store.shape;
        let full = |frame: &&Frame| frame.node.count >= shape.table_limit(frame.node.table);
        // The full nodes above the leaf, and the first one that is not full, from the bottom up.
        let blocked = self.frames.iter().rev().take_while(full).count();
        let mut from_bottom = self.frames.iter().rev().skip(blocked.saturating_sub(1));
        match (blocked, from_bottom.next(), from_bottom.next()) {
            (0, Some(parent), _) => {
                Ok(Growth::Leaf { leaf, parent: fork(parent), hasher: self.index.hasher })
            }
            (_, Some(node), Some(parent)) => {
                Ok(Growth::Node { node: node.node.clone(), parent: fork(parent) })
            }
            (_, Some(root), None) if self.index.levels + 1 < shape.max_levels => {
                Ok(Growth::Deepen { root: root.node.clone() })
            }
            _ => Err(Error::NoSpace),
        }
    }

    /// Returns the error for the entry at the end of the path.
    pub(super) fn bad_entry(&self) -> Error {
        let store = &self.index.store;
        let frame = self.frames.last();
        let (node, at) = frame.map_or((&self.index.root, 0), |frame| (&frame.node, frame.at));
        let offset = entry_at(node.table, at);
        bad(store, &node.block, "dx_entry", offset, node.hash(at).unwrap_or(0))
    }
}

/// A node whose table is within its block.
#[derive(Clone, Debug)]
pub(crate) struct IndexNode {
    pub(super) block: Block,
    /// Byte offset of the table.
    pub(super) table: usize,
    pub(super) count: u16,
}

/// An entry of a node.
#[derive(Debug)]
pub(crate) struct NodeEntry {
    pub(super) node: IndexNode,
    pub(super) at: u16,
}

impl IndexNode {
    fn decode(store: &BlockStore<'_>, block: Block, table: usize) -> Result<Self> {
        let raw = block.get(table..).and_then(|bytes| RawDxCountLimit::ref_from_prefix(bytes).ok());
        let Some((&raw, _)) = raw else { return Err(bad(store, &block, "limit", table, 0)) };
        let (limit, count) = (raw.limit.get(), raw.count.get());
        let tail = if store.shape.checksum_seed.is_some() { 8 } else { 0 };
        let room = (block.len() - table - tail) / ENTRY;
        if usize::from(limit) != room {
            return Err(bad(store, &block, "limit", table, limit.into()));
        }
        if count == 0 || count > limit {
            return Err(bad(store, &block, "count", table + 2, count.into()));
        }
        if table == NODE_TABLE {
            check_fake(store, &block)?;
        }
        store.verify_node(&block, entry_at(table, count), entry_at(table, limit))?;
        Ok(Self { block, table, count })
    }

    fn entry(&self, at: u16) -> Option<&RawDxEntry> {
        let start = self.table.checked_add(usize::from(at).checked_mul(ENTRY)?)?;
        let (raw, _) = RawDxEntry::ref_from_prefix(self.block.get(start..)?).ok()?;
        (at < self.count).then_some(raw)
    }

    /// Returns the hash of an entry other than the first.
    pub(super) fn hash(&self, at: u16) -> Option<u32> {
        self.entry(at).map(|entry| entry.hash.get())
    }

    pub(super) fn child(&self, at: u16) -> u32 {
        self.entry(at).map_or(0, |entry| entry.block.get() & BLOCK_MASK)
    }

    /// Returns the last entry that starts at or below `hash`, or without a hash the first entry.
    fn position(&self, hash: Option<u32>) -> u16 {
        let Some(hash) = hash else { return 0 };
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low.midpoint(high);
            match self.hash(middle) {
                Some(found) if found <= hash => low = middle,
                _ => high = middle,
            }
        }
        low
    }
}

/// Checks that the root begins with `.` and with a `..` that reaches to the end of the block.
fn check_dots(store: &BlockStore<'_>, block: &Block) -> Result<()> {
    let records = store.records(0, block);
    let dot = records.at(0)?;
    let dots = records.at(dot.len)?;
    let rest = store.shape.block_size - 12;
    for (record, len, name) in [(dot, 12, &b"."[..]), (dots, rest, b"..")] {
        let (dir, block, offset) = (store.shape.dir, block.number(), record.offset);
        if record.len != len {
            return Err(Corrupt::RecordLength { dir, block, offset, rec_len: record.len }.into());
        }
        if record.name != name {
            return Err(Corrupt::EntryName { dir, block, offset }.into());
        }
    }
    Ok(())
}

/// Checks that a node begins with an unused record that reaches to the end of the block.
fn check_fake(store: &BlockStore<'_>, block: &Block) -> Result<()> {
    let raw = RawDirEntry::ref_from_prefix(block).ok().map(|(raw, _)| raw);
    let len = raw.map_or(0, |raw| record_len(raw.rec_len.get(), store.shape.block_size));
    if len != store.shape.block_size {
        return Err(bad(store, block, "fake.rec_len", 4, len));
    }
    Ok(())
}

fn bad(store: &BlockStore<'_>, block: &Block, field: &'static str, offset: usize, found: u32) -> Error {
    let structure = Structure::DirectoryIndex(store.shape.dir);
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    Corrupt::Field { structure, field, block: block.number(), offset, found: found.into() }.into()
}
