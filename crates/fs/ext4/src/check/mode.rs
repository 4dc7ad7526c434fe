//! Pass 1: inodes whose mode is not that of a directory, but whose first block is.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` `check_is_really_dir`.

use obento_base::FileKind;
use obento_base::wire::{FromBytes, to_usize};

use super::blocks::{is_tree, on_volume};
use super::inode_check::InodeCheck;
use crate::dir::record_len;
use crate::inode::InodeFlags;
use crate::map::check::{MAX_DEPTH, extent_start, index_leaf, numbers};
use crate::raw::{RawDirEntry, RawExtent, RawExtentHeader, RawExtentIndex};
use crate::unit::VolBlock;

/// Size of a record before its name, and minimum size of a record.
const HEAD: usize = size_of::<RawDirEntry>();
const SHORTEST: u32 = 12;
/// Size of an extent tree's header, and of an entry.
const ENTRY: usize = 12;

impl InodeCheck<'_> {
    /// Returns whether an inode whose mode is that of a device, a FIFO, a socket or invalid has the blocks of a
    /// directory.
    pub(super) fn is_really_directory(&self) -> bool {
        let kind = self.kind();
        if matches!(kind, Some(FileKind::Directory | FileKind::Regular | FileKind::Symlink)) {
            return false;
        }
        let (is_mapped, first) = match self.has(InodeFlags::EXTENTS) && is_tree(&self.raw.i_block) {
            true => (true, self.first_of_tree()),
            false => self.first_of_map(),
        };
        // A single number is a device number.
        let is_device = matches!(kind, Some(FileKind::CharDevice | FileKind::BlockDevice))
            && self.raw.i_links_count.get() == 1
            && !is_mapped;
        !is_device && first.is_some_and(|block| self.begins_as_own(block))
    }

    /// Returns the first block of a tree.
    fn first_of_tree(&self) -> Option<u64> {
        let mut bytes = self.raw.i_block.to_vec();
        for _ in 0..=MAX_DEPTH {
            let (header, rest) = RawExtentHeader::ref_from_prefix(&bytes).ok()?;
            let entry = rest.get(..ENTRY).filter(|_| header.eh_entries.get() > 0)?;
            if header.eh_depth.get() == 0 {
                let extent = RawExtent::ref_from_bytes(entry).ok()?;
                return (extent.ee_block.get() == 0).then_some(extent_start(extent).0);
            }
            let below = index_leaf(RawExtentIndex::ref_from_bytes(entry).ok()?);
            bytes = on_volume(&self.view.sb, below.0, 1).then(|| self.view.read(below, 1).ok())??;
        }
        None
    }

    /// Returns whether a map has more than its first number, and that number, if all can be blocks.
    fn first_of_map(&self) -> (bool, Option<u64>) {
        let map = numbers(&self.raw.i_block);
        let mut all = map.iter().map(|number| u64::from(number.get()));
        let first = all.next().filter(|&first| first != 0);
        let mut others = all.filter(|&block| block != 0).peekable();
        let has_others = others.peek().is_some();
        let can_be = others.all(|block| on_volume(&self.view.sb, block, 1));
        (has_others, first.filter(|_| can_be))
    }

    /// Returns whether a block begins with `.`, which refers to this inode, and `..`.
    fn begins_as_own(&self, block: u64) -> bool {
        let size = self.view.sb.block_size.bytes();
        if !on_volume(&self.view.sb, block, 1) || self.view.zones.overlap(VolBlock(block), 1) {
            return false;
        }
        let Ok(bytes) = self.view.read(VolBlock(block), 1) else { return false };
        let record = |at: u32| {
            let (raw, _) = RawDirEntry::ref_from_prefix(bytes.get(to_usize(at.into())..)?).ok()?;
            let from = to_usize(at.into()).saturating_add(HEAD);
            let name = bytes.get(from..from.saturating_add(raw.name_len.into()))?;
            let len = record_len(raw.rec_len.get(), size);
            (len >= SHORTEST && len.is_multiple_of(4)).then_some((raw.inode.get(), len, name))
        };
        let Some((ino, len, b".")) = record(0) else { return false };
        ino == self.ino && len < size.saturating_sub(SHORTEST) && matches!(record(len), Some((_, _, b"..")))
    }
}
