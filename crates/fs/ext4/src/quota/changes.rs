//! Changes of the usage of owners, derived from the records of changed inodes.

use hashbrown::HashMap;
use obento_base::wire::FromBytes;

use super::QuotaKind;
use crate::inode::{Format, reaches, sectors_of};
use crate::raw::{RawInode, RawInodeExtra};

/// End of `i_projid` in the record.
const PROJECT_END: usize = 0xa0;

/// What one inode adds to the usage of its owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    /// User, group and project.
    pub(crate) ids: [u32; 3],
    pub(crate) bytes: u64,
}

impl Charge {
    /// Returns the charge of an inode in use, from its whole record. Returns `None` for a record that was never in use,
    /// and on a volume without quota files.
    pub(crate) fn new(format: Format, record: &[u8]) -> Option<Self> {
        if !format.has_quotas {
            return None;
        }
        let (raw, rest) = RawInode::ref_from_prefix(record).ok()?;
        if raw.i_mode.get() == 0 {
            return None;
        }
        let extra = RawInodeExtra::ref_from_prefix(rest).ok().map(|(extra, _)| extra);
        let extra = extra.filter(|extra| reaches(extra.i_extra_isize.get(), PROJECT_END));
        let ids = QuotaKind::ALL.map(|kind| kind.id(raw, extra));
        Some(Self { ids, bytes: sectors_of(format, raw).saturating_mul(512) })
    }
}

/// Differences of the numbers of inodes and bytes, by owner.
#[derive(Debug, Default)]
pub(crate) struct UsageChanges(HashMap<(QuotaKind, u32), (i64, i64)>);

impl UsageChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that an inode was charged as `before`, and is now charged as `after`.
    pub(crate) fn replace(&mut self, before: Option<Charge>, after: Option<Charge>) {
        if before == after {
            return;
        }
        for (at, kind) in QuotaKind::ALL.into_iter().enumerate() {
            for (charge, sign) in [(before, -1_i64), (after, 1)] {
                let Some((id, bytes)) = charge.and_then(|charge| Some((*charge.ids.get(at)?, charge.bytes)))
                else {
                    continue;
                };
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(sign);
                self.add(kind, id, (sign, bytes));
            }
        }
    }

    /// Adds differences of one owner.
    pub(crate) fn add(&mut self, kind: QuotaKind, id: u32, (inodes, bytes): (i64, i64)) {
        let sum = self.0.entry((kind, id)).or_default();
        *sum = (sum.0.saturating_add(inodes), sum.1.saturating_add(bytes));
    }

    /// Removes and returns the differences that are not zero.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (QuotaKind, u32, (i64, i64))> + use<> {
        let all = core::mem::take(&mut self.0).into_iter();
        all.filter(|&(_, change)| change != (0, 0)).map(|((kind, id), change)| (kind, id, change))
    }

    /// Returns the owners.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (QuotaKind, u32)> + '_ {
        self.0.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(uid: u32, bytes: u64) -> Option<Charge> {
        Some(Charge { ids: [uid, 7, 0], bytes })
    }

    #[test]
    fn a_new_owner_gains_what_the_old_one_loses_and_the_group_keeps_the_inode() {
        let mut changes = UsageChanges::default();
        changes.replace(charge(1, 4096), charge(2, 8192));
        changes.replace(charge(3, 512), charge(3, 512));
        let mut found: alloc::vec::Vec<_> = changes.take().collect();
        found.sort_unstable();
        let expected = [
            (QuotaKind::User, 1, (-1, -4096)),
            (QuotaKind::User, 2, (1, 8192)),
            (QuotaKind::Group, 7, (0, 4096)),
            (QuotaKind::Project, 0, (0, 4096)),
        ];
        assert_eq!(found, expected);
        assert!(changes.is_empty());
    }
}
