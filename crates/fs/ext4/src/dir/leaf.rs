//! Changing a run of records: a block of entries, or the part of one in an inode.
//!
//! Invariant: records fill their run without gaps before and after each edit, so that a walk which verified a run
//! would verify it again.
//! Invariant: an edit uses places that a walk found in the same bytes. An edit that does not fit changes nothing.
//! Source: Linux fs/ext4/namei.c, `ext4_insert_dentry`, `ext4_generic_delete_entry`, `ext4_initialize_dirent_tail`;
//! fs/ext4/ext4.h, `ext4_rec_len_to_disk`.
#![allow(clippy::arithmetic_side_effects, reason = "records are within their block")]

use obento_base::FileKind;
use obento_base::wire::{FromBytes, IntoBytes, to_usize};
use obento_block::Seal;

use super::record::record_len;
use super::shape::DirShape;
use crate::checksum::Crc;
use crate::raw::{RawDirEntry, RawDirTail};

/// Size of a record before its name.
const HEADER: u32 = 8;
/// `struct ext4_dir_entry_tail`.
const TAIL: u32 = 12;
/// `EXT4_FT_DIR_CSUM`.
const CHECKSUM_KIND: u8 = 0xde;

/// The contents of a new record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: u32,
    pub(crate) kind: FileKind,
}

/// A record with space for a new one: unused, or longer than its name needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeSlot {
    /// The start of the record in its run.
    pub(crate) offset: u32,
    /// Its length.
    pub(crate) len: u32,
    /// Number of bytes that its entry uses; 0 if it is unused.
    pub(crate) used: u32,
}

/// The place of an entry in its run, and that of the record before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryPosition {
    pub(crate) offset: u32,
    pub(crate) before: Option<u32>,
}

impl EntryPosition {
    /// Returns the place of the entry after an entry was put into `slot` of its run.
    pub(crate) fn after_put(self, slot: FreeSlot) -> Self {
        match self.before {
            Some(before) if before == slot.offset => Self { before: Some(before + slot.used), ..self },
            _ => self,
        }
    }
}

/// Returns the size of a record with a name of `name_len` bytes, at most 255: `ext4_dir_rec_len`.
pub(crate) fn needed(name_len: usize) -> u32 {
    debug_assert!(name_len <= usize::from(u8::MAX), "{name_len} bytes");
    (u32::from(u8::try_from(name_len).unwrap_or(u8::MAX)) + HEADER).next_multiple_of(4)
}

/// Encodes the length of a record, the inverse of [`record_len`]. `len` is a multiple of 4 and at most a block.
pub(crate) fn stored_len(len: u32, block_size: u32) -> u16 {
    if let Ok(len) = u16::try_from(len) {
        return len;
    }
    if len == block_size {
        return u16::MAX;
    }
    u16::try_from(len & 0xfffc | len >> 16 & 3).unwrap_or(u16::MAX)
}

/// Returns the value of `file_type`.
pub(crate) fn kind_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

impl DirShape {
    /// Returns the offset at which the records of a block end and its checksum, if any, begins.
    pub(crate) fn records_end(&self) -> u32 {
        self.block_size - if self.checksum_seed.is_some() { TAIL } else { 0 }
    }

    /// Puts `entry` into `slot` of `run`.
    pub(crate) fn put(&self, run: &mut [u8], slot: FreeSlot, entry: &NewEntry<'_>) {
        let file_type = if self.file_types { kind_code(entry.kind) } else { 0 };
        self.put_raw(run, slot, entry.ino, file_type, entry.name);
    }

    pub(super) fn put_raw(&self, run: &mut [u8], slot: FreeSlot, ino: u32, file_type: u8, name: &[u8]) {
        let Some(left) = slot.len.checked_sub(slot.used).filter(|&left| left >= needed(name.len())) else {
            debug_assert!(false, "the entry does not fit {slot:?}");
            return;
        };
        if slot.used != 0 {
            self.set_len(run, slot.offset, slot.used);
        }
        let at = slot.offset + slot.used;
        let header = RawDirEntry {
            inode: ino.into(),
            rec_len: stored_len(left, self.block_size).into(),
            name_len: u8::try_from(name.len()).unwrap_or(u8::MAX),
            file_type,
        };
        write(run, at, header.as_bytes());
        write(run, at + HEADER, name);
    }

    /// Removes the entry at `spot` of `run`: the record before it is extended, or it becomes an unused record.
    pub(crate) fn remove(&self, run: &mut [u8], spot: EntryPosition) {
        let Some((len, name_len)) = self.len_at(run, spot.offset) else { return };
        // Removed names must not stay in the block.
        let wipe = |run: &mut [u8], from: u32| {
            let start = to_usize((spot.offset + from).into());
            let end = to_usize((spot.offset + len.min(needed(name_len.into()))).into());
            if let Some(bytes) = run.get_mut(start..end) {
                bytes.fill(0);
            }
        };
        match spot.before.and_then(|before| Some((before, self.len_at(run, before)?.0))) {
            Some((before, own)) => {
                self.set_len(run, before, own + len);
                wipe(run, 0);
            }
            None => {
                write(run, spot.offset, &[0; 4]);
                wipe(run, 6);
            }
        }
    }

