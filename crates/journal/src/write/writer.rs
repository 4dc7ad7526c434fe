//! Writing transactions into the log.
//!
//! Order, each flush between what must not change places: control blocks and copies, flush, commit block, flush. The
//! super block is written with the copies where the log was empty before: until the commit block is there it leads to
//! nothing. A tail that moves is durable before what lay before it is written over.
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

/// How a journal is to be written from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalFeatures {
    /// None, v2 or v3; jbd2 takes v3 for a volume with `metadata_csum`, and v1 only if told to.
    pub checksums: Checksums,
    /// 64-bit block numbers, for a volume that has them.
    pub wide: bool,
}

/// A journal that is open for writing.
pub struct JournalWriter {
    journal: Journal,
    super_block: SuperBlock,
    label: Label,
    /// The super block must be written with the next transaction.
    stale: bool,
    encoder: Encoder,
    ring: Ring,
    next: Tid,
    block: Vec<u8>,
}

impl JournalWriter {
    /// Takes over a journal with nothing to replay. Nothing is written before the first transaction. Errors, the
    /// first that holds: Invalid if there is something to replay, or for v1 checksums, which are not written; those
    /// of the device.
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
            // As jbd2 goes on from an empty log (`jbd2_journal_recover`).
            next: super_block.sequence.next(),
            journal,
            super_block,
            label,
            stale: true,
            block: Vec::new(),
        })
    }

    /// Takes over a journal of which `summary` tells that everything in it has come home, for a transaction after the
    /// last. The log starts there from now on, durably: until that transaction is complete it leads to nothing, and what
    /// fast commits follow it still count. Errors: Unsupported for v1 checksums; those of the device.
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

    /// The super block as it was when the journal was opened, with the features that it has now.
    pub fn super_block(&self) -> &SuperBlock {
        &self.super_block
    }

    /// The number of the next transaction.
    pub fn next(&self) -> Tid {
        self.next
    }

    /// The device that the journal is on.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.journal.device()
    }

    /// How many blocks of the log there are.
    pub(crate) fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Where the next transaction starts.
    pub(crate) fn head(&self) -> u32 {
        self.ring.head()
    }

    /// How many blocks of the log are free.
    pub(crate) fn free(&self) -> u32 {
        self.ring.free()
    }

    /// How many would be if the log started at `start`.
    pub(crate) fn free_from(&self, start: u32) -> u32 {
        let mut ring = self.ring.clone();
        ring.release(start);
        ring.free()
    }

    /// Whether the super block leads to something to replay.
    pub(crate) fn is_in_use(&self) -> bool {
        self.label.has_start()
    }

    /// How many blocks of the log a transaction takes.
    pub(crate) fn space(&self, blocks: usize, revoked: usize) -> u32 {
        u32::try_from(self.encoder.space(blocks, revoked)).unwrap_or(u32::MAX)
    }

    /// Writes transaction [`JournalWriter::next`] but for its commit block. Errors: those of the device; NoSpace if
    /// it does not fit, and then parts of it were written, which mean nothing.
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

    /// Writes the commit block of transaction [`JournalWriter::next`], and goes on to the one after it. Once this is
    /// on stable storage, so must all before it have been, and the transaction counts.
    pub(crate) fn write_commit(&mut self, now: Timestamp) -> Result<()> {
        self.encoder.commit(self.next, now, &mut self.block);
        let mut out = Out { journal: &self.journal, ring: &mut self.ring, gather: gather(&self.journal) };
        out.put(&self.block)?;
        out.gather.finish()?;
        self.next = self.next.next();
        Ok(())
    }

    /// The log starts with transaction `tid` at `start`, since all before it is in its home. Once this is on stable
    /// storage, [`JournalWriter::release`] frees the space.
    pub(crate) fn write_tail(&mut self, tid: Tid, start: u32) -> Result<()> {
        self.label.set_tail(tid, start);
        self.label.write(&self.journal, &self.super_block)
    }

    /// What lies before `start` can be written over.
    pub(crate) fn release(&mut self, start: u32) {
        self.ring.release(start);
    }

    /// There is nothing to replay.
    pub(crate) fn write_empty(&mut self) -> Result<()> {
        self.label.set_empty(self.next, self.ring.head());
        self.stale = true;
        self.label.write(&self.journal, &self.super_block)
    }

    /// The journal is given up after an error. The log stays what it is.
    pub(crate) fn write_error(&mut self) -> Result<()> {
        self.label.set_error();
        self.label.write(&self.journal, &self.super_block)
    }
}

/// The features that jbd2 would have a journal carry (`set_journal_csum_feature_set`, `ext4_load_journal`).
fn wanted(super_block: &SuperBlock, features: JournalFeatures) -> (Compat, Incompat) {
    let mut incompat = super_block.incompat;
    incompat.remove(Incompat::ASYNC_COMMIT | Incompat::CSUM_V2 | Incompat::CSUM_V3);
    incompat.set(Incompat::CSUM_V2, features.checksums == Checksums::V2);
    incompat.set(Incompat::CSUM_V3, features.checksums == Checksums::V3);
    // Never taken away: an old number of 64 bits may still be somewhere.
    incompat |= if features.wide { Incompat::BITS_64 } else { Incompat::empty() };
    (super_block.compat.difference(Compat::CHECKSUM), incompat)
}

fn gather(journal: &Journal) -> Gather<'_> {
    Gather::new(&**journal.device(), journal.super_block().block_size)
}

/// The way of blocks into the log.
struct Out<'w> {
    journal: &'w Journal,
    ring: &'w mut Ring,
    gather: Gather<'w>,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let place = self.place()?;
        self.gather.put(place, bytes)
    }

    fn put_copy(&mut self, block: &Block, tag: &Tag) -> Result<()> {
        let place = self.place()?;
        self.gather.put(place, block)?;
        if tag.flags.contains(TagFlags::ESCAPE) {
            self.gather.clear_start_of_last(block.len());
        }
        Ok(())
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
