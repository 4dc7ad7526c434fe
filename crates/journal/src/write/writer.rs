//! Writing transactions to the log.
//!
//! The writer writes a transaction in this order:
//!
//! 1. the control blocks, except the commit block, and the copies of the blocks; a flush;
//! 2. the commit block; a flush. A device may combine this write and both flushes.
//!
//! The super block is written in the first step in these cases:
//!
//! - The log was empty. Until the commit block exists, the super block then refers to an incomplete transaction.
//! - The transaction adds the feature `REVOKE`.
//! - The transaction is the first one after the journal was opened.
//!
//! When the start of the log moves, the new start is durable before the blocks that precede it are overwritten.
//! Source: Linux `fs/jbd2/commit.c`, `fs/jbd2/journal.c`, `fs/jbd2/checkpoint.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Error, Feature, Result, Timestamp};
use obento_block::{Block, BlockDevice};

use super::encode::Encoder;
use super::label::{Label, with_features};
use super::ring::Ring;
use crate::gather::Gather;
use crate::{Checksums, Compat, Incompat, Journal, Summary, SuperBlock, Tag, TagFlags, Tid};

/// The features with which a journal is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalFeatures {
    /// Kind of checksums: none, v2 or v3. jbd2 uses v3 for volumes with `metadata_csum`, and v1 only on request.
    pub checksums: Checksums,
    /// 64-bit block numbers, for volumes that have them.
    pub wide: bool,
}

/// A journal that is open for writing. [`Log::Jbd2`](crate::txn::Log::Jbd2) passes the writer to
/// [`Transactions`](crate::txn::Transactions), which writes through it.
pub struct JournalWriter {
    journal: Journal,
    super_block: SuperBlock,
    label: Label,
    /// Whether the super block must be written with the next transaction.
    stale: bool,
    encoder: Encoder,
    ring: Ring,
    next: Tid,
    block: Vec<u8>,
}

impl JournalWriter {
    /// Opens a journal for writing. Writes nothing before the first transaction.
    ///
    /// # Errors
    ///
    /// 1. `Invalid`: the log is not empty, or `features` request v1 checksums, which are not supported for writing.
    /// 2. `Device`: the device failed.
    pub fn open(journal: Journal, features: JournalFeatures) -> Result<Self> {
        if journal.super_block().needs_replay() || features.checksums == Checksums::V1 {
            return Err(Error::Invalid);
        }
        let mut label = Label::read(&journal)?;
        let (compat, incompat) = wanted(journal.super_block(), features);
        label.set_features(compat, incompat);
        label.clear_error();
        let super_block = with_features(journal.super_block(), compat, incompat);
        Ok(Self {
            encoder: Encoder::new(&super_block),
            ring: Ring::new(super_block.log(), super_block.head),
            // Continue as jbd2 does from an empty log (`jbd2_journal_recover`).
            next: super_block.sequence.next(),
            journal,
            super_block,
            label,
            stale: true,
            block: Vec::new(),
        })
    }

    /// Opens a journal for a transaction after the last one in the log. `summary` describes the log, whose contents
    /// must all be in their home locations. Writes a new start of the log to stable storage: until the new
    /// transaction is complete, a replay finds nothing. The fast commits that follow the log stay valid. Fails with
    /// `Unsupported` for v1 checksums, and with the errors of the device.
    pub(crate) fn after(journal: Journal, summary: &Summary) -> Result<Self> {
        let super_block = journal.super_block().clone();
        if super_block.checksums() == Checksums::V1 {
            return Err(Error::Unsupported(Feature::Named("a journal with checksums of version 1")));
        }
        let (mut label, ring) = (Label::read(&journal)?, Ring::new(super_block.log(), summary.head));
        label.set_tail(summary.next, ring.head());
        label.write(&journal, &super_block)?;
        journal.device().flush()?;
        let (encoder, next) = (Encoder::new(&super_block), summary.next);
        Ok(Self { journal, super_block, label, stale: false, encoder, ring, next, block: Vec::new() })
    }

    /// Returns the super block as it was when the journal was opened, with the features of this writer.
    pub fn super_block(&self) -> &SuperBlock {
        &self.super_block
    }

    /// Returns the number of the next transaction.
    pub fn next(&self) -> Tid {
        self.next
    }

