//! An inline directory, as a value that is changed and then stored.
//!
//! Layout: `i_block` contains the parent's number and a run of records. A second run is the rest of the inline data,
//! in the attribute `system.data`. Records fill each run; `.` and `..` have none.
//! Source: Linux Documentation/filesystems/ext4/inlinedata.rst; fs/ext4/inline.c `ext4_try_add_inline_entry`,
//! `ext4_update_inline_dir`, `ext4_finish_convert_inline_dir`.
#![allow(clippy::arithmetic_side_effects, reason = "records are within an inode or a block")]

use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_base::{Error, Result};

use super::leaf::{FreeSlot, needed};
use super::record::Records;
use super::{DirShape, INLINE_FIRST, Inline};

/// Size of `i_block`.
const HEAD: usize = 60;

/// The bytes of an inline directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InlineDir {
    pub(crate) head: [u8; HEAD],
    pub(crate) rest: Vec<u8>,
}

impl InlineDir {
    /// Creates an empty directory in `parent`.
    pub(crate) fn new(shape: &DirShape, parent: u32) -> Self {
        let mut this = Self { head: [0; HEAD], rest: Vec::new() };
        this.set_parent(parent);
        shape.blank(this.run(0));
        this
    }

    /// Copies the entries of an inode. Fails with `NoMemory`.
    pub(crate) fn copy(inline: &Inline<'_>) -> Result<Self> {
        let mut head = [0; HEAD];
        head.iter_mut().zip(inline.i_block.1).for_each(|(to, from)| *to = *from);
        let mut rest = Vec::new();
        rest.try_reserve_exact(inline.rest.1.len())?;
        rest.extend_from_slice(inline.rest.1);
        Ok(Self { head, rest })
    }

    /// Returns the size for the inode.
    pub(crate) fn size(&self) -> u64 {
        to_u64(HEAD + self.rest.len())
    }

    /// Returns run 0 or 1.
    fn run(&mut self, part: usize) -> &mut [u8] {
        match part {
            0 => self.head.get_mut(4..).unwrap_or_default(),
            _ => &mut self.rest,
        }
    }

    /// Sets the inode of `..`.
    pub(crate) fn set_parent(&mut self, parent: u32) {
        if let Some(bytes) = self.head.first_chunk_mut() {
            *bytes = parent.to_le_bytes();
        }
    }

    /// Extends the second run to at most `most` bytes, for an entry with a name of `name_len` bytes. Returns the slot
    /// for it, or `None` without a change if it does not fit. Fails with `NoMemory`.
    pub(crate) fn grow(
        &mut self,
        shape: &DirShape,
        most: usize,
        name_len: usize,
    ) -> Result<Option<FreeSlot>> {
        let old = u32::try_from(self.rest.len()).unwrap_or(u32::MAX);
        let Some(more) = most.checked_sub(self.rest.len()) else { return Ok(None) };
        let last = self.records(shape, &self.rest).walk().filter_map(Result::ok).last();
        let mut slot = FreeSlot { offset: 0, len: 0, used: 0 };
        if let Some(last) = last {
            let used = if last.inode == 0 { 0 } else { needed(last.name.len()) };
            slot = FreeSlot { offset: last.offset, len: last.len, used };
        }
        slot.len += u32::try_from(more).unwrap_or_default();
        if more == 0 || slot.len - slot.used < needed(name_len) {
            return Ok(None);
        }
        self.rest.try_reserve_exact(more)?;
        self.rest.resize(most, 0);
        shape.stretch(&mut self.rest, old);
        Ok(Some(slot))
    }

