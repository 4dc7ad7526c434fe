//! The records of a directory: iterating over a block, and checking each record before it is used.
//!
//! Layout: records fill their block without gaps; `rec_len` leads to the next one. A record with inode 0 is unused.
//! Removing an entry extends the record before it.
//! Invariant: a walk ends, since each record has at least 12 bytes or ends the walk.
//! Source: Linux Documentation/filesystems/ext4/directory.rst; `__ext4_check_dir_entry` in fs/ext4/dir.c.

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, FileKind, Ino, Name, Result, Structure};
use zerocopy::FromBytes;

use crate::raw::RawDirEntry;

/// Minimum size of a record: a name of one byte.
const MIN_LEN: u32 = 12;
const HEADER: usize = 8;
/// From this block size on, the length of a whole block does not fit 16 bits.
const WIDE_BLOCK: u32 = 65536;

/// A run of records: a block, or the bytes after the parent's number in an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records<'a> {
    pub(crate) dir: Ino,
    /// For error messages: the block that contains the run, and the offset of the run in it.
    pub(crate) block: u64,
    pub(crate) base: u32,
    pub(crate) bytes: &'a [u8],
    pub(crate) block_size: u32,
    /// Whether the run begins with `.` and `..`.
    pub(crate) starts: bool,
}

/// A record that is within its run, including its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    /// Offset from the start of the run.
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// 0: unused.
    pub(crate) inode: u32,
    pub(crate) file_type: u8,
    pub(crate) name: &'a [u8],
}

impl<'a> Records<'a> {
    /// Returns the records in their order. A wrong length is an error and the last item, since the next record cannot
    /// be found.
    pub(crate) fn walk(self) -> impl Iterator<Item = Result<Record<'a>>> {
        let mut next = Some(0);
        core::iter::from_fn(move || {
            let offset = next.take().filter(|&at| at < self.len())?;
            let record = self.at(offset);
            next = record.as_ref().ok().and_then(|record| offset.checked_add(record.len));
            Some(record)
        })
    }

    /// Returns the record at `offset`.
    pub(crate) fn at(&self, offset: u32) -> Result<Record<'a>> {
        let rest = self.bytes.get(to_usize(offset.into())..).unwrap_or_default();
        let Ok((raw, _)) = RawDirEntry::ref_from_prefix(rest) else {
            return Err(self.bad_length(offset, 0));
        };
        let len = record_len(raw.rec_len.get(), self.block_size);
        let record = rest.get(..to_usize(len.into()));
        let end = HEADER.saturating_add(raw.name_len.into());
        match record.and_then(|record| record.get(HEADER..end)) {
            Some(name) if len >= MIN_LEN && len.is_multiple_of(4) => {
                Ok(Record { offset, len, inode: raw.inode.get(), file_type: raw.file_type, name })
            }
            _ => Err(self.bad_length(offset, len)),
        }
    }

    /// Returns the name of `record` and the inode that it refers to.
    pub(crate) fn entry(&self, record: &Record<'a>, max_ino: u32) -> Result<(&'a Name, Ino)> {
        let (dir, block, offset) = (self.dir, self.block, self.place(record.offset));
        let name = Name::new(record.name).map_err(|_| Corrupt::EntryName { dir, block, offset })?;
        Ok((name, self.inode(record, max_ino)?))
    }

    /// Returns the inode that `record` refers to.
    pub(crate) fn inode(&self, record: &Record<'a>, max_ino: u32) -> Result<Ino> {
        let found = u64::from(record.inode);
        if record.inode == 0 || record.inode > max_ino {
            let structure = Structure::Directory(self.dir);
            let offset = self.place(record.offset);
            return Err(Corrupt::InodeNumber { structure, block: self.block, offset, found }.into());
        }
        Ok(Ino(found))
    }

    /// Returns whether `record`, which is the one at `position`, is `.` or `..` in its right place.
    pub(crate) fn is_dots(&self, position: usize, record: &Record<'_>) -> bool {
        self.starts && matches!((position, record.name), (0, b".") | (1, b".."))
    }

    fn len(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    /// Returns the offset within the block of the byte at `offset` of the run.
    fn place(&self, offset: u32) -> u32 {
        self.base.saturating_add(offset)
    }

    fn bad_length(&self, offset: u32, rec_len: u32) -> Error {
        let offset = self.place(offset);
        Corrupt::RecordLength { dir: self.dir, block: self.block, offset, rec_len }.into()
    }
}

