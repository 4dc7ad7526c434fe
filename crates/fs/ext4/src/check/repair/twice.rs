//! Blocks with several owners: the first owner keeps them, and all others get copies.
//!
//! The order is: the format's own inodes and the root, then the inodes that share the fewest blocks, then
//! directories, then higher numbers, since e2fsck keeps the last one if there is no space for both. If there is no
//! space for all copies that a file needs, it keeps the blocks that it alone has, and its shared blocks become a
//! hole; e2fsck deletes such a file.
//! Invariant: bitmaps are right by then, and count blocks with several owners as used, so that copies use only free
//! blocks.
//! Invariant: changes in place are written after all copies were made, since other inodes may copy these blocks.
//! Source: e2fsprogs `e2fsck/pass1b.c` `clone_file`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes, join, split};
use obento_base::{Error, FileKind, Result};
use obento_env::Clock;

use super::super::inode_check::RESIZE_INO;
use super::super::issue::Issue;
use super::copies::{CopyMethod, CopyPlan};
use super::edits::Edits;
use crate::checksum::inode_seed;
use crate::format::JOURNAL_INO;
use crate::inode::InodeFlags;
use crate::map::empty_root;
use crate::ranges::NumberRanges;
use crate::raw::RawInode;
use crate::size::ClusterSize;
use crate::unit::VolBlock;

/// `EXT4_BAD_INO`.
const BAD_INO: u32 = 1;
const ROOT: u32 = 2;

/// The owners of the clusters (or blocks, without clusters) that are claimed twice.
pub(super) struct Claims {
    pub(super) cluster: ClusterSize,
    twice: NumberRanges,
    owned: NumberRanges,
    /// Clusters that got their owner since [`Self::settle`].
    new: Vec<Range<u64>>,
}

impl Claims {
    fn new(cluster: ClusterSize) -> Self {
        Self { cluster, twice: NumberRanges::default(), owned: NumberRanges::default(), new: Vec::new() }
    }

    /// Returns the clusters of `len` blocks from `start` on.
    fn clusters(&self, start: u64, len: u64) -> Range<u64> {
        let last = start.saturating_add(len.max(1)).saturating_sub(1);
        let [first, last] = [start, last].map(|block| self.cluster.whole(block));
        first..last.saturating_add(1)
    }

    /// Returns whether any of the blocks is claimed twice, or belongs to the volume itself.
    pub(super) fn is_twice(&self, start: u64, len: u64) -> bool {
        let clusters = self.clusters(start, len);
        self.twice.has_any(&clusters) || self.owned.has_any(&clusters)
    }

    /// Returns whether a block already has an owner.
    pub(super) fn is_owned(&self, block: u64) -> bool {
        self.owned.has_any(&self.clusters(block, 1))
    }

    /// Returns whether one of the blocks already has an owner. If not, the caller now owns them.
    pub(super) fn must_move(&mut self, start: u64, len: u64) -> bool {
        self.must_move_any(&[(0, start, len)])
    }

    /// Like [`Self::must_move`], for extents that move together: clusters without an owner are taken only if all of
    /// them are free.
    pub(super) fn must_move_any(&mut self, pieces: &[(u64, u64, u64)]) -> bool {
        let ranges: Vec<Range<u64>> =
            pieces.iter().map(|&(_, start, len)| self.clusters(start, len)).collect();
        if ranges.iter().any(|range| self.owned.has_any(range)) {
            return true;
        }
        for run in ranges.iter().flat_map(|range| self.twice.within(range)) {
            self.owned.insert(run.clone());
            self.new.push(run);
        }
        false
    }

    /// Makes the new owners permanent.
    fn settle(&mut self) {
        self.new.clear();
    }

    /// Undoes what was taken since [`Self::settle`].
    fn undo(&mut self) {
        for run in self.new.drain(..) {
            self.owned.remove(&run);
        }
    }
}

