//! Repairs of directories: invalid records, and entries that refer to inodes that they must not refer to.
//!
//! An index is removed by turning its nodes into blocks without entries; `index.rs` defines when.
//! Source: e2fsprogs `e2fsck/pass2.c` `check_name`; `pass3.c` `fix_dotdot_proc`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, IntoBytes, to_usize};
use obento_base::{FileKind, Ino, Result};
use obento_block::BlockDevice;

use super::edits::{Copy, Edits};
use super::salvage::{stored_len, write_tail};
use crate::checksum::Crc;
use crate::dir::record_len;
use crate::inode::InodeFlags;
use crate::map::Blocks;
use crate::raw::{RawDirEntry, RawDirTail, RawDxCountLimit, RawDxEntry, RawDxTail, RawInode};
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

pub(super) const HEAD: usize = size_of::<RawDirEntry>();
pub(super) const TAIL: usize = size_of::<RawDirTail>();
/// `file_type` of the record that contains a checksum.
pub(super) const CHECKSUM_KIND: u8 = 0xde;
/// Offset of the table of an index's root, and of a node below it.
const ROOT_TABLE: usize = 32;
const NODE_TABLE: usize = 8;
/// Offset of `i_block` in a record; the first word of an inline directory is its parent.
pub(super) const I_BLOCK: usize = 40;
pub(super) const DIRECTORY: u8 = 2;
pub(super) const ROOT: u32 = 2;
/// Cache size for finding a directory's blocks.
const SMALL_CACHE: usize = 1 << 20;

/// The place of a record of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordHome {
    Block(VolBlock),
    Inode,
}

/// A record of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RecordPosition {
    home: RecordHome,
    /// Offset in its home.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) ino: u32,
    pub(super) name: Vec<u8>,
    /// Its index among the records of the directory's first block; the first two are `.` and `..`.
    position: Option<usize>,
}

impl Edits {
    /// Clears the second `.` or `..`.
    pub(super) fn clear_second_dot(&mut self, dir: u32) -> Result<()> {
        let is_again =
            |spot: &RecordPosition| spot.ino != 0 && spot.is_dots() && spot.position.is_none_or(|at| at > 1);
        self.change(dir, is_again, |bytes| set_inode(bytes, 0))
    }

    pub(super) fn set_entry_type(&mut self, dir: u32, name: &[u8], ino: u32, kind: u8) -> Result<()> {
        let is_it = |spot: &RecordPosition| spot.ino == ino && spot.name == name;
        self.change(dir, is_it, |bytes| {
            if let Ok((raw, _)) = RawDirEntry::mut_from_prefix(bytes) {
                raw.file_type = kind;
            }
        })
    }

    /// Replaces the bytes that no name may contain. An entry with an empty name is cleared, and one with an encrypted
    /// name that is too short.
    pub(super) fn repair_name(&mut self, dir: u32, name: &[u8]) -> Result<()> {
        let is_wrong = |byte: u8| matches!(byte, 0 | b'/');
        if !name.iter().any(|&byte| is_wrong(byte)) {
            return self.change(dir, |spot| spot.ino != 0 && spot.name == name, |bytes| set_inode(bytes, 0));
        }
        self.change(
            dir,
            |spot| spot.name == name,
            |bytes| {
                name_in(bytes, name).iter_mut().filter(|byte| is_wrong(**byte)).for_each(|byte| *byte = b'.')
            },
        )
    }

    /// Replaces the bytes of a name that are not UTF-8.
    pub(super) fn make_readable(&mut self, dir: u32, name: &[u8], ino: u32) -> Result<()> {
        self.change(
            dir,
            |spot| spot.ino == ino && spot.name == name,
            |bytes| name_in(bytes, name).iter_mut().zip(readable(name)).for_each(|(to, from)| *to = from),
        )
    }

    /// Sets the inode of `.`.
    pub(super) fn set_dot(&mut self, dir: u32) -> Result<()> {
        self.change(dir, |spot| spot.position == Some(0), |bytes| set_inode(bytes, dir))
    }

