//! The plan of a change: which blocks and inodes move, and to which places.
//!
//! Invariant: a block that is in use now is not a new place, also if it becomes free, so that a change that was
//! interrupted has lost nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_driver::{ResizeRefusal, ResizeResult};

use super::super::edits::Edits;
use super::PAGE;
use super::inodes::NumberPlaces;
use super::scan::{Extent, OwnedMap, Owners, at};
use super::space::FreeRuns;
use crate::allocator::bits;
use crate::feature::{Compat, Incompat};
use crate::format::ROOT_ENTRIES;
use crate::map::room_in_block;
use crate::super_block::SuperBlock;

/// A last group needs this many blocks in addition to those for its tables: `adjust_fs_info` of resize2fs.
const SPARE: u64 = 50;
/// Number of blocks of a transaction for the records, bitmaps and descriptors of an inode that moves.
const FIXED_BLOCKS: u64 = 16;

/// Contiguous blocks that move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockMove {
    pub from: u64,
    pub to: u64,
    pub len: u64,
}

/// The new blocks of a file.
#[derive(Clone, Debug)]
pub(super) struct FilePlan {
    /// Index in the list of files.
    pub file: usize,
    pub moves: Vec<BlockMove>,
    /// The extents after the change. Empty for a block map.
    pub extents: Vec<Extent>,
    /// The blocks for the nodes of the new tree.
    pub nodes: Vec<u64>,
}

/// A change that is possible.
pub(super) struct ShrinkPlan {
    /// The number of blocks of the smaller volume.
    pub end: u64,
    pub groups: u32,
    pub files: Vec<FilePlan>,
    /// Blocks of attributes.
    pub attributes: Vec<BlockMove>,
    /// Inodes that get other numbers.
    pub inodes: BTreeMap<u32, u32>,
    /// The blocks that contain their numbers, before any block moves.
    pub places: NumberPlaces,
}

impl ShrinkPlan {
    /// Returns a function from a block of a file to its place after the change.
    pub fn homes(&self) -> impl Fn(u64) -> u64 + use<> {
        let mut moves: Vec<BlockMove> = self.files.iter().flat_map(|file| &file.moves).copied().collect();
        moves.sort_unstable_by_key(|moved| moved.from);
        move |block| {
            let before = moves.partition_point(|moved| moved.from <= block);
            let moved = before.checked_sub(1).and_then(|index| moves.get(index));
            let inside = moved.map(|moved| (moved, block.saturating_sub(moved.from)));
            let inside = inside.filter(|(moved, inside)| *inside < moved.len);
            inside.map_or(block, |(moved, inside)| moved.to.saturating_add(inside))
        }
    }
}

/// Returns the largest possible number of blocks that is at most `blocks`: a last group that is too short for its
/// tables is left out. Returns `None` if no group is left.
pub(super) fn usable(sb: &SuperBlock, blocks: u64) -> Option<u64> {
    let first = u64::from(sb.first_data_block);
    let inside = blocks.min(sb.blocks_count).checked_sub(first)?;
    let per_group = u64::from(sb.blocks_per_group);
    let rest = inside.checked_rem(per_group)?;
    let last = u32::try_from(inside.checked_div(per_group)?).ok()?;
    let head = sb.reserved_start(last).1;
    let needed =
        u64::from(sb.inode_table_blocks()).saturating_add(2).saturating_add(head).saturating_add(SPARE);
    let end = if rest < needed {
        blocks.min(sb.blocks_count).saturating_sub(rest)
    } else {
        blocks.min(sb.blocks_count)
    };
    (end > first).then_some(end)
}

/// Plans the change to `end` blocks. Returns `None` if the contents do not fit. `takes` is the size of the largest
/// transaction in bytes, or `None` without a journal.
///
/// # Errors
///
/// - `Refused`: a feature prevents the change.
/// - `Failed`: a directory is damaged, or the device failed.
pub(super) fn plan(
    edits: &Edits,
    owners: &Owners,
    bitmaps: &[Vec<u8>],
    end: u64,
    takes: Option<u64>,
) -> ResizeResult<Option<ShrinkPlan>> {
    let sb = &edits.view.sb;
    let inside = end.saturating_sub(sb.first_data_block.into());
    let Ok(groups) = u32::try_from(inside.div_ceil(u64::from(sb.blocks_per_group.max(1)))) else {
        return Ok(None);
    };
    // The tables of the groups that are left do not move.
    let table = u64::from(sb.inode_table_blocks());
    let has_tables = (0..groups).all(|group| {
        let known = edits.view.group(group);
        let ends = [
            known.block_bitmap.0,
            known.inode_bitmap.0,
            known.inode_table.0.saturating_add(table).saturating_sub(1),
        ];
        ends.into_iter().all(|last| last < end)
    });
    let Some((inodes, places)) = (if has_tables { new_numbers(edits, owners, groups, takes)? } else { None })
    else {
        return Ok(None);
    };
    let mut free = FreeRuns::before(sb, bitmaps, end);
    let mut plan = ShrinkPlan { end, groups, files: Vec::new(), attributes: Vec::new(), inodes, places };
    for (file, owner) in owners.files.iter().enumerate() {
        let planned = match &owner.map {
            OwnedMap::Empty => continue,
            OwnedMap::Extents { extents, nodes } => {
                let is_outside = |extent: &Extent| extent.start.saturating_add(extent.len.into()) > end;
                if !extents.iter().any(is_outside) && nodes.iter().all(|&node| node < end) {
                    continue;
                }
                with_extents(sb, &mut free, file, extents, end)
            }
            OwnedMap::Pointers(blocks) => {
                if blocks.iter().all(|&block| block < end) {
                    continue;
                }
                with_pointers(&mut free, file, blocks, end)
            }
        };
        let Some(planned) = planned else { return Ok(None) };
        plan.files.push(planned);
    }
    for &from in owners.attributes.keys().filter(|&&block| block >= end) {
        let Some(to) = free.take(1) else { return Ok(None) };
        plan.attributes.push(BlockMove { from, to: to.start, len: 1 });
    }
    Ok(Some(plan))
}