impl Edits {
    /// Repairs all blocks that are claimed twice. Returns whether anything was changed.
    pub(super) fn clone_twice(&mut self, issues: &[Issue], clock: &Arc<dyn Clock>) -> Result<bool> {
        let of_volume = |issue: &Issue| matches!(issue, Issue::BlockOfVolume { ino: JOURNAL_INO, .. });
        if issues.iter().any(of_volume) {
            // The contents of its blocks are not needed any more, and the next round finds what it still shares.
            return self.give_up_map();
        }
        let mut claims = Claims::new(self.view.sb.cluster);
        // The number of shared blocks of each inode.
        let mut inodes: BTreeMap<u32, u64> = BTreeMap::new();
        let mut add = |ino: u32, len: u64| {
            let sum = inodes.entry(ino).or_insert(0);
            *sum = sum.saturating_add(len);
        };
        let mut changed = false;
        for issue in issues {
            match *issue {
                Issue::BlockTwice { ino, block, len, .. } => {
                    add(ino, len);
                    let clusters = claims.clusters(block, len);
                    for cluster in clusters.clone().filter(|&cluster| self.has_metadata(cluster)) {
                        claims.owned.insert(cluster..cluster.saturating_add(1));
                    }
                    claims.twice.insert(clusters);
                }
                Issue::ClusterRule { ino, .. } => add(ino, 0),
                Issue::BlockOfVolume { ino, block, len, .. } if !matches!(ino, BAD_INO | RESIZE_INO) => {
                    add(ino, len);
                    claims.owned.insert(claims.clusters(block, len));
                }
                Issue::BlockOfVolume { ino: RESIZE_INO, block, .. } => changed |= self.move_doubly(block)?,
                // A block that the volume itself needs cannot be marked as bad: it is removed from the list, as by
                // e2fsck.
                Issue::BlockOfVolume { ino: BAD_INO, block, len, .. } => {
                    let own = block..block.saturating_add(len);
                    self.change_pointers(BAD_INO, &mut |pointer| own.contains(&pointer).then_some(0))?;
                }
                _ => {}
            }
        }
        let mut order: Vec<(bool, u64, bool, u32, u32)> = Vec::new();
        for (ino, shared) in inodes {
            let is_first = ino == ROOT || ino < self.view.sb.first_ino;
            let turn = if is_first { ino } else { !ino };
            order.push((!is_first, shared, !self.is_directory(ino), turn, ino));
        }
        order.sort_unstable();
        let mut late = Vec::new();
        for (.., ino) in order {
            changed |= self.clone_of(ino, &mut claims, &mut late, clock)?;
            if ino == JOURNAL_INO && self.view.sb.raw.s_journal_inum.get() == ino {
                // Otherwise the previous map would be restored as soon as this one is damaged.
                self.copy_journal_inode(ino)?;
            }
        }
        for (block, bytes) in late {
            self.put(VolBlock(block), &bytes)?;
        }
        Ok(changed)
    }

    /// Returns whether a cluster contains metadata of the volume beside other blocks.
    fn has_metadata(&self, cluster: u64) -> bool {
        let sb = &self.view.sb;
        let start = u64::from(sb.cluster_blocks()).saturating_mul(cluster);
        self.view.zones.overlap(VolBlock(start), sb.cluster_blocks().into())
    }

    fn is_directory(&self, ino: u32) -> bool {
        let record = self.record(ino).unwrap_or_default();
        let raw = RawInode::ref_from_prefix(&record).ok();
        raw.is_some_and(|(raw, _)| FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Directory))
    }

    /// Gives an inode copies of its shared blocks, in the first way for which there is space.
    fn clone_of(
        &mut self,
        ino: u32,
        claims: &mut Claims,
        late: &mut Vec<(u64, Vec<u8>)>,
        clock: &Arc<dyn Clock>,
    ) -> Result<bool> {
        for way in [CopyMethod::Whole, CopyMethod::Pieces, CopyMethod::Without] {
            let mut plan = CopyPlan::new(way);
            match self.clone_in(ino, &mut plan, claims, clock) {
                Err(Error::NoSpace) => {
                    claims.undo();
                    for &(start, len) in plan.taken() {
                        self.release_run(start, len)?;
                    }
                }
                done => {
                    claims.settle();
                    late.append(&mut plan.late);
                    return done;
                }
            }
        }
        Ok(false)
    }

    /// Plans the copies of an inode, and makes them, except changes in place. Fails with `NoSpace`, and then does not
    /// change the inode.
    fn clone_in(
        &mut self,
        ino: u32,
        plan: &mut CopyPlan,
        claims: &mut Claims,
        clock: &Arc<dyn Clock>,
    ) -> Result<bool> {
        let Some((record, _)) = self.view.record(ino) else { return Ok(false) };
        let Ok((raw, _)) = RawInode::read_from_prefix(&record) else { return Ok(false) };
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let seed = inode_seed(self.view.sb.checksum_seed, ino, raw.i_generation.get());
        let (mut map, mut pieces) = (raw.i_block, None);
        if flags.contains(InodeFlags::INLINE_DATA) {
            // It has no map, and may have a block of attributes.
        } else if plan.way == CopyMethod::Pieces {
            let can_be = flags.contains(InodeFlags::EXTENTS);
            pieces = Some(if can_be {
                self.clone_pieces(&map, plan, claims)?
            } else {
                return Err(Error::NoSpace);
            });
        } else if flags.contains(InodeFlags::EXTENTS) {
            if !self.clone_node(&mut map, seed, None, plan, claims)? {
                map = empty_root();
            }
        } else {
            self.clone_pointers(&mut map, plan, claims)?;
        }
        let acl = join(raw.i_file_acl_lo.get(), raw.l_i_file_acl_high.get().into());
        let mut new_acl = acl;
        if acl != 0 && claims.is_twice(acl, 1) && claims.must_move(acl, 1) {
            new_acl = self.copy_run(plan, acl, 1)?.unwrap_or(0);
        }
        self.copy_planned(plan)?;
        if pieces.is_none() && map == raw.i_block && new_acl == acl {
            return Ok(!plan.late.is_empty());
        }
        match &pieces {
            Some(pieces) => self.map_again(ino, pieces, clock)?,
            None => self.inode(ino, |raw| raw.i_block = map)?,
        }
        let (low, high) = split(new_acl);
        self.inode(ino, |raw| {
            raw.i_file_acl_lo.set(low);
            raw.l_i_file_acl_high.set(u16::try_from(high).unwrap_or(0));
        })?;
        Ok(true)
    }
}
