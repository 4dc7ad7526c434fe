//! The journal when a volume is opened: its place, and the volume with the journal applied.
//!
//! Invariant: nothing is written. A dirty log becomes an index of displaced blocks ([`Remap`]).
//! Source: Linux `fs/ext4/super.c` `ext4_load_and_init_journal`; e2fsprogs `e2fsck/journal.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::offset_of;

use obento_base::wire::{FromZeros, IntoBytes};
use obento_base::{Corrupt, Error, Feature, FileKind, Ino, Result, Structure};
use obento_block::{BlockDevice, Remap};
use obento_driver::{Notice, OpenOptions, Replay};
use obento_journal::raw::MIN_BLOCKS;
use obento_journal::{Journal, Replayed, Run, Runs};

use crate::feature::{Compat, Incompat};
use crate::inode::{Inode, InodeFlags};
use crate::map::{Blocks, extents_magic};
use crate::raw::RawInode;
use crate::super_block::SuperBlock;
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

/// Cache size for reading the journal's inode and its extents.
const SMALL_CACHE: usize = 1 << 20;
/// `EXT3_JNL_BACKUP_BLOCKS`: `s_jnl_blocks` is a copy of the journal inode's map.
pub(crate) const JNL_BACKUP_BLOCKS: u8 = 1;

/// Byte offset of `s_journal_inum` in the super block.
const S_JOURNAL_INUM: u32 = 0xe0;

/// A device with its journal applied.
pub struct ReplayedDevice {
    /// The device with the journal applied.
    pub device: Arc<dyn BlockDevice>,
    /// The journal, if it was replayed. Fast commits may follow in it.
    pub replayed: Option<(Journal, obento_journal::Summary)>,
}

/// Replays the journal of a volume in memory, if it is dirty and the options permit that. Errors are added to the
/// notices, and the volume is then shown without the journal.
pub fn look_behind(
    device: Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    is_copy: bool,
    options: &OpenOptions,
    notices: &mut Vec<Notice>,
) -> ReplayedDevice {
    let untouched = ReplayedDevice { device: Arc::clone(&device), replayed: None };
    // A backup of the super block is too old to show whether the journal is dirty. The journal's own super block is
    // current.
    let may_be_dirty = sb.incompat.contains(Incompat::NEEDS_RECOVERY) || is_copy;
    if !sb.compat.contains(Compat::HAS_JOURNAL) || !may_be_dirty {
        return untouched;
    }
    let journal = match open_journal(&device, sb, options.journal.as_ref(), notices) {
        Ok(Some(journal)) => journal,
        Ok(None) => return untouched,
        Err(error) => {
            notices.push(Notice::ReplayFailed(error));
            return untouched;
        }
    };
    let log = journal.super_block();
    if log.errno != 0 {
        // The process that aborted the journal could not set the error flag: `ext4_clear_journal_err` does that
        // later.
        notices.push(Notice::MarkedWithErrors);
    }
    if !log.needs_replay() {
        return untouched;
    }
    if options.replay == Replay::Skip {
        notices.push(Notice::NotReplayed);
        return untouched;
    }
    match behind(device, sb, journal) {
        Ok((behind, damage)) => {
            notices.extend(damage.map(Notice::Damaged));
            behind
        }
        Err(error) => {
            notices.push(Notice::ReplayFailed(error));
            untouched
        }
    }
}

/// Returns the volume of `sb` on `device` with `journal` applied, and the damage that lost blocks or transactions.
/// Fails in the same cases as [`Journal::replay_index`].
pub(crate) fn behind(
    device: Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    journal: Journal,
) -> Result<(ReplayedDevice, Option<Error>)> {
    let Replayed { index, summary, damage } = journal.replay_index(sb.blocks_count)?;
    if index.is_empty() {
        return Ok((ReplayedDevice { device, replayed: Some((journal, summary)) }, damage));
    }
    let sources = Arc::clone(journal.device());
    let remap = Remap::from_other(device, sources, sb.block_size.bytes(), index);
    Ok((ReplayedDevice { device: Arc::new(remap), replayed: Some((journal, summary)) }, damage))
}

