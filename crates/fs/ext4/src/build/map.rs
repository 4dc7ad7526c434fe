//! The maps of files that consist of several pieces.
//!
//! Source: Linux `Documentation/filesystems/ext4/ifork.rst`.
#![allow(clippy::arithmetic_side_effects, reason = "the sizes of volumes and files are limited")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{split, to_usize};
use obento_driver::FormatError;

use crate::feature::Incompat;
use crate::format::{DIRECT, Draft, MAX_EXTENT, Piece, ROOT_ENTRIES};
use crate::map::room_in_block;
use crate::size::BlockSize;
use crate::super_block::SuperBlock;

/// Minimum size of a large file.
const LARGE: u64 = 1 << 20;
/// Alignment of large files in bytes: the unit in which the kernel copies between files.
const ALIGN: u64 = 64 << 10;
/// Number of levels of indirect blocks.
const LEVELS: u32 = 3;

/// The blocks of a file that one number cannot describe.
#[derive(Clone, Debug)]
pub(super) struct PlannedMap {
    pub i_block: [u8; 60],
    /// The pieces in the order of the file.
    pub pieces: Vec<Piece>,
    /// All blocks that the file owns, as whole clusters.
    pub owned: u64,
}

/// Returns the number of nodes of an extent tree over `ranges` of blocks, if no range is divided more often than
/// necessary.
pub(super) fn least_nodes(sb: &SuperBlock, ranges: &[Range<u64>]) -> u64 {
    let mut entries: u64 = ranges.iter().map(|range| (range.end - range.start).div_ceil(MAX_EXTENT)).sum();
    let room = u64::try_from(room_in_block(sb.block_size)).unwrap_or(1).max(1);
    let mut nodes = 0_u64;
    while entries > u64::try_from(ROOT_ENTRIES).unwrap_or(4) {
        entries = entries.div_ceil(room);
        nodes += entries;
    }
    nodes
}

/// Returns the number of indirect blocks of a file with data in `ranges`.
pub(super) fn indirect_blocks(block_size: BlockSize, ranges: &[Range<u64>]) -> u64 {
    let per_block = u64::from(block_size.pointers());
    let mut nodes = 0_u64;
    let mut start = DIRECT;
    for level in 1..=LEVELS {
        let end = start + per_block.pow(level);
        for below in 1..=level {
            let span = per_block.pow(below);
            let mut last = None;
            for range in ranges {
                let (first, end) = (range.start.max(start), range.end.min(end));
                if first >= end {
                    continue;
                }
                let at = |block: u64| (block - start).checked_div(span).unwrap_or(0);
                let (mut low, high) = (at(first), at(end - 1));
                if last == Some(low) {
                    low += 1;
                }
                nodes += high + 1 - low;
                last = Some(high);
            }
        }
        start = end;
    }
    nodes
}

/// Maps `pieces` for inode `ino`, with map blocks after block `goal`. `owned` is the number of their blocks. Fails
/// with `TooSmall`.
pub(super) fn map(
    draft: &mut Draft,
    ino: u32,
    goal: u64,
    pieces: Vec<Piece>,
    owned: u64,
) -> Result<PlannedMap, FormatError> {
    if draft.sb.incompat.contains(Incompat::EXTENT) {
        let (i_block, nodes) = draft.extent_tree(ino, &pieces, None)?;
        return Ok(PlannedMap { i_block, pieces, owned: owned + nodes });
    }
    let mut indirect = Indirect {
        per_block: u64::from(draft.sb.block_size.pointers()),
        draft,
        goal,
        pieces: &pieces,
        taken: 0,
    };
    let mut numbers = Vec::new();
    for at in 0..DIRECT {
        numbers.push(indirect.number(at)?);
    }
    let mut start = DIRECT;
    for level in 1..=LEVELS {
        numbers.push(indirect.block(level, start)?);
        start += indirect.per_block.pow(level);
    }
    let owned = owned + indirect.taken;
    let mut i_block = [0; 60];
    i_block
        .chunks_exact_mut(4)
        .zip(numbers)
        .for_each(|(to, number)| to.copy_from_slice(&number.to_le_bytes()));
    Ok(PlannedMap { i_block, pieces, owned })
}

/// Creates the indirect blocks of a file.
struct Indirect<'a> {
    draft: &'a mut Draft,
    goal: u64,
    pieces: &'a [Piece],
    per_block: u64,
    taken: u64,
}

