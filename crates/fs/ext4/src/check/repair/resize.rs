//! Repairs of the resize inode: it is recreated as mke2fs creates it.
//!
//! Invariant: this happens when blocks can be allocated, since it may need another doubly indirect block.
//! Source: e2fsprogs `e2fsck/super.c` `check_resize_inode`, `lib/ext2fs/res_gdt.c` `ext2fs_create_resize_inode`.

use obento_base::wire::{FromBytes, split, to_usize};
use obento_base::{Error, Result};

use super::super::blocks::on_volume;
use super::super::claims::is_own;
use super::super::inode_check::RESIZE_INO;
use super::edits::Edits;
use crate::feature::Compat;
use crate::inode::InodeFlags;
use crate::map::check::numbers;
use crate::raw::RawInode;
use crate::unit::VolBlock;

/// Index of the doubly indirect block in `i_block`.
const DOUBLY: usize = 13;
/// With these flags, `i_block` does not contain block numbers.
const NO_MAP: InodeFlags = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);
/// Mode of a private regular file.
const PRIVATE: u16 = 0o100_600;

impl Edits {
    /// Recreates the resize inode if the volume itself needs its doubly indirect block `block`. Returns false for
    /// another block.
    pub(super) fn move_doubly(&mut self, block: u64) -> Result<bool> {
        let record = self.record(RESIZE_INO)?;
        let (raw, _) = RawInode::ref_from_prefix(&record).map_err(|_| Error::Invalid)?;
        let is_doubly =
            numbers(&raw.i_block).get(DOUBLY).is_some_and(|number| u64::from(number.get()) == block);
        if is_doubly { self.make_resize_inode() } else { Ok(false) }
    }

    /// Recreates the resize inode, or clears it without the feature. Returns false if no block is free.
    pub(super) fn make_resize_inode(&mut self) -> Result<bool> {
        if !self.view.sb.compat.contains(Compat::RESIZE_INODE) {
            self.super_block(|raw| raw.s_reserved_gdt_blocks.set(0))?;
            return self.clear_inode(RESIZE_INO).map(|()| true);
        }
        let Some(doubly) = self.doubly()? else { return Ok(false) };
        let sb = self.view.sb.clone();
        let per_block = u64::from(sb.block_size.pointers());
        let (first, kept) = (u64::from(sb.desc_blocks()), u64::from(sb.raw.s_reserved_gdt_blocks.get()));
        let copies = (1..sb.groups).filter(|&group| sb.has_copy(group)).take(to_usize(per_block));
        let into: alloc::vec::Vec<u64> =
            copies.map(|group| u64::from(group).saturating_mul(sb.blocks_per_group.into())).collect();
        let blank = alloc::vec![0; to_usize(sb.block_size.into())];
        let mut named = blank.clone();
        for index in first..first.saturating_add(kept) {
            let block = sb.desc_block(0, 0).0.saturating_add(index);
            put(&mut named, index.checked_rem(per_block).unwrap_or(0), block);
            let mut below = blank.clone();
            for (place, into) in (0..).zip(&into) {
                put(&mut below, place, block.saturating_add(*into));
            }
            self.put(VolBlock(block), &below)?;
        }
        self.put(doubly, &named)?;
        let each = u64::try_from(into.len()).unwrap_or(0).saturating_add(1);
        let blocks = kept.saturating_mul(each).saturating_add(1);
        // As in e2fsprogs, each block counts as a cluster.
        let clusters = blocks.saturating_mul(sb.cluster_blocks().into());
        let sectors = clusters.saturating_mul(u64::from(sb.block_size.sectors()));
        let mapped = per_block.saturating_mul(per_block).saturating_add(per_block).saturating_add(12);
        self.make_inode(doubly, mapped.saturating_mul(sb.block_size.into()), sectors).map(|()| true)
    }

    /// Returns the existing doubly indirect block, or a free block.
    fn doubly(&mut self) -> Result<Option<VolBlock>> {
        let record = self.record(RESIZE_INO)?;
        let (raw, _) = RawInode::ref_from_prefix(&record).map_err(|_| Error::Invalid)?;
        let old = VolBlock(numbers(&raw.i_block).get(DOUBLY).map_or(0, |number| number.get().into()));
        let has_map = !InodeFlags::from_bits_retain(raw.i_flags.get()).intersects(NO_MAP);
        if raw.i_links_count.get() != 0
            && has_map
            && on_volume(&self.view.sb, old.0, 1)
            && !is_own(&self.view, old.0)
        {
            return Ok(Some(old));
        }
        Ok(self.take_run(1)?.map(VolBlock))
    }

    fn make_inode(&mut self, doubly: VolBlock, size: u64, sectors: u64) -> Result<()> {
        let (low, high) = split(size);
        let (now, block) = (self.now(), u32::try_from(doubly.0).unwrap_or(0));
        self.edit_record(RESIZE_INO, |record| {
            // Its owner, times and attributes may be damaged, too.
            record.fill(0);
            let Ok((raw, _)) = RawInode::mut_from_prefix(record) else { return };
            raw.i_mode.set(PRIVATE);
            raw.i_links_count.set(1);
            raw.i_ctime.set(now);
            raw.i_mtime.set(now);
            raw.i_size_lo.set(low);
            raw.i_size_high.set(high);
            let (low, high) = split(sectors);
            raw.i_blocks_lo.set(low);
            raw.l_i_blocks_high.set(u16::try_from(high).unwrap_or(0));
            if let Some(entry) = raw.i_block.chunks_exact_mut(4).nth(DOUBLY) {
                entry.copy_from_slice(&block.to_le_bytes());
            }
        })
    }
}

/// Sets the number at index `place` of a block.
fn put(bytes: &mut [u8], place: u64, number: u64) {
    let number = u32::try_from(number).unwrap_or(0);
    if let Some(entry) = bytes.chunks_exact_mut(4).nth(to_usize(place)) {
        entry.copy_from_slice(&number.to_le_bytes());
    }
}
