//! Orphans: the list that begins in the super block, and the orphan file.
//!
//! Invariant: the walk along the list ends, since no inode is visited twice.
//! Source: e2fsprogs `e2fsck/super.c` `release_orphan_inodes`, `e2fsck/unix.c` `main` (`PR_6_ORPHAN_FILE_WITHOUT_JOURNAL`,
//! `PR_6_ORPHAN_PRESENT_CLEAN_FILE`); Linux `Documentation/filesystems/ext4/orphan.rst`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, join};
use obento_base::{FileKind, Result};
use obento_driver::CheckReport;

use super::events::EventSink;
use super::inodes;
use super::issue::Issue;
use super::reason::OrphanFileDefect;
use super::state::{CheckState, DirRun};
use super::view::View;
use crate::checksum::Crc;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::raw::RawInode;
use crate::super_block::ORPHAN_MAGIC;
use crate::unit::VolBlock;

/// Size of the magic number and the checksum at the end of a block of the orphan file.
const TAIL: usize = 8;

/// Reads the list and the file. Returns the orphans.
pub(super) fn check(view: &View, state: &CheckState, reported: &mut EventSink<'_>) -> BTreeSet<u32> {
    let mut found = list(view, reported);
    let ino = view.sb.raw.s_orphan_file_inum.get();
    if view.sb.compat.contains(Compat::ORPHAN_FILE) {
        let on_list = found.len();
        let record = view.record(ino).map(|(record, _)| record);
        let is_unused = record.is_some_and(|record| record.iter().all(|&byte| byte == 0));
        let why = match inodes::runs(view, state, ino) {
            Some(_) if is_unused => Some(OrphanFileDefect::NotRegular),
            Some((_, runs)) if !is_whole(view, ino, &runs) => Some(OrphanFileDefect::NotWhole),
            Some((seed, runs)) => file(view, seed, &runs, &mut found, reported).err(),
            None => Some(OrphanFileDefect::Unreadable),
        };
        let is_empty = why.is_none() && found.len() == on_list;
        // The inodes in the file are released first.
        let is_useless = is_empty && !view.sb.compat.contains(Compat::HAS_JOURNAL);
        let why = why.or(is_useless.then_some(OrphanFileDefect::NoJournal));
        why.into_iter().for_each(|why| reported.found(Issue::OrphanFile { ino, why }));
        // While a volume is mounted, the feature is set before the first inode is in the file.
        let is_mounted = view.sb.incompat.contains(Incompat::NEEDS_RECOVERY);
        if is_empty && !is_useless && !is_mounted && view.sb.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            reported.found(Issue::OrphansAnnounced {});
        }
    }
    found
}

/// The inodes on the list or in the file, and the blocks of the file with the seeds of their checksums.
type Orphans = (BTreeSet<u32>, Vec<(VolBlock, u32)>);

/// Returns all orphans, and the blocks of the file.
pub(super) fn list_and_file(view: &View) -> Result<Orphans> {
    let mut report = CheckReport::default();
    let mut reported = EventSink { report: &mut report, emit: &mut |_| {} };
    let state = CheckState::new(view)?;
    let found = check(view, &state, &mut reported);
    let ino = view.sb.raw.s_orphan_file_inum.get();
    let has_file = view.sb.compat.contains(Compat::ORPHAN_FILE);
    let file = has_file.then(|| inodes::runs(view, &state, ino)).flatten();
    let blocks = file.into_iter().flat_map(|(seed, runs)| {
        let all = runs
            .into_iter()
            .flat_map(|run| (0..u64::from(run.len)).map(move |n| run.start.0.saturating_add(n)));
        all.map(move |block| (VolBlock(block), seed))
    });
    Ok((found, blocks.collect()))
}

