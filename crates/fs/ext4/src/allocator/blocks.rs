//! Allocating and freeing blocks.
//!
//! Order of a search:
//! - at the goal, whatever the length of the run;
//! - in the goal's group, a run that is long enough;
//! - in the next group whose longest run may be long enough;
//! - after several groups without such a run, the longest run found.
//!
//! With bigalloc, runs consist of whole clusters.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits groups, clusters and blocks")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Corrupt, Error, Result, Structure};
use obento_env::sync::atomic::Ordering;
use obento_journal::{Taken, Tid, Txn};

use super::group::{BitmapState, Bits, Group};
use super::{Allocator, bits, count};
use crate::group::GroupFlags;
use crate::unit::VolBlock;

/// Maximum number of groups that are examined in vain before the longest run found is used: each costs a read of a
/// bitmap.
const MAX_DISAPPOINTMENTS: u32 = 4;

/// Contiguous blocks of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRun {
    /// The first block.
    pub start: VolBlock,
    /// Number of blocks, at least 1.
    pub len: u32,
}

/// The previous contents of freed blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// Data that did not pass through the journal.
    Data,
    /// Metadata, or journalled data: the blocks are revoked, so that a replay does not overwrite their next contents.
    Metadata,
}

/// Whether the space that is reserved for metadata may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    All,
    ForData,
}

impl Allocator {
    /// Allocates one run of up to `len` blocks, at least one, as near after `goal` as possible. With bigalloc,
    /// allocates whole clusters for `len` blocks if they are available. Changes one block of `txn`.
    /// [`Self::free_blocks`] undoes it. Fails with `NoSpace`; if [`Self::has_waiting`], a commit may free space.
    /// Damaged groups are skipped.
    pub fn allocate_blocks(&self, txn: &mut Txn<'_>, goal: VolBlock, len: u32) -> Result<BlockRun> {
        self.choose(goal, len, Room::All, |index, group, range| self.mark(txn, index, group, range))
    }

    /// Reserves blocks for data, like [`Self::allocate_blocks`] but only in memory. Does not use the space that
    /// metadata may need. [`Self::publish`] and [`Self::release`] of its parts end the reservation.
    pub fn reserve(&self, goal: VolBlock, len: u32) -> Result<BlockRun> {
        self.choose(goal, len, Room::ForData, |_, group, range| {
            group.held.insert(range);
            Ok(())
        })
    }

    /// Reserves blocks for metadata, which may use the space that is reserved for metadata.
    pub fn reserve_metadata(&self, goal: VolBlock, len: u32) -> Result<BlockRun> {
        self.choose(goal, len, Room::All, |_, group, range| {
            group.held.insert(range);
            Ok(())
        })
    }

    /// Reserves the free parts of `run`, which is on the volume, and returns them as whole clusters. Fails with
    /// `Corrupt` for blocks that contain metadata.
    pub fn reserve_there(&self, run: BlockRun) -> Result<Vec<BlockRun>> {
        if !self.volume.is_data(run.start, run.len.into()) {
            return Err(bad_run(self.place_of(run.start).0, 0, run.start, run.len));
        }
        let (sb, mut reserved) = (self.super_block(), Vec::new());
        let last = VolBlock(run.start.0.saturating_add(u64::from(run.len).saturating_sub(1)));
        let groups = sb.group_of(run.start).unwrap_or(0)..=sb.group_of(last).unwrap_or(0);
        for index in groups {
            let range = sb.clusters_in_group(index, run.start, run.len.into());
            let mut group = self.group(index)?.lock();
            let bitmap = group.block_bits(&self.volume, index)?;
            let mut at = range.start;
            while at < range.end {
                let start = bits::next_clear(&bitmap, at..range.end);
                let free = group.held.run_at(&bitmap, start, range.end - start, range.end);
                if free.is_empty() {
                    at = start + 1;
                    continue;
                }
                at = free.end;
                let len = free.end - free.start;
                let start = self.block_of(index, free.start);
                let blocks = sb.cluster.len(len.into());
                let blocks = blocks.min(sb.blocks_count - start.0);
                reserved.try_reserve(1)?;
                reserved.push(BlockRun { start, len: u32::try_from(blocks).unwrap_or(u32::MAX) });
                count(&self.available, 0, len);
                group.held.insert(free);
            }
        }
        Ok(reserved)
    }

