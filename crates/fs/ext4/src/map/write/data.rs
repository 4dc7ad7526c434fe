//! Writes in which the caller transfers the data: a place is reserved, and published once the data is there.
#![allow(clippy::arithmetic_side_effects, reason = "`check_size` bounds writes; runs are on the volume")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, Ino, Result, Timestamp};
use obento_driver::{Extent, Reserves, Span, TimeChange, WritePlace, WriteTicket};
use obento_journal::Credits;

use super::journalled::touch_data;
use crate::inode::Inode;
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::ExtentState;
use crate::map::{Blocks, MappedRun};
use crate::size::ClusterSize;
use crate::unit::{FileBlock, VolBlock};
use crate::writer::{InodeEdit, Writer};

/// Two overwrites within this many nanoseconds share one modification time, as within a tick of Linux' clock
/// (`CONFIG_HZ=250`). Frequent overwrites therefore do not each need a transaction.
const TICK: i128 = 4_000_000;
/// The maximum size without the feature `large_file`.
const SMALL_FILE: u64 = 0x7fff_ffff;

impl Writer {
    /// Implements `begin_write` of the contract.
    pub(crate) fn begin_write(&self, ino: Ino, range: &Range<u64>) -> Result<WriteTicket<'_>> {
        let mut inode = self.lock_file(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        // The last block may reach past the maximum size.
        self.check_size(&inode, self.block_at(range.end - 1) * self.block_bytes() + 1)?;
        let fits_inline = self.fits_inline(&inode, range.end)?;
        let (extent, was) = if fits_inline || self.is_journalled(&inode) {
            (Extent { len: range.end - range.start, span: Span::Driver }, Span::Driver)
        } else {
            self.without_inline(&mut inode)?;
            self.map_blocks_for_write(&inode, range)?
        };
        let (mtime, _) = inode.data_times();
        let place = WritePlace { extent, was, size: inode.size(), mtime };
        Ok(WriteTicket::new(ino, range, place, Some(self)).seen_at(inode.turn()))
    }

    /// Returns the place of the first blocks of `range` and their previous state. Reserves them if they are a hole.
    fn map_blocks_for_write(&self, inode: &Inode, range: &Range<u64>) -> Result<(Extent, Span)> {
        self.await_moves(inode.ino())?;
        let first = self.block_at(range.start);
        if let Some(found) = self.reserved_before(inode, &(first..self.block_from(range.end)))? {
            return Ok((self.mapped(range, first, found.place, found.len.into()), Span::Hole));
        }
        let run = self.run_at(inode, first)?;
        let mapped = |place, len| self.mapped(range, first, place, len);
        Ok(match run.place {
            Blocks::Mapped(place) => {
                let extent = mapped(place, run.len.into());
                (extent, extent.span)
            }
            Blocks::Unwritten(place) => (mapped(place, run.len.into()), Span::Unwritten),
            Blocks::Hole => {
                let nodes = Nodes { volume: self.volume(), inode };
                let mut map = FileMap::new(&nodes)?;
                let hole = first..(first + u64::from(run.len)).min(map.end());
                if hole.is_empty() {
                    return Err(Error::FileTooBig);
                }
                // No reservation exists.
                let found = self.new_reservation(inode, &mut map, &hole, self.block_from(range.end))?;
                (mapped(found.place, found.len.into()), Span::Hole)
            }
        })
    }

    /// Returns the extent of the `len` blocks at `place`, which are those of the file from `first` on, limited to
    /// `range`.
    fn mapped(&self, range: &Range<u64>, first: u64, place: VolBlock, len: u64) -> Extent {
        let skip = range.start - first * self.block_bytes();
        let bytes = len * self.block_bytes() - skip;
        let at = place.0 * self.block_bytes() + skip;
        Extent { len: bytes.min(range.end - range.start), span: Span::Mapped(at) }
    }

    pub(super) fn run_at(&self, inode: &Inode, block: u64) -> Result<MappedRun> {
        let block = u32::try_from(block).map_err(|_| Error::FileTooBig)?;
        self.volume().map_run(inode, FileBlock(block))
    }

