//! Rebuilding the index of a directory from its entries alone.
//!
//! Layout of the result: block 0 the root, then the leaves in the order of their hashes, then the nodes between them.
//! Invariant: all blocks of the directory are in the index, since others would be damage. Entries are spread over the
//! leaves, and leaves without entries follow above the last hash.
//! Source: e2fsprogs `e2fsck/rehash.c` `e2fsck_rehash_dir`, `calculate_tree`; see also [`super::index`].
#![allow(clippy::arithmetic_side_effects, reason = "a walk limits every record to its block")]

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, to_u64, to_usize};
use obento_base::{Error, Result};

use super::fold::Folder;
use super::hash::{CONTINUED, Hasher, NameHash};
use super::index::{INFO, NODE_TABLE, ROOT_TABLE};
use super::leaf::{needed, write};
use super::record::Records;
use super::shape::DirShape;
use crate::raw::RawDxEntry;

/// The limit below which a leaf must begin: `EXT4_HTREE_EOF_32BIT`, twice.
const LAST_BOUND: u32 = 0xffff_fff0;

/// An entry: the place of its record in the given bytes, and the used part of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Part {
    hash: NameHash,
    at: u64,
    size: u32,
}

/// A child of a node: the lowest hash below it, and its block of the directory.
type Child = (u32, u32);

/// The entries of a directory, ordered by hash.
pub(crate) struct Rebuild<'a> {
    shape: &'a DirShape,
    bytes: &'a [u8],
    version: u8,
    parts: Vec<Part>,
    /// Size of all records in bytes.
    total: u64,
    /// The inode of `..`.
    parent: u32,
}

/// The number of nodes between the root and the leaves, by level from the leaves up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Levels {
    leaves: u32,
    lower: u32,
    upper: u32,
}

impl<'a> Rebuild<'a> {
    /// Collects the entries of `bytes`, which are all blocks of a directory. Fails with `NoMemory`, with
    /// `Unsupported` if names cannot be hashed, or with `Corrupt` for a damaged record.
    pub(crate) fn gather(shape: &'a DirShape, bytes: &'a [u8]) -> Result<Self> {
        let version = shape.new_index.ok_or(Error::Invalid)?;
        let hasher = Hasher::new(version, shape.chars, shape.hash_seed)?;
        let mut this = Self { shape, bytes, version, parts: Vec::new(), total: 0, parent: 0 };
        let mut folder = Folder::default();
        for (number, block) in (0_u64..).zip(bytes.chunks_exact(to_usize(shape.block_size.into()))) {
            this.gather_block(&hasher, &mut folder, number, block)?;
        }
        this.parts.sort_unstable();
        Ok(this)
    }

    fn gather_block(
        &mut self,
        hasher: &Hasher,
        folder: &mut Folder,
        number: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let (dir, block_size, starts) = (self.shape.dir, self.shape.block_size, number == 0);
        let records = Records { dir, block: number, base: 0, bytes, block_size, starts };
        for (position, record) in records.walk().enumerate() {
            let record = record?;
            match (starts, position) {
                (true, 0) => continue,
                (true, 1) => {
                    self.parent = record.inode;
                    continue;
                }
                _ if record.inode == 0 => continue,
                _ => {}
            }
            let size = needed(record.name.len());
            let at = number * u64::from(block_size) + u64::from(record.offset);
            self.parts.try_reserve(1)?;
            self.parts.push(Part { hash: self.shape.hash(hasher, folder, record.name), at, size });
            self.total += u64::from(size);
        }
        Ok(())
    }

    /// Returns the minimum number of blocks for all entries.
    pub(crate) fn fewest_blocks(&self) -> u32 {
        let leaves = u32::try_from(self.pack(self.room()).len().max(1)).unwrap_or(u32::MAX);
        let (mut blocks, limit) = (leaves.saturating_add(1), leaves.saturating_mul(2).saturating_add(8));
        while blocks < limit && self.levels(blocks).is_none_or(|levels| levels.leaves < leaves) {
            blocks = blocks.saturating_add(1);
        }
        blocks
    }

    /// Returns the directory in `blocks` blocks, or `None` if the space or the number of different hashes does not
    /// suffice.
    pub(crate) fn build(&self, blocks: u32) -> Option<Vec<u8>> {
        let levels = self.levels(blocks)?;
        let leaves = self.spread(to_usize(levels.leaves.into()))?;
        let size = to_usize(self.shape.block_size.into());
        let mut made = Vec::new();
        made.try_reserve_exact(size.checked_mul(to_usize(blocks.into()))?).ok()?;
        made.resize(size, 0);
        for leaf in &leaves {
            self.leaf(&mut made, leaf);
        }
        for _ in leaves.len()..to_usize(levels.leaves.into()) {
            self.leaf(&mut made, &[]);
        }
        let children: Vec<Child> = bounds(&leaves, levels.leaves)?.into_iter().zip(1..).collect();
        let first = levels.leaves.checked_add(1)?;
        let children = self.nodes(&mut made, &children, levels.lower, first);
        let children = self.nodes(&mut made, &children, levels.upper, first.checked_add(levels.lower)?);
        self.root(made.get_mut(..size)?, &children, levels);
        Some(made)
    }

