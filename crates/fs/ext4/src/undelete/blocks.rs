//! The blocks of deleted files: their places according to an old map, and whether they are free.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::le::U32;
use obento_base::wire::{FromBytes, to_u64, to_usize};

use super::Search;
use super::inodes::{OldInode, Origin, has_group_flags};
use super::old::OldBlocks;
use crate::allocator::fresh_block_bitmap;
use crate::group::GroupFlags;
use crate::map::check::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf, numbers};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex};
use crate::unit::VolBlock;
use crate::volume::Volume;

/// The most runs of a file: more than files have, and a limit to memory.
const MAX_RUNS: usize = 1 << 20;

/// Blocks of a file that are contiguous on the device.
pub(super) struct DataRun {
    /// The first block of the file.
    pub(super) at: u64,
    /// Its block on the volume.
    pub(super) start: u64,
    pub(super) len: u64,
}

/// The map of a deleted file, in the order of the file unless it is damaged.
pub(super) struct OldMap {
    pub(super) runs: Vec<DataRun>,
    /// No part of the map is missing or invalid.
    pub(super) is_whole: bool,
}

impl Search<'_> {
    /// Returns the map of a file.
    pub(super) fn map(&mut self, inode: &OldInode, old: &OldBlocks) -> OldMap {
        let mut map = OldMap { runs: Vec::new(), is_whole: true };
        if inode.has_extents {
            self.node(inode, old, &inode.i_block, None, &mut map);
            return map;
        }
        let per_block = u64::from(self.volume.block_size().pointers());
        let mut at = 0;
        for (slot, number) in numbers(&inode.i_block).iter().enumerate() {
            let levels = u32::try_from(slot.saturating_sub(11)).unwrap_or(0);
            self.pointer(inode, old, (at, number.get(), levels), &mut map);
            at = at.saturating_add(per_block.saturating_pow(levels));
        }
        map
    }

    /// Returns an extent node or an indirect block: the version that is as old as the inode, or else the block as it is
    /// on the volume now.
    fn map_block(&mut self, inode: &OldInode, old: &OldBlocks, number: u64) -> Option<Vec<u8>> {
        if !self.volume.is_data(VolBlock(number), 1) || !self.step() {
            return None;
        }
        let version = match inode.origin {
            Origin::Journal(age) => old.version(number, age),
            Origin::Orphan | Origin::Table => None,
        };
        version.or_else(|| self.volume.cache().get(number).ok().map(|block| block.to_vec()))
    }

    /// Adds the extents of a node. `depth` is its depth according to its parent.
    fn node(
        &mut self,
        inode: &OldInode,
        old: &OldBlocks,
        bytes: &[u8],
        depth: Option<u16>,
        map: &mut OldMap,
    ) {
        let Ok((header, rest)) = RawExtentHeader::ref_from_prefix(bytes) else { return };
        let (entries, found) = (usize::from(header.eh_entries.get()), header.eh_depth.get());
        let is_valid =
            header.eh_magic.get() == MAGIC && found <= MAX_DEPTH && depth.is_none_or(|depth| depth == found);
        // Linux empties a node before it frees the node.
        let is_emptied = entries == 0 && depth.is_some();
        if !is_valid || is_emptied {
            map.is_whole = false;
            return;
        }
        if found == 0 {
            let extents = <[RawExtent]>::ref_from_prefix_with_elems(rest, entries);
            map.is_whole &= extents.is_ok();
            for extent in extents.map_or(&[][..], |(extents, _)| extents) {
                let (len, is_written) = extent_len(extent);
                if is_written {
                    self.add(extent.ee_block.get().into(), extent_start(extent).0, len.into(), map);
                }
            }
            return;
        }
        let Ok((indexes, _)) = <[RawExtentIndex]>::ref_from_prefix_with_elems(rest, entries) else {
            map.is_whole = false;
            return;
        };
        for index in indexes {
            match self.map_block(inode, old, index_leaf(index).0) {
                Some(bytes) => self.node(inode, old, &bytes, Some(found.saturating_sub(1)), map),
                None => map.is_whole = false,
            }
        }
    }

    /// Adds the blocks below a pointer: its first file block, its number, and the levels of indirect blocks below.
    fn pointer(&mut self, inode: &OldInode, old: &OldBlocks, pointer: (u64, u32, u32), map: &mut OldMap) {
        let (at, number, levels) = pointer;
        let file_blocks = inode.size.div_ceil(u64::from(self.volume.block_size()));
        if number == 0 || at >= file_blocks {
            return;
        }
        let Some(below) = levels.checked_sub(1) else { return self.add(at, number.into(), 1, map) };
        let Some(bytes) = self.map_block(inode, old, number.into()) else {
            map.is_whole = false;
            return;
        };
        let per_block = u64::from(self.volume.block_size().pointers());
        let span = per_block.saturating_pow(below);
        let pointers: &[U32] = numbers(&bytes);
        for (slot, number) in pointers.iter().enumerate() {
            let at = at.saturating_add(span.saturating_mul(to_u64(slot)));
            if !self.step() {
                map.is_whole = false;
                return;
            }
            self.pointer(inode, old, (at, number.get(), below), map);
        }
    }

    fn add(&mut self, at: u64, start: u64, len: u64, map: &mut OldMap) {
        let is_valid = len > 0 && map.runs.len() < MAX_RUNS && self.volume.is_data(VolBlock(start), len);
        if !is_valid || !self.step() {
            map.is_whole = false;
            return;
        }
        match map.runs.last_mut() {
            Some(last)
                if last.at.saturating_add(last.len) == at && last.start.saturating_add(last.len) == start =>
            {
                last.len = last.len.saturating_add(len);
            }
            _ => map.runs.push(DataRun { at, start, len }),
        }
    }
}

