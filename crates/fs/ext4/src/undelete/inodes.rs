//! The inodes of deleted files: in the inode tables, and their older versions in the log.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, join, to_usize};
use obento_base::{FileKind, Ino, Result, Timestamp};
use obento_block::Block;

use super::Search;
use super::old::{Age, OldBlocks};
use crate::feature::RoCompat;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::inode::{InodeFlags, reaches, timestamp};
use crate::raw::{RawInode, RawInodeExtra};
use crate::super_block::SuperBlock;

/// The end of `i_mtime_extra` in the record.
const MTIME_EXTRA_END: usize = 0x8c;
/// The type bits of `i_mode`.
const KIND: u16 = 0o170_000;

/// The source of an inode. The order is that in which files claim their blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Origin {
    /// The inode has no links, but is in use, and still has its blocks.
    Orphan,
    /// The free inode in the table.
    Table,
    /// A version in the log of this age.
    Journal(Age),
}

/// The inode of a deleted file.
#[derive(Clone, Debug)]
pub(super) struct OldInode {
    pub(super) ino: u32,
    pub(super) origin: Origin,
    pub(super) size: u64,
    pub(super) modified: Timestamp,
    pub(super) has_extents: bool,
    pub(super) i_block: [u8; 60],
}

/// The inodes of a volume.
#[derive(Default)]
pub(super) struct Found {
    /// Deleted regular files.
    pub(super) files: Vec<OldInode>,
    /// Directories in use.
    pub(super) directories: Vec<u32>,
}

/// The versions of deleted files, by number and generation.
type Versions = BTreeMap<(u32, u32), OldInode>;

