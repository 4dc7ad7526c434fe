//! Quota files: what they say that users, groups and projects take, against what is in use.
//!
//! Invariant: what is in use is what pass 1 walked, not what inodes count, so that other damage does not show here again.
//! Source: e2fsprogs `lib/support/mkquota.c` `quota_data_add`, `quota_compare_and_update`; `e2fsck/pass1.c` `check_blocks`.

use alloc::vec::Vec;

use obento_base::wire::to_usize;

use super::inodes::{self, Look};
use super::state::State;
use super::view::View;
use super::{Issue, Told};
use crate::feature::{Compat, RoCompat};
use crate::inode::InodeFlags;
use crate::quota::{Entries, QuotaKind, RawEntry, decode, entry};

const ROOT: u32 = 2;
/// So many bytes of a file are looked at: entries of a million owners.
const MAX_FILE: usize = 128 << 20;
/// So many owners are told of a file.
const MAX_TOLD: usize = 100;
/// `i_extra_isize` that covers `i_projid`.
const WITH_PROJECT: u16 = 32;

/// What owners take.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// By [`QuotaKind::ALL`].
    owners: [Entries; 3],
    /// Those of the orphan file, and its bytes.
    orphan_file: Option<([u32; 3], u64)>,
}

/// Whether the orphan file is somebody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OrphanFile {
    Counts,
    DoesNot,
}

impl Usage {
    /// Adds what others take.
    pub(super) fn merge(&mut self, other: Self) {
        for (owners, others) in self.owners.iter_mut().zip(other.owners) {
            for (id, taken) in others {
                let (inodes, bytes) = (taken.dqb_curinodes.get(), taken.dqb_curspace.get());
                owners.entry(id).or_insert_with(|| entry(id, 0, 0)).add(inodes, bytes);
            }
        }
        self.orphan_file = self.orphan_file.or(other.orphan_file);
    }

    /// What the owners of a kind take.
    pub(super) fn of(&self, kind: QuotaKind, orphan_file: OrphanFile) -> Entries {
        let nth = QuotaKind::ALL.iter().position(|&known| known == kind).unwrap_or(0);
        let mut all = self.owners.get(nth).cloned().unwrap_or_default();
        if let Some((ids, bytes)) = self.orphan_file.filter(|_| orphan_file == OrphanFile::Counts)
            && let Some(&id) = ids.get(nth)
        {
            all.entry(id).or_insert_with(|| entry(id, 0, 0)).add(1, bytes);
        }
        all
    }
}

impl Look<'_> {
    /// Counts this inode, which owns so many clusters, with its owners; the inodes of its values are counted with it, and
    /// not by themselves.
    pub(super) fn count_usage(&mut self, clusters: u64) {
        let (ino, sb) = (self.ino, &self.view.sb);
        let is_counted = (ino == ROOT || ino >= sb.first_ino)
            && ino != sb.raw.s_prj_quota_inum.get()
            && !self.has(InodeFlags::EA_INODE);
        if !is_counted || !sb.ro_compat.contains(RoCompat::QUOTA) || self.raw.i_links_count.get() == 0 {
            return;
        }
        let extra = self.extra.filter(|extra| extra.i_extra_isize.get() >= WITH_PROJECT);
        let ids = QuotaKind::ALL.map(|kind| kind.id(&self.raw, extra.as_ref()));
        let cluster = u64::from(sb.block_size).saturating_mul(sb.cluster_blocks().into());
        let bytes = clusters.saturating_mul(cluster);
        if sb.compat.contains(Compat::ORPHAN_FILE) && ino == sb.raw.s_orphan_file_inum.get() {
            self.part.usage.orphan_file = Some((ids, bytes));
            return;
        }
        let inodes = self.values.saturating_add(1);
        for (owners, id) in self.part.usage.owners.iter_mut().zip(ids) {
            owners.entry(id).or_insert_with(|| entry(id, 0, 0)).add(inodes, bytes);
        }
    }
}

/// Looks at the quota files.
pub(super) fn check(view: &View, state: &State, taken: &Usage, told: &mut Told<'_>) {
    for (kind, ino) in QuotaKind::ALL.into_iter().zip(view.quota_inodes()) {
        let Some(bytes) = (ino != 0).then(|| read(view, state, ino)).flatten() else { continue };
        let stored = match decode(kind, &bytes) {
            Ok(stored) => stored,
            Err(why) => {
                told.found(Issue::QuotaInode { ino, why });
                continue;
            }
        };
        // Linux does not count the orphan file, e2fsck up to 1.47.0 does.
        if differences(&stored, &taken.of(kind, OrphanFile::DoesNot)).is_empty() {
            continue;
        }
        let wrong = differences(&stored, &taken.of(kind, OrphanFile::Counts));
        for (id, found, expected) in wrong.into_iter().take(MAX_TOLD) {
            told.found(Issue::QuotaUsage {
                ino,
                id,
                found: found.dqb_curspace.get(),
                expected: expected.dqb_curspace.get(),
                found_inodes: found.dqb_curinodes.get(),
                expected_inodes: expected.dqb_curinodes.get(),
            });
        }
    }
}

/// The owners of whom the file says something else, with what it says and what is so.
fn differences(stored: &Entries, taken: &Entries) -> Vec<(u32, RawEntry, RawEntry)> {
    let of = |all: &Entries, id: u32| all.get(&id).copied().unwrap_or_else(|| entry(id, 0, 0));
    let same = |one: &RawEntry, other: &RawEntry| {
        one.dqb_curspace == other.dqb_curspace && one.dqb_curinodes == other.dqb_curinodes
    };
    let mut ids: Vec<u32> = stored.keys().chain(taken.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let all = ids.into_iter().map(|id| (id, of(stored, id), of(taken, id)));
    all.filter(|(_, stored, taken)| !same(stored, taken)).collect()
}

/// The bytes of a quota file; none if they cannot be had.
fn read(view: &View, state: &State, ino: u32) -> Option<Vec<u8>> {
    let (_, runs) = inodes::runs(view, state, ino)?;
    let (size, mut bytes, mut block) = (to_usize(view.sb.block_size.into()), Vec::new(), Vec::new());
    for run in runs {
        let end = to_usize(run.at.saturating_add(run.len)).saturating_mul(size);
        if end > MAX_FILE || end < bytes.len() {
            return None;
        }
        bytes.resize(to_usize(run.at).saturating_mul(size), 0);
        view.read_into(run.start, run.len, &mut block).ok()?;
        bytes.extend_from_slice(&block);
    }
    Some(bytes)
}
