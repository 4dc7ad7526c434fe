//! Data that the driver transfers itself: in the inode, or through the journal.
//!
//! Journalled data is treated like metadata: it is written to a block of the cache, to the log, and to its place
//! after its commit. It is therefore also read from the cache.
//! Source: Linux `fs/ext4/inode.c` `ext4_journalled_write_end`.
#![allow(clippy::arithmetic_side_effects, reason = "`check_size` limits every offset to 2^49 bytes")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino, Result, Timestamp};
use obento_driver::TimeChange;
use obento_journal::{Credits, Taken, TakenUnread, Txn};

use crate::inode::{Inode, InodeFlags};
use crate::map::Blocks;
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::ExtentState;
use crate::unit::VolBlock;
use crate::writer::{InodeEdit, InodeWrite, Writer, cost};

/// Maximum number of blocks that one write adds to a transaction.
const MOST_BLOCKS: u64 = 64;

impl Writer {
    /// Implements `write` of the contract.
    pub(crate) fn write(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        Ok(self.write_delayed(ino, offset, bytes, TimeChange::Now)?.unwrap_or(0))
    }

    /// Implements `write_delayed` of the contract, except for inline data.
    pub(crate) fn write_delayed(
        &self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        when: TimeChange,
    ) -> Result<Option<usize>> {
        let mut inode = self.lock_file(ino)?;
        if bytes.is_empty() {
            return Ok(Some(0));
        }
        if inode.has(InodeFlags::INLINE_DATA) && when != TimeChange::Now {
            return Ok(None);
        }
        let end = offset.checked_add(to_u64(bytes.len())).ok_or(Error::FileTooBig)?;
        self.check_size(&inode, end)?;
        if inode.has(InodeFlags::INLINE_DATA) {
            if self.fits_inline(&inode, end)? {
                self.write_inline(inode.view(), offset, bytes)?;
                return Ok(Some(bytes.len()));
            }
            self.without_inline(&mut inode)?;
        }
        if !self.is_journalled(&inode) {
            return if when == TimeChange::Now { Err(Error::Invalid) } else { Ok(None) };
        }
        if offset > inode.size() {
            self.zero_journalled_tail(&inode)?;
        }
        self.write_journalled(inode.view(), (offset, bytes), when)
            .map(Some)
            .inspect_err(|_| self.give_back(ino, &(offset..end)))
    }

    /// Zeroes the rest of the last block before the file grows over it, if only the driver reads and writes that block.
    /// The rest may still contain data that was truncated.
    pub(super) fn zero_journalled_tail(&self, inode: &Inode) -> Result<()> {
        let within = to_usize(inode.size() % self.block_bytes());
        if within == 0 || inode.has(InodeFlags::INLINE_DATA) || !self.is_journalled(inode) {
            return Ok(());
        }
        let Blocks::Mapped(place) = self.run_at(inode, self.block_at(inode.size()))?.place else {
            return Ok(());
        };
        let mut txn = self.begin(Credits(1))?;
        let taken = txn.take(place.0)?;
        txn.edit(&taken).get_mut(within..).unwrap_or_default().fill(0);
        txn.commit();
        Ok(())
    }

    /// Writes the part of `bytes` that is in one run of the file.
    fn write_journalled(
        &self,
        inode: InodeWrite<'_>,
        (offset, bytes): (u64, &[u8]),
        when: TimeChange,
    ) -> Result<usize> {
        let (ino, first) = (inode.ino(), self.block_at(offset));
        let most = first + MOST_BLOCKS.min(u64::from(self.txns().credits_max().0 / 4).max(1));
        let written_to = offset + to_u64(bytes.len());
        let end = self.block_from(written_to).min(most);
        let run = self.run_at(&inode, first)?;
        let is_within = written_to <= inode.size();
        if let (Blocks::Mapped(place), true) = (run.place, is_within) {
            let end = end.min(first + u64::from(run.len));
            return self.write_over(inode, (place, first..end), (offset, bytes), when);
        }
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        let hole = first..(first + u64::from(run.len)).min(map.end());
        let (place, len) = match run.place {
            Blocks::Mapped(place) | Blocks::Unwritten(place) => (place, u64::from(run.len)),
            Blocks::Hole => {
                let found = self.reservation(&inode, &mut map, &hole, end)?;
                (found.place, found.len.into())
            }
        };
        let blocks = first..end.min(first + len);
        let is_new = !matches!(run.place, Blocks::Mapped(_));
        let mut gained = Vec::new();
        if is_new {
            let (new, runs) = self.filled(&inode, &mut map, &blocks, ExtentState::Written)?;
            gained = runs;
            map.splice(blocks.clone(), &new, &mut Vec::new())?;
        }
        let limit = blocks.end * self.block_bytes() - offset;
        let bytes = bytes.get(..to_usize(limit)).unwrap_or(bytes);
        let written_to = offset + to_u64(bytes.len());
        let change = self.plan_change(&inode, map, gained, Vec::new())?;
        let count = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
        let mut txn = self.begin(self.change_credits(&change) + Credits(count))?;
        let mut edit = self.edit_inode(&mut txn, inode)?;
        // The part of a block after the old end has arbitrary contents.
        let fresh = if is_new { blocks.start } else { self.block_from(inode.size()) };
        let part = DataPart { place, blocks: blocks.clone(), fresh, offset, bytes };
        let taken = self.take_data(&mut txn, &part)?;
        self.grow_to(&mut edit, written_to);
        touch_data(&mut edit, when, self.now());
        self.apply_change(&mut txn, &mut edit, change)?;
        self.put_data(&mut txn, taken, &part);
        self.store_inode(&mut txn, &edit);
        txn.commit();
        self.end_holding(ino, &self.whole_clusters(&blocks));
        Ok(bytes.len())
    }

