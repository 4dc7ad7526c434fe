//! The changes of fast commits to one inode.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::offset_of;

use obento_base::wire::{FromBytes, IntoBytes};
use obento_base::{FileKind, Ino, Result};

use super::ranges::MovedRanges;
use crate::inode::InodeFlags;
use crate::raw::{RawExtent, RawExtentHeader, RawInode};

/// `EXT4_EXT_MAGIC`
const EXTENT_MAGIC: u16 = 0xf30a;
/// Offset of `i_block` and the following fields in the record.
const I_BLOCK: usize = offset_of!(RawInode, i_block);
const AFTER_I_BLOCK: usize = offset_of!(RawInode, i_generation);

/// The properties of an inode while records are applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplayedInode {
    pub(crate) links: u16,
    pub(crate) is_dir: bool,
    /// Whether it is a case-insensitive directory.
    pub(crate) folds: bool,
}

/// The changes of fast commits to one inode.
#[derive(Clone, Default, Debug)]
pub(crate) struct InodeChange {
    /// The last logged record.
    pub(super) logged: Option<Box<[u8]>>,
    /// Current link count and type, if they differ from those on the volume.
    pub(super) node: Option<ReplayedInode>,
    /// Whether the mapping on the volume belongs to an earlier inode with this number.
    pub(super) map_dropped: bool,
    /// New mappings.
    pub(super) ranges: MovedRanges,
    /// The parent of a created directory.
    pub(super) made_in: Option<Ino>,
}

impl InodeChange {
    /// Applies the record `logged` of an `INODE`.
    pub(super) fn log(&mut self, logged: &[u8]) {
        let Ok((raw, _)) = RawInode::ref_from_prefix(logged) else { return };
        let is_dir = FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Directory);
        let folds = flags(raw).contains(InodeFlags::CASEFOLD);
        self.node = Some(ReplayedInode { links: raw.i_links_count.get(), is_dir, folds });
        if flags(raw).contains(InodeFlags::INLINE_DATA) {
            // The record contains inline data in place of the mapping.
            self.map_dropped = true;
            self.ranges = MovedRanges::default();
        }
        self.logged = Some(logged.into());
    }

    /// Frees the inode, whose last name was removed.
    pub(super) fn free(&mut self, is_dir: bool) {
        let node = Some(ReplayedInode { links: 0, is_dir, folds: false });
        *self = Self { node, map_dropped: true, ..Self::default() };
    }

    /// Returns the record for the inode table, whose current record is `base`. Like `ext4_fc_replay_inode`, takes all
    /// fields of the logged record except the mapping. A directory also keeps its size, since its new names are not
    /// in its blocks.
    pub(super) fn merge(&self, base: &[u8]) -> Result<Vec<u8>> {
        let mut record = Vec::new();
        record.try_reserve_exact(base.len())?;
        record.extend_from_slice(base);
        if let Some(logged) = &self.logged {
            overwrite(&mut record, logged, 0, I_BLOCK);
            overwrite(&mut record, logged, AFTER_I_BLOCK, logged.len());
        }
        let Ok((raw, _)) = RawInode::mut_from_prefix(&mut record) else { return Ok(record) };
        let is_dir = FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Directory);
        if is_dir
            && !self.map_dropped
            && let Ok((base, _)) = RawInode::ref_from_prefix(base)
        {
            keep_directory(raw, base);
        }
        self.settle_map(raw);
        if let Some(node) = self.node {
            raw.i_links_count.set(node.links);
        }
        Ok(record)
    }

    /// Sets `i_block` to the form that the flags require.
    fn settle_map(&self, raw: &mut RawInode) {
        let flags = flags(raw);
        let logged = self.logged.as_deref().and_then(|logged| logged.get(I_BLOCK..AFTER_I_BLOCK));
        if flags.contains(InodeFlags::EXTENTS) {
            if self.map_dropped || !starts_with_magic(&raw.i_block) {
                raw.i_block = empty_extents();
            }
            return;
        }
        let kind = FileKind::from_mode(raw.i_mode.get());
        let mapped = matches!(kind, Some(FileKind::Regular | FileKind::Directory));
        match logged {
            // Targets and device numbers are not mappings. Linux omits them, and writes no fast commit for such
            // inodes.
            Some(bytes) if flags.contains(InodeFlags::INLINE_DATA) || !mapped => {
                raw.i_block.copy_from_slice(bytes);
            }
            _ if self.map_dropped => raw.i_block = [0; 60],
            _ => {}
        }
    }
}

fn flags(raw: &RawInode) -> InodeFlags {
    InodeFlags::from_bits_retain(raw.i_flags.get())
}

/// Keeps the fields that describe the blocks of a directory.
fn keep_directory(raw: &mut RawInode, base: &RawInode) {
    let about_blocks = InodeFlags::INDEX | InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    let kept = flags(raw).difference(about_blocks).union(flags(base).intersection(about_blocks));
    raw.i_flags.set(kept.bits());
    raw.i_size_lo = base.i_size_lo;
    raw.i_size_high = base.i_size_high;
}

/// Copies those of the bytes `from..to` that exist in both `source` and `target`.
fn overwrite(target: &mut [u8], source: &[u8], from: usize, to: usize) {
    let end = to.min(source.len()).min(target.len());
    if let (Some(target), Some(source)) = (target.get_mut(from..end), source.get(from..end)) {
        target.copy_from_slice(source);
    }
}

fn starts_with_magic(i_block: &[u8]) -> bool {
    RawExtentHeader::ref_from_prefix(i_block).is_ok_and(|(header, _)| header.eh_magic.get() == EXTENT_MAGIC)
}

/// Returns the root of an extent tree without an extent.
fn empty_extents() -> [u8; 60] {
    const ROOM: usize = (60 - size_of::<RawExtentHeader>()) / size_of::<RawExtent>();
    let mut i_block = [0; 60];
    if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(i_block.as_mut_bytes()) {
        header.eh_magic.set(EXTENT_MAGIC);
        header.eh_max.set(u16::try_from(ROOM).unwrap_or(0));
    }
    i_block
}