    /// Divides `blocks` blocks between leaves and nodes, so that all are in use.
    fn levels(&self, blocks: u32) -> Option<Levels> {
        let below = blocks.checked_sub(1).filter(|&below| below > 0)?;
        let (root, node) =
            (self.shape.table_limit(ROOT_TABLE).into(), self.shape.table_limit(NODE_TABLE).into());
        // The number of nodes above this number of nodes or leaves.
        let above =
            |count: u32| Some(count.div_ceil(u32::checked_add(node, 1)?)).filter(|&nodes| nodes < count);
        if below <= root {
            return Some(Levels { leaves: below, lower: 0, upper: 0 });
        }
        let lower = above(below)?;
        if lower <= root {
            return (self.shape.max_levels > 1).then_some(Levels {
                leaves: below.saturating_sub(lower),
                lower,
                upper: 0,
            });
        }
        // A node of nodes requires itself, its children, and the leaves below them.
        let whole = u32::checked_mul(node, node.checked_add(1)?)?.checked_add(1)?;
        let upper = below.div_ceil(whole);
        let rest = below.checked_sub(upper)?;
        let lower = above(rest)?;
        (upper <= root && self.shape.max_levels > 2).then_some(Levels {
            leaves: rest.saturating_sub(lower),
            lower,
            upper,
        })
    }

    /// Returns the size of the records of a leaf.
    fn room(&self) -> u32 {
        self.shape.records_end()
    }

    /// Returns the entries in leaves of `budget` bytes each.
    fn pack(&self, budget: u32) -> Vec<&[Part]> {
        let (mut leaves, mut from, mut used) = (Vec::new(), 0_usize, 0_u32);
        for (at, part) in self.parts.iter().enumerate() {
            let with = used + part.size;
            if with > budget && at > from {
                leaves.push(self.parts.get(from..at).unwrap_or_default());
                (from, used) = (at, part.size);
            } else {
                used = with;
            }
        }
        leaves.extend(self.parts.get(from..).filter(|rest| !rest.is_empty()));
        leaves
    }

    /// Returns the entries in at most `count` leaves. No leaf is fuller than necessary, and none is less than half
    /// full because of missing entries.
    fn spread(&self, count: usize) -> Option<Vec<&[Part]>> {
        let room = self.room();
        let even = self.total.checked_div(to_u64(count)).and_then(|even| u32::try_from(even).ok())?;
        let mut budget = even.max(room / 2);
        loop {
            let leaves = self.pack(budget.min(room));
            if leaves.len() <= count {
                return Some(leaves);
            }
            if budget >= room {
                return None;
            }
            budget += room / 32;
        }
    }

    /// Appends a leaf with these entries.
    fn leaf(&self, made: &mut Vec<u8>, parts: &[Part]) {
        let start = made.len();
        made.resize(start + to_usize(self.shape.block_size.into()), 0);
        let block = made.get_mut(start..).unwrap_or_default();
        let (mut at, mut last) = (0, None);
        for part in parts {
            let from = to_usize(part.at);
            let record = self.bytes.get(from..from + to_usize(part.size.into())).unwrap_or_default();
            last = Some(at);
            at = self.shape.copy_record(block, at, record);
        }
        match last {
            Some(last) => self.shape.set_len(block, last, self.room() - last),
            None => self.shape.unused(block, 0, self.room()),
        }
        self.shape.seal(block);
    }

    /// Appends `count` nodes above `children`, the first as block `first` of the directory. Returns their entries for
    /// the next level.
    fn nodes(&self, made: &mut Vec<u8>, children: &[Child], count: u32, first: u32) -> Vec<Child> {
        if count == 0 {
            return children.to_vec();
        }
        let each = children.len().div_ceil(to_usize(count.into()).max(1)).max(1);
        // If the children cannot be divided evenly, the first nodes have one more than the others.
        let whole = children.len().saturating_sub(to_usize(count.into()) * (each - 1));
        let (mut rest, mut above) = (children, Vec::new());
        for (index, number) in (0..to_usize(count.into())).zip(first..) {
            let take = if index < whole { each } else { each - 1 };
            let (own, left) = rest.split_at_checked(take).unwrap_or((rest, &[]));
            rest = left;
            let start = made.len();
            made.resize(start + to_usize(self.shape.block_size.into()), 0);
            let entries = entries(own);
            let count = u16::try_from(own.len()).unwrap_or(u16::MAX);
            self.shape.make_node(made.get_mut(start..).unwrap_or_default(), &entries, count);
            above.push((own.first().map_or(0, |child| child.0), number));
        }
        above
    }