    /// Updates the checksum of a block of a directory.
    pub(super) fn seal_directory_block(&mut self, dir: u32, block: VolBlock) -> Result<()> {
        self.edit_home(dir, RecordHome::Block(block), |_| {})
    }

    /// Returns the blocks of a directory, in order.
    pub(super) fn dir_blocks(&self, dir: u32) -> Result<Vec<VolBlock>> {
        self.dir_blocks_in(&self.bare_volume(), dir)
    }

    /// Returns the volume as it is now, for [`Self::dir_blocks_in`] until the next change.
    pub(super) fn bare_volume(&self) -> Volume {
        let device: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&self.device);
        Volume::bare(device, self.view.sb.clone(), SMALL_CACHE)
    }

    /// Returns the blocks of a directory of a [`Self::bare_volume`], in order.
    pub(super) fn dir_blocks_in(&self, volume: &Volume, dir: u32) -> Result<Vec<VolBlock>> {
        let inode = volume.inode(Ino(dir.into()))?;
        let count = inode.size().div_ceil(self.view.sb.block_size.into());
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let (mut blocks, mut at) = (Vec::new(), 0_u32);
        while at < count {
            let run = volume.map_run(&inode, FileBlock(at))?;
            let len = run.len.min(count.saturating_sub(at)).max(1);
            if let Blocks::Mapped(start) = run.place {
                blocks.extend((0..u64::from(len)).map(|n| VolBlock(start.0.saturating_add(n))));
            }
            at = at.saturating_add(len);
        }
        Ok(blocks)
    }

    pub(super) fn is_inline(&self, dir: u32) -> Result<bool> {
        let record = self.record(dir)?;
        Ok(RawInode::ref_from_prefix(&record)
            .is_ok_and(|(raw, _)| raw.i_flags.get() & InodeFlags::INLINE_DATA.bits() != 0))
    }

    /// Returns every readable record of a directory.
    fn spots(&self, dir: u32) -> Result<Vec<RecordPosition>> {
        let mut spots = Vec::new();
        if self.is_inline(dir)? {
            let record = self.record(dir)?;
            self.walk(
                RecordHome::Inode,
                &record,
                I_BLOCK.saturating_add(4)..I_BLOCK.saturating_add(60),
                &mut spots,
            );
            if let Some(rest) = super::super::inline::inline_rest(&record, dir) {
                let start = to_usize(u64::from(rest.0));
                self.walk(RecordHome::Inode, &record, start..start.saturating_add(rest.1.len()), &mut spots);
            }
            return Ok(spots);
        }
        for (number, block) in self.dir_blocks(dir)?.into_iter().enumerate() {
            let bytes = self.view.read(block, 1)?;
            let from = spots.len();
            self.walk(RecordHome::Block(block), &bytes, 0..bytes.len(), &mut spots);
            if number == 0 {
                let first = spots.get_mut(from..).unwrap_or_default();
                first.iter_mut().enumerate().for_each(|(at, spot)| spot.position = Some(at));
            }
        }
        Ok(spots)
    }

    pub(super) fn walk(
        &self,
        home: RecordHome,
        bytes: &[u8],
        range: core::ops::Range<usize>,
        spots: &mut Vec<RecordPosition>,
    ) {
        let mut at = range.start;
        while let Some((raw, rest)) =
            bytes.get(at..range.end).and_then(|rest| RawDirEntry::ref_from_prefix(rest).ok())
        {
            let len = to_usize(record_len(raw.rec_len.get(), self.view.sb.block_size.bytes()).into());
            if len < HEAD || at.saturating_add(len) > range.end {
                return;
            }
            let name = rest.get(..raw.name_len.into()).unwrap_or_default().to_vec();
            spots.push(RecordPosition { home, at, len, ino: raw.inode.get(), name, position: None });
            at = at.saturating_add(len);
        }
    }

    /// Changes the home of records and updates its checksum.
    pub(super) fn edit_home(
        &mut self,
        dir: u32,
        home: RecordHome,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let RecordHome::Block(block) = home else { return self.edit_record(dir, edit) };
        let seed = self.seed_of(dir)?;
        let sealed = self.view.sb.has_metadata_csum();
        self.block(block, |bytes| {
            edit(bytes);
            if sealed {
                seal(bytes, seed);
            }
        })
    }

    /// Changes the matching record, or the last of several.
    fn change(
        &mut self,
        dir: u32,
        is_it: impl Fn(&RecordPosition) -> bool,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let Some(spot) = self.spots(dir)?.into_iter().rev().find(is_it) else { return Ok(()) };
        let end = spot.at.saturating_add(spot.len);
        self.edit_home(dir, spot.home, |bytes| edit(bytes.get_mut(spot.at..end).unwrap_or_default()))
    }

    /// Clears an entry.
    pub(super) fn clear(&mut self, dir: u32, name: &[u8], ino: u32) -> Result<()> {
        let is_it = |spot: &RecordPosition| {
            spot.ino == ino && spot.name == name && spot.position.is_none_or(|at| at > 1 || !spot.is_dots())
        };
        self.change(dir, is_it, |bytes| set_inode(bytes, 0))
    }

    /// Clears the entries of `dir` that refer to `ino`, if `dir` is a readable directory.
    pub(super) fn clear_named(&mut self, dir: u32, ino: u32) -> Result<()> {
        let is_directory = self.record(dir).is_ok_and(|record| {
            let raw = RawInode::ref_from_prefix(&record).ok();
            raw.is_some_and(|(raw, _)| FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Directory))
        });
        let Ok(spots) = self.spots(dir) else { return Ok(()) };
        if !is_directory {
            return Ok(());
        }
        for spot in spots.into_iter().filter(|spot| spot.ino == ino && !spot.is_dots()) {
            let end = spot.at.saturating_add(spot.len);
            self.edit_home(dir, spot.home, |bytes| {
                set_inode(bytes.get_mut(spot.at..end).unwrap_or_default(), 0);
            })?;
        }
        Ok(())
    }

    /// Gives the second of two equal names another end: `name~0`.
    pub(super) fn rename_second(&mut self, dir: u32, name: &[u8]) -> Result<()> {
        let spots = self.spots(dir)?;
        let is_free = |other: &[u8]| !spots.iter().any(|spot| spot.ino != 0 && spot.name == other);
        let keep = name.len().saturating_sub(2).max(1);
        let head = name.get(..keep.min(name.len())).unwrap_or_default();
        let ends = (0..1000_u32).map(|number| alloc::format!("~{number}"));
        let names = ends.map(|end| {
            [head.get(..name.len().saturating_sub(end.len())).unwrap_or_default(), end.as_bytes()].concat()
        });
        let Some(new) = names.into_iter().find(|new| new.len() <= name.len() && is_free(new)) else {
            return self.change(dir, |spot| spot.name == name, |bytes| set_inode(bytes, 0));
        };
        self.change(
            dir,
            |spot| spot.ino != 0 && spot.name == name,
            |bytes| {
                if let Ok((raw, rest)) = RawDirEntry::mut_from_prefix(bytes) {
                    raw.name_len = u8::try_from(new.len()).unwrap_or(0);
                    rest.iter_mut().zip(&new).for_each(|(to, from)| *to = *from);
                }
            },
        )
    }

    /// Sets the inode of `..` to `parent`.
    pub(super) fn set_parent(&mut self, dir: u32, parent: u32) -> Result<()> {
        if self.is_inline(dir)? {
            return self.edit_record(dir, |record| {
                let place = record.get_mut(I_BLOCK..).unwrap_or_default();
                place.iter_mut().zip(parent.to_le_bytes()).for_each(|(to, from)| *to = from);
            });
        }
        self.change(dir, |spot| spot.position == Some(1), |bytes| set_inode(bytes, parent))
    }

    /// Turns an indexed directory into a linear one.
    pub(super) fn drop_index(&mut self, dir: u32) -> Result<()> {
        let has_tail = self.view.sb.has_metadata_csum();
        let blocks = self.dir_blocks(dir)?;
        self.inode(dir, |raw| raw.i_flags.set(raw.i_flags.get() & !InodeFlags::INDEX.bits()))?;
        for (number, block) in blocks.into_iter().enumerate() {
            let bytes = self.view.read(block, 1)?;
            let mut spots = Vec::new();
            self.walk(RecordHome::Block(block), &bytes, 0..bytes.len(), &mut spots);
            let is_node = matches!(&spots[..], [spot] if spot.ino == 0 && spot.len == bytes.len());
            let end = bytes.len().saturating_sub(if has_tail { TAIL } else { 0 });
            let at = match &spots[..] {
                // A leaf came to the place of the root, which was lost.
                [_, _, others @ ..] if number == 0 && others.iter().any(|spot| spot.ino != 0) => continue,
                [_, second, ..] if number == 0 => second.at,
                _ if is_node => 0,
                _ => continue,
            };
            self.edit_home(dir, RecordHome::Block(block), |bytes| {
                let name = if number == 0 { 4 } else { 0 };
                let from = at.saturating_add(HEAD).saturating_add(name);
                bytes.get_mut(from..).unwrap_or_default().fill(0);
                if let Some((raw, _)) =
                    bytes.get_mut(at..).and_then(|rest| RawDirEntry::mut_from_prefix(rest).ok())
                {
                    raw.rec_len.set(stored_len(end.saturating_sub(at)));
                }
                if has_tail {
                    write_tail(bytes.get_mut(end..).unwrap_or_default());
                }
            })?;
        }
        Ok(())
    }
}

