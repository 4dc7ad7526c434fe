//! The super block as it is written.
//!
//! Invariant: the bytes are at every moment a state from which recovery is right, so that they can be written at any
//! time, and after an error too. All that changes lies in the first 512 bytes: a sector, which is never torn.

use obento_base::Result;
use obento_base::wire::be::U32;
use obento_base::wire::{FromZeros, IntoBytes};

use crate::raw::{self, RawSuperBlock};
use crate::{Compat, Incompat, Journal, SuperBlock, Tid, Version, checksum};

/// `-EIO`, what jbd2 stores when it gives up (`jbd2_journal_abort`).
const EIO: u32 = 5_u32.wrapping_neg();

/// A super block and the bytes it is in.
#[derive(Clone, Debug)]
pub(super) struct Label {
    raw: RawSuperBlock,
}

impl Label {
    pub(super) fn read(journal: &Journal) -> Result<Self> {
        let mut raw = RawSuperBlock::new_zeroed();
        let offset = journal.super_block_place()?.saturating_mul(journal.super_block().block_size.into());
        journal.device().read_at(offset, raw.as_mut_bytes())?;
        Ok(Self { raw })
    }

    /// Writes it, without a flush.
    pub(super) fn write(&mut self, journal: &Journal, super_block: &SuperBlock) -> Result<()> {
        if super_block.checksums().in_blocks() {
            self.raw.s_checksum_type = raw::CRC32C_CHKSUM;
            self.raw.s_checksum = U32::new(checksum::super_block(self.raw.as_bytes()));
        }
        let offset = journal.super_block_place()?.saturating_mul(super_block.block_size.into());
        journal.device().write_at(offset, self.raw.as_bytes())
    }

    /// The log starts with transaction `tid` in block `start`.
    pub(super) fn set_tail(&mut self, tid: Tid, start: u32) {
        self.raw.s_sequence = U32::new(tid.0);
        self.raw.s_start = U32::new(start);
    }

    /// Whether there is something to replay.
    pub(super) fn has_start(&self) -> bool {
        self.raw.s_start.get() != 0
    }

    /// There is nothing to replay; the next transaction is `tid` or later, the log goes on at `head`.
    pub(super) fn set_empty(&mut self, tid: Tid, head: u32) {
        self.set_tail(tid, 0);
        self.raw.s_head = U32::new(head);
    }

    /// Nothing went wrong so far.
    pub(super) fn clear_error(&mut self) {
        self.raw.s_errno = U32::new(0);
    }

    /// The journal was given up.
    pub(super) fn set_error(&mut self) {
        self.raw.s_errno = U32::new(EIO);
    }

    /// Sets the features, of a super block of version 2: one of version 1 becomes that, as jbd once did it
    /// (`journal_convert_superblock_v1`).
    pub(super) fn set_features(&mut self, compat: Compat, incompat: Incompat) {
        if self.raw.s_header.h_blocktype.get() == raw::SUPER_BLOCK_V1 {
            let first = self.raw;
            self.raw = RawSuperBlock::new_zeroed();
            self.raw.s_header = first.s_header;
            self.raw.s_header.h_blocktype = U32::new(raw::SUPER_BLOCK_V2);
            (self.raw.s_blocksize, self.raw.s_maxlen) = (first.s_blocksize, first.s_maxlen);
            (self.raw.s_first, self.raw.s_sequence) = (first.s_first, first.s_sequence);
            (self.raw.s_start, self.raw.s_errno) = (first.s_start, first.s_errno);
            self.raw.s_nr_users = U32::new(1);
        }
        self.raw.s_feature_compat = U32::new(compat.bits());
        self.raw.s_feature_incompat = U32::new(incompat.bits());
    }
}

/// What a super block becomes when it gets these features.
pub(super) fn with_features(super_block: &SuperBlock, compat: Compat, incompat: Incompat) -> SuperBlock {
    SuperBlock { version: Version::V2, compat, incompat, ..super_block.clone() }
}
