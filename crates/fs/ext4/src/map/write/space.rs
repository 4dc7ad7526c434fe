//! Space for unallocated blocks of a file: reserved in memory, and allocated when the blocks are published.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "blocks of a file have numbers of 32 bits, and runs are within the volume"
)]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, Ino, Result, Timestamp};

use super::change::block_runs;
use crate::allocator::BlockRun;
use crate::group::Totals;
use crate::inode::{Inode, InodeFlags};
use crate::map::change::{FileMap, Nodes};
use crate::map::reservation::{Run, reservation};
use crate::map::tree::{ExtentState, Mapping};
use crate::size::ClusterSize;
use crate::unit::VolBlock;
use crate::writer::Writer;

/// Minimum space ahead of an append. The space ahead equals the size of the file, within limits. Linux' `mballoc`
/// also normalizes requests up to 8 MiB.
const LEAST_AHEAD: u64 = 64 << 10;
const MOST_AHEAD: u64 = 8 << 20;
/// Space ahead is released if the file was not written to for so many seconds: the age at which Linux writes back.
const AHEAD_AGE: i64 = 30;

impl Writer {
    /// Returns the default goal for blocks of a file: the start of its inode's group.
    pub(super) fn home_goal(&self, ino: Ino) -> VolBlock {
        let sb = self.volume().super_block();
        sb.group_start(sb.inode_index(ino.0).map_or(0, |(group, _)| group))
    }

    /// Returns the goal for block `at`: after the block before it.
    fn goal(&self, inode: &Inode, map: &mut FileMap<'_, Nodes<'_>>, at: u64) -> Result<VolBlock> {
        let Some(before) = map.before(at)? else { return Ok(self.home_goal(inode.ino())) };
        Ok(before.place.checked_add(before.len.into()).unwrap_or(before.place))
    }

    /// Calls `reserve`. If it finds no space, releases the space ahead of all files and calls it again. Space that a
    /// commit would free is left to a caller without locks ([`Writer::with_space`]).
    pub(super) fn insist(&self, reserve: impl Fn() -> Result<BlockRun>) -> Result<BlockRun> {
        let first = reserve();
        if first != Err(Error::NoSpace) {
            return first;
        }
        self.release(self.reservations().take_ahead(None));
        reserve()
    }

    pub(super) fn release(&self, runs: Vec<Run>) {
        runs.into_iter().flat_map(block_runs).for_each(|run| self.allocator().release(run));
    }

    pub(super) fn release_nodes(&self, runs: Vec<BlockRun>) {
        runs.into_iter().for_each(|run| self.allocator().release(run));
    }

    /// Returns the free space for `statfs`. Space ahead counts as free, since it is available on request.
    pub(crate) fn totals(&self) -> Totals {
        let totals = self.allocator().totals();
        let ahead = self.cluster().whole(self.reservations().ahead_blocks());
        Totals { free_blocks: totals.free_blocks + ahead, ..totals }
    }

    /// Releases space ahead of files without recent writes. Searches only now and then.
    fn release_old_space(&self) {
        let now = self.now();
        if !self.reservations().is_due(now) {
            return;
        }
        let then = Timestamp::new(now.secs().saturating_sub(AHEAD_AGE), now.nanos());
        self.release(self.reservations().take_ahead(Some(then)));
    }

    /// Releases space ahead of `ino`, which has no users or whose blocks move.
    pub(crate) fn forget_space(&self, ino: Ino) {
        self.release(self.reservations().take_all(ino));
        self.release_nodes(self.node_space().take_all(ino));
        self.hold_still(ino);
    }

    /// Reserves blocks for the hole that starts at `hole.start`, until they are published or abandoned: at least one,
    /// none past `end`. Fails with `NoSpace`.
    pub(super) fn reservation(
        &self,
        inode: &Inode,
        map: &mut FileMap<'_, Nodes<'_>>,
        hole: &Range<u64>,
        end: u64,
    ) -> Result<Mapping> {
        let wanted = hole.start..end.min(hole.end);
        if let Some(shared) = self.shared(map, &wanted)? {
            return Ok(shared);
        }
        match self.reserved_before(inode, &wanted)? {
            Some(found) => Ok(found),
            None => self.reserve_hole(inode, map, hole, &wanted),
        }
    }