/// The bytes of a part of the bitmap of claimed blocks.
const PART: u64 = 4096;
/// The most parts: 256 MiB, for 8 TiB of deleted files with blocks of 4 KiB.
const MAX_PARTS: usize = 1 << 16;

/// The blocks that are free, and those that deleted files had.
pub(super) struct BlockClaims<'v> {
    volume: &'v Volume,
    /// Number of blocks of the device.
    blocks: u64,
    /// The block bitmap of the last group.
    bitmap: Option<(u32, Vec<u8>)>,
    /// The parts of the bitmap of claimed blocks that are not zeros: a volume may be much longer than its contents.
    claimed: BTreeMap<u64, Vec<u8>>,
}

impl<'v> BlockClaims<'v> {
    /// Creates the state of a device of `blocks` blocks.
    pub(super) fn new(volume: &'v Volume, blocks: u64) -> Self {
        Self { volume, blocks, bitmap: None, claimed: BTreeMap::new() }
    }

    /// Claims a block for a deleted file. Returns whether no other file has it: it is free, unless `is_own` says that the
    /// file still has its blocks, and it was not claimed before. Without memory for the claim, the block is not free.
    pub(super) fn claim(&mut self, block: u64, is_own: bool) -> bool {
        let bit = 1_u8.checked_shl(u32::try_from(block % 8).unwrap_or(0)).unwrap_or(0);
        if block >= self.blocks {
            return false;
        }
        let Some(byte) = self.byte(block / 8) else { return false };
        let is_claimed = *byte & bit != 0;
        *byte |= bit;
        !is_claimed && (is_own || self.is_free(block))
    }

    /// Returns a byte of the bitmap of claimed blocks.
    fn byte(&mut self, at: u64) -> Option<&mut u8> {
        let number = at / PART;
        if !self.claimed.contains_key(&number) {
            let mut part = Vec::new();
            if self.claimed.len() >= MAX_PARTS || part.try_reserve_exact(to_usize(PART)).is_err() {
                return None;
            }
            part.resize(to_usize(PART), 0);
            self.claimed.insert(number, part);
        }
        self.claimed.get_mut(&number)?.get_mut(to_usize(at % PART))
    }

    fn is_free(&mut self, block: u64) -> bool {
        let sb = self.volume.super_block();
        let Some(group) = sb.group_of(VolBlock(block)) else { return false };
        if self.bitmap.as_ref().is_none_or(|(loaded, _)| *loaded != group) {
            // A bitmap that cannot be read has no free blocks.
            self.bitmap = Some((group, self.load(group).unwrap_or_default()));
        }
        let within = block.saturating_sub(sb.group_start(group).0);
        let cluster = sb.cluster.whole(within);
        let bytes = self.bitmap.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let bit = 1_u8.checked_shl(u32::try_from(cluster % 8).unwrap_or(0)).unwrap_or(0);
        bytes.get(to_usize(cluster / 8)).is_some_and(|byte| byte & bit == 0)
    }

    fn load(&self, group: u32) -> Result<Vec<u8>> {
        let descriptor = self.volume.group(group)?;
        let sb = self.volume.super_block();
        if has_group_flags(sb) && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return fresh_block_bitmap(sb, group, &descriptor);
        }
        Ok(self.volume.cache().get(descriptor.block_bitmap.0)?.to_vec())
    }
}
