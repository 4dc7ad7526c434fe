//! Directories with holes, whose blocks move together, and directories without blocks, which get one.
//!
//! A lost first block is replaced where the map has room: the names of the next block would make room for `.` and `..`.
//! A block map is rewritten in its existing tables.
//! Source: e2fsprogs `e2fsck/pass2.c` `allocate_dir_block`, which fills each hole with an empty block instead.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, split, to_usize};
use obento_base::{Error, Result};

use super::super::blocks::on_volume;
use super::super::reason::DotName;
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
    /// Gives a directory that has lost its blocks an empty one. Its former entries get other names. Its parent is the
    /// root until the next round finds the directory that contains it.
    pub(super) fn give_block(&mut self, dir: u32) -> Result<bool> {
        let Some(block) = self.take_run(1)? else { return Ok(false) };
        let size = self.view.sb.block_size.bytes();
        let extents = self.has_tree(dir)?;
        if extents {
            self.empty_root(dir)?;
        }
        self.inode(dir, |raw| {
            let (low, _) = split(block);
            raw.i_flags.set(raw.i_flags.get() & !InodeFlags::INDEX.bits());
            raw.i_size_lo.set(size);
            raw.i_size_high.set(0);
            if !extents {
                raw.i_block = [0; 60];
                raw.i_block.iter_mut().zip(low.to_le_bytes()).for_each(|(to, from)| *to = from);
                return;
            }
            put_first(&mut raw.i_block, 0, block);
        })?;
        self.begin_directory(dir, VolBlock(block))
    }

    /// Writes `.` and `..` into the new first block of a directory.
    fn begin_directory(&mut self, dir: u32, block: VolBlock) -> Result<bool> {
        self.put(block, &alloc::vec![0; to_usize(self.view.sb.block_size.into())])?;
        self.make_dot(dir, DotName::Dot)?;
        self.make_dot(dir, DotName::DotDot)?;
        if self.view.sb.has_metadata_csum() { self.make_tail(dir, block) } else { Ok(true) }
    }

    /// Closes the holes of a directory, the first of which is at file block `at`.
    pub(super) fn close_holes(&mut self, dir: u32, at: u64) -> Result<bool> {
        // The blocks of a cluster belong to one file block range, so that one alone cannot be replaced.
        let is_lost = at == 0 && self.view.sb.cluster_blocks() == 1;
        let first = if is_lost { self.take_run(1)? } else { None };
        let (is_closed, is_used) = self.move_blocks(dir, first)?;
        match first.map(VolBlock) {
            Some(block) if is_closed && is_used => self.begin_directory(dir, block),
            Some(block) => self.release_run(block.0, 1).map(|()| is_closed),
            None => Ok(is_closed),
        }
    }

    /// Moves the blocks of a file together, behind `first` if the map has room for it. Returns whether the map
    /// could be changed, and whether it contains `first`.
    pub(super) fn move_blocks(&mut self, dir: u32, first: Option<u64>) -> Result<(bool, bool)> {
        let record = self.record(dir)?;
        let Ok((raw, _)) = RawInode::read_from_prefix(&record) else { return Ok((false, false)) };
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let (mut map, mut left) = (raw.i_block, first);
        let closed = match flags.contains(InodeFlags::EXTENTS) {
            true => {
                let seed = inode_seed(self.view.sb.checksum_seed, dir, raw.i_generation.get());
                let mut walk = Walk { at: 0, first, left: MAX_NODES, seed };
                let is_closed = self.close_node(&mut map, None, &mut walk)?;
                left = walk.first;
                is_closed.then_some(u64::from(walk.at))
            }
            false => self.close_pointers(&mut map, &mut left)?,
        };
        let Some(blocks) = closed else { return Ok((false, false)) };
        let (low, high) = split(blocks.saturating_mul(self.view.sb.block_size.into()));
        self.inode(dir, |raw| {
            raw.i_block = map;
            raw.i_size_lo.set(low);
            raw.i_size_high.set(high);
        })?;
        // The next round finds an index that refers to old places of blocks.
        Ok((true, first.is_some() && left.is_none()))
    }

    /// Moves each extent below a node to the end of the previous one. Returns false if a node is invalid.
    fn close_node(&mut self, bytes: &mut [u8], depth: Option<u16>, walk: &mut Walk) -> Result<bool> {
        let Ok((header, _)) = RawExtentHeader::read_from_prefix(bytes) else { return Ok(false) };
        let (found, count) = (header.eh_depth.get(), usize::from(header.eh_entries.get()));
        let is_sound =
            header.eh_magic.get() == MAGIC && depth.map_or(found <= MAX_DEPTH, |depth| depth == found);
        let Some(left) = walk.left.checked_sub(1).filter(|_| is_sound) else { return Ok(false) };
        walk.left = left;
        let is_first_leaf = found == 0 && walk.at == 0;
        let taken = walk.first.take_if(|block| is_first_leaf && put_first(bytes, count, *block));
        let count = count.saturating_add(usize::from(taken.is_some()));
        for entry in bytes.get_mut(ENTRY..).unwrap_or_default().chunks_exact_mut(ENTRY).take(count) {
            let start = walk.at;
            if found > 0 {
                let Ok(index) = RawExtentIndex::mut_from_bytes(entry) else { return Ok(false) };
                index.ei_block.set(start);
                let place = VolBlock(index_leaf(index).0);
                if !on_volume(&self.view.sb, place.0, 1) {
                    return Ok(false);
                }
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

    /// Moves the block numbers of a map together, in the existing tables, and takes `first` if they have room for it.
    /// Returns the number of blocks.
    fn close_pointers(&mut self, map: &mut [u8; 60], first: &mut Option<u64>) -> Result<Option<u64>> {
        let Some(mut found) = self.gather(map)? else { return Ok(None) };
        let words = to_usize(u64::from(self.view.sb.block_size.pointers()));
        let suffices = |count: usize| tables_for(count, words) <= found.tables.len();
        if !suffices(found.data.len()) {
            return Ok(None);
        }
        if suffices(found.data.len().saturating_add(1))
            && let Some(block) = first.and_then(|block| u32::try_from(block).ok())
        {
            found.data.push_front(block);
            *first = None;
        }
        let count = found.data.len();
        for (place, level) in map.as_chunks_mut().0.iter_mut().zip([0; 12].into_iter().chain(1..=3)) {
            *place = self.lay(level, &mut found)?.to_le_bytes();
        }
        Ok(u64::try_from(count).ok())
    }

    /// Returns the block numbers of a map and the tables that contain them, or `None` if there are too many or
    /// a table is outside of the volume.
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
            } else if !on_volume(&self.view.sb, block.into(), 1) {
                return Ok(None);
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

/// The state of a walk through a tree: the next file block, a block for the start of the directory, the number of nodes
/// that may still be read, the seed of checksums.
struct Walk {
    at: u32,
    first: Option<u64>,
    left: usize,
    seed: u32,
}

/// Inserts an extent of one block at file block 0 before the `count` extents of a leaf. Returns false if it is full.
fn put_first(leaf: &mut [u8], count: usize, block: u64) -> bool {
    let end = ENTRY.saturating_mul(count.saturating_add(1));
    let has_room = end.saturating_add(ENTRY) <= leaf.len();
    let Ok((header, _)) = RawExtentHeader::mut_from_prefix(leaf) else { return false };
    let Ok(more) = u16::try_from(count.saturating_add(1)) else { return false };
    if more > header.eh_max.get() || !has_room {
        return false;
    }
    header.eh_entries.set(more);
    leaf.copy_within(ENTRY..end, ENTRY.saturating_mul(2));
    let place = leaf.get_mut(ENTRY..).and_then(|rest| RawExtent::mut_from_prefix(rest).ok());
    let Some((extent, _)) = place else { return false };
    let (low, high) = split(block);
    extent.ee_block.set(0);
    extent.ee_len.set(1);
    extent.ee_start_lo.set(low);
    extent.ee_start_hi.set(u16::try_from(high).unwrap_or(0));
    true
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