    /// As [`Self::reservation`], for a hole without a reservation at its start.
    pub(super) fn new_reservation(
        &self,
        inode: &Inode,
        map: &mut FileMap<'_, Nodes<'_>>,
        hole: &Range<u64>,
        end: u64,
    ) -> Result<Mapping> {
        let wanted = hole.start..end.min(hole.end);
        match self.shared(map, &wanted)? {
            Some(shared) => Ok(shared),
            None => self.reserve_hole(inode, map, hole, &wanted),
        }
    }

    fn reserve_hole(
        &self,
        inode: &Inode,
        map: &mut FileMap<'_, Nodes<'_>>,
        hole: &Range<u64>,
        wanted: &Range<u64>,
    ) -> Result<Mapping> {
        let (whole, room) = self.room_for_data(inode, self.whole_clusters(wanted))?;
        let reserved = self.reserve_ahead(inode, map, &whole, hole.end)?;
        let ended = self.reservations().add(inode.ino(), reserved, &whole, self.now())?;
        self.release(ended);
        self.hold_room(inode, room);
        let found = reserved.within(wanted).and_then(|reserved| reserved.within(&whole));
        self.opened(inode, found)?.ok_or(Error::NoSpace)
    }

    /// Records that a caller writes to the blocks of `found`, if they may be only a part of a cluster.
    fn opened(&self, inode: &Inode, found: Option<Mapping>) -> Result<Option<Mapping>> {
        if let Some(found) = found.filter(|_| self.cluster() != ClusterSize::ONE) {
            self.reservations().open(inode.ino(), found.range())?;
        }
        Ok(found)
    }

    /// Returns the existing reservation for a hole that starts at `wanted.start`, and records it as returned to a
    /// caller. Only holes have reservations.
    pub(super) fn reserved_before(&self, inode: &Inode, wanted: &Range<u64>) -> Result<Option<Mapping>> {
        let whole = self.whole_clusters(wanted);
        let needs_room = self.has_limits() && self.reservations().is_ahead(inode.ino(), whole.start);
        let (whole, room) = if needs_room { self.room_for_data(inode, whole)? } else { (whole, None) };
        let found = self.reservations().hand_out(inode.ino(), &whole, self.now())?;
        self.hold_room(inode, room);
        let found = found.and_then(|found| found.within(wanted));
        self.opened(inode, found.filter(|found| found.range().start == wanted.start))
    }

    /// Returns the place of a hole in a cluster that the file has.
    fn shared(&self, map: &mut FileMap<'_, Nodes<'_>>, wanted: &Range<u64>) -> Result<Option<Mapping>> {
        let cluster = self.volume().super_block().cluster;
        if cluster == ClusterSize::ONE {
            return Ok(None);
        }
        let Some((place, len)) = map.shared_cluster(wanted.start, cluster)? else { return Ok(None) };
        Ok(mapping(wanted.start, place, len).and_then(|mapping| mapping.within(wanted)))
    }

    /// Returns a place for the metadata block `at`, a hole, and the reservation for it, unless its cluster is already
    /// allocated.
    pub(super) fn metadata_block(
        &self,
        inode: &Inode,
        map: &mut FileMap<'_, Nodes<'_>>,
        at: u64,
    ) -> Result<(VolBlock, Option<BlockRun>)> {
        if let Some(shared) = self.shared(map, &(at..at + 1))? {
            return Ok((shared.place, None));
        }
        let goal = self.goal(inode, map, at)?;
        let run = self.insist(|| self.allocator().reserve_metadata(goal, 1))?;
        Ok((VolBlock(run.start.0 + self.cluster().inside(at)), Some(run)))
    }