    /// Writes the part of `bytes` in `blocks`, which are at `place` and contain data of the file. The inode changes
    /// once per tick.
    fn write_over(
        &self,
        inode: InodeWrite<'_>,
        (place, blocks): (VolBlock, Range<u64>),
        (offset, bytes): (u64, &[u8]),
        when: TimeChange,
    ) -> Result<usize> {
        let limit = blocks.end * self.block_bytes() - offset;
        let bytes = bytes.get(..to_usize(limit)).unwrap_or(bytes);
        let count = blocks.end - blocks.start;
        let now = self.now();
        let is_stamped = self.is_stamped(&inode, when, now);
        let stamp = if is_stamped { Credits(0) } else { cost::INODE };
        let mut txn = self.begin(stamp + Credits(u32::try_from(count).unwrap_or(u32::MAX)))?;
        let edit = if is_stamped { None } else { Some(self.edit_inode(&mut txn, inode)?) };
        let part = DataPart { place, fresh: blocks.end, blocks, offset, bytes };
        let taken = self.take_data(&mut txn, &part)?;
        self.put_data(&mut txn, taken, &part);
        match edit {
            Some(mut edit) => {
                touch_data(&mut edit, when, now);
                self.store_inode(&mut txn, &edit);
            }
            None => self.note_change(inode.ino(), txn.tid()),
        }
        txn.commit();
        Ok(bytes.len())
    }

    /// Takes the blocks of `part`. A block of which all bytes change is not read.
    fn take_data(&self, txn: &mut Txn<'_>, part: &DataPart<'_>) -> Result<Vec<DataBlock>> {
        let size = self.block_bytes();
        let (start, end) = (part.offset, part.offset + to_u64(part.bytes.len()));
        let mut taken = Vec::new();
        taken.try_reserve_exact(to_usize(part.blocks.end - part.blocks.start))?;
        for (number, block) in (part.place.0..).zip(part.blocks.clone()) {
            let is_whole = start <= block * size && (block + 1) * size <= end;
            taken.push(match block >= part.fresh {
                _ if is_whole => DataBlock::Whole(txn.take_unread(number)?),
                true => DataBlock::Part(txn.take_new(number)?),
                false => DataBlock::Part(txn.take(number)?),
            });
        }
        Ok(taken)
    }

    /// Writes the bytes of `part` into its blocks.
    fn put_data(&self, txn: &mut Txn<'_>, taken: Vec<DataBlock>, part: &DataPart<'_>) {
        let mut rest = part.bytes;
        let mut within = to_usize(part.offset - part.blocks.start * self.block_bytes());
        for taken in taken {
            let start = core::mem::take(&mut within);
            let room = to_usize(self.block_bytes()) - start;
            let (now, behind) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            rest = behind;
            match taken {
                DataBlock::Whole(taken) => txn.overwrite(taken, now),
                DataBlock::Part(taken) => {
                    if let Some(target) = txn.edit(&taken).get_mut(start..start + now.len()) {
                        target.copy_from_slice(now);
                    }
                }
            }
        }
    }
}

/// Records that the data changed at `when`; `now` is the current time.
pub(super) fn touch_data(edit: &mut InodeEdit, when: TimeChange, now: Timestamp) {
    match when {
        TimeChange::Now => edit.touch_data(now),
        TimeChange::At(moment) => edit.touch_data_delayed(moment),
    }
}

/// A part of a file that one transaction changes.
struct DataPart<'b> {
    /// The place of the first of the blocks.
    place: VolBlock,
    blocks: Range<u64>,
    /// The first block whose old contents are not data of the file.
    fresh: u64,
    /// The place of the bytes in the file.
    offset: u64,
    bytes: &'b [u8],
}

/// A block of a [`DataPart`].
enum DataBlock {
    /// All of its bytes change.
    Whole(TakenUnread),
    Part(Taken),
}
