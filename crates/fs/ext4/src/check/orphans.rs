//! Inodes that are to be freed or cut short: the list that begins in the super block, and the orphan file.
//!
//! Invariant: the walk along the list ends, since no inode is taken twice.
//! Source: e2fsprogs `e2fsck/super.c` `release_orphan_inodes`; Linux `Documentation/filesystems/ext4/orphan.rst`.

use alloc::collections::BTreeSet;

use obento_base::wire::FromBytes;

use super::inodes;
use super::state::{DirRun, State};
use super::view::View;
use super::{Issue, Told};
use crate::checksum::Crc;
use crate::feature::Compat;
use crate::raw::RawInode;
use crate::unit::VolBlock;
use crate::writer::ORPHAN_MAGIC;

/// Magic number and checksum at the end of a block of the orphan file.
const TAIL: usize = 8;

/// Walks the list and reads the file; answers who is on them.
pub(super) fn check(view: &View, state: &State, told: &mut Told<'_>) -> BTreeSet<u32> {
    let mut found = list(view, told);
    let ino = view.sb.raw.s_orphan_file_inum.get();
    if view.sb.compat.contains(Compat::ORPHAN_FILE) {
        let why = match inodes::runs(view, state, ino) {
            Some((seed, runs)) => file(view, seed, &runs, &mut found, told).err(),
            None => Some("it cannot be read"),
        };
        why.into_iter().for_each(|why| told.found(Issue::OrphanFile { ino, why }));
    }
    found
}

/// Reads the orphan file.
fn file(
    view: &View,
    seed: u32,
    runs: &[DirRun],
    found: &mut BTreeSet<u32>,
    told: &mut Told<'_>,
) -> Result<(), &'static str> {
    let all = runs.iter().flat_map(|run| (0..run.len).map(|n| run.start.0.saturating_add(n)));
    for block in all {
        let bytes = view.read(VolBlock(block), 1).map_err(|_| "it cannot be read")?;
        let (slots, tail) = bytes.split_at_checked(bytes.len().saturating_sub(TAIL)).unwrap_or_default();
        let [magic, sum] = [0, 4].map(|at| word(tail, at));
        if magic != ORPHAN_MAGIC {
            return Err("a block has the wrong magic number");
        }
        let expected = Crc::new(seed).add(&block.to_le_bytes()).add(slots).get();
        if view.sb.has_metadata_csum() && sum != expected {
            return Err("a block has the wrong checksum");
        }
        for ino in slots.chunks_exact(4).map(|slot| word(slot, 0)).filter(|&ino| ino != 0) {
            if ino < view.sb.first_ino || ino > view.sb.inodes_count {
                return Err("it names an inode that cannot be in it");
            }
            if found.insert(ino) {
                told.found(Issue::Orphan { ino });
            }
        }
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Walks the list.
fn list(view: &View, told: &mut Told<'_>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = view.sb.raw.s_last_orphan.get();
    while next != 0 {
        let ino = next;
        let broken = |why| Issue::OrphanList { ino, why };
        if ino < view.sb.first_ino || ino > view.sb.inodes_count {
            told.found(broken("it names an inode that cannot be on it"));
            break;
        }
        if !found.insert(ino) {
            told.found(broken("it runs in a circle"));
            break;
        }
        let record = view.record(ino);
        let raw = record.as_ref().and_then(|(record, _)| RawInode::ref_from_prefix(record).ok());
        let Some((raw, _)) = raw else {
            told.found(broken("an inode on it cannot be read"));
            break;
        };
        told.found(Issue::Orphan { ino });
        next = raw.i_dtime.get();
    }
    found
}
