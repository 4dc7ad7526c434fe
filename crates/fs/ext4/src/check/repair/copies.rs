//! Copying shared blocks to free ones. The copies of a file are planned first, and made if there is space for all of
//! them.
//!
//! Invariant: no change that is not on the device yet frees a block that a copy uses ([`Edits::clone_twice`]).
//! Invariant: extents that end and begin in the same cluster move together, since a cluster of a file is one cluster
//! of the volume.
//! Source: e2fsprogs `e2fsck/pass1b.c` `clone_file_block`; Linux `Documentation/filesystems/ext4/bigalloc.rst`.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Error, Result};

use super::edits::Edits;
use super::tree::ENTRY;
use crate::map::check::{extent_len, extent_start};
use crate::raw::RawExtent;
use crate::unit::VolBlock;

/// Number of blocks that are copied at once.
const AT_ONCE: u64 = 256;

/// How the shared blocks of an inode are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyMethod {
    /// An extent is copied as a whole, so that the tree keeps its shape.
    Whole,
    /// The necessary parts of an extent are copied in as many pieces as needed, and the tree is rebuilt.
    Pieces,
    /// Nothing is copied, and shared blocks are removed.
    Without,
}

/// The planned changes for one inode.
pub(super) struct CopyPlan {
    pub(super) way: CopyMethod,
    /// Allocated runs.
    taken: Vec<(u64, u64)>,
    /// Source, target and number of blocks.
    copies: Vec<(u64, u64, u64)>,
    /// Tables and nodes in new places.
    tables: Vec<(u64, Vec<u8>)>,
    /// Tables and nodes that change in their places.
    pub(super) late: Vec<(u64, Vec<u8>)>,
}

impl CopyPlan {
    pub(super) fn new(way: CopyMethod) -> Self {
        Self { way, taken: Vec::new(), copies: Vec::new(), tables: Vec::new(), late: Vec::new() }
    }

    /// Returns the runs that were allocated for it.
    pub(super) fn taken(&self) -> &[(u64, u64)] {
        &self.taken
    }

    /// Adds a copy to blocks of a cluster that was already allocated.
    pub(super) fn copy_into(&mut self, from: u64, to: u64, len: u64) {
        self.copies.push((from, to, len));
    }

    /// Adds the new contents of a table or node.
    pub(super) fn table(&mut self, block: u64, home: u64, before: Vec<u8>, after: Vec<u8>) {
        if home != block {
            self.tables.push((home, after));
        } else if before != after {
            self.late.push((block, after));
        }
    }
}

/// An extent: file block, volume block, length.
type Piece = (u64, u64, u64);

impl Edits {
    /// Allocates space for a copy of blocks, at the same offset in its cluster. Returns `None` if nothing is copied.
    /// Fails with `NoSpace`.
    pub(super) fn place_for(&mut self, plan: &mut CopyPlan, start: u64, len: u64) -> Result<Option<u64>> {
        let inside = start & u64::from(self.view.sb.cluster_blocks()).saturating_sub(1);
        let first = self.take_for(plan, inside.saturating_add(len))?;
        Ok(first.map(|first| first.saturating_add(inside)))
    }

    fn take_for(&mut self, plan: &mut CopyPlan, len: u64) -> Result<Option<u64>> {
        if plan.way == CopyMethod::Without {
            return Ok(None);
        }
        let start = self.take_run(len)?.ok_or(Error::NoSpace)?;
        plan.taken.push((start, len));
        Ok(Some(start))
    }

    /// Plans a copy of contiguous blocks. Returns its start.
    pub(super) fn copy_run(&mut self, plan: &mut CopyPlan, start: u64, len: u64) -> Result<Option<u64>> {
        let new = self.place_for(plan, start, len)?;
        plan.copies.extend(new.map(|new| (start, new, len)));
        Ok(new)
    }