    /// Returns a block with the same entries. Fails with `Corrupt`, or with `NoSpace`, although every block is large
    /// enough.
    pub(crate) fn to_block(&self, shape: &DirShape) -> Result<Vec<u8>> {
        let len = obento_base::wire::to_usize(shape.block_size.into());
        let mut block = Vec::new();
        block.try_reserve_exact(len)?;
        block.resize(len, 0);
        let parent = self.head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let dir = u32::try_from(shape.dir.0).unwrap_or(0);
        shape.first_block(&mut block, dir, parent);
        let mut slot = FreeSlot { offset: needed(1), len: shape.records_end() - needed(1), used: needed(2) };
        let head = self.head.get(4..).unwrap_or_default();
        for record in [head, &self.rest].into_iter().flat_map(|run| self.records(shape, run).walk()) {
            let record = record?;
            if record.inode == 0 {
                continue;
            }
            let used = needed(record.name.len());
            if slot.len - slot.used < used {
                return Err(Error::NoSpace);
            }
            shape.put_raw(&mut block, slot, record.inode, record.file_type, record.name);
            slot = FreeSlot { offset: slot.offset + slot.used, len: slot.len - slot.used, used };
        }
        shape.seal(&mut block);
        Ok(block)
    }

    fn records<'b>(&self, shape: &DirShape, bytes: &'b [u8]) -> Records<'b> {
        Records {
            dir: shape.dir,
            block: 0,
            base: INLINE_FIRST,
            bytes,
            block_size: shape.block_size,
            starts: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::testing::{DIR, PARENT, list, shape};
    use crate::dir::{Directory, EntriesBody, EntriesLocation, EntrySpace, NewEntry};
    use obento_base::{FileKind, Ino, Name};
    use obento_driver::Cookie;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    fn directory(dir: &InlineDir) -> Directory<'_> {
        let body = EntriesBody::Inline(Inline { block: 9, i_block: (40, &dir.head), rest: (160, &dir.rest) });
        Directory { shape: shape(0), body }
    }

    fn names(dir: &InlineDir) -> Vec<(String, u64)> {
        let mut names: Vec<_> =
            list(&directory(dir), Cookie::START).into_iter().map(|entry| entry.unwrap()).collect();
        names.sort();
        names
    }

    /// Inserts names until the inode is full. Returns their number.
    fn fill(dir: &mut InlineDir, most: usize) -> u32 {
        for n in 0.. {
            let name = format!("name{n}");
            let entry = NewEntry { name: name.as_bytes(), ino: 20 + n, kind: FileKind::Regular };
            let room = directory(dir).room(Name::new(entry.name).unwrap()).unwrap();
            let (part, slot) = match room {
                EntrySpace::Slot(EntriesLocation::Inline(part), slot) => (part, slot),
                _ => match dir.grow(&shape(0), most, entry.name.len()).unwrap() {
                    Some(slot) => (1, slot),
                    None => return n,
                },
            };
            shape(0).put(dir.run(part), slot, &entry);
        }
        unreachable!()
    }

    #[test]
    fn entries_fill_both_parts_and_move_to_a_block_when_there_is_no_more_room() {
        for (most, expected) in [(0, 3), (8, 3), (16, 4), (80, 8)] {
            let mut dir = InlineDir::new(&shape(0), PARENT);
            assert_eq!(fill(&mut dir, most), expected, "{most}");
            let inline = names(&dir);
            assert_eq!(inline.len(), expected as usize);
            assert_eq!(directory(&dir).parent(), Ok(Ino(PARENT.into())));
            let block = dir.to_block(&shape(1)).unwrap();
            let made = crate::dir::testing::TestBlocks::new(&[(0, block)]);
            let mut listed: Vec<_> =
                list(&made.directory(), Cookie::START).into_iter().map(|entry| entry.unwrap()).collect();
            listed.sort();
            assert_eq!(listed, inline);
            assert_eq!((made.directory().parent(), made.shape.dir), (Ok(Ino(PARENT.into())), DIR));
        }
    }

    #[test]
    fn removed_entries_leave_room_and_an_empty_directory() {
        let mut dir = InlineDir::new(&shape(0), PARENT);
        let count = fill(&mut dir, 80);
        for n in 0..count {
            let hit = directory(&dir).find(Name::new(format!("name{n}").as_bytes()).unwrap()).unwrap();
            let EntriesLocation::Inline(part) = hit.home else { unreachable!() };
            assert_eq!(directory(&dir).is_empty(), Ok(false));
            shape(0).remove(dir.run(part), hit.spot);
        }
        assert_eq!(directory(&dir).is_empty(), Ok(true));
        assert_eq!(fill(&mut dir, 80), count);
    }
}
