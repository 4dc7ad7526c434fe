//! The growth of a directory, one step at a time.
//!
//! Invariant: after each step the directory has the same names and is consistent. The next step may fail for lack of
//! space, and the steps before it stay.
//! Invariant: within a step, all that can fail precedes the first edit.
//! Source: Linux fs/ext4/namei.c, `ext4_dx_add_entry`, `do_split`, `make_indexed_dir`.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::Block;

use super::hash::Hasher;
use super::index::{IndexNode, NodeEntry};
use super::leaf::needed;
use super::node::entries;
use super::record::Records;
use super::shape::DirShape;
use super::split::split;

/// The blocks of a directory that is being changed.
pub(crate) trait DirTxn {
    /// A block that was taken for a change.
    type Taken;

    /// Takes a block of the directory for a change.
    fn take(&mut self, block: &Block) -> Result<Self::Taken>;

    /// Appends a block to the directory and returns its number. Fails with `NoSpace`, and then changes nothing.
    fn append(&mut self) -> Result<(u32, Self::Taken)>;

    /// Changes a block.
    fn edit(&mut self, taken: &Self::Taken, change: impl FnOnce(&mut [u8]));
}

/// A step that is needed before an entry has space.
#[derive(Debug)]
pub(crate) enum Growth {
    /// The inode has no more space.
    Inline,
    /// Append a block of entries.
    Append,
    /// Turn the directory's only block into the root of an index.
    Index { first: Block, version: u8 },
    /// Split a leaf.
    Leaf { leaf: Block, parent: NodeEntry, hasher: Hasher },
    /// Split a node of the index.
    Node { node: IndexNode, parent: NodeEntry },
    /// Add a level to the index.
    Deepen { root: IndexNode },
}

/// The change of the inode that a step requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grown {
    /// None.
    Done,
    /// Set its flag `INDEX`.
    Indexed,
}

impl Growth {
    /// Applies this step to a directory of `shape`. Fails with `NoSpace` or `Corrupt`, or if the device fails.
    pub(crate) fn act<T: DirTxn>(self, shape: &DirShape, txn: &mut T) -> Result<Grown> {
        match self {
            // The caller moves the entries from the inode to a block.
            Self::Inline => return Err(Error::Invalid),
            Self::Append => {
                let (_, taken) = txn.append()?;
                txn.edit(&taken, |bytes| shape.blank_block(bytes));
            }
            Self::Index { first, version } => {
                make_index(shape, txn, first, version)?;
                return Ok(Grown::Indexed);
            }
            Self::Leaf { leaf, parent, hasher } => split_leaf(shape, txn, leaf, parent, &hasher)?,
            Self::Node { node, parent } => split_node(shape, txn, node, parent)?,
            Self::Deepen { root } => deepen(shape, txn, root)?,
        }
        Ok(Grown::Done)
    }
}

/// Moves all entries of the first block except `.` and `..` to a second one, and turns the first into a root.
fn make_index<T: DirTxn>(shape: &DirShape, txn: &mut T, first: Block, version: u8) -> Result<()> {
    let moved = without_dots(shape, &first)?;
    let root = txn.take(&first)?;
    drop(first);
    let (at, leaf) = txn.append()?;
    txn.edit(&leaf, |bytes| bytes.copy_from_slice(&moved));
    txn.edit(&root, |bytes| shape.make_root(bytes, version, at));
    Ok(())
}

/// Returns the entries of the first block except `.` and `..`, as a block of its own.
fn without_dots(shape: &DirShape, first: &Block) -> Result<Vec<u8>> {
    let mut moved = zeroed(shape)?;
    let run = Records {
        dir: shape.dir,
        block: first.number(),
        base: 0,
        bytes: first,
        block_size: shape.block_size,
        starts: true,
    };
    let (mut at, mut last) = (0, None);
    for record in run.walk().skip(2) {
        let record = record?;
        if record.inode == 0 {
            continue;
        }
        let start = to_usize(record.offset.into());
        let end = start.saturating_add(to_usize(needed(record.name.len()).into()));
        last = Some(at);
        at = shape.copy_record(&mut moved, at, first.get(start..end).unwrap_or_default());
    }
    match last {
        Some(last) => shape.set_len(&mut moved, last, shape.records_end().saturating_sub(last)),
        None => shape.unused(&mut moved, 0, shape.records_end()),
    }
    shape.seal(&mut moved);
    Ok(moved)
}

fn split_leaf<T: DirTxn>(
    shape: &DirShape,
    txn: &mut T,
    leaf: Block,
    parent: NodeEntry,
    hasher: &Hasher,
) -> Result<()> {
    let run = Records {
        dir: shape.dir,
        block: leaf.number(),
        base: 0,
        bytes: &leaf,
        block_size: shape.block_size,
        starts: false,
    };
    let halves = split(shape, hasher, &run)?;
    let (low, above) = (txn.take(&leaf)?, txn.take(&parent.node.block)?);
    drop(leaf);
    let (at, high) = txn.append()?;
    txn.edit(&high, |bytes| bytes.copy_from_slice(&halves.high));
    txn.edit(&low, |bytes| bytes.copy_from_slice(&halves.low));
    insert_child(shape, txn, &above, parent, halves.hash, at);
    Ok(())
}

fn split_node<T: DirTxn>(shape: &DirShape, txn: &mut T, node: IndexNode, parent: NodeEntry) -> Result<()> {
    let kept = node.count / 2;
    let hash = node.hash(kept).ok_or(Error::NoSpace)?;
    let mut moved = zeroed(shape)?;
    let count = node.count.saturating_sub(kept);
    shape.make_node(&mut moved, entries(&node.block, node.table, kept, node.count), count);
    let (low, above) = (txn.take(&node.block)?, txn.take(&parent.node.block)?);
    let table = node.table;
    drop(node);
    let (at, high) = txn.append()?;
    txn.edit(&high, |bytes| bytes.copy_from_slice(&moved));
    txn.edit(&low, |bytes| shape.set_count(bytes, table, kept));
    insert_child(shape, txn, &above, parent, hash, at);
    Ok(())
}

fn insert_child<T: DirTxn>(
    shape: &DirShape,
    txn: &mut T,
    above: &T::Taken,
    parent: NodeEntry,
    hash: u32,
    child: u32,
) {
    let (table, at) = (parent.node.table, parent.at);
    drop(parent);
    txn.edit(above, |bytes| shape.insert_child(bytes, table, at, hash, child));
}

fn deepen<T: DirTxn>(shape: &DirShape, txn: &mut T, root: IndexNode) -> Result<()> {
    let mut moved = zeroed(shape)?;
    shape.make_node(&mut moved, entries(&root.block, root.table, 0, root.count), root.count);
    let top = txn.take(&root.block)?;
    drop(root);
    let (at, below) = txn.append()?;
    txn.edit(&below, |bytes| bytes.copy_from_slice(&moved));
    txn.edit(&top, |bytes| shape.deepen(bytes, at));
    Ok(())
}

fn zeroed(shape: &DirShape) -> Result<Vec<u8>> {
    let len = to_usize(shape.block_size.into());
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}