    /// Plans a copy of extents that move together to one free run. Returns the new start of each.
    pub(super) fn copy_unit(&mut self, plan: &mut CopyPlan, pieces: &[Piece]) -> Result<Option<Vec<u64>>> {
        let inside = u64::from(self.view.sb.cluster_blocks()).saturating_sub(1);
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(None) };
        let from = first.0 & !inside;
        let len = last.0.saturating_add(last.2).saturating_sub(from);
        let Some(new) = self.take_for(plan, len)? else { return Ok(None) };
        let to = |at: u64| new.saturating_add(at.saturating_sub(from));
        plan.copies.extend(pieces.iter().map(|&(at, start, len)| (start, to(at), len)));
        Ok(Some(pieces.iter().map(|piece| to(piece.0)).collect()))
    }

    /// Makes the copies of a plan on the device itself, where these blocks are free, and writes its tables with new
    /// places.
    pub(super) fn copy_planned(&mut self, plan: &CopyPlan) -> Result<()> {
        let size = u64::from(self.view.sb.block_size);
        for &(from, to, len) in &plan.copies {
            for done in (0..len).step_by(to_usize(AT_ONCE)) {
                let count = AT_ONCE.min(len.saturating_sub(done));
                let mut bytes = self.view.read(VolBlock(from.saturating_add(done)), count)?;
                let blocks = bytes.chunks_exact_mut(to_usize(size));
                for (block, bytes) in (from.saturating_add(done)..).zip(blocks) {
                    if let Some(original) = self.originals.get(&block) {
                        bytes.copy_from_slice(original);
                    }
                }
                self.device.write_through(to.saturating_add(done).saturating_mul(size), &bytes)?;
            }
        }
        plan.tables.iter().try_for_each(|(home, bytes)| self.put(VolBlock(*home), bytes))
    }
}

pub(super) fn piece(entry: &[u8; ENTRY]) -> Piece {
    let extent = RawExtent::ref_from_bytes(entry).ok();
    extent.map_or((0, 0, 0), |extent| {
        (extent.ee_block.get().into(), extent_start(extent).0, extent_len(extent).0.into())
    })
}

/// Returns the extents from `first` on each of which begins in the file cluster in which the previous one ends.
pub(super) fn unit_from(pieces: &[Piece], first: usize, bits: u32) -> Range<usize> {
    let cluster = |block: u64| block.checked_shr(bits).unwrap_or(0);
    let last_of = |piece: &Piece| cluster(piece.0.saturating_add(piece.2).saturating_sub(1));
    let pairs = pieces.iter().zip(pieces.iter().skip(1)).skip(first);
    let more = pairs.take_while(|(one, next)| bits > 0 && last_of(one) == cluster(next.0)).count();
    first..first.saturating_add(more).saturating_add(1)
}

/// Returns whether extents have the same offsets in volume clusters as in file clusters.
pub(super) fn keeps_rule(pieces: &[Piece], bits: u32) -> bool {
    let cluster = |block: u64| block.checked_shr(bits).unwrap_or(0);
    let inside = |block: u64| block ^ cluster(block).checked_shl(bits).unwrap_or(0);
    let is_aligned = pieces.iter().all(|piece| inside(piece.0) == inside(piece.1));
    let last_of = |piece: &Piece| cluster(piece.1.saturating_add(piece.2).saturating_sub(1));
    let mut pairs = pieces.iter().zip(pieces.iter().skip(1));
    is_aligned && pairs.all(|(one, next)| last_of(one) == cluster(next.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_share_a_cluster_of_the_file_are_one_unit() {
        let pieces = [(0, 64, 2), (2, 66, 1), (8, 128, 8), (16, 32, 4)];
        assert_eq!(unit_from(&pieces, 0, 2), 0..2);
        assert_eq!(unit_from(&pieces, 2, 2), 2..3);
        assert_eq!(unit_from(&pieces, 0, 0), 0..1);
    }

    #[test]
    fn a_cluster_of_the_file_is_one_of_the_volume() {
        assert!(keeps_rule(&[(0, 64, 2), (2, 66, 1)], 2));
        assert!(!keeps_rule(&[(0, 64, 2), (2, 70, 1)], 2), "another cluster");
        assert!(!keeps_rule(&[(0, 65, 2)], 2), "another place");
        assert!(keeps_rule(&[(0, 65, 2)], 0));
    }
}
