//! Changes of the usage of owners, derived from the records of changed inodes.

use alloc::vec::Vec;

use obento_base::wire::FromBytes;

use super::QuotaKind;
use crate::inode::{Format, InodeFlags, reaches, sectors_of};
use crate::raw::{RawInode, RawInodeExtra};

/// End of `i_projid` in the record.
const PROJECT_END: usize = 0xa0;

/// What one inode adds to the usage of its owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    /// User, group and project.
    pub(crate) ids: [u32; 3],
    /// The inode itself, and one for each attribute whose value is in an inode of its own.
    pub(crate) inodes: u64,
    pub(crate) bytes: u64,
}

impl Charge {
    /// Returns the charge of an inode in use, from its whole record, and the number of attributes whose values are in
    /// inodes ([`Volume::charged_values`](crate::volume::Volume::charged_values)). `i_blocks` includes the space of
    /// these values. Returns `None` for a record that was never in use, for an inode that contains a value, and on a
    /// volume without quota files.
    pub(crate) fn new(format: Format, record: &[u8], values: u32) -> Option<Self> {
        if !format.has_quotas {
            return None;
        }
        let (raw, rest) = RawInode::ref_from_prefix(record).ok()?;
        let is_value = InodeFlags::from_bits_retain(raw.i_flags.get()).contains(InodeFlags::EA_INODE);
        if raw.i_mode.get() == 0 || is_value {
            return None;
        }
        let extra = RawInodeExtra::ref_from_prefix(rest).ok().map(|(extra, _)| extra);
        let extra = extra.filter(|extra| reaches(extra.i_extra_isize.get(), PROJECT_END));
        let ids = QuotaKind::ALL.map(|kind| kind.id(raw, extra));
        let inodes = u64::from(values).saturating_add(1);
        Some(Self { ids, inodes, bytes: sectors_of(format, raw).saturating_mul(512) })
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
        let amounts = |charge: Option<Charge>| {
            let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
            charge.map_or((0, 0), |charge| (signed(charge.inodes), signed(charge.bytes)))
        };
        let (lost, gained) = (amounts(before), amounts(after));
        for (at, kind) in QuotaKind::ALL.into_iter().enumerate() {
            let id = |charge: Option<Charge>| charge.and_then(|charge| charge.ids.get(at).copied());
            match (id(before), id(after)) {
                (Some(old), Some(new)) if old == new => {
                    let change = (gained.0.saturating_sub(lost.0), gained.1.saturating_sub(lost.1));
                    self.add(kind, new, change);
                }
                (old, new) => {
                    let loss = (lost.0.saturating_neg(), lost.1.saturating_neg());
                    old.into_iter().for_each(|id| self.add(kind, id, loss));
                    new.into_iter().for_each(|id| self.add(kind, id, gained));
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
        Some(Charge { ids: [uid, 7, 0], inodes: 1, bytes })
    }

    #[test]
    fn a_value_in_an_inode_counts_as_one_more_inode_of_each_owner() {
        let mut changes = UsageChanges::default();
        let with = |values: u64, uid| charge(uid, 8192).map(|charge| Charge { inodes: 1 + values, ..charge });
        changes.replace(with(0, 1), with(2, 1));
        let expected = [(QuotaKind::User, 1), (QuotaKind::Group, 7), (QuotaKind::Project, 0)];
        assert_eq!(changes.take(), expected.map(|(kind, id)| (kind, id, (2, 0))));
        changes.replace(with(2, 1), with(2, 9));
        let expected = [(QuotaKind::User, 1, (-3, -8192)), (QuotaKind::User, 9, (3, 8192))];
        assert_eq!(changes.take(), expected);
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