    /// Implements `end_write` of the contract. If it fails, the reservation is kept.
    pub(crate) fn end_write(&self, ticket: &WriteTicket<'_>, when: TimeChange) -> Result<()> {
        let (inode, written) = (self.lock_file(ticket.ino())?, ticket.range());
        if written.is_empty() {
            return Ok(());
        }
        let blocks = self.block_at(written.start)..self.block_from(written.end);
        let is_current = ticket.is_current(inode.turn().wrapping_sub(1));
        // Blocks past the end are not written yet, in any state.
        let is_there = written.start < inode.size()
            && match is_current {
                true => matches!(ticket.was(), Span::Mapped(_)),
                false => self.is_written(&inode, &blocks)?,
            };
        let now = self.now();
        if is_there && written.end <= inode.size() && self.is_stamped(&inode, when, now) {
            self.release_nodes(self.node_space().end(inode.ino(), &blocks));
            return Ok(());
        }
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        let mut gained = Vec::new();
        if !is_there {
            let (new, runs) = self.filled(&inode, &mut map, &blocks, ExtentState::Written)?;
            gained = runs;
            map.splice(blocks.clone(), &new, &mut Vec::new())?;
        }
        let held = self.take_nodes_of(inode.ino(), &blocks, map.new_nodes())?;
        let change = self.plan_change_with(&inode, map, gained, Vec::new(), held)?;
        self.commit_change(inode.view(), change, Credits(0), |_, edit| {
            self.grow_to(edit, written.end);
            touch_data(edit, when, now);
            Ok(())
        })?;
        if !is_there {
            self.end_holding(inode.ino(), &self.whole_clusters(&blocks));
        }
        self.release_nodes(self.node_space().end(inode.ino(), &blocks));
        Ok(())
    }

    /// Reserves blocks for the nodes that publishing `range` may need. All its blocks are reserved or mapped.
    fn reserve_nodes(&self, ino: Ino, range: &Range<u64>) -> Result<()> {
        let inode = self.lock_file(ino)?;
        let blocks = self.block_at(range.start)..self.block_from(range.end);
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        let runs = self.reservations().handed(ino, &self.whole_clusters(&blocks)).len();
        // A cluster that is already allocated has holes without a reservation.
        if self.cluster() == ClusterSize::ONE && map.has_room(&blocks, runs)? {
            return Ok(());
        }
        let (new, _) = self.filled(&inode, &mut map, &blocks, ExtentState::Written)?;
        match map.nodes_to_publish(&blocks, &new)? {
            0 => Ok(()),
            count => self.hold_nodes(&inode, blocks, count),
        }
    }

    /// Increases the size to at least `size`.
    pub(super) fn grow_to(&self, edit: &mut InodeEdit, size: u64) {
        if size > edit.size() {
            if size > SMALL_FILE {
                self.need_large_file();
            }
            edit.set_size(size);
        }
    }

    /// Returns whether a change of the data at `when` leaves the times as they are: they are these times, or were set
    /// within this tick.
    pub(super) fn is_stamped(&self, inode: &Inode, when: TimeChange, now: Timestamp) -> bool {
        let (mtime, ctime) = inode.data_times();
        let nanos = |time: Timestamp| i128::from(time.secs()) * 1_000_000_000 + i128::from(time.nanos());
        let moment = when.moment(now);
        let is_fresh = |time: Timestamp| (0..TICK).contains(&(nanos(moment) - nanos(time)));
        match when {
            TimeChange::At(_) if mtime == moment => ctime >= moment || is_fresh(ctime),
            _ => is_fresh(mtime) && is_fresh(ctime),
        }
    }

    /// Returns whether all of `blocks` are mapped as written.
    fn is_written(&self, inode: &Inode, blocks: &Range<u64>) -> Result<bool> {
        let mut at = blocks.start;
        while at < blocks.end {
            let run = self.run_at(inode, at)?;
            if !matches!(run.place, Blocks::Mapped(_)) {
                return Ok(false);
            }
            at += u64::from(run.len).max(1);
        }
        Ok(true)
    }

    /// Ends the use of blocks of `range` that were returned to a caller and not published. The space stays ahead of the
    /// file, where it is available to files that need it. A cluster stays reserved while another caller has blocks of it.
    pub(super) fn give_back(&self, ino: Ino, range: &Range<u64>) {
        let blocks = self.block_at(range.start)..self.block_from(range.end);
        let Range { mut start, mut end } = self.whole_clusters(&blocks);
        if self.cluster() != ClusterSize::ONE {
            let len = u64::from(self.cluster().blocks());
            let (first, last) = (start..start.saturating_add(len), end.saturating_sub(len)..end);
            let [is_first_open, is_last_open] = self.reservations().close(ino, &blocks, [&first, &last]);
            start = if is_first_open { first.end } else { start };
            end = if is_last_open { last.start } else { end }.max(start);
        }
        self.release(self.reservations().put_back(ino, &(start..end)));
        self.release_nodes(self.node_space().end(ino, &blocks));
        self.hold_still(ino);
    }
}

impl Reserves for Writer {
    fn release(&self, ino: Ino, range: &Range<u64>) {
        let _lock = self.locks().write_one(ino);
        self.give_back(ino, range);
    }

    fn reserve_mapping(&self, ino: Ino, range: &Range<u64>) -> Result<()> {
        if range.is_empty() { Ok(()) } else { self.reserve_nodes(ino, range) }
    }
}
