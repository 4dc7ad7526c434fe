//! Changes of the usage of owners, derived from the records of changed inodes.

use alloc::vec::Vec;

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

/// Differences of the numbers of inodes and bytes. An owner may occur several times.
#[derive(Debug, Default)]
pub(crate) struct UsageChanges(Vec<(QuotaKind, u32, (i64, i64))>);

impl UsageChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that an inode was charged as `before`, and is now charged as `after`.
    pub(crate) fn replace(&mut self, before: Option<Charge>, after: Option<Charge>) {
        if before == after {
            return;
        }
        let bytes = |charge: Option<Charge>| {
            charge.map_or(0, |charge| i64::try_from(charge.bytes).unwrap_or(i64::MAX))
        };
        for (at, kind) in QuotaKind::ALL.into_iter().enumerate() {
            let id = |charge: Option<Charge>| charge.and_then(|charge| charge.ids.get(at).copied());
            match (id(before), id(after)) {
                (Some(old), Some(new)) if old == new => {
                    self.add(kind, new, (0, bytes(after).saturating_sub(bytes(before))));
                }
                (old, new) => {
                    old.into_iter().for_each(|id| self.add(kind, id, (-1, bytes(before).saturating_neg())));
                    new.into_iter().for_each(|id| self.add(kind, id, (1, bytes(after))));
                }
            }
        }
    }

    /// Adds differences of one owner. Without memory for them, the usage of the owner is wrong until a check.
    pub(crate) fn add(&mut self, kind: QuotaKind, id: u32, change: (i64, i64)) {
        if change != (0, 0) && self.0.try_reserve(1).is_ok() {
            self.0.push((kind, id, change));
        }
    }

    /// Removes and returns the differences.
    pub(crate) fn take(&mut self) -> Vec<(QuotaKind, u32, (i64, i64))> {
        core::mem::take(&mut self.0)
    }

    /// Returns the owners.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (QuotaKind, u32)> + '_ {
        self.0.iter().map(|&(kind, id, _)| (kind, id))
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
        let found = changes.take();
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
