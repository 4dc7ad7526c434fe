//! The super block for writing.
//!
//! Invariant: at any time, the bytes describe a state from which the journal can be recovered. They can therefore be
//! written at any time, even after an error. All fields that change are in the first 512 bytes, which are one sector
//! and therefore never torn. Exception: the conversion of a super block of version 1 also replaces the later bytes,
//! which version 1 does not use.

use alloc::boxed::Box;

use obento_base::Result;
use obento_base::wire::be::U32;
use obento_base::wire::{FromZeros, IntoBytes};

use crate::raw::{self, RawSuperBlock};
use crate::{Compat, Incompat, Journal, SuperBlock, Tid, Version, checksum};

/// `-EIO`, which jbd2 stores when it aborts a journal (`jbd2_journal_abort`).
const EIO: u32 = 5_u32.wrapping_neg();

/// The encoded bytes of a super block, which are too many for the stack of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Label {
    raw: Box<RawSuperBlock>,
}

impl Label {
    pub(super) fn read(journal: &Journal) -> Result<Self> {
        let mut raw = Box::new(RawSuperBlock::new_zeroed());
        let offset = journal.super_block_place()?.saturating_mul(journal.super_block().block_size.into());
        journal.device().read_at(offset, raw.as_mut_bytes())?;
        Ok(Self { raw })
    }

    /// Writes the super block, without a flush.
    pub(super) fn write(&mut self, journal: &Journal, super_block: &SuperBlock) -> Result<()> {
        if super_block.checksums().in_blocks() {
            self.raw.s_checksum_type = raw::CRC32C_CHKSUM;
            self.raw.s_checksum = U32::new(checksum::super_block(self.raw.as_bytes()));
        }
        let offset = journal.super_block_place()?.saturating_mul(super_block.block_size.into());
        journal.device().write_at(offset, self.raw.as_bytes())
    }

    /// Records that the log starts with transaction `tid` in block `start`.
    pub(super) fn set_tail(&mut self, tid: Tid, start: u32) {
        self.raw.s_sequence = U32::new(tid.0);
        self.raw.s_start = U32::new(start);
    }

    /// Returns whether there is something to replay.
    pub(super) fn has_start(&self) -> bool {
        self.raw.s_start.get() != 0
    }

    /// Records that there is nothing to replay, that the next transaction is `tid` or later, and that the
    /// log continues at `head`.
    pub(super) fn set_empty(&mut self, tid: Tid, head: u32) {
        self.set_tail(tid, 0);
        self.raw.s_head = U32::new(head);
    }

    /// Clears the error.
    pub(super) fn clear_error(&mut self) {
        self.raw.s_errno = U32::new(0);
    }

    /// Records that the journal was aborted.
    pub(super) fn set_error(&mut self) {
        self.raw.s_errno = U32::new(EIO);
    }

    /// Sets the features. A super block of version 1 is converted to version 2, as jbd does
    /// (`journal_convert_superblock_v1`).
    pub(super) fn set_features(&mut self, compat: Compat, incompat: Incompat) {
        if self.raw.s_header.h_blocktype.get() == raw::SUPER_BLOCK_V1 {
            // The fields of version 1 stay; the others, which follow them, are new.
            let known = core::mem::offset_of!(RawSuperBlock, s_feature_compat);
            self.raw.as_mut_bytes().iter_mut().skip(known).for_each(|byte| *byte = 0);
            self.raw.s_header.h_blocktype = U32::new(raw::SUPER_BLOCK_V2);
            self.raw.s_nr_users = U32::new(1);
        }
        self.raw.s_feature_compat = U32::new(compat.bits());
        self.raw.s_feature_incompat = U32::new(incompat.bits());
    }
}

/// Returns the super block with these features.
pub(super) fn with_features(super_block: &SuperBlock, compat: Compat, incompat: Incompat) -> SuperBlock {
    SuperBlock { version: Version::V2, compat, incompat, ..super_block.clone() }
}
