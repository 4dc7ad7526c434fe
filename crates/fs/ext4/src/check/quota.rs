//! Quota files: what they say that users, groups and projects take, against what is in use.
//!
//! Invariant: it comes last and only where nothing else is wrong, since any other damage may change what is in use.
//! Source: e2fsprogs `lib/support/mkquota.c` `quota_compute_usage`, `quota_compare_and_update`; `e2fsck/pass1.c`
//! `check_blocks`.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{FromBytes, join, to_usize};

use super::inodes;
use super::state::State;
use super::view::View;
use super::{Issue, Told};
use crate::feature::{Compat, RoCompat};
use crate::inode::InodeFlags;
use crate::quota::{Entries, QuotaKind, RawEntry, decode, entry};
use crate::raw::{RawInode, RawInodeExtra};
use crate::unit::VolBlock;

const ROOT: u32 = 2;
/// So many bytes of a file are looked at: entries of a million owners.
const MAX_FILE: usize = 128 << 20;
/// So many owners are told of a file.
const MAX_TOLD: usize = 100;
/// Blocks of an inode table that are read at once.
const BATCH: u32 = 64;
/// `i_extra_isize` that covers `i_projid`.
const WITH_PROJECT: u16 = 32;

/// Looks at the quota files.
pub(super) fn check(view: &View, state: &State, told: &mut Told<'_>) {
    if told.report.found > 0 || !view.sb.ro_compat.contains(RoCompat::QUOTA) {
        return;
    }
    for (kind, ino) in QuotaKind::ALL.into_iter().zip(view.quota_inodes()) {
        let Some(bytes) = (ino != 0).then(|| read(view, state, ino)).flatten() else { continue };
        let stored = match decode(kind, &bytes) {
            Ok(stored) => stored,
            Err(why) => {
                told.found(Issue::QuotaInode { ino, why });
                continue;
            }
        };
        let Ok(Some(taken)) = usage(view, kind, OrphanFile::Counts) else { continue };
        let has_orphan_file = view.sb.compat.contains(Compat::ORPHAN_FILE);
        // Linux does not count it, e2fsck up to 1.47.0 does.
        let agrees = has_orphan_file
            && usage(view, kind, OrphanFile::DoesNot)
                .is_ok_and(|other| other.is_some_and(|other| differences(&stored, &other).is_empty()));
        if !agrees {
            for (id, found, expected) in differences(&stored, &taken).into_iter().take(MAX_TOLD) {
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
}

/// Whether the orphan file is somebody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OrphanFile {
    Counts,
    DoesNot,
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

/// What each owner takes; none where values of attributes are inodes of their own, which are counted with who names them.
pub(super) fn usage(view: &View, kind: QuotaKind, orphan_file: OrphanFile) -> Result<Option<Entries>> {
    let sb = &view.sb;
    let (size, per_block) = (usize::from(sb.inode_size), sb.inodes_per_block());
    let left_out = [
        sb.raw.s_prj_quota_inum.get(),
        if orphan_file == OrphanFile::DoesNot { sb.raw.s_orphan_file_inum.get() } else { 0 },
    ];
    let (mut all, mut bytes) = (Entries::new(), Vec::new());
    for group in 0..sb.groups {
        let blocks = view.used_inodes(group).div_ceil(per_block.max(1));
        let first = group.saturating_mul(sb.inodes_per_group).saturating_add(1);
        for start in (0..blocks).step_by(to_usize(BATCH.into())) {
            let count = blocks.saturating_sub(start).min(BATCH);
            let place = view.group(group).inode_table.0.saturating_add(start.into());
            view.read_into(VolBlock(place), count.into(), &mut bytes)?;
            let first = first.saturating_add(start.saturating_mul(per_block));
            for (ino, record) in (first..).zip(bytes.chunks_exact(size)) {
                let Ok((raw, rest)) = RawInode::ref_from_prefix(record) else { continue };
                let is_counted = (ino == ROOT || ino >= sb.first_ino) && !left_out.contains(&ino);
                if raw.i_links_count.get() == 0 || !is_counted {
                    continue;
                }
                let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
                if flags.contains(InodeFlags::EA_INODE) {
                    return Ok(None);
                }
                let extra = RawInodeExtra::ref_from_prefix(rest).ok().map(|(extra, _)| extra);
                let extra = extra.filter(|extra| extra.i_extra_isize.get() >= WITH_PROJECT);
                let id = kind.id(raw, extra);
                let taken = all.entry(id).or_insert_with(|| entry(id, 0, 0));
                let unit = if flags.contains(InodeFlags::HUGE_FILE) { sb.block_size } else { 512 };
                let count = join(raw.i_blocks_lo.get(), raw.l_i_blocks_high.get().into());
                taken.count(count.saturating_mul(unit.into()));
            }
        }
    }
    Ok(Some(all))
}
