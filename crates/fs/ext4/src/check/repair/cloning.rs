//! Maps of inodes that share blocks: the parts that must move, and the resulting maps.
//!
//! Invariant: an inode's map is examined as it was before any inode got a copy.
//! Source: e2fsprogs `e2fsck/pass1b.c` `clone_file_block`.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes, split, to_usize};
use obento_base::{Error, Result};

use super::convert::MAX_PIECES;
use super::copies::{CopyPlan, keeps_rule, piece, unit_from};
use super::edits::Edits;
use super::tree::{ENTRY, edit, set_entries};
use super::twice::Claims;
use crate::checksum::Crc;
use crate::map::check::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf};
use crate::map::{ExtentState, Mapping};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex};
use crate::unit::VolBlock;

/// Maximum number of nodes of a tree that is rebuilt.
const MAX_NODES: usize = 1 << 16;

/// Returns the depth and the entries of a node, if it is valid. `depth` is the required depth.
fn node(bytes: &[u8], depth: Option<u16>) -> Option<(u16, Vec<[u8; ENTRY]>)> {
    let (header, rest) = RawExtentHeader::ref_from_prefix(bytes).ok()?;
    let found = header.eh_depth.get();
    let is_one = header.eh_magic.get() == MAGIC && depth.map_or(found <= MAX_DEPTH, |depth| depth == found);
    let entries = rest.as_chunks().0.get(..header.eh_entries.get().into())?;
    is_one.then(|| (found, entries.to_vec()))
}

impl Edits {
    /// Gives the entries of a node that share blocks blocks of their own. Returns false if no entry is left. Each
    /// node below is processed before the entry that refers to it.
    pub(super) fn clone_node(
        &mut self,
        bytes: &mut [u8],
        seed: u32,
        depth: Option<u16>,
        plan: &mut CopyPlan,
        claims: &mut Claims,
    ) -> Result<bool> {
        let Some((depth, before)) = node(bytes, depth) else { return Ok(true) };
        let mut entries = before.clone();
        if let Some(below) = depth.checked_sub(1) {
            let mut kept = Vec::new();
            for mut entry in entries {
                if self.clone_below(&mut entry, seed, below, plan, claims)? {
                    kept.push(entry);
                }
            }
            entries = kept;
        } else {
            self.clone_leaf(&mut entries, plan, claims)?;
        }
        if entries != before {
            set_entries(bytes, &entries);
        }
        Ok(!entries.is_empty() || before.is_empty())
    }

    /// Processes the node below an entry of an inner node. Returns false if the entry is removed.
    fn clone_below(
        &mut self,
        entry: &mut [u8; ENTRY],
        seed: u32,
        depth: u16,
        plan: &mut CopyPlan,
        claims: &mut Claims,
    ) -> Result<bool> {
        let Ok(index) = RawExtentIndex::mut_from_bytes(entry) else { return Ok(true) };
        let block = index_leaf(index).0;
        let mut home = block;
        if claims.must_move(block, 1) {
            let Some(new) = self.place_for(plan, block, 1)? else { return Ok(false) };
            home = new;
            let (low, high) = split(new);
            index.ei_leaf_lo.set(low);
            index.ei_leaf_hi.set(u16::try_from(high).unwrap_or(0));
        }
        let Ok(before) = self.view.read(VolBlock(block), 1) else { return Ok(true) };
        let mut below = before.clone();
        // The depth decreases by one per level.
        if !self.clone_node(&mut below, seed, Some(depth), plan, claims)? {
            return Ok(false);
        }
        if below != before {
            self.seal_node(&mut below, seed);
            // If its first entry was removed, it begins with another one.
            if let Some(first) = below.get(ENTRY..).and_then(|bytes| bytes.first_chunk()) {
                index.ei_block.set(u32::from_le_bytes(*first));
            }
        }
        plan.table(block, home, before, below);
        Ok(true)
    }

