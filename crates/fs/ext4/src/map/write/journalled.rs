//! Data that the driver transfers itself: in the inode, or through the journal.
//!
//! Journalled data is treated like metadata: it is written to a block of the cache, to the log, and to its place
//! after its commit. It is therefore also read from the cache.
//! Source: Linux `fs/ext4/inode.c` `ext4_journalled_write_end`.
#![allow(clippy::arithmetic_side_effects, reason = "`check_size` limits every offset to 2^49 bytes")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino, Result};
use obento_driver::TimeChange;
use obento_journal::{Credits, Taken, Txn};

use crate::inode::{Inode, InodeFlags};
use crate::map::Blocks;
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::ExtentState;
use crate::unit::VolBlock;
use crate::writer::{InodeWrite, Writer, cost};

/// Maximum number of blocks that one write adds to a transaction.
const MOST_BLOCKS: u64 = 64;

impl Writer {
    /// Implements `write` of the contract.
    pub(crate) fn write(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut inode = self.lock_file(ino)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(to_u64(bytes.len())).ok_or(Error::FileTooBig)?;
        self.check_size(&inode, end)?;
        if inode.has(InodeFlags::INLINE_DATA) {
            if self.fits_inline(&inode, end)? {
                self.write_inline(inode.view(), offset, bytes)?;
                return Ok(bytes.len());
            }
            self.without_inline(&mut inode)?;
        }
        if !self.is_journalled(&inode) {
            return Err(Error::Invalid);
        }
        if offset > inode.size() {
            self.zero_journalled_tail(&inode)?;
        }
        self.write_journalled(inode.view(), offset, bytes)
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
    fn write_journalled(&self, inode: InodeWrite<'_>, offset: u64, bytes: &[u8]) -> Result<usize> {
        let (ino, first) = (inode.ino(), self.block_at(offset));
        let most = first + MOST_BLOCKS.min(u64::from(self.txns().credits_max().0 / 4).max(1));
        let written_to = offset + to_u64(bytes.len());
        let end = self.block_from(written_to).min(most);
        let run = self.run_at(&inode, first)?;
        let is_within = written_to <= inode.size();
        if let (Blocks::Mapped(place), true) = (run.place, is_within) {
            let end = end.min(first + u64::from(run.len));
            return self.write_over(inode, place, first..end, offset, bytes);
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
        let mut taken = Vec::new();
        taken.try_reserve_exact(to_usize(count.into()))?;
        for (number, block) in (place.0..).zip(blocks.clone()) {
            // The part of a block after the old end has arbitrary contents.
            let is_fresh = is_new || block * self.block_bytes() >= inode.size();
            taken.push(if is_fresh { txn.take_new(number)? } else { txn.take(number)? });
        }
        self.grow_to(&mut edit, written_to);
        edit.touch_data(self.now());
        self.apply_change(&mut txn, &mut edit, change)?;
        self.put_blocks(&mut txn, &taken, blocks.start, offset, bytes);
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
        place: VolBlock,
        blocks: Range<u64>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize> {
        let limit = blocks.end * self.block_bytes() - offset;
        let bytes = bytes.get(..to_usize(limit)).unwrap_or(bytes);
        let count = blocks.end - blocks.start;
        let now = self.now();
        let is_stamped = self.is_stamped(&inode, TimeChange::Now, now);
        let stamp = if is_stamped { Credits(0) } else { cost::INODE };
        let mut txn = self.begin(stamp + Credits(u32::try_from(count).unwrap_or(u32::MAX)))?;
        let edit = if is_stamped { None } else { Some(self.edit_inode(&mut txn, inode)?) };
        let mut taken = Vec::new();
        taken.try_reserve_exact(to_usize(count))?;
        for number in (place.0..).take(to_usize(count)) {
            taken.push(txn.take(number)?);
        }
        self.put_blocks(&mut txn, &taken, blocks.start, offset, bytes);
        match edit {
            Some(mut edit) => {
                edit.touch_data(now);
                self.store_inode(&mut txn, &edit);
            }
            None => self.note_change(inode.ino(), txn.tid()),
        }
        txn.commit();
        Ok(bytes.len())
    }

    /// Writes `bytes`, which start at byte `offset` of the file, into its blocks from `first` on.
    fn put_blocks(&self, txn: &mut Txn<'_>, taken: &[Taken], first: u64, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let mut within = to_usize(offset - first * self.block_bytes());
        for taken in taken {
            let start = core::mem::take(&mut within);
            let room = to_usize(self.block_bytes()) - start;
            let (part, behind) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            rest = behind;
            if to_u64(part.len()) == self.block_bytes() {
                txn.replace(taken, part);
            } else if let Some(target) = txn.edit(taken).get_mut(start..start + part.len()) {
                target.copy_from_slice(part);
            }
        }
    }
}
