//! The fast-commit area: which of its records count.
//!
//! On disk: the blocks behind the log. Records lie in them one after another, none across two blocks. A `HEAD` begins
//! the fast commits of a transaction, a `TAIL` ends each of them and carries its checksum. All belong to the
//! transaction that the log does not have yet.
//! Source: Linux `fs/ext4/fast_commit.c` (`ext4_fc_replay_scan`). Differs: a first fast commit that is torn is dropped
//! like any other, and noted if its tail is there, where Linux refuses to mount; nobody was told that it had
//! succeeded.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Feature, Result, Structure};
use obento_journal::{Journal, Tid};

use super::tlv::{Located, Tlv, Tlvs};
use crate::checksum::Crc;

/// Where the blocks of the area come from.
pub(crate) trait Area {
    /// Returns how many blocks.
    fn len(&self) -> u32;
    /// Fills `buf` with block `at`.
    fn read(&self, at: u32, buf: &mut [u8]) -> Result<()>;
    /// The number that block `at` has on its device, for errors.
    fn locate(&self, at: u32) -> u64;
}

impl Area for Journal {
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

/// How the area is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) block_size: u32,
    pub(crate) inode_size: u16,
}

/// More records than a full area of the default journal of 1 GiB holds of the usual size; bounds memory.
const MAX_RECORDS: u32 = 1 << 18;
/// The same in bytes.
const MAX_BYTES: u32 = 32 << 20;

/// Which records count: the first so many.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Valid {
    /// Records of complete fast commits.
    pub(crate) records: u32,
    /// Complete fast commits.
    pub(crate) commits: u32,
    /// What ended them, if it was neither the end nor a torn commit.
    pub(crate) damage: Option<Error>,
}

/// Hands the records to `visit` until it breaks, with the number of their block.
pub(crate) fn each_record(
    area: &dyn Area,
    geometry: Geometry,
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
pub(crate) struct Bytes<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) block_size: usize,
}

#[cfg(test)]
impl Area for Bytes<'_> {
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

/// Finds out which records count, where transaction `tid` is the one that the log does not have yet.
pub(crate) fn scan(area: &dyn Area, geometry: Geometry, tid: Tid) -> Result<Valid> {
    let mut valid = Valid::default();
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
                // After a good one it was torn, as far as anyone can tell.
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

/// Hands the records that count to `visit`, in order.
pub(crate) fn replay(
    area: &dyn Area,
    geometry: Geometry,
    valid: Valid,
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