    /// Changes the inode that the record at `offset` refers to.
    pub(crate) fn repoint(&self, run: &mut [u8], offset: u32, ino: u32, kind: FileKind) {
        write(run, offset, &ino.to_le_bytes());
        if self.file_types {
            write(run, offset + 7, &[kind_code(kind)]);
        }
    }

    /// Extends the last record of `run`, whose records end at `old`, to the end of the run.
    pub(crate) fn stretch(&self, run: &mut [u8], old: u32) {
        let end = u32::try_from(run.len()).unwrap_or(u32::MAX);
        let (mut at, mut last) = (0, None);
        while at < old {
            let Some((len, _)) = self.len_at(run, at).filter(|&(len, _)| len > 0) else { return };
            last = Some(at);
            at += len;
        }
        match last {
            Some(last) => self.set_len(run, last, end - last),
            None => self.unused(run, 0, end),
        }
    }

    /// Turns `run` into one unused record.
    pub(crate) fn blank(&self, run: &mut [u8]) {
        run.fill(0);
        self.unused(run, 0, u32::try_from(run.len()).unwrap_or(u32::MAX));
    }

    /// Turns `block` into an empty block of entries.
    pub(crate) fn blank_block(&self, block: &mut [u8]) {
        block.fill(0);
        self.unused(block, 0, self.records_end());
        self.seal(block);
    }

    /// Turns `block` into the first block of a directory in `parent`: `.`, and `..` up to the end.
    pub(crate) fn first_block(&self, block: &mut [u8], dir: u32, parent: u32) {
        block.fill(0);
        let kind = FileKind::Directory;
        let slot = FreeSlot { offset: 0, len: self.records_end(), used: 0 };
        self.put(block, slot, &NewEntry { name: b".", ino: dir, kind });
        let slot = FreeSlot { used: needed(1), ..slot };
        self.put(block, slot, &NewEntry { name: b"..", ino: parent, kind });
        self.seal(block);
    }

    /// Stores the checksum of a block of entries, if blocks of this directory have one.
    pub(crate) fn seal(&self, block: &mut [u8]) {
        if let Some(seed) = self.checksum_seed {
            seal(block, seed);
        }
    }

    /// Returns a sealer that stores the checksum of a block that changes often.
    pub(super) fn leaf_seal(&self) -> Option<Seal> {
        self.checksum_seed.map(|seed| Seal { apply: seal, seed })
    }

    /// Appends `record` to a run that is filled up to `at`. Returns the place of the next one.
    pub(super) fn copy_record(&self, run: &mut [u8], at: u32, record: &[u8]) -> u32 {
        let len = u32::try_from(record.len()).unwrap_or(u32::MAX);
        write(run, at, record);
        self.set_len(run, at, len);
        at + len
    }

    /// Returns the length of the record at `at`, and of its name.
    pub(super) fn len_at(&self, run: &[u8], at: u32) -> Option<(u32, u8)> {
        let (raw, _) = RawDirEntry::ref_from_prefix(run.get(to_usize(at.into())..)?).ok()?;
        Some((record_len(raw.rec_len.get(), self.block_size), raw.name_len))
    }

    pub(super) fn set_len(&self, run: &mut [u8], at: u32, len: u32) {
        write(run, at + 4, &stored_len(len, self.block_size).to_le_bytes());
    }

    pub(super) fn unused(&self, run: &mut [u8], at: u32, len: u32) {
        let rec_len = stored_len(len, self.block_size).into();
        let header = RawDirEntry { inode: 0.into(), rec_len, name_len: 0, file_type: 0 };
        write(run, at, header.as_bytes());
    }
}

/// Stores the checksum of a block of entries.
fn seal(block: &mut [u8], seed: u32) {
    let end = block.len() - to_usize(TAIL.into());
    let Some((covered, tail)) = block.split_at_mut_checked(end) else { return };
    let sealed = RawDirTail {
        det_reserved_zero1: 0.into(),
        det_rec_len: 12.into(),
        det_reserved_zero2: 0,
        det_reserved_ft: CHECKSUM_KIND,
        det_checksum: Crc::new(seed).add(covered).get().into(),
    };
    write(tail, 0, sealed.as_bytes());
}

/// Copies `bytes` to byte `at` of `run`.
pub(super) fn write(run: &mut [u8], at: u32, bytes: &[u8]) {
    let start = to_usize(at.into());
    let target = start.checked_add(bytes.len()).and_then(|end| run.get_mut(start..end));
    debug_assert!(target.is_some(), "{} bytes at {at} of a shorter run", bytes.len());
    if let Some(target) = target {
        target.copy_from_slice(bytes);
    }
}
