//! The map of a new file.
//!
//! On disk: an extent tree, or block numbers in up to three levels of indirect blocks. Blocks of the map are allocated
//! where `mke2fs` allocates them. Indirect blocks are before the first block that needs them; blocks of an extent tree
//! are before the first extent.
//! Source: e2fsprogs `lib/ext2fs/bmap.c`, `fallocate.c`, `extent.c` `extent_node_split`; Linux
//! `Documentation/filesystems/ext4/ifork.rst`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Feature;
use obento_base::wire::{IntoBytes, split, to_u64, to_usize};
use obento_driver::FormatError;

use super::draft::Draft;
use crate::checksum::{Crc, inode_seed};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex};

/// `EXT_INIT_MAX_LEN`.
pub(crate) const MAX_EXTENT: u64 = 1 << 15;
/// Maximum length of a piece to which blocks are added one by one.
const MAX_JOINED: u16 = (1 << 15) - 1;
/// `EXT4_EXT_MAGIC`.
const MAGIC: u16 = 0xf30a;
/// Number of extents in an inode.
pub(crate) const ROOT_ENTRIES: usize = 4;
/// Number of block numbers in an inode before the first indirect one.
pub(crate) const DIRECT: u64 = 12;

/// The blocks of a file.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    pub i_block: [u8; 60],
    /// The blocks with data, in order.
    pub runs: Vec<Range<u64>>,
    /// Number of blocks that the file owns, in whole clusters.
    pub owned: u64,
}

/// The blocks of a file, one by one.
#[derive(Clone, Debug)]
pub(crate) struct Scattered {
    pub i_block: [u8; 60],
    /// Map from file blocks to volume blocks.
    pub places: BTreeMap<u32, u64>,
    /// Like [`Mapped::owned`].
    pub owned: u64,
}

/// A piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub at: u32,
    pub block: u64,
    pub len: u16,
}

impl Draft {
    /// Allocates `len` blocks from `goal` on for inode `ino`, and maps them. Fails with `TooSmall`.
    pub fn map_file(&mut self, ino: u32, goal: u64, len: u64) -> Result<Mapped, FormatError> {
        if self.has_extents() { self.map_by_extents(ino, goal, len) } else { self.map_by_blocks(goal, len) }
    }

    fn map_by_extents(&mut self, ino: u32, goal: u64, len: u64) -> Result<Mapped, FormatError> {
        let cluster = self.sb.cluster;
        let most = cluster.round_down(MAX_EXTENT);
        let mut pieces = Vec::new();
        let (mut at, mut goal) = (0, goal);
        let mut owned = 0_u64;
        let mut leaf = None;
        while at < len {
            // The inode is full when the next extent is added, before its blocks are allocated.
            if pieces.len() > ROOT_ENTRIES && leaf.is_none() {
                leaf = Some(self.allocate(node_goal(&pieces))?);
            }
            let run = self.space.allocate_run(goal, (len - at).min(most))?;
            self.note_run(&run);
            let count = run.end - run.start;
            owned += cluster.round_up(count);
            pieces.push(Piece {
                at: u32::try_from(at).unwrap_or(u32::MAX),
                block: run.start,
                len: u16::try_from(count).unwrap_or(u16::MAX),
            });
            at += count;
            goal = run.end;
        }
        let (i_block, nodes) = self.extent_tree(ino, &pieces, leaf)?;
        let runs = pieces.iter().map(|piece| piece.block..piece.block + u64::from(piece.len));
        Ok(Mapped { i_block, runs: runs.collect(), owned: owned + nodes })
    }

    /// Allocates a block for the first occurrence of each number in `order`, in that order, and maps these blocks. This
    /// is for a file that is not written from front to back. Fails with `TooSmall`.
    pub fn map_in_order(
        &mut self,
        ino: u32,
        order: impl Iterator<Item = u32>,
    ) -> Result<Scattered, FormatError> {
        let cluster = self.sb.cluster;
        let (mut clusters, mut places) = (BTreeMap::new(), BTreeMap::new());
        let mut pieces: Vec<Piece> = Vec::new();
        for at in order {
            if places.contains_key(&at) {
                continue;
            }
            let index = cluster.whole(at.into());
            let start = match clusters.get(&index) {
                Some(&start) => start,
                None => self.allocate(self.goal_of(ino))?,
            };
            clusters.insert(index, start);
            let block = start + cluster.inside(at.into());
            places.insert(at, block);
            join(&mut pieces, at, block);
        }
        let owned = cluster.len(to_u64(clusters.len()));
        if self.has_extents() {
            pieces.sort_unstable_by_key(|piece| piece.at);
            let (i_block, nodes) = self.extent_tree(ino, &pieces, None)?;
            return Ok(Scattered { i_block, places, owned: owned + nodes });
        }
        if places.keys().any(|&at| u64::from(at) >= DIRECT) {
            return Err(FormatError::Unsupported(Feature::Named("quotas of so many owners without extents")));
        }
        let mut i_block = [0; 60];
        for (&at, &block) in &places {
            let start = to_usize(at.into()) * 4;
            if let Some(word) = i_block.get_mut(start..).and_then(|bytes| bytes.first_chunk_mut()) {
                *word = split(block).0.to_le_bytes();
            }
        }
        Ok(Scattered { i_block, places, owned })
    }

