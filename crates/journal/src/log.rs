//! Iteration over the control blocks of the log.
//!
//! Invariant: for any contents, a walk visits at most as many blocks as the log has, and ends after that.

use alloc::vec::Vec;

use obento_base::wire::FromBytes;
use obento_base::{Corrupt, Error, Result, Structure};

use crate::raw::{self, RawCommit, RawHeader};
use crate::tag::Tags;
use crate::{Checksums, Journal, Revokes, Tid, checksum};

/// The type of a control block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    Descriptor,
    Revoke,
    Commit,
}

/// A position in the log of a journal.
pub(crate) struct Walk<'j> {
    journal: &'j Journal,
    /// The transaction to which the next control block must belong.
    tid: Tid,
    /// Position of the last control block.
    at: u32,
    next: u32,
    left: u32,
    block: Vec<u8>,
}

impl<'j> Walk<'j> {
    /// Starts at the beginning of the log, or at the end of the log if nothing must be replayed.
    pub(crate) fn new(journal: &'j Journal) -> Result<Self> {
        let sb = journal.super_block();
        let left = if sb.needs_replay() { sb.log_end } else { 0 };
        let block = journal.block_buffer()?;
        Ok(Self { journal, tid: sb.sequence, at: sb.start, next: sb.start, left, block })
    }

    pub(crate) fn tid(&self) -> Tid {
        self.tid
    }

    pub(crate) fn at(&self) -> u32 {
        self.at
    }

    /// Returns the position at which the log continues.
    pub(crate) fn position(&self) -> u32 {
        self.next
    }

    /// Returns the last control block.
    pub(crate) fn block(&self) -> &[u8] {
        &self.block
    }

    /// Returns the block of the device that contains the last control block.
    pub(crate) fn located(&self) -> Result<u64> {
        self.journal.locate(self.at)
    }

    /// Moves to the next control block. Returns `None` at the end of the log: the next block is not a
    /// control block of the expected transaction.
    pub(crate) fn step(&mut self) -> Result<Option<Control>> {
        let Some(at) = self.take() else { return Ok(None) };
        self.at = at;
        self.journal.read(at, &mut self.block)?;
        let Ok((header, _)) = RawHeader::ref_from_prefix(&self.block) else { return Ok(None) };
        if header.h_magic.get() != raw::MAGIC || header.h_sequence.get() != self.tid.0 {
            return Ok(None);
        }
        Ok(match header.h_blocktype.get() {
            raw::DESCRIPTOR_BLOCK => Some(Control::Descriptor),
            raw::COMMIT_BLOCK => Some(Control::Commit),
            raw::REVOKE_BLOCK => Some(Control::Revoke),
            _ => None,
        })
    }

    /// Moves to the next block of the log, regardless of the contents of the current block.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let (at, log) = (self.next, self.journal.super_block().log());
        let after = at.saturating_add(1);
        self.next = if after >= log.end { log.start } else { after };
        Some(at)
    }

    /// Skips the blocks that the tags of a descriptor block describe.
    pub(crate) fn skip_tagged(&mut self) {
        for _ in 0..self.tags().count() {
            self.take();
        }
    }

    /// Expects the next transaction, after a commit block.
    pub(crate) fn next_transaction(&mut self) {
        self.tid = self.tid.next();
    }

    /// Returns the tags of the last control block, a descriptor block.
    pub(crate) fn tags(&self) -> Tags<'_> {
        self.journal.super_block().tag_layout().tags(&self.block)
    }

    /// Returns the records of the last control block, a revoke block.
    pub(crate) fn revokes(&self) -> Result<Revokes<'_>> {
        Revokes::new(self.journal.super_block(), &self.block, self.located()?)
    }

    /// Returns the last control block as a commit block.
    pub(crate) fn commit(&self) -> Result<&RawCommit> {
        match RawCommit::ref_from_prefix(&self.block) {
            Ok((commit, _)) => Ok(commit),
            // Even the smallest block is much longer, which the type cannot express.
            Err(_) => Err(Error::Invalid),
        }
    }

    /// Checks the checksum of the last control block. Returns `None` if the checksum is correct, or if the
    /// blocks of the journal have no checksums. Otherwise returns the error for the wrong checksum.
    pub(crate) fn damage(&self, control: Control, seed: u32) -> Result<Option<Error>> {
        if !self.journal.super_block().checksums().in_blocks() {
            return Ok(None);
        }
        let (found, expected) = match control {
            Control::Commit => {
                let found = self.commit()?.h_chksum.first().map_or(0, |sum| sum.get());
                // The first sector of a torn commit block suffices: the rest should be zeros, and the
                // committed blocks were flushed before (`jbd2_commit_block_csum_verify_partial`).
                if found == checksum::partial_commit_block(seed, &self.block) {
                    return Ok(None);
                }
                (found, checksum::commit_block(seed, &self.block))
            }
            Control::Descriptor | Control::Revoke => {
                let tail = self.block.last_chunk::<4>().map_or(0, |tail| u32::from_be_bytes(*tail));
                (tail, checksum::control_block(seed, &self.block))
            }
        };
        if found == expected { Ok(None) } else { self.checksum_error(found, expected).map(Some) }
    }

    /// Returns the error for a wrong checksum of the last control block.
    pub(crate) fn checksum_error(&self, found: u32, expected: u32) -> Result<Error> {
        let block = self.located()?;
        Ok(Corrupt::Checksum { structure: Structure::Journal, block, found, expected }.into())
    }
}

/// Checks the data block `bytes` against the checksum in its tag. Returns the stored and the computed
/// checksum if they differ.
pub(crate) fn data_mismatch(
    checksums: Checksums,
    seed: u32,
    tid: Tid,
    tag: &crate::Tag,
    bytes: &[u8],
) -> Option<(u32, u32)> {
    let computed = checksum::data_block(seed, tid, bytes);
    if tag.matches(checksums, computed) { None } else { Some((tag.checksum, computed)) }
}