    /// Reserves space for `whole` clusters of a hole, and more ahead of an append.
    fn reserve_ahead(
        &self,
        inode: &Inode,
        map: &mut FileMap<'_, Nodes<'_>>,
        whole: &Range<u64>,
        hole_end: u64,
    ) -> Result<Mapping> {
        // The cluster at the end of a hole belongs to the next mapping.
        let end = self.cluster().round_down(hole_end.min(map.end()));
        self.release_old_space();
        let end = self.reservations().next_start(inode.ino(), whole.start).map_or(end, |next| next.min(end));
        let wanted = whole.end.min(end).saturating_sub(whole.start);
        // Most files are written once and completely. Space ahead of the first write would separate their blocks from
        // those of the next file, and every search would skip it.
        let appends = whole.start > 0 && whole.start >= self.block_at(inode.size());
        let ahead = if appends { self.ahead(whole.start).min(end - whole.end.min(end)) } else { 0 };
        let goal = self.goal(inode, map, whole.start)?;
        let len = |blocks: u64| u32::try_from(blocks.clamp(1, 1 << 30)).unwrap_or(1);
        let run = match self.allocator().reserve(goal, len(wanted + ahead)) {
            Err(Error::NoSpace) => self.insist(|| self.allocator().reserve(goal, len(wanted)))?,
            run => run?,
        };
        let last = run.start.0 + u64::from(run.len);
        if !inode.has(InodeFlags::EXTENTS) && last > 1 << 32 {
            self.allocator().release(run);
            return Err(Error::NoSpace);
        }
        let start = u32::try_from(whole.start).map_err(|_| Error::FileTooBig)?;
        Ok(reservation(start, run.start, run.len))
    }

    /// Returns the number of blocks to reserve ahead of an append to a file with `blocks` blocks.
    fn ahead(&self, blocks: u64) -> u64 {
        let count = |bytes: u64| self.block_from(bytes);
        blocks.clamp(count(LEAST_AHEAD), count(MOST_AHEAD).max(count(LEAST_AHEAD)))
    }

    /// Returns the mappings of `range` once its holes are filled with their reservations and each block is in `state`.
    /// Also returns the runs to publish for these mappings. Fails with `Invalid` for a hole without a reservation.
    pub(super) fn filled(
        &self,
        inode: &Inode,
        map: &mut FileMap<'_, Nodes<'_>>,
        range: &Range<u64>,
        state: ExtentState,
    ) -> Result<(Vec<Mapping>, Vec<BlockRun>)> {
        let handed = self.reservations().handed(inode.ino(), &self.whole_clusters(range));
        let (mut new, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let rest = at..range.end;
            let next = match map.first_in(&rest)? {
                Some(found) if found.range().start == at => found,
                found => {
                    let hole = at..found.map_or(range.end, |found| found.range().start);
                    self.reserved_mapping(map, &handed, &hole)?
                }
            };
            new.try_reserve(1)?;
            new.push(Mapping { state, ..next });
            at = next.end().max(at + 1);
        }
        let mut gained = Vec::new();
        for mapping in &handed {
            gained.try_reserve(1)?;
            gained.push(BlockRun { start: mapping.place, len: mapping.len });
        }
        Ok((new, gained))
    }

    fn reserved_mapping(
        &self,
        map: &mut FileMap<'_, Nodes<'_>>,
        handed: &[Mapping],
        hole: &Range<u64>,
    ) -> Result<Mapping> {
        let starts =
            |mapping: &Mapping| mapping.within(hole).filter(|found| found.range().start == hole.start);
        match handed.iter().find_map(starts) {
            Some(found) => Ok(found),
            None => self.shared(map, hole)?.ok_or(Error::Invalid),
        }
    }
}

fn mapping(start: u64, place: VolBlock, len: u64) -> Option<Mapping> {
    Some(reservation(u32::try_from(start).ok()?, place, u32::try_from(len).ok()?))
}
