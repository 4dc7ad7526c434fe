//! Changes to the groups that exist before a volume grows: blocks become free at the end of the last group, and where a
//! structure is no longer needed.
#![allow(clippy::arithmetic_side_effects, reason = "`DescriptorTable::read` checks all places")]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::BlockDevice;

use super::table::DescriptorTable;
use crate::allocator::{BitmapKind, bitmap_checksum, bits, compare_sum};
use crate::feature::Compat;
use crate::group::GroupFlags;
use crate::map::check::numbers;
use crate::raw::RawInode;
use crate::size::ClusterSize;
use crate::super_block::{Checksums, SuperBlock};
use crate::unit::VolBlock;

/// `EXT4_RESIZE_INO`.
const RESIZE_INO: u32 = 7;
/// Index of the doubly indirect block in `i_block`.
const DOUBLY: usize = 13;

/// The old groups, and their bitmaps that change.
pub(super) struct OldGroups<'a> {
    pub device: &'a dyn BlockDevice,
    pub old: &'a SuperBlock,
    pub new: &'a SuperBlock,
    pub table: &'a mut DescriptorTable,
    /// Changed block bitmaps, by group.
    pub bitmaps: BTreeMap<u32, Vec<u8>>,
}

impl OldGroups<'_> {
    /// Frees the blocks after the end of the old volume in its last group, and the blocks of structures that the grown
    /// volume does not have.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a bitmap is damaged.
    /// - The device failed.
    pub(super) fn change(&mut self) -> Result<()> {
        let last = self.old.groups - 1;
        let added = self.old.group_clusters(last)..self.new.group_clusters(last);
        if !added.is_empty() {
            // Bits after the end do not count as free, whatever they say.
            let count = added.end - added.start;
            self.free(last, added, |_| count)?;
        }
        if self.old.compat.contains(Compat::SPARSE_SUPER2) {
            for group in self.old.raw.s_backup_bgs.map(|group| group.get()) {
                self.release_backup(group)?;
            }
        }
        let is_converted =
            self.old.compat.contains(Compat::RESIZE_INODE) && !self.new.compat.contains(Compat::RESIZE_INODE);
        if is_converted {
            let block = self.doubly()?;
            self.release(block..block + 1)?;
        }
        Ok(())
    }

    /// Frees the backup in a group that has none in the grown volume.
    fn release_backup(&mut self, group: u32) -> Result<()> {
        if group >= self.old.groups || !self.old.has_copy(group) || self.new.has_copy(group) {
            return Ok(());
        }
        let (start, len) = self.old.reserved_start(group);
        let (_, left) = self.new.reserved_start(group);
        self.release(start.0 + left..start.0 + len)
    }

    /// Returns the doubly indirect block of the resize inode.
    fn doubly(&self) -> Result<u64> {
        let sb = self.old;
        let offset = u64::from(RESIZE_INO - 1) * u64::from(sb.inode_size);
        let table = self.table.get(sb, 0)?.inode_table.0;
        let mut bytes = [0; size_of::<RawInode>()];
        self.device.read_at(sb.block_size.len(table) + offset, &mut bytes)?;
        let raw = RawInode::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?;
        let block = numbers(&raw.i_block).get(DOUBLY).map_or(0, |number| u64::from(number.get()));
        if sb.holds_blocks(VolBlock(block), 1) { Ok(block) } else { Err(Error::Invalid) }
    }

    /// Frees the blocks of a structure of one group. With clusters, the structures beside it keep theirs.
    fn release(&mut self, blocks: Range<u64>) -> Result<()> {
        let Some(group) = self.old.group_of(VolBlock(blocks.start)) else { return Ok(()) };
        let len = blocks.end.saturating_sub(blocks.start);
        let mut clusters = self.old.clusters_in_group(group, VolBlock(blocks.start), len);
        while !clusters.is_empty() && self.has_structure(group, clusters.start)? {
            clusters.start += 1;
        }
        while !clusters.is_empty() && self.has_structure(group, clusters.end - 1)? {
            clusters.end -= 1;
        }
        let all = clusters.end - clusters.start;
        let range = clusters.clone();
        self.free(group, clusters, |bitmap| {
            bitmap.map_or(all, |bitmap| all - bits::count_clear(bitmap, range))
        })
    }

    /// Returns whether a cluster contains a bitmap, a part of an inode table, or a copy of the descriptors.
    fn has_structure(&self, group: u32, cluster: u32) -> Result<bool> {
        if self.old.cluster == ClusterSize::ONE {
            return Ok(false);
        }
        let start = self.old.cluster_start(group, cluster).0;
        let end = start + u64::from(self.old.cluster_blocks());
        let overlaps = |from: u64, len: u64| from < end && from + len > start;
        let (head, len) = self.new.reserved_start(group);
        if overlaps(head.0, len) {
            return Ok(true);
        }
        let table = u64::from(self.old.inode_table_blocks());
        for other in 0..self.old.groups {
            let descriptor = self.table.get(self.old, other)?;
            if overlaps(descriptor.block_bitmap.0, 1)
                || overlaps(descriptor.inode_bitmap.0, 1)
                || overlaps(descriptor.inode_table.0, table)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Clears the bits of clusters. `count` returns by how much the number of free clusters grows.
    fn free(
        &mut self,
        group: u32,
        clusters: Range<u32>,
        count: impl FnOnce(Option<&[u8]>) -> u32,
    ) -> Result<()> {
        let mut descriptor = self.table.get(self.old, group)?;
        let has_flags = self.old.checksums != Checksums::None;
        let mut sum = None;
        let added = if has_flags && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            count(None)
        } else {
            let mut bitmap = self.bitmap(group)?;
            let added = count(Some(&bitmap));
            bits::clear(&mut bitmap, clusters);
            sum = bitmap_checksum(self.new, BitmapKind::Blocks, &bitmap);
            self.bitmaps.insert(group, bitmap);
            added
        };
        descriptor.free_blocks = descriptor.free_blocks.saturating_add(added);
        self.table.set(self.new, group, &descriptor, [sum, None]);
        Ok(())
    }

    /// Returns the block bitmap of a group.
    fn bitmap(&mut self, group: u32) -> Result<Vec<u8>> {
        if let Some(changed) = self.bitmaps.remove(&group) {
            return Ok(changed);
        }
        let block = self.table.get(self.old, group)?.block_bitmap.0;
        let mut bytes = Vec::new();
        let len = to_usize(self.old.block_size.into());
        bytes.try_reserve_exact(len)?;
        bytes.resize(len, 0);
        self.device.read_at(self.old.block_size.len(block), &mut bytes)?;
        let stored = self.table.bytes_of(self.old, group);
        let sums = bitmap_checksum(self.old, BitmapKind::Blocks, &bytes)
            .and_then(|sum| compare_sum(BitmapKind::Blocks, stored, sum));
        match sums {
            Some((found, expected)) if found != expected => {
                let structure = Structure::BlockBitmap(group.into());
                Err(Corrupt::Checksum { structure, block, found, expected }.into())
            }
            _ => Ok(bytes),
        }
    }
}
