//! Inline data. Pass 1: whether it is complete. Pass 2, a directory: the parent, records in `i_block`, more in the
//! attribute `system.data`.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` `fix_inline_data_extents_file`, `pass2.c` `check_dir_block2`; Linux
//! `Documentation/filesystems/ext4/inlinedata.rst`.

use obento_base::Ino;
use obento_base::wire::{FromBytes, to_u64, to_usize};

use super::blocks::{is_tree, on_volume};
use super::directories::{DirectoryCheck, bad_record};
use super::inode_check;
use super::issue::Issue;
use super::reason::{InlineDefect, InlineDirDefect, WrongFlag};
use crate::inode::InodeFlags;
use crate::map::check::numbers;
use crate::raw::RawXattrEntry;
use crate::xattr::{AttributeArea, AttributeEntry, MAGIC};

/// The flags of both kinds of data.
const BOTH: InodeFlags = InodeFlags::INLINE_DATA.union(InodeFlags::EXTENTS);

impl inode_check::InodeCheck<'_> {
    /// Checks whether a file has the attribute that continues its inline data, which exists even if it is empty.
    pub(super) fn inline_data(&mut self) {
        if !self.has(BOTH) && inline_rest(self.record, self.ino).is_none() {
            self.emit(Issue::InlineData { ino: self.ino, why: InlineDefect::NoAttribute });
        }
    }

    /// Checks an inode with the flags of inline data and of extents. Its contents decide which flag is right.
    pub(super) fn inline_or_extents(&mut self) {
        let (ino, sb) = (self.ino, &self.view.sb);
        if !self.has(BOTH) {
            return;
        }
        let is_map = || {
            let mut blocks = numbers(&self.raw.i_block).iter().map(|number| number.get()).filter(|&n| n != 0);
            let first = blocks.next();
            first.into_iter().chain(blocks).all(|block| on_volume(sb, block.into(), 1)) && first.is_some()
        };
        let flag = if inline_rest(self.record, ino).is_some() {
            WrongFlag::ExtentsBesideInlineData
        } else if is_tree(&self.raw.i_block) {
            WrongFlag::InlineDataBesideExtents
        } else if is_map() {
            WrongFlag::InlineDataAndExtents
        } else {
            return self.emit(Issue::InlineData { ino, why: InlineDefect::NoContents });
        };
        self.emit(Issue::InodeFlag { ino, flag });
    }
}

impl DirectoryCheck<'_> {
    /// Checks an inline directory.
    pub(super) fn inline(&mut self) {
        let dir = self.dir.ino;
        let Some((record, place)) = self.view.record(dir) else { return };
        let Some(head) = record.get(40..100) else { return };
        let parent = head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if parent == 0 || parent > self.view.sb.inodes_count {
            self.emit(Issue::InlineDirectory { dir, offset: 40, why: InlineDirDefect::Parent });
        } else {
            self.dir.set_dot_dot(parent);
            self.count(parent);
        }
        self.count(dir);
        let rest = inline_rest(&record, dir);
        if rest.is_none() {
            self.emit(Issue::InlineData { ino: dir, why: InlineDefect::NoAttribute });
        }
        let rest = rest.unwrap_or_default();
        let found = self.dir.size;
        let expected = to_u64(rest.1.len()).saturating_add(60);
        if found != expected {
            self.emit(Issue::Size { ino: dir, found, expected });
        }
        let first = head.get(4..).unwrap_or_default();
        for (base, bytes) in [(44_u32, first), rest] {
            let records = self.run_of(bytes, place.0, base, false);
            self.hashes.clear();
            for record in records.walk() {
                match record {
                    Ok(record) => self.entry(&record, place.0),
                    Err(error) => {
                        let (offset, _) = bad_record(&error);
                        self.emit(Issue::InlineDirectory { dir, offset, why: InlineDirDefect::Record });
                    }
                }
            }
            self.duplicates(&records, place.0);
        }
    }
}

/// Removes the optional hash from the changed attribute of inline data.
pub(super) fn drop_hash(record: &mut [u8], ino: u32) {
    let found = area_of(record, ino).and_then(|(base, area)| {
        let entry = data_of(&area)?;
        Some(to_usize(base.into()).saturating_add(entry.offset))
    });
    let place = found.and_then(|at| RawXattrEntry::mut_from_prefix(record.get_mut(at..)?).ok());
    if let Some((raw, _)) = place {
        raw.e_hash.set(0);
    }
}

/// Returns the value of `system.data` in an inode's record, and its offset there.
pub(super) fn inline_rest(record: &[u8], ino: u32) -> Option<(u32, &[u8])> {
    let (base, area) = area_of(record, ino)?;
    let entry = data_of(&area)?;
    let value = area.value(&entry).ok()?;
    Some((base.saturating_add(entry.raw.e_value_offs.get().into()), value))
}

/// Returns the attributes in an inode's record, and their offset there.
fn area_of(record: &[u8], ino: u32) -> Option<(u32, AttributeArea<'_>)> {
    let extra =
        record.get(128..130).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_le_bytes(*bytes))?;
    let start = usize::from(extra).saturating_add(128);
    let (magic, bytes) = record.get(start..)?.split_first_chunk()?;
    if u32::from_le_bytes(*magic) != MAGIC {
        return None;
    }
    let base = u32::try_from(start).ok()?.saturating_add(4);
    Some((base, AttributeArea { ino: Ino(ino.into()), block: 0, base, bytes, table: 0 }))
}

/// Returns the attribute of inline data.
fn data_of<'a>(area: &AttributeArea<'a>) -> Option<AttributeEntry<'a>> {
    let mut entries = area.entries().map_while(Result::ok);
    entries.find(|entry| entry.raw.e_name_index == 7 && entry.name == b"data")
}
