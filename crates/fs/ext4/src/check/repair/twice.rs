//! Blocks that two claim: whoever comes after the first, by inode number, gets a copy of its own.
//!
//! Invariant: bitmaps are right by then, and count what is claimed twice as in use, so that a copy goes where nothing is.
//! Source: e2fsprogs `e2fsck/pass1b.c` `clone_file`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{FromBytes, join, split};

use super::super::Issue;
use super::edits::Edits;
use crate::checksum::{Crc, inode_seed};
use crate::inode::InodeFlags;
use crate::map::check::{MAGIC, MAX_DEPTH, index_leaf};
use crate::raw::{RawExtentHeader, RawExtentIndex, RawInode};
use crate::unit::VolBlock;

/// `EXT4_BAD_INO`.
const BAD_INO: u32 = 1;
/// Bytes of a header, and of an entry.
pub(super) const ENTRY: usize = 12;

/// Who owns what of the clusters that are claimed twice; without clusters, of the blocks.
pub(super) struct Claims {
    pub(super) bits: u32,
    twice: BTreeSet<u64>,
    owned: BTreeSet<u64>,
}

impl Claims {
    /// The clusters of `len` blocks from `start` on.
    fn clusters(&self, start: u64, len: u64) -> Range<u64> {
        let last = start.saturating_add(len.max(1)).saturating_sub(1);
        let [first, last] = [start, last].map(|block| block.checked_shr(self.bits).unwrap_or(0));
        first..last.saturating_add(1)
    }

    fn is_twice(&self, block: u64) -> bool {
        self.twice.contains(&block.checked_shr(self.bits).unwrap_or(0))
    }

    /// Whether one of the blocks has an owner already; if not, they have one now.
    pub(super) fn must_move(&mut self, start: u64, len: u64) -> bool {
        let range = self.clusters(start, len);
        if self.owned.range(range.clone()).next().is_some() {
            return true;
        }
        let new: Vec<u64> = self.twice.range(range).copied().collect();
        self.owned.extend(new);
        false
    }

    /// As [`Self::must_move`], for extents that move together: what nobody has is taken only if all of it is free.
    pub(super) fn must_move_any(&mut self, pieces: &[(u64, u64, u64)]) -> bool {
        let ranges: Vec<Range<u64>> =
            pieces.iter().map(|&(_, start, len)| self.clusters(start, len)).collect();
        if ranges.iter().any(|range| self.owned.range(range.clone()).next().is_some()) {
            return true;
        }
        for range in ranges {
            let new: Vec<u64> = self.twice.range(range).copied().collect();
            self.owned.extend(new);
        }
        false
    }
}

impl Edits {
    /// Mends all blocks that are claimed twice. Answers whether anything was changed.
    pub(super) fn clone_twice(&mut self, issues: &[Issue]) -> Result<bool> {
        let mut inodes: BTreeSet<u32> = BTreeSet::new();
        let mut claims =
            Claims { bits: self.view.sb.cluster_bits, twice: BTreeSet::new(), owned: BTreeSet::new() };
        for issue in issues {
            match *issue {
                Issue::BlockTwice { ino, block, len, .. } => {
                    inodes.insert(ino);
                    claims.twice.extend(claims.clusters(block, len));
                }
                Issue::ClusterRule { ino, .. } => {
                    inodes.insert(ino);
                }
                Issue::BlockOfVolume { ino, block, len, .. } if ino >= self.view.sb.first_ino => {
                    inodes.insert(ino);
                    claims.owned.extend(claims.clusters(block, len));
                }
                // A bad block cannot be one that the volume stands on: it is taken off the list, as e2fsck does.
                Issue::BlockOfVolume { ino: BAD_INO, block, len, .. } => {
                    let own = block..block.saturating_add(len);
                    self.change_pointers(BAD_INO, &mut |pointer| own.contains(&pointer).then_some(0))?;
                }
                _ => {}
            }
        }
        let mut changed = false;
        for ino in inodes {
            changed |= self.clone_of(ino, &mut claims)?;
        }
        Ok(changed)
    }