    /// Records that the bitmaps of the groups of a run must be written.
    pub fn note_run(&mut self, run: &Range<u64>) {
        let last = run.end - 1;
        let step = u64::from(self.sb.blocks_per_group);
        let mut at = run.start;
        while at < last {
            self.note_written(at);
            at = (at + step).min(last);
        }
        self.note_written(last);
    }

    /// Returns the root of an extent tree over `pieces`, and the number of blocks of its other nodes. `leaf` is
    /// already allocated for the first of them.
    pub fn extent_tree(
        &mut self,
        ino: u32,
        pieces: &[Piece],
        mut leaf: Option<u64>,
    ) -> Result<([u8; 60], u64), FormatError> {
        let seed = inode_seed(self.sb.checksum_seed, ino, 0);
        let room = crate::map::room_in_block(self.sb.block_size);
        let goal = node_goal(pieces);
        let mut owned = 0_u64;
        let mut entries: Vec<(u32, [u8; 12])> =
            pieces.iter().map(|piece| (piece.at, leaf_entry(piece))).collect();
        let first: Vec<(u32, [u8; 12])> = entries.iter().take(ROOT_ENTRIES).copied().collect();
        let mut depth = 0_u16;
        while entries.len() > ROOT_ENTRIES {
            let mut above = Vec::new();
            for chunk in entries.chunks(room.max(1)) {
                let block = match leaf.take() {
                    Some(block) => block,
                    None => self.allocate(goal)?,
                };
                owned += u64::from(self.sb.cluster_blocks());
                let mut bytes = self.zeroed()?;
                write_node(&mut bytes, depth, room, chunk);
                if self.sb.has_metadata_csum() {
                    seal_node(&mut bytes, room, seed);
                }
                self.blocks.insert(block, bytes);
                let start = chunk.first().map_or(0, |(at, _)| *at);
                above.push((start, index_entry(start, block)));
            }
            entries = above;
            depth += 1;
        }
        // The entries from before the tree got a level stay after the used ones.
        let mut root = [0; 60];
        write_node(&mut root, 0, ROOT_ENTRIES, &first);
        write_node(&mut root, depth, ROOT_ENTRIES, &entries);
        Ok((root, owned))
    }

    fn map_by_blocks(&mut self, goal: u64, len: u64) -> Result<Mapped, FormatError> {
        let mut map = BlockMap { draft: self, goal, owned: 0, runs: Vec::new() };
        let mut numbers = Vec::new();
        for _ in 0..len.min(DIRECT) {
            numbers.push(map.data()?);
        }
        numbers.resize(12, 0);
        let mut left = len.saturating_sub(DIRECT);
        for level in 0..3 {
            numbers.push(map.tree(level, &mut left)?);
        }
        let mut i_block = [0; 60];
        i_block
            .chunks_exact_mut(4)
            .zip(numbers)
            .for_each(|(to, number)| to.copy_from_slice(&number.to_le_bytes()));
        let (owned, runs) = (map.owned, map.runs);
        Ok(Mapped { i_block, runs, owned })
    }
}

/// Merges a block with the piece before it or after it, up to a length of [`MAX_JOINED`], as `ext2fs_extent_set_bmap`
/// does.
fn join(pieces: &mut Vec<Piece>, at: u32, block: u64) {
    let ends = |piece: &Piece| {
        (piece.at + u32::from(piece.len), piece.block + u64::from(piece.len)) == (at, block)
            && piece.len < MAX_JOINED
    };
    if let Some(before) = pieces.iter_mut().find(|piece| ends(piece)) {
        before.len += 1;
        return;
    }
    let begins = |piece: &Piece| (piece.at, piece.block) == (at + 1, block + 1) && piece.len < MAX_JOINED;
    match pieces.iter_mut().find(|piece| begins(piece)) {
        Some(behind) => *behind = Piece { at, block, len: behind.len + 1 },
        None => pieces.push(Piece { at, block, len: 1 }),
    }
}