    /// Allocates a part of a reservation: whole clusters. Changes one block of `txn`, after all that can fail.
    pub fn publish(&self, txn: &mut Txn<'_>, part: BlockRun) -> Result<()> {
        for (index, range) in self.pieces(part)? {
            let mut group = self.group(index)?.lock();
            self.mark(txn, index, &mut group, range.clone())?;
            group.held.remove(range);
        }
        Ok(())
    }

    /// Cancels a part of a reservation.
    pub fn release(&self, part: BlockRun) {
        for (index, range) in self.pieces(part).into_iter().flatten() {
            if let Ok(group) = self.group(index) {
                self.let_go(index, &mut group.lock(), range);
            }
        }
    }

    /// Frees blocks, with bigalloc whole clusters. They are not allocated again before this transaction is durable.
    /// Changes one block of `txn` for each group of the run. Fails with `Corrupt`, before anything in that group is
    /// changed, for blocks that contain metadata or are free, or with `Invalid` for parts of clusters.
    pub fn free_blocks(&self, txn: &mut Txn<'_>, start: VolBlock, len: u32, freed: Freed) -> Result<()> {
        if !self.volume.is_data(start, len.into()) {
            return Err(bad_run(self.place_of(start).0, 0, start, len));
        }
        for (index, range) in self.pieces(BlockRun { start, len })? {
            self.free_in_group(txn, index, range)?;
        }
        if freed == Freed::Metadata {
            (0..len).for_each(|n| txn.revoke(start.0 + u64::from(n)));
        }
        Ok(())
    }

    /// Checks whether [`Self::free_blocks`] can free `run`. Fails in the same cases.
    pub fn expect_taken(&self, run: BlockRun) -> Result<()> {
        if !self.volume.is_data(run.start, run.len.into()) {
            return Err(bad_run(self.place_of(run.start).0, 0, run.start, run.len));
        }
        let mut pieces = self.pieces(run)?;
        pieces.try_for_each(|(index, range)| {
            self.expect_set(index, &mut self.group(index)?.lock(), &range).map(drop)
        })
    }

    /// Returns the block bitmap of a group in which all of `range` is set. Fails with `Corrupt` for clusters that are
    /// free.
    fn expect_set(&self, index: u32, group: &mut Group, range: &Range<u32>) -> Result<Bits> {
        let bitmap = group.block_bits(&self.volume, index)?;
        if bits::next_clear(&bitmap, range.clone()) < range.end {
            let len = range.end - range.start;
            return Err(bad_run(index, range.start, self.block_of(index, range.start), len));
        }
        Ok(bitmap)
    }

    fn free_in_group(&self, txn: &mut Txn<'_>, index: u32, range: Range<u32>) -> Result<()> {
        let mut group = self.group(index)?.lock();
        let taken = match self.expect_set(index, &mut group, &range)? {
            Bits::Stored(block) => txn.take_seen(&block)?,
            Bits::Fresh(_) => txn.take(group.descriptor.block_bitmap.0)?,
        };
        let len = range.end - range.start;
        self.note_freed(txn.tid(), index, range.clone())?;
        bits::clear(&mut txn.edit(&taken), range.clone());
        group.descriptor.free_blocks = group.descriptor.free_blocks.saturating_add(len);
        group.held.insert(range);
        count(&self.free_clusters, len, 0);
        count(&self.waiting, len, 0);
        self.note_dirty(index);
        Ok(())
    }

    fn note_freed(&self, tid: Tid, index: u32, range: Range<u32>) -> Result<()> {
        let mut freed = self.freed.lock();
        match freed.back_mut() {
            Some((last, ranges)) if *last == tid => {
                ranges.try_reserve(1)?;
                ranges.push((index, range));
            }
            _ => freed.push_back((tid, alloc::vec![(index, range)])),
        }
        Ok(())
    }

    /// Makes the clusters available that transaction `tid` and earlier ones freed, since they are durable.
    pub fn durable(&self, tid: Tid) {
        loop {
            let due = {
                let mut freed = self.freed.lock();
                match freed.front() {
                    Some((first, _)) if !first.is_after(tid) => freed.pop_front(),
                    _ => None,
                }
            };
            let Some((_, ranges)) = due else { return };
            for (index, range) in ranges {
                let Ok(group) = self.group(index) else { continue };
                count(&self.waiting, 0, range.end - range.start);
                self.let_go(index, &mut group.lock(), range);
            }
        }
    }

