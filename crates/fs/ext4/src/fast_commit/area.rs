//! The fast-commit area, and which of its records are valid.
//!
//! On disk: the blocks after the log. They contain consecutive records, none of which crosses blocks. A `HEAD` begins
//! the fast commits of a transaction; a `TAIL` ends each of them and contains its checksum. All belong to the
//! transaction after the last one in the log.
//! Source: Linux `fs/ext4/fast_commit.c` (`ext4_fc_replay_scan`). Difference: a torn first fast commit is dropped
//! like any other, and reported if its tail is present. Linux refuses to mount, although the fast commit was never
//! reported as successful.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Feature, Result, Structure};
use obento_journal::{Journal, Tid};

use super::tlv::{Located, Tlv, Tlvs};
use crate::checksum::Crc;

/// The source of the blocks of the area.
pub(crate) trait FastCommitArea {
    /// Returns the number of blocks.
    fn len(&self) -> u32;
    /// Fills `buf` with block `at`.
    fn read(&self, at: u32, buf: &mut [u8]) -> Result<()>;
    /// Returns the number of block `at` on its device, for error messages.
    fn locate(&self, at: u32) -> u64;
}

impl FastCommitArea for Journal {
    fn len(&self) -> u32 {
        let range = self.super_block().fast_commits();
        range.end.saturating_sub(range.start)
    }

    fn read(&self, at: u32, buf: &mut [u8]) -> Result<()> {
        Journal::read(self, self.super_block().fast_commits().start.saturating_add(at), buf)
    }

    fn locate(&self, at: u32) -> u64 {
        Journal::locate(self, self.super_block().fast_commits().start.saturating_add(at)).unwrap_or(0)
    }
}

/// The layout of the area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AreaGeometry {
    pub(crate) block_size: u32,
    pub(crate) inode_size: u16,
}

/// Maximum number of records, to bound memory: more than a full area of the default journal of 1 GiB contains at the
/// usual size.
const MAX_RECORDS: u32 = 1 << 18;
/// Maximum number of bytes.
const MAX_BYTES: u32 = 32 << 20;

/// The valid records: a prefix of all records.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ValidRecords {
    /// Number of records of complete fast commits.
    pub(crate) records: u32,
    /// Number of complete fast commits.
    pub(crate) commits: u32,
    /// The error that ended them, unless that was the end of the area or a torn commit.
    pub(crate) damage: Option<Error>,
}

/// Passes the records to `visit`, with the number of their block, until it breaks.
pub(crate) fn each_record(
    area: &dyn FastCommitArea,
    geometry: AreaGeometry,
    mut visit: impl FnMut(u32, Located<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let len = to_usize(geometry.block_size.into());
    let mut block = Vec::new();
    block.try_reserve_exact(len)?;
    block.resize(len, 0);
    let most = MAX_BYTES.checked_div(geometry.block_size).unwrap_or(0);
    for at in 0..area.len().min(most) {
        area.read(at, &mut block)?;
        let mut tlvs = Tlvs::new(&block, geometry.inode_size);
        for located in tlvs.by_ref() {
            if visit(at, located).is_break() {
                return Ok(());
            }
        }
        if tlvs.is_damaged() {
            break;
        }
    }
    Ok(())
}

/// An area in memory.
#[cfg(test)]
pub(crate) struct AreaInMemory<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) block_size: usize,
}

#[cfg(test)]
impl FastCommitArea for AreaInMemory<'_> {
    fn len(&self) -> u32 {
        let blocks = self.bytes.len().checked_div(self.block_size).unwrap_or(0);
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    fn read(&self, at: u32, buf: &mut [u8]) -> Result<()> {
        let block = self.bytes.chunks_exact(self.block_size).nth(to_usize(at.into()));
        buf.copy_from_slice(block.ok_or(Error::Invalid)?);
        Ok(())
    }

    fn locate(&self, at: u32) -> u64 {
        at.into()
    }
}

/// Determines which records are valid. `tid` is the transaction after the last one in the log.
pub(crate) fn scan(area: &dyn FastCommitArea, geometry: AreaGeometry, tid: Tid) -> Result<ValidRecords> {
    let mut valid = ValidRecords::default();
    let (mut seen, mut crc) = (0_u32, Crc::new(0));
    each_record(area, geometry, |at, located| {
        if seen == 0 && !matches!(located.tlv, Tlv::Head(_)) {
            return ControlFlow::Break(());
        }
        seen = seen.saturating_add(1);
        if seen > MAX_RECORDS {
            valid.damage = Some(Error::Unsupported(Feature::Named("more than 2^18 fast-commit records")));
            return ControlFlow::Break(());
        }
        crc = crc.add(located.covered);
        match located.tlv {
            Tlv::Head(head) if head.fc_features.get() != 0 => {
                let bits = head.fc_features.get().into();
                valid.damage = Some(Error::Unsupported(Feature::Bits { set: "fast-commit", bits }));
                ControlFlow::Break(())
            }
            Tlv::Head(head) if head.fc_tid.get() != tid.0 => ControlFlow::Break(()),
            Tlv::Tail(tail) if tail.fc_tid.get() != tid.0 => ControlFlow::Break(()),
            Tlv::Tail(tail) if tail.fc_crc.get() != crc.get() => {
                // After a valid fast commit, this one is assumed to be torn.
                if valid.commits == 0 {
                    let (structure, block) = (Structure::FastCommit, area.locate(at));
                    let (found, expected) = (tail.fc_crc.get(), crc.get());
                    valid.damage = Some(Corrupt::Checksum { structure, block, found, expected }.into());
                }
                ControlFlow::Break(())
            }
            Tlv::Tail(_) => {
                valid.records = seen;
                valid.commits = valid.commits.saturating_add(1);
                crc = Crc::new(0);
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    })?;
    Ok(valid)
}

/// Passes the valid records to `visit`, in order.
pub(crate) fn replay(
    area: &dyn FastCommitArea,
    geometry: AreaGeometry,
    valid: ValidRecords,
    mut visit: impl FnMut(Tlv<'_>) -> Result<()>,
) -> Result<()> {
    let (mut left, mut outcome) = (valid.records, Ok(()));
    each_record(area, geometry, |_, located| {
        let Some(after) = left.checked_sub(1) else { return ControlFlow::Break(()) };
        left = after;
        outcome = visit(located.tlv);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome
}
