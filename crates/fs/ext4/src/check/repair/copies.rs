//! Copies of blocks in free ones: runs, and the extents of a leaf.
//!
//! Invariant: an extent moves as a whole, so that the tree keeps its shape; without as much room in a row it is left.
//! Invariant: extents of which one ends in the cluster where the next begins move together, since a cluster of a file
//! is one cluster of the volume.
//! Source: e2fsprogs `e2fsck/pass1b.c` `clone_file_block`; Linux `Documentation/filesystems/ext4/bigalloc.rst`.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{FromBytes, split};

use super::bitmaps::Kind;
use super::edits::Edits;
use super::twice::{Claims, ENTRY};
use crate::allocator::bits;
use crate::group::GroupFlags;
use crate::map::check::{extent_len, extent_start};
use crate::raw::RawExtent;
use crate::unit::VolBlock;

/// Where an extent is: file block, block, length.
type Piece = (u64, u64, u64);

impl Edits {
    /// Gives the first `count` extents of a leaf that others have too copies of their own.
    pub(super) fn clone_leaf(&mut self, entries: &mut [u8], count: usize, claims: &mut Claims) -> Result<()> {
        let pieces: Vec<Piece> = entries.chunks_exact(ENTRY).take(count).filter_map(piece).collect();
        let mut first = 0;
        while first < pieces.len() {
            let unit = unit_from(&pieces, first, claims.bits);
            let some = pieces.get(unit.clone()).unwrap_or_default();
            let is_taken = claims.must_move_any(some);
            let new = if is_taken || !keeps_rule(some, claims.bits) { self.copy_unit(some)? } else { None };
            for (entry, start) in entries.chunks_exact_mut(ENTRY).skip(first).zip(new.unwrap_or_default()) {
                if let Ok(extent) = RawExtent::mut_from_bytes(entry) {
                    let (low, high) = split(start);
                    extent.ee_start_lo.set(low);
                    extent.ee_start_hi.set(u16::try_from(high).unwrap_or(0));
                }
            }
            first = unit.end;
        }
        Ok(())
    }

    /// Copies extents that move together to one free run; answers where each begins then.
    fn copy_unit(&mut self, pieces: &[Piece]) -> Result<Option<Vec<u64>>> {
        let inside = u64::from(self.view.sb.cluster_blocks()).saturating_sub(1);
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(None) };
        let from = first.0 & !inside;
        let len = last.0.saturating_add(last.2).saturating_sub(from);
        let Some(new) = self.take_run(len)? else { return Ok(None) };
        let mut starts = Vec::new();
        for &(at, start, len) in pieces {
            let to = new.saturating_add(at.saturating_sub(from));
            for n in 0..len {
                let bytes = self.view.read(VolBlock(start.saturating_add(n)), 1)?;
                self.put(VolBlock(to.saturating_add(n)), &bytes)?;
            }
            starts.push(to);
        }
        Ok(Some(starts))
    }

    /// Copies a run of blocks to free ones, which are in use then. `None`: there are not so many in a row.
    pub(super) fn copy_run(&mut self, start: u64, len: u64) -> Result<Option<u64>> {
        // Where it lies in its cluster stays.
        let inside = start & u64::from(self.view.sb.cluster_blocks()).saturating_sub(1);
        let Some(first) = self.take_run(inside.saturating_add(len))? else { return Ok(None) };
        let new = first.saturating_add(inside);
        for n in 0..len {
            let bytes = self.view.read(VolBlock(start.saturating_add(n)), 1)?;
            self.put(VolBlock(new.saturating_add(n)), &bytes)?;
        }
        Ok(Some(new))
    }

    /// Takes `len` free blocks in a row within a group, from the start of a cluster on. Counts are left to the next round.
    pub(super) fn take_run(&mut self, len: u64) -> Result<Option<u64>> {
        let (bits_of_block, blocks) = (self.view.sb.cluster_bits, u64::from(self.view.sb.cluster_blocks()));
        let Ok(wanted) = u32::try_from(len.div_ceil(blocks)) else { return Ok(None) };
        for group in 0..self.view.sb.groups {
            let descriptor = *self.view.group(group);
            let is_fresh =
                self.view.has_descriptor_sums() && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT);
            if is_fresh || descriptor.block_bitmap.0 == 0 {
                continue;
            }
            let Ok(bitmap) = self.view.read(descriptor.block_bitmap, 1) else { continue };
            let all = self.view.sb.group_clusters(group);
            let mut at = 0;
            while at < all {
                let first = bits::next_clear(&bitmap, at..all);
                let end = bits::next_set(&bitmap, first..all);
                if end.saturating_sub(first) >= wanted {
                    let bits = u64::from(first)..u64::from(first).saturating_add(wanted.into());
                    self.set_bits(Kind::Blocks, group, bits, true)?;
                    let start = self.view.sb.group_start(group).0;
                    let inside = u64::from(first).checked_shl(bits_of_block).unwrap_or(0);
                    return Ok(Some(start.saturating_add(inside)));
                }
                at = end.max(first.saturating_add(1));
            }
        }
        Ok(None)
    }
}

fn piece(entry: &[u8]) -> Option<Piece> {
    let extent = RawExtent::ref_from_bytes(entry).ok()?;
    Some((extent.ee_block.get().into(), extent_start(extent).0, extent_len(extent).0.into()))
}

/// The extents from `first` on of which each begins in the cluster of the file where the one before ends.
fn unit_from(pieces: &[Piece], first: usize, bits: u32) -> Range<usize> {
    let cluster = |block: u64| block.checked_shr(bits).unwrap_or(0);
    let last_of = |piece: &Piece| cluster(piece.0.saturating_add(piece.2).saturating_sub(1));
    let pairs = pieces.iter().zip(pieces.iter().skip(1)).skip(first);
    let more = pairs.take_while(|(one, next)| bits > 0 && last_of(one) == cluster(next.0)).count();
    first..first.saturating_add(more).saturating_add(1)
}

/// Whether extents lie in their clusters as they lie in those of the file, of which each is one.
fn keeps_rule(pieces: &[Piece], bits: u32) -> bool {
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