impl Indirect<'_> {
    /// Returns the first piece that ends after block `at` of the file.
    fn piece_from(&self, at: u64) -> Option<&Piece> {
        let end = |piece: &Piece| u64::from(piece.at) + u64::from(piece.len);
        self.pieces.get(self.pieces.partition_point(|piece| end(piece) <= at))
    }

    /// Returns the volume block of block `at` of the file; 0 for a hole. Fails with `TooLarge`.
    fn number(&self, at: u64) -> Result<u32, FormatError> {
        match self.piece_from(at).and_then(|piece| Some((piece, at.checked_sub(piece.at.into())?))) {
            Some((piece, inside)) => self.narrow(piece.block + inside),
            None => Ok(0),
        }
    }

    fn narrow(&self, block: u64) -> Result<u32, FormatError> {
        let len = self.draft.sb.block_size.len(block);
        u32::try_from(block).map_err(|_| FormatError::TooLarge { len, max: u32::MAX.into() })
    }

    /// Creates the indirect block with `level` levels for the part of the file from block `start` on. Returns 0 if it
    /// contains no data.
    fn block(&mut self, level: u32, start: u64) -> Result<u32, FormatError> {
        let end = start + self.per_block.pow(level);
        if self.piece_from(start).is_none_or(|piece| u64::from(piece.at) >= end) {
            return Ok(0);
        }
        let own = self.draft.allocate(self.goal)?;
        self.goal = own;
        self.taken += 1;
        let mut bytes = self.draft.zeroed()?;
        let step = self.per_block.pow(level - 1);
        for (at, entry) in (0_u64..).zip(bytes.chunks_exact_mut(4)) {
            let first = start + at * step;
            let number = if level == 1 { self.number(first)? } else { self.block(level - 1, first)? };
            entry.copy_from_slice(&number.to_le_bytes());
        }
        self.draft.blocks.insert(own, bytes);
        self.narrow(own)
    }
}

/// Returns the `i_block` of a file that is one piece from block `start` on, or `None` if that does not suffice.
pub(super) fn simple(sb: &SuperBlock, start: u64, len: u64) -> Option<[u8; 60]> {
    if sb.incompat.contains(Incompat::EXTENT) {
        let len = u16::try_from(len).ok().filter(|&len| u64::from(len) <= MAX_EXTENT)?;
        return Some(Draft::single_extent(&Piece { at: 0, block: start, len }));
    }
    let mut i_block = [0; 60];
    for (at, entry) in (0..len).zip(i_block.chunks_exact_mut(4)) {
        entry.copy_from_slice(&split(start + at).0.to_le_bytes());
    }
    (len <= DIRECT).then_some(i_block)
}

/// Returns whether a file of `len` blocks in one piece needs no [`PlannedMap`].
pub(super) fn is_simple(sb: &SuperBlock, len: u64) -> bool {
    len <= if sb.incompat.contains(Incompat::EXTENT) { MAX_EXTENT } else { DIRECT }
}

/// Returns the ranges of a file in `pieces`, and their byte offsets on the device.
pub(super) fn runs(pieces: &[Piece], block_size: BlockSize) -> impl Iterator<Item = (Range<u64>, u64)> {
    let byte = move |block: u64| block_size.len(block);
    let mut at = 0;
    core::iter::from_fn(move || {
        let first = pieces.get(at)?;
        at += 1;
        let (mut len, next) = (u64::from(first.len), u64::from(first.at));
        // Pieces that are contiguous in both are one run.
        while let Some(piece) = pieces
            .get(at)
            .filter(|piece| u64::from(piece.at) == next + len && piece.block == first.block + len)
        {
            len += u64::from(piece.len);
            at += 1;
        }
        Some((byte(next)..byte(next + len), byte(first.block)))
    })
}

/// Returns the maximum number of blocks of a piece.
pub(super) fn longest(sb: &SuperBlock) -> u64 {
    sb.cluster.round_down(MAX_EXTENT)
}

/// Returns where to search for `len` blocks after `goal`. A large file begins at a multiple of [`ALIGN`], since the
/// host copies and writes back whole large pages with less work. The space before it is used last.
pub(super) fn goal(draft: &Draft, goal: u64, len: u64) -> u64 {
    let in_blocks = |bytes: u64| draft.sb.block_size.whole(bytes).max(1);
    if len < in_blocks(LARGE) {
        return goal;
    }
    let aligned = |block: u64| block.checked_next_multiple_of(in_blocks(ALIGN)).unwrap_or(block);
    // After the metadata of a group it may begin anywhere.
    let free = draft.space.find(aligned(goal), draft.sb.blocks_count, 1);
    free.map_or(goal, aligned)
}

/// Creates the piece that maps block `at` of the file to `run`.
pub(super) fn piece(at: u64, run: &Range<u64>) -> Piece {
    let len = run.end - run.start;
    Piece {
        at: u32::try_from(at).unwrap_or(u32::MAX),
        block: run.start,
        len: u16::try_from(len).unwrap_or(u16::MAX),
    }
}

/// Returns an ID as an index.
pub(super) fn index(id: obento_driver::NodeId) -> usize {
    to_usize(id.0.into())
}