    fn clone_of(&mut self, ino: u32, claims: &mut Claims) -> Result<bool> {
        let Some((record, _)) = self.view.record(ino) else { return Ok(false) };
        let Ok((raw, _)) = RawInode::read_from_prefix(&record) else { return Ok(false) };
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let seed = inode_seed(self.view.sb.checksum_seed, ino, raw.i_generation.get());
        let mut map = raw.i_block;
        if flags.contains(InodeFlags::INLINE_DATA) {
            // It has no map, and may have a block of attributes.
        } else if flags.contains(InodeFlags::EXTENTS) {
            self.clone_node(&mut map, seed, None, claims)?;
        } else {
            self.clone_pointers(&mut map, claims)?;
        }
        let acl = join(raw.i_file_acl_lo.get(), raw.l_i_file_acl_high.get().into());
        let mut new_acl = acl;
        if acl != 0 && claims.is_twice(acl) && claims.must_move(acl, 1) {
            new_acl = self.copy_run(acl, 1)?.unwrap_or(acl);
        }
        if map == raw.i_block && new_acl == acl {
            return Ok(false);
        }
        let (low, high) = split(new_acl);
        self.inode(ino, |raw| {
            raw.i_block = map;
            raw.i_file_acl_lo.set(low);
            raw.l_i_file_acl_high.set(u16::try_from(high).unwrap_or(0));
        })?;
        Ok(true)
    }

    /// Gives the entries of a node that others have too copies of their own. Each node below is done before the entry
    /// that names it.
    fn clone_node(
        &mut self,
        bytes: &mut [u8],
        seed: u32,
        depth: Option<u16>,
        claims: &mut Claims,
    ) -> Result<()> {
        let Ok((header, _)) = RawExtentHeader::read_from_prefix(bytes) else { return Ok(()) };
        let found = header.eh_depth.get();
        if header.eh_magic.get() != MAGIC || found > MAX_DEPTH || depth.is_some_and(|depth| depth != found) {
            return Ok(());
        }
        let entries = usize::from(header.eh_entries.get());
        if found == 0 {
            return self.clone_leaf(bytes.get_mut(ENTRY..).unwrap_or_default(), entries, claims);
        }
        for entry in bytes.get_mut(ENTRY..).unwrap_or_default().chunks_exact_mut(ENTRY).take(entries) {
            let Ok(index) = RawExtentIndex::mut_from_bytes(entry) else { continue };
            let block = index_leaf(index).0;
            let mut home = block;
            if claims.must_move(block, 1)
                && let Some(new) = self.copy_run(block, 1)?
            {
                home = new;
                let (low, high) = split(new);
                index.ei_leaf_lo.set(low);
                index.ei_leaf_hi.set(u16::try_from(high).unwrap_or(0));
            }
            let Ok(before) = self.view.read(VolBlock(home), 1) else { continue };
            let mut below = before.clone();
            // As deep as the tree says at most, and each level says one less.
            self.clone_node(&mut below, seed, found.checked_sub(1), claims)?;
            if below != before {
                self.seal_node(&mut below, seed);
                self.put(VolBlock(home), &below)?;
            }
        }
        Ok(())
    }

    /// Gives a node of an extent tree its checksum.
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

    fn clone_pointers(&mut self, map: &mut [u8; 60], claims: &mut Claims) -> Result<()> {
        let mut waiting: Vec<(u64, u32)> = Vec::new();
        for (word, level) in map.chunks_exact_mut(4).zip([0; 12].into_iter().chain(1..=3)) {
            self.clone_pointer(word, level, claims, &mut waiting)?;
        }
        // As many nodes as the volume has blocks.
        let mut left = self.view.sb.blocks_count;
        while let Some((block, level)) = waiting.pop() {
            let Some(fewer) = left.checked_sub(1) else { break };
            left = fewer;
            let Ok(before) = self.view.read(VolBlock(block), 1) else { continue };
            let mut bytes = before.clone();
            for word in bytes.chunks_exact_mut(4) {
                self.clone_pointer(word, level.saturating_sub(1), claims, &mut waiting)?;
            }
            if bytes != before {
                self.put(VolBlock(block), &bytes)?;
            }
        }
        Ok(())
    }

    fn clone_pointer(
        &mut self,
        word: &mut [u8],
        level: u32,
        claims: &mut Claims,
        waiting: &mut Vec<(u64, u32)>,
    ) -> Result<()> {
        let Some(bytes) = word.first_chunk_mut() else { return Ok(()) };
        let mut block = u64::from(u32::from_le_bytes(*bytes));
        if block == 0 {
            return Ok(());
        }
        if claims.must_move(block, 1)
            && let Some(new) = self.copy_run(block, 1)?
            && let Ok(low) = u32::try_from(new)
        {
            block = new;
            *bytes = low.to_le_bytes();
        }
        if level > 0 {
            waiting.push((block, level));
        }
        Ok(())
    }
}