    /// Stores the checksum of an extent tree node.
    pub(super) fn seal_node(&self, bytes: &mut [u8], seed: u32) {
        if !self.view.sb.has_metadata_csum() {
            return;
        }
        let max = RawExtentHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.eh_max.get());
        let at = usize::from(max).saturating_add(1).saturating_mul(ENTRY);
        if let Some((covered, rest)) = bytes.split_at_mut_checked(at)
            && let Some(tail) = rest.first_chunk_mut()
        {
            *tail = Crc::new(seed).add(covered).get().to_le_bytes();
        }
    }

    /// Returns all extents of a tree, with copies of shared blocks. Fails with `NoSpace`, also if the tree cannot be
    /// walked, since it cannot be rebuilt then, or if it violates the rule of clusters.
    pub(super) fn clone_pieces(
        &mut self,
        map: &[u8; 60],
        plan: &mut CopyPlan,
        claims: &mut Claims,
    ) -> Result<Vec<Mapping>> {
        let mut entries = Vec::new();
        self.leaf_entries(map, &mut entries)?;
        let extents: Vec<_> = entries.iter().map(piece).collect();
        let mut first = 0;
        while first < extents.len() {
            let unit = unit_from(&extents, first, claims.cluster.bits());
            if !keeps_rule(extents.get(unit.clone()).unwrap_or_default(), claims.cluster.bits()) {
                return Err(Error::NoSpace);
            }
            first = unit.end;
        }
        let mut pieces = Vec::new();
        for entry in &entries {
            let extent = RawExtent::read_from_bytes(entry).map_err(|_| Error::NoSpace)?;
            self.clone_piece(&extent, plan, claims, &mut pieces)?;
        }
        Ok(pieces)
    }

    /// Collects the entries of all leaves of a tree. Fails with `NoSpace` if it cannot be walked.
    fn leaf_entries(&self, map: &[u8; 60], entries: &mut Vec<[u8; ENTRY]>) -> Result<()> {
        let mut waiting = Vec::from([(map.to_vec(), None)]);
        let mut left = MAX_NODES;
        while let Some((bytes, depth)) = waiting.pop() {
            left = left.checked_sub(1).ok_or(Error::NoSpace)?;
            let (depth, mut inside) = node(&bytes, depth).ok_or(Error::NoSpace)?;
            if let Some(below) = depth.checked_sub(1) {
                // The first one is walked first.
                for entry in inside.iter().rev() {
                    let index = RawExtentIndex::ref_from_bytes(entry).map_err(|_| Error::NoSpace)?;
                    waiting.push((self.view.read(index_leaf(index), 1)?, Some(below)));
                }
                continue;
            }
            entries.append(&mut inside);
            if entries.len() > MAX_PIECES {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    /// Copies an extent in as many pieces as necessary.
    fn clone_piece(
        &mut self,
        extent: &RawExtent,
        plan: &mut CopyPlan,
        claims: &mut Claims,
        pieces: &mut Vec<Mapping>,
    ) -> Result<()> {
        let (at, start, (len, written)) = (extent.ee_block.get(), extent_start(extent), extent_len(extent));
        let state = if written { ExtentState::Written } else { ExtentState::Unwritten };
        let whole = Mapping { start: at, len: len.into(), place: start, state };
        let cluster = self.view.sb.cluster_blocks();
        let mut done = 0_u32;
        while done < whole.len {
            let mut rest =
                whole.within(&(u64::from(at.saturating_add(done))..whole.end())).ok_or(Error::NoSpace)?;
            let inside = rest.start & cluster.saturating_sub(1);
            // The blocks in the cluster in which the piece begins.
            let begun = cluster.saturating_sub(inside).min(rest.len);
            if let Some(place) = begun_cluster(pieces, &rest, claims.cluster.bits()) {
                rest.len = begun;
                let new = place.saturating_add(inside.into());
                if new != rest.place.0 {
                    plan.copy_into(rest.place.0, new, begun.into());
                    rest.place = VolBlock(new);
                }
            } else if claims.is_twice(rest.place.0, rest.len.into()) {
                // The contiguous clusters that all move, or all stay.
                let moves = claims.is_owned(rest.place.0);
                let place = |n: u32| rest.place.0.saturating_add(n.into());
                let starts = (begun..rest.len).step_by(to_usize(cluster.into()));
                let same = starts.take_while(|&n| claims.is_owned(place(n)) == moves).last();
                rest.len = same.map_or(begun, |last| last.saturating_add(cluster)).min(rest.len);
                if moves {
                    let (new, len) = self.copy_some(plan, rest.place.0, rest.len)?;
                    (rest.place, rest.len) = (VolBlock(new), len);
                } else {
                    claims.must_move(rest.place.0, rest.len.into());
                }
            }
            pieces.push(rest);
            done = done.saturating_add(rest.len);
            if pieces.len() > MAX_PIECES {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    /// Copies as many of `len` blocks as fit one free run. Returns their new place and number.
    fn copy_some(&mut self, plan: &mut CopyPlan, start: u64, len: u32) -> Result<(u64, u32)> {
        let mut len = len;
        while len > 0 {
            match self.copy_run(plan, start, len.into()) {
                Ok(Some(new)) => return Ok((new, len)),
                Ok(None) | Err(Error::NoSpace) => len /= 2,
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoSpace)
    }

    /// Gives the shared block numbers of a map blocks of their own.
    pub(super) fn clone_pointers(
        &mut self,
        map: &mut [u8; 60],
        plan: &mut CopyPlan,
        claims: &mut Claims,
    ) -> Result<()> {
        let mut waiting: Vec<Table> = Vec::new();
        for (word, level) in map.as_chunks_mut().0.iter_mut().zip([0; 12].into_iter().chain(1..=3)) {
            self.clone_pointer(word, level, plan, claims, &mut waiting)?;
        }
        // At most as many nodes as the volume has blocks.
        let mut left = self.view.sb.blocks_count;
        while let Some(Table { block, home, level }) = waiting.pop() {
            let Some(fewer) = left.checked_sub(1) else { break };
            left = fewer;
            let Ok(before) = self.view.read(VolBlock(block), 1) else { continue };
            let mut bytes = before.clone();
            for word in bytes.as_chunks_mut().0 {
                self.clone_pointer(word, level.saturating_sub(1), plan, claims, &mut waiting)?;
            }
            plan.table(block, home, before, bytes);
        }
        Ok(())
    }

    fn clone_pointer(
        &mut self,
        word: &mut [u8; 4],
        level: u32,
        plan: &mut CopyPlan,
        claims: &mut Claims,
        waiting: &mut Vec<Table>,
    ) -> Result<()> {
        let block = u64::from(u32::from_le_bytes(*word));
        if block == 0 {
            return Ok(());
        }
        let mut home = block;
        if claims.must_move(block, 1) {
            let new =
                if level == 0 { self.copy_run(plan, block, 1)? } else { self.place_for(plan, block, 1)? };
            home = new.unwrap_or(0);
            // A block number past 32 bits cannot be stored.
            let low = u32::try_from(home).map_err(|_| Error::NoSpace)?;
            *word = low.to_le_bytes();
        }
        if level > 0 && home != 0 {
            waiting.push(Table { block, home, level });
        }
        Ok(())
    }

    /// Gives the shared extents of a leaf copies of their own, or removes them.
    fn clone_leaf(
        &mut self,
        entries: &mut Vec<[u8; ENTRY]>,
        plan: &mut CopyPlan,
        claims: &mut Claims,
    ) -> Result<()> {
        let pieces: Vec<_> = entries.iter().map(piece).collect();
        let (mut first, mut kept) = (0, Vec::new());
        while first < pieces.len() {
            let unit = unit_from(&pieces, first, claims.cluster.bits());
            let some = pieces.get(unit.clone()).unwrap_or_default();
            let is_moved = claims.must_move_any(some) || !keeps_rule(some, claims.cluster.bits());
            let starts = if is_moved { self.copy_unit(plan, some)? } else { None };
            let mut own = entries.get(unit.clone()).unwrap_or_default().to_vec();
            for (entry, start) in own.iter_mut().zip(starts.iter().flatten()) {
                edit(entry, |extent: &mut RawExtent| {
                    let (low, high) = split(*start);
                    extent.ee_start_lo.set(low);
                    extent.ee_start_hi.set(u16::try_from(high).unwrap_or(0));
                });
            }
            if !is_moved || starts.is_some() {
                kept.append(&mut own);
            }
            first = unit.end;
        }
        *entries = kept;
        Ok(())
    }
}

/// Returns the start of the volume cluster that already contains earlier blocks of the file cluster in which `rest`
/// begins.
fn begun_cluster(pieces: &[Mapping], rest: &Mapping, bits: u32) -> Option<u64> {
    let cluster = |block: u64| block.checked_shr(bits).unwrap_or(0);
    let last = pieces.last().filter(|last| bits > 0 && last.len > 0)?;
    let is_begun = cluster(last.end().saturating_sub(1)) == cluster(rest.start.into());
    let end = last.place.0.saturating_add(last.len.into()).saturating_sub(1);
    is_begun.then(|| cluster(end).checked_shl(bits).unwrap_or(u64::MAX))
}

/// A table of block numbers: its old and its new place.
struct Table {
    block: u64,
    home: u64,
    level: u32,
}