impl Search<'_> {
    /// Returns the deleted files and the directories in use. Reads at most `blocks` blocks of inode tables.
    pub(super) fn inodes(&mut self, old: &OldBlocks, blocks: u64) -> Found {
        let (mut found, mut versions) = (Found::default(), Versions::new());
        let mut tables = BTreeMap::new();
        let mut left = blocks;
        for group in 0..self.volume.super_block().groups {
            // A group that cannot be read has no inodes.
            let Ok(descriptor) = self.volume.group(group) else { continue };
            tables.insert(descriptor.inode_table.0, group);
            let _ = self.table(group, &descriptor, &mut left, &mut found, &mut versions);
        }
        self.old_inodes(old, &tables, &mut versions);
        found.files.extend(versions.into_values());
        found
    }

    /// Adds the inodes of the table of a group.
    fn table(
        &self,
        group: u32,
        descriptor: &GroupDescriptor,
        left: &mut u64,
        found: &mut Found,
        versions: &mut Versions,
    ) -> Result<()> {
        let sb = self.volume.super_block();
        let has_flags = has_group_flags(sb);
        if has_flags && descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let bitmap = self.volume.cache().get(descriptor.inode_bitmap.0)?;
        let unused = if has_flags { descriptor.itable_unused } else { 0 };
        let used = sb.inodes_per_group.saturating_sub(unused);
        let per_block = sb.inodes_per_block();
        for index in 0..used.div_ceil(per_block) {
            let Some(rest) = left.checked_sub(1) else { return Ok(()) };
            *left = rest;
            let number = descriptor.inode_table.0.saturating_add(index.into());
            // The inodes of the other blocks are found.
            let Ok(block) = self.volume.cache().get(number) else { continue };
            let first = index.saturating_mul(per_block);
            for (slot, record) in (0..per_block).zip(block.chunks_exact(sb.inode_size.into())) {
                let inside = first.saturating_add(slot);
                let ino = group.saturating_mul(sb.inodes_per_group).saturating_add(inside).saturating_add(1);
                self.record(ino, is_set(&bitmap, inside), record, found, versions);
            }
        }
        Ok(())
    }

    /// Adds an inode of a table: a directory in use, an orphan, or a free inode that still has a map.
    fn record(&self, ino: u32, is_used: bool, record: &[u8], found: &mut Found, versions: &mut Versions) {
        let Ok((raw, _)) = RawInode::ref_from_prefix(record) else { return };
        let has_links = raw.i_links_count.get() != 0;
        if is_used && has_links && kind(raw) == Some(FileKind::Directory) {
            found.directories.push(ino);
        }
        let origin = match (is_used, has_links) {
            (true, true) => return,
            (true, false) => Origin::Orphan,
            (false, _) if raw.i_dtime.get() != 0 => Origin::Table,
            (false, _) => return,
        };
        let is_empty = raw.i_block.iter().all(|&byte| byte == 0);
        if let Some(file) = self.file_of(ino, record, origin)
            && (origin == Origin::Orphan || file.size > 0 && !is_empty)
        {
            versions.insert((ino, raw.i_generation.get()), file);
        }
    }

    /// Adds the versions in the log of files that do not exist now. The newest version with data counts.
    fn old_inodes(&self, old: &OldBlocks, tables: &BTreeMap<u64, u32>, versions: &mut Versions) {
        let sb = self.volume.super_block();
        let per_block = sb.inodes_per_block();
        old.each(|block, age, bytes| {
            let Some((&start, &group)) = tables.range(..=block).next_back() else { return };
            let index = block.saturating_sub(start);
            if index >= sb.inode_table_blocks().into() {
                return;
            }
            let first = index.saturating_mul(per_block.into());
            for (slot, record) in (0..per_block).zip(bytes.chunks_exact(sb.inode_size.into())) {
                let inside = first.saturating_add(slot.into());
                let ino = u64::from(group)
                    .saturating_mul(sb.inodes_per_group.into())
                    .saturating_add(inside)
                    .saturating_add(1);
                let Ok(ino) = u32::try_from(ino) else { return };
                self.old_record(ino, age, record, versions);
            }
        });
    }

    fn old_record(&self, ino: u32, age: Age, record: &[u8], versions: &mut Versions) {
        let Ok((raw, _)) = RawInode::ref_from_prefix(record) else { return };
        let generation = raw.i_generation.get();
        if raw.i_links_count.get() == 0 || raw.i_dtime.get() != 0 {
            return;
        }
        let Some(file) = self.file_of(ino, record, Origin::Journal(age)) else { return };
        let is_better = match versions.get(&(ino, generation)) {
            Some(known) => known.size == 0 && known.origin != Origin::Orphan && file.size > 0,
            None => !self.exists(ino, generation),
        };
        if is_better {
            versions.insert((ino, generation), file);
        }
    }

    /// Returns whether the inode is in use with the same generation.
    fn exists(&self, ino: u32, generation: u32) -> bool {
        let Ok(slot) = self.volume.inode_slot(Ino(ino.into())) else { return true };
        let Ok(block) = self.volume.cache().get(slot.block.0) else { return false };
        let record = block.get(slot.offset..).unwrap_or_default();
        let Ok((raw, _)) = RawInode::ref_from_prefix(record) else { return false };
        raw.i_generation.get() == generation && raw.i_links_count.get() != 0 && self.is_used(ino)
    }

    fn is_used(&self, ino: u32) -> bool {
        let sb = self.volume.super_block();
        let (group, inside) = sb.inode_index(ino.into()).unwrap_or_default();
        let bitmap: Result<Block> = self
            .volume
            .group(group)
            .and_then(|descriptor| self.volume.cache().get(descriptor.inode_bitmap.0));
        bitmap.is_ok_and(|bitmap| is_set(&bitmap, inside))
    }

    /// Returns the file of a record, if it is a regular file of a user whose data is in blocks.
    fn file_of(&self, ino: u32, record: &[u8], origin: Origin) -> Option<OldInode> {
        let sb = self.volume.super_block();
        let (raw, rest) = RawInode::ref_from_prefix(record).ok()?;
        if kind(raw) != Some(FileKind::Regular)
            || self.volume.is_reserved(Ino(ino.into()))
            || ino > sb.inodes_count
        {
            return None;
        }
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        // The data of an encrypted file is useless, and small files may be in the inode.
        let others = InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA | InodeFlags::EA_INODE;
        let (size, has_extents) =
            (join(raw.i_size_lo.get(), raw.i_size_high.get()), flags.contains(InodeFlags::EXTENTS));
        if flags.intersects(others) || size > sb.file_size_max(has_extents) {
            return None;
        }
        let rest = rest.get(..usize::from(sb.inode_size).saturating_sub(size_of::<RawInode>()));
        let extra = rest.and_then(|rest| RawInodeExtra::ref_from_prefix(rest).ok()).map(|(extra, _)| extra);
        let extra = extra.filter(|extra| reaches(extra.i_extra_isize.get(), MTIME_EXTRA_END));
        let modified = timestamp(raw.i_mtime.get(), extra.map(|extra| extra.i_mtime_extra.get()));
        Some(OldInode { ino, origin, size, modified, has_extents, i_block: raw.i_block })
    }
}

/// Returns whether the flags of the groups have a meaning. The search ignores checksums, but not this.
pub(super) fn has_group_flags(sb: &SuperBlock) -> bool {
    sb.ro_compat.intersects(RoCompat::UNINIT_BG | RoCompat::METADATA_CSUM)
}

fn kind(raw: &RawInode) -> Option<FileKind> {
    FileKind::from_mode(raw.i_mode.get() & KIND)
}

/// Returns bit `index` of a bitmap.
fn is_set(bitmap: &[u8], index: u32) -> bool {
    let bit = 1_u8.checked_shl(index % 8).unwrap_or(0);
    bitmap.get(to_usize(u64::from(index / 8))).is_some_and(|byte| byte & bit != 0)
}
