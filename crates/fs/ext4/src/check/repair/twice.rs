//! Blocks that two claim: whoever comes after the first, by inode number, gets a copy of its own.
//!
//! Invariant: bitmaps are right by then, and count what is claimed twice as in use, so that a copy goes where nothing is.
//! Invariant: an extent moves as a whole, so that the tree keeps its shape; without as much room in a row it is left.
//! Source: e2fsprogs `e2fsck/pass1b.c` `clone_file`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{FromBytes, join, split};

use super::super::Issue;
use super::bitmaps::Kind;
use super::edits::Edits;
use crate::allocator::bits;
use crate::checksum::{Crc, inode_seed};
use crate::group::GroupFlags;
use crate::inode::InodeFlags;
use crate::map::check::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawInode};
use crate::unit::VolBlock;

/// Bytes of a header, and of an entry.
const ENTRY: usize = 12;

/// Who owns what of the blocks that are claimed twice.
struct Claims {
    twice: BTreeSet<u64>,
    owned: BTreeSet<u64>,
}

impl Claims {
    /// Whether one of the blocks has an owner already; if not, they have one now.
    fn must_move(&mut self, start: u64, len: u64) -> bool {
        let range = start..start.saturating_add(len);
        if self.owned.range(range.clone()).next().is_some() {
            return true;
        }
        let new: Vec<u64> = self.twice.range(range).copied().collect();
        self.owned.extend(new);
        false
    }
}

impl Edits {
    /// Mends all blocks that are claimed twice. Answers whether anything was changed.
    pub(super) fn clone_twice(&mut self, issues: &[Issue]) -> Result<bool> {
        if self.view.sb.cluster_bits > 0 {
            return Ok(false);
        }
        let mut inodes: BTreeSet<u32> = BTreeSet::new();
        let mut claims = Claims { twice: BTreeSet::new(), owned: BTreeSet::new() };
        for issue in issues {
            match *issue {
                Issue::BlockTwice { ino, block, len, .. } => {
                    inodes.insert(ino);
                    claims.twice.extend(block..block.saturating_add(len));
                }
                // Of the inode of bad blocks there is no copy to be made.
                Issue::BlockOfVolume { ino, block, .. } if ino >= self.view.sb.first_ino => {
                    inodes.insert(ino);
                    claims.owned.insert(block);
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
            return Ok(false);
        }
        if flags.contains(InodeFlags::EXTENTS) {
            self.clone_node(&mut map, seed, None, claims)?;
        } else {
            self.clone_pointers(&mut map, claims)?;
        }
        let acl = join(raw.i_file_acl_lo.get(), raw.l_i_file_acl_high.get().into());
        let mut new_acl = acl;
        if acl != 0 && claims.twice.contains(&acl) && claims.must_move(acl, 1) {
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
        for entry in bytes.get_mut(ENTRY..).unwrap_or_default().chunks_exact_mut(ENTRY).take(entries) {
            if found == 0 {
                if let Ok(extent) = RawExtent::mut_from_bytes(entry) {
                    let (len, start) = (u64::from(extent_len(extent).0), extent_start(extent).0);
                    if claims.must_move(start, len)
                        && let Some(new) = self.copy_run(start, len)?
                    {
                        let (low, high) = split(new);
                        extent.ee_start_lo.set(low);
                        extent.ee_start_hi.set(u16::try_from(high).unwrap_or(0));
                    }
                }
                continue;
            }
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

    fn seal_node(&self, bytes: &mut [u8], seed: u32) {
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

    /// Copies a run of blocks to free ones, which are in use then. `None`: there are not so many in a row.
    fn copy_run(&mut self, start: u64, len: u64) -> Result<Option<u64>> {
        let Some(new) = self.take_run(len)? else { return Ok(None) };
        for n in 0..len {
            let bytes = self.view.read(VolBlock(start.saturating_add(n)), 1)?;
            self.put(VolBlock(new.saturating_add(n)), &bytes)?;
        }
        Ok(Some(new))
    }

    /// Takes `len` free blocks in a row within a group. Counts are left to the next round.
    pub(super) fn take_run(&mut self, len: u64) -> Result<Option<u64>> {
        let Ok(wanted) = u32::try_from(len) else { return Ok(None) };
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
                    let bits = u64::from(first)..u64::from(first).saturating_add(len);
                    self.set_bits(Kind::Blocks, group, bits, true)?;
                    let start = self.view.sb.group_start(group).0;
                    return Ok(Some(start.saturating_add(first.into())));
                }
                at = end.max(first.saturating_add(1));
            }
        }
        Ok(None)
    }
}