/// Empties a block of the orphan file; stores the checksum with `seed`, if there are checksums.
pub(super) fn clear(bytes: &mut [u8], block: VolBlock, seed: Option<u32>) {
    let at = bytes.len().saturating_sub(TAIL);
    let Some((slots, tail)) = bytes.split_at_mut_checked(at) else { return };
    slots.fill(0);
    let sum = seed.map_or(0, |seed| Crc::new(seed).add(&block.0.to_le_bytes()).add(slots).get());
    let words = [ORPHAN_MAGIC, sum].map(u32::to_le_bytes);
    tail.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
}

/// Returns whether a regular file has all blocks for its size. An inode that is not a regular file is already
/// reported.
fn is_whole(view: &View, ino: u32, runs: &[DirRun]) -> bool {
    let Some((record, _)) = view.record(ino) else { return true };
    let Ok((raw, _)) = RawInode::ref_from_prefix(&record) else { return true };
    let (size, block) = (join(raw.i_size_lo.get(), raw.i_size_high.get()), u64::from(view.sb.block_size));
    let mut end = 0_u64;
    for run in runs {
        end = if run.at == end { end.saturating_add(run.len.into()) } else { return false };
    }
    let is_regular = FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Regular);
    !is_regular || size > 0 && size.is_multiple_of(block) && end.saturating_mul(block) >= size
}

/// Reads the orphan file.
fn file(
    view: &View,
    seed: u32,
    runs: &[DirRun],
    found: &mut BTreeSet<u32>,
    reported: &mut EventSink<'_>,
) -> Result<(), OrphanFileDefect> {
    let all = runs.iter().flat_map(|run| (0..u64::from(run.len)).map(|n| run.start.0.saturating_add(n)));
    for block in all {
        let bytes = view.read(VolBlock(block), 1).map_err(|_| OrphanFileDefect::Unreadable)?;
        is_sound(view, seed, block, &bytes)?;
        for ino in inodes_of(&bytes) {
            if found.insert(ino) {
                reported.found(Issue::Orphan { ino });
            }
        }
    }
    Ok(())
}

/// Checks whether a block of the orphan file is valid.
pub(super) fn is_sound(view: &View, seed: u32, block: u64, bytes: &[u8]) -> Result<(), OrphanFileDefect> {
    let (slots, tail) = bytes.split_at_checked(bytes.len().saturating_sub(TAIL)).unwrap_or_default();
    let [magic, sum] = [0, 4].map(|at| word(tail, at));
    if magic != ORPHAN_MAGIC {
        return Err(OrphanFileDefect::Magic);
    }
    let expected = Crc::new(seed).add(&block.to_le_bytes()).add(slots).get();
    if view.sb.has_metadata_csum() && sum != expected {
        return Err(OrphanFileDefect::Checksum);
    }
    let can_be = |ino: u32| (view.sb.first_ino..=view.sb.inodes_count).contains(&ino);
    let are_all = inodes_of(bytes).all(can_be);
    if are_all { Ok(()) } else { Err(OrphanFileDefect::InodeNumber) }
}

/// Returns the inodes in a block of the orphan file.
fn inodes_of(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let slots = bytes.get(..bytes.len().saturating_sub(TAIL)).unwrap_or_default();
    slots.chunks_exact(4).map(|slot| word(slot, 0)).filter(|&ino| ino != 0)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Reads the list.
fn list(view: &View, reported: &mut EventSink<'_>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = view.sb.raw.s_last_orphan.get();
    while next != 0 {
        let ino = next;
        let broken = |why| Issue::OrphanList { ino, why };
        if ino < view.sb.first_ino || ino > view.sb.inodes_count {
            reported.found(broken("contains an invalid inode number"));
            break;
        }
        if !found.insert(ino) {
            reported.found(broken("is circular"));
            break;
        }
        let record = view.record(ino);
        let raw = record.as_ref().and_then(|(record, _)| RawInode::ref_from_prefix(record).ok());
        let Some((raw, _)) = raw else {
            reported.found(broken("contains an inode that cannot be read"));
            break;
        };
        reported.found(Issue::Orphan { ino });
        next = raw.i_dtime.get();
    }
    found
}