    /// Returns the device of the journal.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.journal.device()
    }

    /// Returns the maximum number of used blocks of the log.
    pub(crate) fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Returns the start of the next transaction.
    pub(crate) fn head(&self) -> u32 {
        self.ring.head()
    }

    /// Returns the number of free blocks of the log.
    pub(crate) fn free(&self) -> u32 {
        self.ring.free()
    }

    /// Returns the number of blocks that would be free if the log started at `start`.
    pub(crate) fn free_from(&self, start: u32) -> u32 {
        let mut ring = self.ring.clone();
        ring.release(start);
        ring.free()
    }

    /// Returns whether the super block refers to something to replay.
    pub(crate) fn is_in_use(&self) -> bool {
        self.label.has_start()
    }

    /// Returns the number of blocks of the log that a transaction needs.
    pub(crate) fn space(&self, blocks: usize, revoked: usize) -> u32 {
        u32::try_from(self.encoder.space(blocks, revoked)).unwrap_or(u32::MAX)
    }

    /// Writes transaction [`JournalWriter::next`] without its commit block. Fails with the errors of the
    /// device, and with `NoSpace` if the transaction does not fit. Recovery ignores the parts that were written
    /// before the failure.
    pub(crate) fn write(&mut self, blocks: &[Block], revoked: &[u64]) -> Result<()> {
        if !revoked.is_empty() && !self.super_block.incompat.contains(Incompat::REVOKE) {
            self.super_block.incompat |= Incompat::REVOKE;
            self.label.set_features(self.super_block.compat, self.super_block.incompat);
            self.stale |= true;
        }
        if !self.label.has_start() {
            self.label.set_tail(self.next, self.ring.head());
            self.stale = true;
        }
        if core::mem::take(&mut self.stale) {
            self.label.write(&self.journal, &self.super_block)?;
        }
        let mut out = Out { journal: &self.journal, ring: &mut self.ring, gather: gather(&self.journal) };
        for numbers in revoked.chunks(self.encoder.revokes_per_block()) {
            self.encoder.revoke(self.next, numbers, &mut self.block);
            out.put(&self.block)?;
        }
        let mut tags: Vec<Tag> = Vec::new();
        for blocks in blocks.chunks(self.encoder.tags_per_block()) {
            tags.clear();
            tags.extend(blocks.iter().map(|block| self.encoder.tag(self.next, block.number(), block)));
            self.encoder.descriptor(self.next, &tags, &mut self.block);
            out.put(&self.block)?;
            for (block, tag) in blocks.iter().zip(&tags) {
                out.put_copy(block, tag)?;
            }
        }
        out.gather.finish()
    }

    /// Writes the commit block of transaction [`JournalWriter::next`] and advances to the next one. The
    /// transaction counts once this block and all blocks before it are on stable storage.
    pub(crate) fn write_commit(&mut self, now: Timestamp) -> Result<()> {
        self.write_commit_by(now, |device, offset, block| device.write_at(offset, block))
    }

    /// Writes the commit block as [`JournalWriter::write_commit`] does, after all that was written before. Returns
    /// once all of it is on stable storage.
    pub(crate) fn write_commit_in_order(&mut self, now: Timestamp) -> Result<()> {
        self.write_commit_by(now, |device, offset, block| device.write_in_order(offset, block))
    }

    fn write_commit_by(
        &mut self,
        now: Timestamp,
        write: impl FnOnce(&dyn BlockDevice, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.encoder.commit(self.next, now, &mut self.block);
        let at = self.ring.take().ok_or(Error::NoSpace)?;
        let offset = self.journal.locate(at)?.saturating_mul(self.super_block.block_size.into());
        write(&**self.journal.device(), offset, &self.block)?;
        self.next = self.next.next();
        Ok(())
    }

    /// Moves the start of the log to transaction `tid` at `start`, since all earlier blocks are in their
    /// home locations. Once this is on stable storage, [`JournalWriter::release`] frees the space.
    pub(crate) fn write_tail(&mut self, tid: Tid, start: u32) -> Result<()> {
        self.label.set_tail(tid, start);
        self.label.write(&self.journal, &self.super_block)
    }

    /// Allows the blocks before `start` to be overwritten.
    pub(crate) fn release(&mut self, start: u32) {
        self.ring.release(start);
    }

    /// Records that there is nothing to replay.
    pub(crate) fn write_empty(&mut self) -> Result<()> {
        self.label.set_empty(self.next, self.ring.head());
        self.stale = true;
        self.label.write(&self.journal, &self.super_block)
    }

    /// Records that the journal was aborted after an error. The log does not change.
    pub(crate) fn write_error(&mut self) -> Result<()> {
        self.label.set_error();
        self.label.write(&self.journal, &self.super_block)
    }
}

/// Returns the features with which jbd2 would write the journal (`set_journal_csum_feature_set`,
/// `ext4_load_journal`).
fn wanted(super_block: &SuperBlock, features: JournalFeatures) -> (Compat, Incompat) {
    let mut incompat = super_block.incompat;
    incompat.remove(Incompat::ASYNC_COMMIT | Incompat::CSUM_V2 | Incompat::CSUM_V3);
    incompat.set(Incompat::CSUM_V2, features.checksums == Checksums::V2);
    incompat.set(Incompat::CSUM_V3, features.checksums == Checksums::V3);
    // Never removed: the log may still contain 64-bit numbers.
    incompat |= if features.wide { Incompat::BITS_64 } else { Incompat::empty() };
    (super_block.compat.difference(Compat::CHECKSUM), incompat)
}

fn gather(journal: &Journal) -> Gather<'_> {
    Gather::new(&**journal.device(), journal.super_block().block_size)
}

/// A writer that adds blocks to the log, at the head of the ring.
struct Out<'w> {
    journal: &'w Journal,
    ring: &'w mut Ring,
    gather: Gather<'w>,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let place = self.place()?;
        self.gather.put_copy(place, bytes)
    }

    fn put_copy(&mut self, block: &Block, tag: &Tag) -> Result<()> {
        let place = self.place()?;
        match tag.flags.contains(TagFlags::ESCAPE) {
            true => self.gather.put_escaped(place, block),
            false => self.gather.put(place, block),
        }
    }

    fn place(&mut self) -> Result<u64> {
        let at = self.ring.take().ok_or(Error::NoSpace)?;
        self.journal.locate(at)
    }
}

impl core::fmt::Debug for JournalWriter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "JournalWriter({} next, {} blocks free)", self.next, self.free())
    }
}
