//! Invalid records of a directory, and salvaging the records after them; `.` and `..`; space for a checksum.
//!
//! Source: e2fsprogs `e2fsck/pass2.c` `salvage_directory`, `check_dot`, `check_dotdot`.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{FromBytes, IntoBytes, to_usize};

use super::super::reason::DotName;
use super::edits::Edits;
use super::names::{CHECKSUM_KIND, DIRECTORY, HEAD, I_BLOCK, ROOT, RecordHome, TAIL};
use crate::raw::{RawDirEntry, RawDirTail};
use crate::unit::VolBlock;

/// Minimum size of a record, as for `.`.
const SHORTEST: usize = 12;

impl Edits {
    /// Writes `.` or `..` over the record in its place.
    pub(super) fn make_dot(&mut self, dir: u32, name: DotName) -> Result<bool> {
        let Some(block) = self.dir_blocks(dir)?.into_iter().next() else { return Ok(false) };
        let end = self.end_of_records(to_usize(self.view.sb.block_size.into()));
        let has_types = self.view.sb.incompat.contains(crate::feature::Incompat::FILETYPE);
        let kind = if has_types { DIRECTORY } else { 0 };
        let is_first = name == DotName::Dot;
        self.edit_home(dir, RecordHome::Block(block), |bytes| {
            let at = if is_first { 0 } else { SHORTEST };
            let left = end.saturating_sub(at);
            let len = len_at(bytes, at).filter(|&len| len >= SHORTEST && len <= left).unwrap_or(left);
            if is_first && len > SHORTEST {
                // The record directly after `.` is `..`.
                let rest = len.saturating_sub(SHORTEST);
                if rest >= SHORTEST {
                    put(bytes, SHORTEST, rest, (0, 0), b"");
                }
                put(bytes, 0, if rest >= SHORTEST { SHORTEST } else { len }, (dir, kind), b".");
            } else if is_first {
                put(bytes, 0, len, (dir, kind), b".");
            } else {
                let parent = parent_at(bytes, at).unwrap_or(ROOT);
                put(bytes, at, len, (parent, kind), b"..");
            }
        })?;
        Ok(true)
    }

    /// Returns where the records of a block of `len` bytes end.
    fn end_of_records(&self, len: usize) -> usize {
        len.saturating_sub(if self.view.sb.has_metadata_csum() { TAIL } else { 0 })
    }

    /// Salvages the records of a block from a damaged one on.
    pub(super) fn salvage_block(&mut self, dir: u32, block: VolBlock, offset: usize) -> Result<bool> {
        let (max, is_first) = (self.view.sb.inodes_count, self.dir_blocks(dir)?.first() == Some(&block));
        let end = self.end_of_records(to_usize(self.view.sb.block_size.into()));
        let has_tail = self.view.sb.has_metadata_csum();
        self.edit_home(dir, RecordHome::Block(block), |bytes| {
            // The first two records of a directory are not extended.
            let is_dot = is_first && matches!(offset, 0 | SHORTEST);
            if is_dot && is_chain(bytes, offset.saturating_add(SHORTEST), end, max) {
                // The length of `.` and of `..` is known: only the record itself is lost.
                put(bytes, offset, SHORTEST, (0, 0), b"");
            } else {
                let start = if is_first && offset <= SHORTEST { offset } else { 0 };
                salvage(bytes, start..end, offset, max);
            }
            if has_tail {
                write_tail(bytes.get_mut(end..).unwrap_or_default());
            }
        })?;
        Ok(true)
    }

    /// Creates space for the record of a checksum after the last record of a block.
    pub(super) fn make_tail(&mut self, dir: u32, block: VolBlock) -> Result<bool> {
        let bytes = self.view.read(block, 1)?;
        let mut spots = Vec::new();
        self.walk(RecordHome::Block(block), &bytes, 0..bytes.len(), &mut spots);
        let end = bytes.len().saturating_sub(TAIL);
        let Some(last) = spots.iter().rev().find(|spot| spot.at < end) else {
            return self.salvage_block(dir, block, 0);
        };
        let name = if last.ino == 0 { 0 } else { last.name.len() };
        if last.at.saturating_add(HEAD).saturating_add(name) > end {
            return self.salvage_block(dir, block, last.at);
        }
        let (at, len) = (last.at, end.saturating_sub(last.at));
        self.edit_home(dir, RecordHome::Block(block), |bytes| {
            set_len(bytes, at, len);
            write_tail(bytes.get_mut(end..).unwrap_or_default());
        })?;
        Ok(true)
    }