fn with_extents(
    sb: &SuperBlock,
    free: &mut FreeRuns,
    file: usize,
    old: &[Extent],
    end: u64,
) -> Option<FilePlan> {
    let mut plan = FilePlan { file, moves: Vec::new(), extents: Vec::new(), nodes: Vec::new() };
    for extent in old {
        if extent.start.saturating_add(extent.len.into()) <= end {
            plan.extents.push(*extent);
            continue;
        }
        // The part before the end stays.
        let stays = u16::try_from(end.saturating_sub(extent.start)).unwrap_or(u16::MAX).min(extent.len);
        let stays = if extent.start >= end { 0 } else { stays };
        if stays > 0 {
            plan.extents.push(Extent { len: stays, ..*extent });
        }
        let mut done = stays;
        while done < extent.len {
            let run = free.take(extent.len.saturating_sub(done).into())?;
            let len = u16::try_from(run.end.saturating_sub(run.start)).ok()?;
            let at = extent.at.saturating_add(done.into());
            plan.extents.push(Extent { at, start: run.start, len, ..*extent });
            let from = extent.start.saturating_add(done.into());
            plan.moves.push(BlockMove { from, to: run.start, len: len.into() });
            done = done.saturating_add(len);
        }
    }
    let room = room_in_block(sb.block_size).max(1);
    let mut entries = plan.extents.len();
    while entries > ROOT_ENTRIES {
        entries = entries.div_ceil(room);
        for _ in 0..entries {
            plan.nodes.push(free.take(1)?.start);
        }
    }
    Some(plan)
}

fn with_pointers(free: &mut FreeRuns, file: usize, blocks: &[u64], end: u64) -> Option<FilePlan> {
    let mut outside: Vec<u64> = blocks.iter().copied().filter(|&block| block >= end).collect();
    outside.sort_unstable();
    let mut plan = FilePlan { file, moves: Vec::new(), extents: Vec::new(), nodes: Vec::new() };
    for run in outside.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
        let (mut from, mut left) = (*run.first()?, to_u64(run.len()));
        while left > 0 {
            let taken = free.take(left)?;
            let len = taken.end.saturating_sub(taken.start);
            plan.moves.push(BlockMove { from, to: taken.start, len });
            from = from.saturating_add(len);
            left = left.saturating_sub(len);
        }
    }
    Some(plan)
}

/// Gives each inode of a removed group a free number, and finds the blocks that contain it. Returns `None` if this is not
/// possible.
fn new_numbers(
    edits: &Edits,
    owners: &Owners,
    groups: u32,
    takes: Option<u64>,
) -> ResizeResult<Option<(BTreeMap<u32, u32>, NumberPlaces)>> {
    let sb = &edits.view.sb;
    let last = groups.saturating_mul(sb.inodes_per_group);
    let mut numbers = BTreeMap::new();
    let mut moved = owners.files.iter().filter(|owner| owner.ino > last).peekable();
    if moved.peek().is_none() {
        return Ok(Some((numbers, NumberPlaces::default())));
    }
    // Without a journal, the names of an inode cannot change at once.
    let Some(takes) = takes else { return Ok(None) };
    if sb.compat.contains(Compat::STABLE_INODES) {
        return Ok(None);
    }
    // Numbers of inodes are also in attributes and in inline directories.
    if sb.incompat.intersects(Incompat::EA_INODE | Incompat::INLINE_DATA | Incompat::ENCRYPT) {
        return Ok(None);
    }
    let mut group = 0;
    let mut next = sb.first_ino.saturating_sub(1);
    for owner in moved {
        if edits.view.is_own(owner.ino) {
            return Ok(None);
        }
        let number = loop {
            if group >= groups {
                return Ok(None);
            }
            let all = sb.inodes_per_group;
            let bitmap = owners.inodes.get(at(group)).map(Vec::as_slice).unwrap_or_default();
            let free =
                if bitmap.is_empty() { next.min(all) } else { bits::next_clear(bitmap, next.min(all)..all) };
            if free < all {
                next = free.saturating_add(1);
                break group.saturating_mul(all).saturating_add(free).saturating_add(1);
            }
            (group, next) = (group.saturating_add(1), 0);
        };
        numbers.insert(owner.ino, number);
    }
    // Each inode moves in one transaction.
    let places = NumberPlaces::find(edits, owners, &numbers)?;
    let size = u64::from(sb.block_size);
    for owner in owners.files.iter().filter(|owner| owner.ino > last) {
        let own = match &owner.map {
            OwnedMap::Extents { nodes, .. } => to_u64(nodes.len()),
            OwnedMap::Empty | OwnedMap::Pointers(_) => 0,
        };
        let own = own.saturating_add(FIXED_BLOCKS).saturating_mul(size.max(PAGE));
        let bytes = own.saturating_add(places.changed_bytes(owner.ino, size));
        // A batch is written when it has a quarter of this size.
        if bytes > takes / 2 {
            let blocks = to_usize(bytes.checked_div(size).unwrap_or(0));
            return Err(ResizeRefusal::Journal { blocks }.into());
        }
    }
    Ok(Some((numbers, places)))
}