/// A map of block numbers that grows from its start.
struct BlockMap<'a> {
    draft: &'a mut Draft,
    goal: u64,
    owned: u64,
    runs: Vec<Range<u64>>,
}

impl BlockMap<'_> {
    fn take(&mut self) -> Result<u32, FormatError> {
        let block = self.draft.allocate(self.goal)?;
        self.goal = block;
        self.owned += 1;
        let len = self.draft.sb.block_size.len(block);
        u32::try_from(block).map_err(|_| FormatError::TooLarge { len, max: u32::MAX.into() })
    }

    fn data(&mut self) -> Result<u32, FormatError> {
        let number = self.take()?;
        let block = u64::from(number);
        match self.runs.last_mut() {
            Some(run) if run.end == block => run.end = block + 1,
            _ => self.runs.push(block..block + 1),
        }
        Ok(number)
    }

    /// Returns an indirect block with `level` levels of indirect blocks below it, which maps part of the `left`
    /// blocks, or 0 if none are left.
    fn tree(&mut self, level: u32, left: &mut u64) -> Result<u32, FormatError> {
        if *left == 0 {
            return Ok(0);
        }
        let own = self.take()?;
        let mut bytes = self.draft.zeroed()?;
        for entry in bytes.chunks_exact_mut(4) {
            if *left == 0 {
                break;
            }
            let number = match level.checked_sub(1) {
                Some(below) => self.tree(below, left)?,
                None => {
                    *left -= 1;
                    self.data()?
                }
            };
            entry.copy_from_slice(&number.to_le_bytes());
        }
        self.draft.blocks.insert(own.into(), bytes);
        Ok(own)
    }
}

/// Returns the goal for nodes of the tree: before the first extent.
fn node_goal(pieces: &[Piece]) -> u64 {
    pieces.first().map_or(0, |piece| piece.block - 1)
}

fn high_16(block: u64) -> (u32, u16) {
    let (low, high) = split(block);
    (low, u16::try_from(high).unwrap_or(u16::MAX))
}

impl Draft {
    /// Returns the `i_block` of a file in one piece.
    pub fn single_extent(piece: &Piece) -> [u8; 60] {
        let mut root = [0; 60];
        write_node(&mut root, 0, ROOT_ENTRIES, &[(piece.at, leaf_entry(piece))]);
        root
    }
}

fn leaf_entry(piece: &Piece) -> [u8; 12] {
    let (low, high) = high_16(piece.block);
    let raw = RawExtent {
        ee_block: piece.at.into(),
        ee_len: piece.len.into(),
        ee_start_hi: high.into(),
        ee_start_lo: low.into(),
    };
    bytes_of(raw.as_bytes())
}

fn index_entry(start: u32, block: u64) -> [u8; 12] {
    let (low, high) = high_16(block);
    let raw = RawExtentIndex {
        ei_block: start.into(),
        ei_leaf_lo: low.into(),
        ei_leaf_hi: high.into(),
        ei_unused: 0.into(),
    };
    bytes_of(raw.as_bytes())
}

fn bytes_of(bytes: &[u8]) -> [u8; 12] {
    bytes.first_chunk().copied().unwrap_or_default()
}

fn write_node(bytes: &mut [u8], depth: u16, room: usize, entries: &[(u32, [u8; 12])]) {
    let narrow = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
    let header = RawExtentHeader {
        eh_magic: MAGIC.into(),
        eh_entries: narrow(entries.len()).into(),
        eh_max: narrow(room).into(),
        eh_depth: depth.into(),
        eh_generation: 0.into(),
    };
    let all = header.as_bytes().iter().chain(entries.iter().flat_map(|(_, entry)| entry));
    bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
}

/// Writes the checksum of a node that fills a block after the space for its entries.
fn seal_node(bytes: &mut [u8], room: usize, seed: u32) {
    let tail = (room + 1) * 12;
    if let Some((covered, rest)) = bytes.split_at_mut_checked(tail)
        && let Some(field) = rest.first_chunk_mut()
    {
        *field = Crc::new(seed).add(covered).get().to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_pieces_are_not_longer_than_an_extent() {
        let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
        for at in 0..40_000 {
            join(&mut forwards, at, 100 + u64::from(at));
            join(&mut backwards, 40_000 - at, 50_000 - u64::from(at));
        }
        for pieces in [forwards, backwards] {
            assert_eq!(pieces.iter().map(|piece| piece.len).collect::<Vec<_>>(), [32_767, 7233]);
        }
    }
}