    /// Salvages the records of an inline directory from a damaged one on.
    pub(super) fn salvage_inline(&mut self, dir: u32, offset: usize) -> Result<bool> {
        let (record, max) = (self.record(dir)?, self.view.sb.inodes_count);
        let first = I_BLOCK.saturating_add(60);
        let rest = super::super::inline::inline_rest(&record, dir);
        let part = match rest {
            _ if offset < first => I_BLOCK.saturating_add(4)..first,
            Some((start, bytes)) => {
                let start = to_usize(u64::from(start));
                start..start.saturating_add(bytes.len())
            }
            None => return Ok(false),
        };
        self.edit_record(dir, |record| {
            salvage(record, part, offset, max);
            super::super::inline::drop_hash(record, dir);
        })?;
        Ok(true)
    }
}

/// Repairs the record at `offset` of those in `range`, so that the records around it stay.
fn salvage(bytes: &mut [u8], range: Range<usize>, offset: usize, max_ino: u32) {
    let (before, end) = (before(bytes, range.start, offset), range.end);
    let left = end.saturating_sub(offset);
    let raw = bytes.get(offset..end).and_then(|rest| RawDirEntry::ref_from_prefix(rest).ok());
    let Some((raw, _)) = raw else {
        if let Some(at) = before {
            set_len(bytes, at, end.saturating_sub(at));
        }
        return;
    };
    let stored = usize::from(raw.rec_len.get());
    let next = offset.saturating_add(HEAD).saturating_add(raw.name_len.into()).next_multiple_of(4);
    if is_entry(bytes, offset, end, max_ino) {
        // Only its length is wrong. The records directly after it are kept, and so is its own name.
        if is_chain(bytes, next, end, max_ino) {
            return set_len(bytes, offset, next.saturating_sub(offset));
        }
        if stored > left {
            return set_len(bytes, offset, left);
        }
    }
    let is_sound = stored > 0 && stored.is_multiple_of(4) && stored <= left;
    match before {
        Some(at) => {
            let upto = if is_sound { offset.saturating_add(stored) } else { end };
            set_len(bytes, at, upto.saturating_sub(at));
        }
        None => put(bytes, offset, if is_sound && stored >= SHORTEST { stored } else { left }, (0, 0), b""),
    }
}

/// Returns the last record before `offset`.
fn before(bytes: &[u8], start: usize, offset: usize) -> Option<usize> {
    let (mut at, mut last) = (start, None);
    while at < offset {
        last = Some(at);
        at = at.saturating_add(len_at(bytes, at).filter(|&len| len >= HEAD)?);
    }
    last.filter(|_| at == offset)
}

/// Returns whether there is a valid name and inode at `at`.
fn is_entry(bytes: &[u8], at: usize, end: usize, max_ino: u32) -> bool {
    let parts = bytes.get(at..end).and_then(|rest| RawDirEntry::ref_from_prefix(rest).ok());
    let Some((raw, rest)) = parts else { return false };
    let name = rest.get(..raw.name_len.into()).unwrap_or_default();
    let is_name = !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    is_name && raw.inode.get() != 0 && raw.inode.get() <= max_ino
}

/// Returns whether at least one intact record leads from `at` to `end`.
fn is_chain(bytes: &[u8], mut at: usize, end: usize, max_ino: u32) -> bool {
    let mut any = false;
    while at < end {
        let Some(len) = len_at(bytes, at) else { return false };
        let is_free = bytes.get(at..).and_then(|rest| rest.first_chunk()) == Some(&[0; 4]);
        let is_sound = len >= SHORTEST && len.is_multiple_of(4) && at.saturating_add(len) <= end;
        if !is_sound || !(is_free || is_entry(bytes, at, end, max_ino)) {
            return false;
        }
        (at, any) = (at.saturating_add(len), true);
    }
    any && at == end
}

