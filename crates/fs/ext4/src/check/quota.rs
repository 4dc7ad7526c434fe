//! Quota files: comparing the stored usage of users, groups and projects with the actual usage.
//!
//! Invariant: the actual usage is what pass 1 has walked, not what inodes count, so that other damage is not reported
//! here again.
//! Source: e2fsprogs `lib/support/mkquota.c` `quota_data_add`, `quota_compare_and_update`; `e2fsck/pass1.c`
//! `check_blocks`.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes, join, to_u64, to_usize};

use super::events::EventSink;
use super::inode_check::InodeCheck;
use super::inodes;
use super::issue::Issue;
use super::part::Usage;
use super::state::CheckState;
use super::view::View;
use crate::feature::{Compat, RoCompat};
use crate::quota::{BLOCK, Entries, MAX_SIZE, QuotaDefect, QuotaKind, RawEntry, blocks_of, decode, entry};
use crate::raw::RawInode;

const ROOT: u32 = 2;
/// Maximum number of bytes of a file that are read: entries of a million owners.
const MAX_FILE: usize = 128 << 20;
/// Maximum number of owners per file that are reported.
const MAX_TOLD: usize = 100;
/// An `i_extra_isize` that includes `i_projid`.
const WITH_PROJECT: u16 = 32;

impl InodeCheck<'_> {
    /// Adds this inode, which owns `clusters`, to the usage of its owners. The inodes of its values are counted with
    /// it, and not by themselves.
    pub(super) fn count_usage(&mut self, clusters: u64) {
        let (ino, sb) = (self.ino, &self.view.sb);
        let is_orphan_file =
            sb.compat.contains(Compat::ORPHAN_FILE) && ino == sb.raw.s_orphan_file_inum.get();
        let is_own = is_orphan_file || ino == sb.raw.s_prj_quota_inum.get();
        let is_counted = (ino == ROOT || ino >= sb.first_ino) && !is_own && !self.is_value();
        if !is_counted || !sb.ro_compat.contains(RoCompat::QUOTA) || self.raw.i_links_count.get() == 0 {
            return;
        }
        let extra = self.extra.filter(|extra| extra.i_extra_isize.get() >= WITH_PROJECT);
        let ids = QuotaKind::ALL.map(|kind| kind.id(&self.raw, extra.as_ref()));
        let cluster = u64::from(sb.block_size).saturating_mul(sb.cluster_blocks().into());
        let bytes = clusters.saturating_mul(cluster);
        let inodes = self.values.saturating_add(1);
        for (owners, id) in self.part.usage.owners.iter_mut().zip(ids) {
            owners.entry(id).or_insert_with(|| entry(id, 0, 0)).add(inodes, bytes);
        }
    }
}

/// Checks the quota files.
pub(super) fn check(view: &View, state: &CheckState, taken: &Usage, reported: &mut EventSink<'_>) {
    for (kind, ino) in QuotaKind::ALL.into_iter().zip(view.quota_inodes()) {
        if ino == 0 {
            continue;
        }
        let file = read(view, state, ino).ok_or(QuotaDefect::Unreadable);
        let decoded = file.and_then(|(size, bytes)| {
            let all = decode(kind, &bytes)?;
            fits(size, &bytes).map(|()| all)
        });
        let stored = match decoded {
            Ok(stored) => stored,
            Err(why) => {
                reported.found(Issue::QuotaInode { ino, why });
                continue;
            }
        };
        let wrong = differences(&stored, &taken.of(kind));
        for (id, found, expected) in wrong.into_iter().take(MAX_TOLD) {
            reported.found(Issue::QuotaUsage {
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

/// Returns the owners whose stored usage differs, with the stored and the actual usage.
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

/// Checks whether the inode of a quota file has an acceptable size.
fn fits(size: u64, bytes: &[u8]) -> core::result::Result<(), QuotaDefect> {
    let is_covered = blocks_of(bytes).is_some_and(|blocks| to_u64(blocks) <= size.div_ceil(to_u64(BLOCK)));
    if is_covered && size <= MAX_SIZE { Ok(()) } else { Err(QuotaDefect::Size) }
}

/// Returns the size and the bytes of a quota file, or `None` if they cannot be read.
fn read(view: &View, state: &CheckState, ino: u32) -> Option<(u64, Vec<u8>)> {
    let (record, _) = view.record(ino)?;
    let (raw, _) = RawInode::ref_from_prefix(&record).ok()?;
    let file_size = join(raw.i_size_lo.get(), raw.i_size_high.get());
    let (_, runs) = inodes::runs(view, state, ino)?;
    let (size, mut bytes, mut block) = (to_usize(view.sb.block_size.into()), Vec::new(), Vec::new());
    for run in runs {
        let end = to_usize(run.at.saturating_add(run.len.into())).saturating_mul(size);
        if end > MAX_FILE || end < bytes.len() {
            return None;
        }
        bytes.resize(to_usize(run.at).saturating_mul(size), 0);
        view.read_into(run.start, run.len.into(), &mut block).ok()?;
        bytes.extend_from_slice(&block);
    }
    Some((file_size, bytes))
}
