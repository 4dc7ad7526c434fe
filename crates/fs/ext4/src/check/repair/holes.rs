//! Directories with holes, whose blocks move together, and directories without blocks, which get one.
//!
//! A block map is rewritten in its existing tables, which always suffice: holes only make it longer.
//! Source: e2fsprogs `e2fsck/pass2.c` `allocate_dir_block`, which fills a hole with an empty block instead.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, split, to_usize};
use obento_base::{Error, Result};

use super::super::issue::Issue;
use super::edits::Edits;
use crate::checksum::inode_seed;
use crate::inode::InodeFlags;
use crate::map::check::{MAGIC, MAX_DEPTH, extent_len, index_leaf, numbers};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawInode};
use crate::unit::VolBlock;

/// Size of a header, and of an entry.
const ENTRY: usize = 12;
/// Number of direct block numbers in an inode, before the three of tables.
const DIRECT: usize = 12;
/// Maximum number of nodes or tables of one directory.
const MAX_NODES: usize = 1 << 16;
/// Maximum number of blocks of one directory: a million contain a hundred million names.
const MAX_POINTERS: usize = 1 << 20;

impl Edits {
    /// Repairs missing blocks of a directory. Returns false for another issue.
    pub(super) fn mend_hole(&mut self, issue: &Issue) -> Result<bool> {
        match *issue {
            Issue::DirectoryHole { dir, .. } => self.close_holes(dir),
            Issue::DirectoryEmpty { dir } => self.give_block(dir),
            _ => Ok(false),
        }
    }

    /// Gives a directory that has lost its blocks an empty one. Its former entries get other names. Its parent is the
    /// root until the next round finds the directory that contains it.
    fn give_block(&mut self, dir: u32) -> Result<bool> {
        let Some(block) = self.take_run(1)? else { return Ok(false) };
        let size = self.view.sb.block_size;
        let extents = self.has_tree(dir)?;
        if extents {
            self.empty_root(dir)?;
        }
        self.inode(dir, |raw| {
            let (low, high) = split(block);
            raw.i_flags.set(raw.i_flags.get() & !InodeFlags::INDEX.bits());
            raw.i_size_lo.set(size);
            raw.i_size_high.set(0);
            if !extents {
                raw.i_block = [0; 60];
                raw.i_block.iter_mut().zip(low.to_le_bytes()).for_each(|(to, from)| *to = from);
                return;
            }
            let (header, entries) = raw.i_block.split_at_mut(ENTRY);
            if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(header)
                && let Ok((extent, _)) = RawExtent::mut_from_prefix(entries)
            {
                header.eh_entries.set(1);
                extent.ee_len.set(1);
                extent.ee_start_lo.set(low);
                extent.ee_start_hi.set(u16::try_from(high).unwrap_or(0));
            }
        })?;
        self.put(VolBlock(block), &alloc::vec![0; to_usize(size.into())])?;
        self.make_dot(dir, ".")?;
        self.make_dot(dir, "..")?;
        if self.view.sb.has_metadata_csum() { self.make_tail(dir, VolBlock(block)) } else { Ok(true) }
    }

    fn close_holes(&mut self, dir: u32) -> Result<bool> {
        let record = self.record(dir)?;
        let Ok((raw, _)) = RawInode::read_from_prefix(&record) else { return Ok(false) };
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let mut map = raw.i_block;
        let closed = match flags.contains(InodeFlags::EXTENTS) {
            true => {
                let seed = inode_seed(self.view.sb.checksum_seed, dir, raw.i_generation.get());
                let mut walk = Walk { at: 0, left: MAX_NODES, seed };
                self.close_node(&mut map, None, &mut walk)?.then_some(u64::from(walk.at))
            }
            false => self.close_pointers(&mut map)?,
        };
        let Some(blocks) = closed else { return Ok(false) };
        let (low, high) = split(blocks.saturating_mul(self.view.sb.block_size.into()));
        self.inode(dir, |raw| {
            raw.i_block = map;
            raw.i_size_lo.set(low);
            raw.i_size_high.set(high);
        })?;
        // The next round finds an index that refers to old places of blocks.
        Ok(true)
    }