fn len_at(bytes: &[u8], at: usize) -> Option<usize> {
    let (raw, _) = RawDirEntry::ref_from_prefix(bytes.get(at..)?).ok()?;
    Some(raw.rec_len.get().into())
}

fn set_len(bytes: &mut [u8], at: usize, len: usize) {
    if let Some((raw, _)) = bytes.get_mut(at..).and_then(|rest| RawDirEntry::mut_from_prefix(rest).ok()) {
        raw.rec_len.set(stored_len(len));
    }
}

/// Writes a record with inode, type and name.
fn put(bytes: &mut [u8], at: usize, len: usize, (ino, kind): (u32, u8), name: &[u8]) {
    let parts = bytes.get_mut(at..).and_then(|rest| RawDirEntry::mut_from_prefix(rest).ok());
    let Some((raw, rest)) = parts else { return };
    raw.inode.set(ino);
    raw.rec_len.set(stored_len(len));
    raw.name_len = u8::try_from(name.len()).unwrap_or(0);
    raw.file_type = kind;
    // Names are padded with zeros to a multiple of four bytes.
    let padded = name.iter().chain([0; 3].iter()).take(name.len().next_multiple_of(4));
    rest.iter_mut().zip(padded).for_each(|(to, from)| *to = *from);
}

/// Returns the inode of the record at `at`, if its name is `..`.
fn parent_at(bytes: &[u8], at: usize) -> Option<u32> {
    let (raw, rest) = RawDirEntry::ref_from_prefix(bytes.get(at..)?).ok()?;
    let is_dot_dot = rest.get(..raw.name_len.into()) == Some(b"..") && raw.inode.get() != 0;
    is_dot_dot.then_some(raw.inode.get())
}

/// Returns the `rec_len` of a record; 64 KiB is written as 0.
pub(super) fn stored_len(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(0)
}

pub(super) fn write_tail(place: &mut [u8]) {
    let tail = RawDirTail {
        det_reserved_zero1: 0.into(),
        det_rec_len: 12.into(),
        det_reserved_zero2: 0,
        det_reserved_ft: CHECKSUM_KIND,
        det_checksum: 0.into(),
    };
    place.iter_mut().zip(tail.as_bytes()).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block of 60 bytes with `a` (12), `b` (16), `c` (32).
    fn block() -> [u8; 60] {
        let mut bytes = [0; 60];
        put(&mut bytes, 0, 12, (11, 1), b"a");
        put(&mut bytes, 12, 16, (12, 1), b"bbbbbbbb");
        put(&mut bytes, 28, 32, (13, 1), b"c");
        bytes
    }

    #[test]
    fn a_record_without_a_length_keeps_its_name_and_those_behind_it() {
        let (mut bytes, sound) = (block(), block());
        set_len(&mut bytes, 12, 0);
        salvage(&mut bytes, 0..60, 12, 100);
        assert_eq!(bytes, sound);
    }

    #[test]
    fn a_record_without_an_inode_that_can_be_goes_and_those_behind_it_stay() {
        let mut bytes = block();
        put(&mut bytes, 12, 16, (1000, 1), b"bbbbbbbbbbbb");
        salvage(&mut bytes, 0..60, 12, 100);
        assert_eq!(len_at(&bytes, 0), Some(28));
    }

    #[test]
    fn a_record_that_is_too_long_ends_where_its_block_ends() {
        let mut bytes = block();
        set_len(&mut bytes, 28, 400);
        salvage(&mut bytes, 0..60, 28, 100);
        assert_eq!(bytes, block());
    }

    #[test]
    fn a_rest_that_is_too_short_for_a_record_goes_to_the_one_before() {
        let mut bytes = block();
        set_len(&mut bytes, 28, 28);
        salvage(&mut bytes, 0..60, 56, 100);
        assert_eq!(bytes, block());
    }
}