    /// Ends the hold on `range`.
    pub(super) fn let_go(&self, index: u32, group: &mut Group, range: Range<u32>) {
        let len = range.end - range.start;
        group.held.remove(range);
        count(&self.available, len, 0);
        // It may extend a free run on either side.
        let longest = self.hint(index).saturating_mul(2).saturating_add(len);
        self.note_run(index, longest, group);
    }

    /// Returns the clusters of a run by groups. Fails with `Invalid` for parts of clusters.
    fn pieces(&self, run: BlockRun) -> Result<impl Iterator<Item = (u32, Range<u32>)> + use<'_>> {
        let sb = self.super_block();
        let per_cluster = u64::from(sb.cluster_blocks());
        let from_first = run.start.0.checked_sub(sb.first_data_block.into()).ok_or(Error::Invalid)?;
        let end = run.start.0 + u64::from(run.len);
        let whole = from_first.is_multiple_of(per_cluster)
            && (u64::from(run.len).is_multiple_of(per_cluster) || end == sb.blocks_count);
        let (Some(first), Some(last)) =
            (sb.group_of(run.start), sb.group_of(VolBlock(end.saturating_sub(1))))
        else {
            return Err(Error::Invalid);
        };
        if !whole || run.len == 0 {
            return Err(Error::Invalid);
        }
        Ok((first..=last).map(move |index| (index, sb.clusters_in_group(index, run.start, run.len.into()))))
    }

    /// Sets the bits of `range`, which are clear and reserved for the caller.
    fn mark(&self, txn: &mut Txn<'_>, index: u32, group: &mut Group, range: Range<u32>) -> Result<()> {
        let taken = self.take_block_bitmap(txn, index, group)?;
        let len = range.end - range.start;
        bits::set(&mut txn.edit(&taken), range);
        // On a damaged volume, another group may use the same bitmap.
        group.descriptor.free_blocks = group.descriptor.free_blocks.saturating_sub(len);
        count(&self.free_clusters, 0, len);
        self.note_dirty(index);
        Ok(())
    }

    /// Takes a group's block bitmap for a change. A bitmap that was never written is initialised.
    pub(super) fn take_block_bitmap(
        &self,
        txn: &mut Txn<'_>,
        index: u32,
        group: &mut Group,
    ) -> Result<Taken> {
        let number = group.descriptor.block_bitmap.0;
        let Bits::Fresh(bitmap) = group.block_bits(&self.volume, index)? else { return txn.take(number) };
        let taken = txn.take_new(number)?;
        txn.edit(&taken).copy_from_slice(&bitmap);
        group.descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
        let free = bits::count_clear(&bitmap, 0..self.super_block().group_clusters(index));
        // The counted value is more reliable than the descriptor.
        let stored = core::mem::replace(&mut group.descriptor.free_blocks, free);
        count(&self.free_clusters, free, stored);
        count(&self.available, free, stored);
        group.blocks = BitmapState::Sound;
        self.note_dirty(index);
        Ok(taken)
    }

    /// Finds a run and passes it to `take`, under the lock of its group.
    fn choose(
        &self,
        goal: VolBlock,
        len: u32,
        room: Room,
        mut take: impl FnMut(u32, &mut Group, Range<u32>) -> Result<()>,
    ) -> Result<BlockRun> {
        let sb = self.super_block();
        let kept = if room == Room::ForData { self.kept } else { 0 };
        let left = self.available.load(Ordering::Relaxed).saturating_sub(kept);
        let most = u32::try_from(left).unwrap_or(u32::MAX);
        let want = len.max(1).div_ceil(sb.cluster_blocks()).min(sb.blocks_per_group).min(most);
        if want == 0 {
            return Err(Error::NoSpace);
        }
        let (index, range) = self.find(goal, want, &mut take)?;
        let len = range.end - range.start;
        count(&self.available, 0, len);
        let start = self.block_of(index, range.start);
        let end = start.0 + sb.cluster.len(len.into());
        let blocks = end.min(sb.blocks_count) - start.0;
        Ok(BlockRun { start, len: u32::try_from(blocks).unwrap_or(u32::MAX) })
    }

    fn find(
        &self,
        goal: VolBlock,
        want: u32,
        take: &mut impl FnMut(u32, &mut Group, Range<u32>) -> Result<()>,
    ) -> Result<(u32, Range<u32>)> {
        let (home, goal) = self.place_of(goal);
        if let Some(range) = self.take_at(home, goal, want, take)? {
            return Ok((home, range));
        }
        let mut best: Option<(u32, Range<u32>)> = None;
        let mut disappointments = 0_u32;
        loop {
            let (least, next) = {
                let runs = self.runs.lock();
                let least = want.min(runs.max());
                (least, if least == 0 { None } else { runs.next_with(home, least) })
            };
            let Some(index) = next else { return Err(Error::NoSpace) };
            let from = if index == home { goal } else { 0 };
            let range = self.take_in(index, from, want, least, take)?;
            match range {
                Ok(range) => return Ok((index, range)),
                Err(longest) if best.as_ref().is_none_or(|(_, seen)| seen.len() < longest.len()) => {
                    best = Some((index, longest));
                }
                Err(_) => {}
            }
            disappointments += 1;
            if disappointments.is_multiple_of(MAX_DISAPPOINTMENTS)
                && let Some((index, seen)) = best.take().filter(|(_, seen)| !seen.is_empty())
                && let Some(range) = self.take_at(index, seen.start, want, take)?
            {
                return Ok((index, range));
            }
        }
    }

    /// Takes the free clusters from cluster `at` of a group on, at most `want`.
    fn take_at(
        &self,
        index: u32,
        at: u32,
        want: u32,
        take: &mut impl FnMut(u32, &mut Group, Range<u32>) -> Result<()>,
    ) -> Result<Option<Range<u32>>> {
        let Ok(group) = self.group(index) else { return Ok(None) };
        let mut group = group.lock();
        if group.available() == 0 {
            return Ok(None);
        }
        let Some(bitmap) = self.usable_bits(index, &mut group)? else { return Ok(None) };
        let range = group.held.run_at(&bitmap, at, want, self.super_block().group_clusters(index));
        if range.is_empty() {
            return Ok(None);
        }
        take(index, &mut group, range.clone())?;
        self.note_run(index, self.hint(index), &group);
        Ok(Some(range))
    }

    /// Takes a run of `want` clusters, or the longest run if it has `least`; otherwise returns the longest length.
    fn take_in(
        &self,
        index: u32,
        from: u32,
        want: u32,
        least: u32,
        take: &mut impl FnMut(u32, &mut Group, Range<u32>) -> Result<()>,
    ) -> Result<Result<Range<u32>, Range<u32>>> {
        let mut group = self.group(index)?.lock();
        let Some(bitmap) = self.usable_bits(index, &mut group)? else { return Ok(Err(0..0)) };
        let found = group.held.search(&bitmap, from, want, self.super_block().group_clusters(index));
        let longest = found.largest.unwrap_or_else(|| self.hint(index));
        if found.run.len() < usize::try_from(least).unwrap_or(usize::MAX) {
            self.note_run(index, longest, &group);
            return Ok(Err(found.run));
        }
        take(index, &mut group, found.run.clone())?;
        self.note_run(index, longest, &group);
        Ok(Ok(found.run))
    }

    /// Returns the block bitmap of a group, or `None` if it is damaged; the group is then never searched again.
    fn usable_bits(&self, index: u32, group: &mut Group) -> Result<Option<Bits>> {
        match group.block_bits(&self.volume, index) {
            Ok(bitmap) => Ok(Some(bitmap)),
            Err(error @ Error::Corrupt(_)) => {
                if group.blocks == BitmapState::Damaged(error) {
                    count(
                        &self.available,
                        0,
                        group.descriptor.free_blocks.saturating_sub(group.held.count()),
                    );
                    self.volume.notice(obento_driver::Notice::Damaged(error));
                }
                self.runs.lock().set(index, 0);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn bad_run(group: u32, at: u32, start: VolBlock, len: u32) -> Error {
    let structure = Structure::BlockBitmap(group.into());
    Corrupt::BlockRange { structure, at: at.into(), start: start.0, len: len.into() }.into()
}