    /// Moves each extent below a node to the end of the previous one. Returns false if a node is invalid.
    fn close_node(&mut self, bytes: &mut [u8], depth: Option<u16>, walk: &mut Walk) -> Result<bool> {
        let Ok((header, _)) = RawExtentHeader::read_from_prefix(bytes) else { return Ok(false) };
        let (found, count) = (header.eh_depth.get(), usize::from(header.eh_entries.get()));
        let is_sound =
            header.eh_magic.get() == MAGIC && depth.map_or(found <= MAX_DEPTH, |depth| depth == found);
        let Some(left) = walk.left.checked_sub(1).filter(|_| is_sound) else { return Ok(false) };
        walk.left = left;
        for entry in bytes.get_mut(ENTRY..).unwrap_or_default().chunks_exact_mut(ENTRY).take(count) {
            let start = walk.at;
            if found > 0 {
                let Ok(index) = RawExtentIndex::mut_from_bytes(entry) else { return Ok(false) };
                index.ei_block.set(start);
                let place = VolBlock(index_leaf(index).0);
                let mut below = self.view.read(place, 1)?;
                if !self.close_node(&mut below, found.checked_sub(1), walk)? {
                    return Ok(false);
                }
                self.seal_node(&mut below, walk.seed);
                self.put(place, &below)?;
                continue;
            }
            let Ok(extent) = RawExtent::mut_from_bytes(entry) else { return Ok(false) };
            extent.ee_block.set(start);
            let Some(end) = start.checked_add(extent_len(extent).0.into()) else { return Ok(false) };
            walk.at = end;
        }
        Ok(true)
    }

    /// Moves the block numbers of a map together, in the existing tables. Returns their number.
    fn close_pointers(&mut self, map: &mut [u8; 60]) -> Result<Option<u64>> {
        let Some(mut found) = self.gather(map)? else { return Ok(None) };
        let count = found.data.len();
        if tables_for(count, to_usize(u64::from(self.view.sb.block_size / 4))) > found.tables.len() {
            return Ok(None);
        }
        for (place, level) in map.as_chunks_mut().0.iter_mut().zip([0; 12].into_iter().chain(1..=3)) {
            *place = self.lay(level, &mut found)?.to_le_bytes();
        }
        Ok(u64::try_from(count).ok())
    }

    /// Returns the block numbers of a map and the tables that contain them, or `None` if there are too many.
    fn gather(&self, map: &[u8; 60]) -> Result<Option<Pointers>> {
        let mut found = Pointers { data: VecDeque::new(), tables: Vec::new() };
        let roots = numbers(map).iter().zip([0; 12].into_iter().chain(1..=3));
        let mut waiting: Vec<(u32, u32)> = roots.map(|(number, level)| (number.get(), level)).collect();
        waiting.reverse();
        while let Some((block, level)) = waiting.pop() {
            if block == 0 {
                continue;
            }
            if level == 0 {
                found.data.push_back(block);
            } else {
                found.tables.push(block);
                let bytes = self.view.read(VolBlock(block.into()), 1)?;
                let below =
                    numbers(&bytes).iter().rev().map(|number| (number.get(), level.saturating_sub(1)));
                waiting.extend(below.filter(|(block, _)| *block != 0));
            }
            if found.data.len() > MAX_POINTERS || found.tables.len() > MAX_NODES {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// Returns the next block number of data, or a table of `level` levels with the next ones, or 0 at the end.
    fn lay(&mut self, level: u32, left: &mut Pointers) -> Result<u32> {
        if level == 0 || left.data.is_empty() {
            return Ok(left.data.pop_front().unwrap_or(0));
        }
        let table = left.tables.pop().ok_or(Error::Invalid)?;
        let mut bytes = alloc::vec![0; to_usize(self.view.sb.block_size.into())];
        for place in bytes.as_chunks_mut().0 {
            *place = self.lay(level.saturating_sub(1), left)?.to_le_bytes();
        }
        self.put(VolBlock(table.into()), &bytes)?;
        Ok(table)
    }
}

/// The state of a walk through a tree: the next file block, the number of nodes that may still be read, the seed of
/// checksums.
struct Walk {
    at: u32,
    left: usize,
    seed: u32,
}

/// The block numbers of a map.
struct Pointers {
    data: VecDeque<u32>,
    tables: Vec<u32>,
}

/// Returns the number of tables of `words` block numbers that a map of `count` block numbers needs.
fn tables_for(count: usize, words: usize) -> usize {
    let (mut left, mut tables) = (count.saturating_sub(DIRECT), 0_usize);
    for level in 1..=3 {
        let mut below = left.min(words.saturating_pow(level));
        left = left.saturating_sub(below);
        for _ in 0..level {
            below = below.div_ceil(words.max(1));
            tables = tables.saturating_add(below);
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_need_as_many_tables_as_their_places_ask_for() {
        assert_eq!([0, 12, 13, 16].map(|count| tables_for(count, 4)), [0, 0, 1, 1]);
        assert_eq!(tables_for(17, 4), 1 + 2, "one more table, and one that names it");
        assert_eq!(tables_for(12 + 4 + 16 + 1, 4), 1 + 5 + 3);
    }
}