/// Decodes `rec_len` as `ext4_rec_len_from_disk` does. In blocks of 64 KiB, the low two bits, which are 0 in a length,
/// are its bits 16 and 17.
pub(crate) fn record_len(rec_len: u16, block_size: u32) -> u32 {
    match u32::from(rec_len) {
        len if block_size < WIDE_BLOCK => len,
        0 | 0xffff => block_size,
        len => (len & 0xfffc) | (len & 3) << 16,
    }
}

/// Decodes `file_type` with the feature `filetype`. Returns `None` for unknown values.
pub(crate) fn file_kind(file_type: u8) -> Option<FileKind> {
    Some(match file_type {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::testing::{block, record};
    use std::vec::Vec;

    fn records(bytes: &[u8]) -> Records<'_> {
        Records { dir: Ino(12), block: 99, base: 0, bytes, block_size: 1024, starts: false }
    }

    fn walk(bytes: &[u8]) -> Vec<Result<(u32, &[u8])>> {
        records(bytes).walk().map(|r| r.map(|r| (r.inode, r.name))).collect()
    }

    fn damage(offset: u32, rec_len: u32) -> Error {
        Corrupt::RecordLength { dir: Ino(12), block: 99, offset, rec_len }.into()
    }

    #[test]
    fn records_are_walked_by_their_lengths_unused_ones_included() {
        let bytes = block(1024, &[(11, b"a"), (0, b"gone"), (13, b"longer name")]);
        assert_eq!(walk(&bytes), [Ok((11, &b"a"[..])), Ok((0, b"gone")), Ok((13, b"longer name"))]);
    }

    #[test]
    fn a_length_that_is_zero_short_unaligned_or_too_long_ends_the_block_with_one_error() {
        for (rec_len, name_len) in [(0, 4), (8, 0), (14, 4), (1024, 4), (0xffff, 4), (12, 5)] {
            let mut bytes = block(1024, &[(11, b"a"), (12, b"four"), (13, b"c")]);
            bytes[16..18].copy_from_slice(&u16::to_le_bytes(rec_len));
            bytes[18] = name_len;
            assert_eq!(walk(&bytes), [Ok((11, &b"a"[..])), Err(damage(12, rec_len.into()))]);
        }
    }

    #[test]
    fn a_run_too_short_for_a_record_is_an_error_and_an_empty_one_is_empty() {
        assert_eq!(walk(&[0; 7]), [Err(damage(0, 0))]);
        assert!(walk(&[]).is_empty());
    }

    #[test]
    fn lengths_in_blocks_of_64_kib_use_their_low_bits() {
        assert_eq!(record_len(0xffff, 65536), 65536);
        assert_eq!(record_len(0, 65536), 65536);
        assert_eq!(record_len(0xfffc, 65536), 65532);
        assert_eq!(record_len(12, 65536), 12);
        assert_eq!(record_len(0, 32768), 0);
    }

    #[test]
    fn invalid_names_and_inode_numbers_are_reported_with_their_place() {
        let mut bytes = Vec::new();
        for name in [&b"a/b"[..], b"a\0", b"..", b"."] {
            bytes.extend(record(11, name, 12));
        }
        bytes.extend(record(77, b"far", 12));
        let records = records(&bytes);
        let entries: Vec<_> = records.walk().map(|r| records.entry(&r.unwrap(), 76)).collect();
        for (offset, entry) in (0..).step_by(12).zip(&entries[..4]) {
            assert_eq!(*entry, Err(Corrupt::EntryName { dir: Ino(12), block: 99, offset }.into()));
        }
        let structure = Structure::Directory(Ino(12));
        let far = Corrupt::InodeNumber { structure, block: 99, offset: 48, found: 77 };
        assert_eq!(entries[4], Err(far.into()));
    }
}