/// Opens the internal or external journal of a volume. Returns `None`, with a notice, if its device was not given.
pub fn open_journal(
    device: &Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    external: Option<&Arc<dyn BlockDevice>>,
    notices: &mut Vec<Notice>,
) -> Result<Option<Journal>> {
    let inum = sb.raw.s_journal_inum.get();
    if inum == 0 {
        let uuid = sb.raw.s_journal_uuid;
        let Some(external) = external else {
            notices.push(Notice::JournalMissing { uuid });
            return Ok(None);
        };
        return Journal::open_external(Arc::clone(external), sb.block_size.bytes(), uuid).map(Some);
    }
    let volume = Volume::bare(Arc::clone(device), sb.clone(), SMALL_CACHE);
    let ino = Ino(inum.into());
    let found = volume.inode(ino).map_err(|error| unused_inode(error, inum));
    let open = |runs| Journal::open(Arc::clone(device), sb.block_size.bytes(), runs);
    let has_tree = found.as_ref().is_ok_and(|inode| inode.has(InodeFlags::EXTENTS));
    let copy = || journal_inode_copy(sb, ino);
    let is_copy_whole = || copy().is_some_and(|copy| matches!(journal_runs(&volume, &copy), Ok((_, None))));
    let error = match found.and_then(|inode| journal_runs(&volume, &inode)) {
        Ok((runs, None)) => return open(runs).map(Some),
        // The inode may be longer than the journal in it. e2fsck accepts that of block numbers, and refuses extents
        // that end before the file (`e2fsck_get_journal` compares `pb.last_block` with the size).
        Ok((runs, Some(hole))) => match open(runs) {
            Ok(journal) => {
                if has_tree && is_copy_whole() {
                    notices.push(Notice::Damaged(hole));
                }
                return Ok(Some(journal));
            }
            Err(_) => hole,
        },
        Err(error) => error,
    };
    let copy = copy().ok_or(error)?;
    let (runs, hole) = journal_runs(&volume, &copy).map_err(|_| error)?;
    if hole.is_some() {
        return Err(error);
    }
    notices.push(Notice::Damaged(error));
    open(runs).map(Some)
}

/// Attributes an unused inode to the number in the super block.
fn unused_inode(error: Error, inum: u32) -> Error {
    let (structure, offset) = (Structure::SuperBlock, S_JOURNAL_INUM);
    match error {
        Error::Refused(_) => Corrupt::InodeNumber { structure, block: 0, offset, found: inum.into() }.into(),
        error => error,
    }
}

/// Returns the blocks of the journal inode up to its first hole, and an error that describes the hole. The inode must
/// be a regular file of at least the minimum size of a journal.
fn journal_runs(volume: &Volume, inode: &Inode) -> Result<(Runs, Option<Error>)> {
    let structure = Structure::Inode(inode.ino());
    if inode.kind() != FileKind::Regular {
        return Err(inode.bad_field("i_mode", offset_of!(RawInode, i_mode), inode.mode()));
    }
    let blocks = inode.size().checked_div(volume.block_size().into()).unwrap_or(0);
    if blocks < MIN_BLOCKS.into() {
        return Err(inode.bad_field("i_size_lo", offset_of!(RawInode, i_size_lo), inode.size()));
    }
    let unsupported = Error::Unsupported(Feature::Named("journal of more than 2^32 blocks"));
    let blocks = u32::try_from(blocks).map_err(|_| unsupported)?;
    let mut runs = Runs::new();
    let mut at = 0;
    // Each step adds at least one block. A map that refers to itself ends at the maximum number of runs.
    while at < blocks {
        let run = volume.map_run(inode, FileBlock(at))?;
        let len = run.len.min(blocks.saturating_sub(at));
        let Blocks::Mapped(start) = run.place else {
            let hole = Corrupt::BlockRange { structure, at: at.into(), start: 0, len: len.into() };
            return Ok((runs, Some(hole.into())));
        };
        runs.push(Run { at, block: start.0, len })?;
        at = at.saturating_add(len);
    }
    Ok((runs, None))
}

/// Restores the map and the size of the journal inode from their copy in the super block. Returns false if there is
/// no copy.
pub(crate) fn restore_journal_inode(sb: &SuperBlock, raw: &mut RawInode) -> bool {
    if sb.raw.s_jnl_backup_type != JNL_BACKUP_BLOCKS {
        return false;
    }
    let [map @ .., size_high, size_low] = &sb.raw.s_jnl_blocks;
    raw.i_block.iter_mut().zip(map.as_bytes()).for_each(|(to, from)| *to = *from);
    raw.i_mode.set(0o100_600);
    raw.i_links_count.set(1);
    raw.i_dtime.set(0);
    raw.i_size_lo = *size_low;
    raw.i_size_high = *size_high;
    let flags = if extents_magic(&raw.i_block) { InodeFlags::EXTENTS } else { InodeFlags::empty() };
    raw.i_flags.set(flags.bits());
    true
}

/// Returns the journal inode from its copy in the super block.
fn journal_inode_copy(sb: &SuperBlock, ino: Ino) -> Option<Inode> {
    let mut raw = RawInode::new_zeroed();
    if !restore_journal_inode(sb, &mut raw) {
        return None;
    }
    let mut record = Vec::new();
    record.try_reserve_exact(sb.inode_size.into()).ok()?;
    record.extend_from_slice(raw.as_bytes());
    record.resize(sb.inode_size.into(), 0);
    let place = crate::inode::InodePlace { block: VolBlock(0), offset: 0 };
    Inode::from_replay(sb, ino, record.into(), place).ok().filter(|inode| inode.size() > 0)
}