    fn root(&self, block: &mut [u8], children: &[Child], levels: Levels) {
        let dir = u32::try_from(self.shape.dir.0).unwrap_or(0);
        self.shape.first_block(block, dir, self.parent);
        self.shape.make_root(block, self.version, 1);
        let high = u8::from(levels.lower > 0) + u8::from(levels.upper > 0);
        if let Some(byte) = block.get_mut(INFO + 6) {
            *byte = high;
        }
        write(block, u32::try_from(ROOT_TABLE).unwrap_or(0), &entries(children));
        let count = u16::try_from(children.len()).unwrap_or(u16::MAX);
        self.shape.set_count(block, ROOT_TABLE, count);
    }
}

/// Returns the lowest hash of each of `count` leaves, the first of which contain `leaves`, or `None` if two would be
/// equal.
fn bounds(leaves: &[&[Part]], count: u32) -> Option<Vec<u32>> {
    let (mut all, mut last) = (Vec::new(), 0_u32);
    for leaf in leaves {
        let lowest = leaf.first()?.hash.major;
        let bound = if all.is_empty() {
            0
        } else if lowest == last {
            lowest | CONTINUED
        } else {
            lowest
        };
        all.push(bound);
        last = leaf.last()?.hash.major;
    }
    while all.len() < to_usize(count.into()) {
        let bound = if all.is_empty() { 0 } else { last.checked_add(2).filter(|&next| next < LAST_BOUND)? };
        all.push(bound);
        last = bound;
    }
    all.is_sorted_by(|one, next| one < next).then_some(all)
}

/// Returns a table as it is stored. The number of entries and the limit replace the first hash.
fn entries(children: &[Child]) -> Vec<u8> {
    let raw = |&(hash, block): &Child| RawDxEntry { hash: hash.into(), block: block.into() };
    children.iter().map(raw).flat_map(|entry| entry.as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{SIZE, shape};
    use super::*;

    /// Returns a directory of `count` names in blocks without an index.
    fn list(shape: &DirShape, count: u32) -> Vec<u8> {
        let mut bytes = std::vec![0; to_usize(SIZE.into())];
        shape.first_block(&mut bytes, 12, 2);
        let mut rest = (0..count).peekable();
        while rest.peek().is_some() {
            let start = bytes.len();
            bytes.resize(start + to_usize(SIZE.into()), 0);
            let block = &mut bytes[start..];
            let (mut at, mut last) = (0, 0);
            while at + 64 < shape.records_end()
                && let Some(number) = rest.next()
            {
                let name = std::format!("a name of its own {number}");
                let len = needed(name.len());
                let mut record = Vec::from((number + 100).to_le_bytes());
                record.extend([0, 0, u8::try_from(name.len()).unwrap(), 1]);
                record.extend(name.as_bytes());
                record.resize(to_usize(len.into()), 0);
                last = at;
                at = shape.copy_record(block, at, &record);
            }
            shape.set_len(block, last, shape.records_end() - last);
            shape.seal(block);
        }
        bytes
    }

    fn made(count: u32, seed: Option<u32>, levels: u8) -> (usize, Vec<u8>) {
        let shape = DirShape { checksum_seed: seed, new_index: Some(1), max_levels: levels, ..shape(1) };
        let bytes = list(&shape, count);
        let rebuild = Rebuild::gather(&shape, &bytes).unwrap();
        let blocks = rebuild.fewest_blocks().max(u32::try_from(bytes.len()).unwrap() / SIZE);
        let made = rebuild.build(blocks).unwrap();
        assert_eq!(made.len(), to_usize((blocks * SIZE).into()));
        // The result has the same names, and can be rebuilt from itself.
        let again = Rebuild::gather(&shape, &made).unwrap();
        assert_eq!(again.parts.len(), rebuild.parts.len());
        let hashes = |of: &Rebuild<'_>| of.parts.iter().map(|part| part.hash).collect::<Vec<_>>();
        assert_eq!(hashes(&again), hashes(&rebuild));
        assert!(again.build(blocks).unwrap() == made);
        (to_usize(blocks.into()), made)
    }

    #[test]
    fn a_directory_of_any_size_is_indexed_in_the_levels_that_it_needs() {
        for (count, levels, seed) in [
            (0, 0, None),
            (1, 0, None),
            (40, 0, Some(7)),
            (3000, 0, None),
            (9000, 1, Some(7)),
            (100_000, 1, None),
        ] {
            let (blocks, made) = made(count, seed, 3);
            assert_eq!(made[INFO + 6], levels, "{count} names in {blocks} blocks");
        }
        assert_eq!(made(600_000, None, 3).1[INFO + 6], 2);
    }

    #[test]
    fn a_level_that_the_volume_does_not_have_is_not_made() {
        let shape = DirShape { new_index: Some(1), max_levels: 2, ..shape(1) };
        let bytes = list(&shape, 600_000);
        let rebuild = Rebuild::gather(&shape, &bytes).unwrap();
        assert_eq!(rebuild.build(u32::try_from(bytes.len()).unwrap() / SIZE), None);
    }
}