impl RecordPosition {
    fn is_dots(&self) -> bool {
        matches!(self.name[..], [b'.'] | [b'.', b'.'])
    }
}

/// Returns a name with another character for each byte that is not UTF-8. That is not a dot, which could result in
/// `.`.
fn readable(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    name.utf8_chunks().flat_map(|chunk| {
        let others = chunk.invalid().iter().map(|_| b'_');
        chunk.valid().bytes().chain(others)
    })
}

/// Returns the bytes of the name `name` in a record.
fn name_in<'a>(bytes: &'a mut [u8], name: &[u8]) -> &'a mut [u8] {
    bytes.get_mut(HEAD..HEAD.saturating_add(name.len())).unwrap_or_default()
}

fn set_inode(bytes: &mut [u8], ino: u32) {
    if let Ok((raw, _)) = RawDirEntry::mut_from_prefix(bytes) {
        raw.inode.set(ino);
    }
}

/// Updates the checksum of a block: that of a leaf is in its last record, that of a root or a node after its table.
fn seal(bytes: &mut [u8], seed: u32) {
    let Ok((covered, tail)) = RawDirTail::mut_from_suffix(bytes) else { return };
    if tail.det_reserved_zero1.get() == 0
        && tail.det_rec_len.get() == 12
        && tail.det_reserved_ft == CHECKSUM_KIND
    {
        tail.det_checksum.set(Crc::new(seed).add(covered).get());
        return;
    }
    let table = if is_node(bytes) { NODE_TABLE } else { ROOT_TABLE };
    let Some((bounds, _)) = bytes.get(table..).and_then(|rest| RawDxCountLimit::ref_from_prefix(rest).ok())
    else {
        return;
    };
    let end = |count: u16| usize::from(count).saturating_mul(size_of::<RawDxEntry>()).saturating_add(table);
    let (used, tail) = (end(bounds.count.get()), end(bounds.limit.get()));
    let blank = RawDxTail { dt_reserved: 0.into(), dt_checksum: 0.into() };
    let Some(covered) = bytes.get(..used).filter(|_| used <= tail) else { return };
    let sum = Crc::new(seed).add(covered).add(blank.as_bytes()).get();
    if let Some((tail, _)) = bytes.get_mut(tail..).and_then(|rest| RawDxTail::mut_from_prefix(rest).ok()) {
        tail.dt_checksum.set(sum);
    }
}

/// Returns whether a block is a node of an index below the root: its only record has no inode and fills the block.
fn is_node(bytes: &[u8]) -> bool {
    RawDirEntry::ref_from_prefix(bytes).is_ok_and(|(raw, _)| {
        let size = u32::try_from(bytes.len()).unwrap_or(0);
        raw.inode.get() == 0 && to_usize(record_len(raw.rec_len.get(), size).into()) == bytes.len()
    })
}
