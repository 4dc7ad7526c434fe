//! The last step: the volume gets its new size.
//!
//! Invariant: nothing that is in use is after the new end by then.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits both volumes")]

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, split, to_usize};
use obento_block::BlockDevice;
use obento_driver::ResizeResult;

use super::Shrinking;
use super::plan::ShrinkPlan;
use crate::check::commit_growth;
use crate::feature::{Compat, Incompat};
use crate::raw::RawSuperBlock;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;
use crate::writer::{backup_super_block, seal_super_block};

/// Maximum number of backups of the super block that change together with the primary one.
const BACKUPS: usize = 32;

impl Shrinking<'_> {
    /// Cuts the volume at its new end.
    pub(super) fn cut(&mut self, plan: &ShrinkPlan) -> ResizeResult<()> {
        let old = self.edits.view.sb.clone();
        let new = smaller(&old, plan)?;
        self.release_tables(&old, &new, plan);
        // The bits after the end of the last group are set, and do not count as free.
        let last = new.groups - 1;
        let stop = old.group_blocks(last).end;
        self.set_blocks(plan.end..stop, true);
        self.changed.insert(last);
        self.changed.retain(|&group| group < new.groups);
        self.write_bitmaps()?;
        let groups = self.edits.view.groups.get(..to_usize(new.groups.into())).unwrap_or_default();
        let free_inodes: u64 = groups.iter().map(|group| u64::from(group.free_inodes)).sum();
        let free_blocks = groups.iter().map(|group| u64::from(group.free_blocks)).sum::<u64>();
        let mut raw = *new.raw;
        let (low, high) = split(free_blocks);
        raw.s_free_blocks_count_lo.set(low);
        raw.s_free_blocks_count_hi.set(high);
        raw.s_free_inodes_count.set(u32::try_from(free_inodes).unwrap_or(0));
        seal_super_block(&new, &mut raw);
        let new = SuperBlock::decode(raw.as_bytes(), VolBlock(new.first_data_block.into()))?;
        self.edits.super_block(|primary| *primary = raw)?;
        let size = new.block_size;
        let backups: Vec<u32> = (1..new.groups).filter(|&group| new.has_copy(group)).collect();
        for &group in backups.iter().take(BACKUPS) {
            let backup = backup_super_block(&new, group);
            self.copy.write_at(size.len(new.group_start(group).0), backup.as_bytes())?;
        }
        let renews = new.compat.contains(Compat::RESIZE_INODE) && new.groups != old.groups;
        commit_growth(self.device, self.options, &self.copy, renews)?;
        for &group in &backups {
            let backup = backup_super_block(&new, group);
            self.device.write_at(size.len(new.group_start(group).0), backup.as_bytes())?;
        }
        let plain: Vec<u32> = backups.into_iter().filter(|&group| new.has_plain_copies(group)).collect();
        let mut bytes = alloc::vec![0; to_usize(size.into())];
        for index in 0..new.desc_blocks() {
            let copies: Vec<VolBlock> = if new.is_meta(index) {
                new.desc_homes(index).into_iter().skip(1).collect()
            } else {
                plain.iter().map(|&group| new.desc_block(index, group)).collect()
            };
            self.device.read_at(size.len(new.desc_block(index, 0).0), &mut bytes)?;
            copies.iter().try_for_each(|home| self.device.write_at(size.len(home.0), &bytes))?;
        }
        Ok(self.device.flush()?)
    }

    /// Frees the tables of removed groups that are before the new end, and descriptor blocks that are no longer needed.
    fn release_tables(&mut self, old: &SuperBlock, new: &SuperBlock, plan: &ShrinkPlan) {
        let table = u64::from(old.inode_table_blocks());
        for group in new.groups..old.groups {
            let known = *self.edits.view.group(group);
            for (start, len) in [(known.block_bitmap, 1), (known.inode_bitmap, 1), (known.inode_table, table)]
            {
                let stop = start.0.saturating_add(len).min(plan.end);
                if start.0 < stop {
                    self.set_blocks(start.0..stop, false);
                }
            }
        }
        for group in 0..new.groups {
            let ((start, before), (_, after)) = (old.reserved_start(group), new.reserved_start(group));
            if after < before {
                self.set_blocks(start.0 + after..start.0 + before, false);
            }
        }
    }
}

/// Returns the super block of the smaller volume, without its counts.
fn smaller(old: &SuperBlock, plan: &ShrinkPlan) -> ResizeResult<SuperBlock> {
    let mut raw: RawSuperBlock = *old.raw;
    let is_wide = old.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    let mut set = |blocks: u64, reserved: u64| {
        let (low, high) = split(blocks);
        raw.s_blocks_count_lo.set(low);
        let (reserved_low, reserved_high) = split(reserved);
        raw.s_r_blocks_count_lo.set(reserved_low);
        if is_wide {
            raw.s_blocks_count_hi.set(high);
            raw.s_r_blocks_count_hi.set(reserved_high);
        }
    };
    // The same part of the volume stays reserved.
    let product = u128::from(old.reserved_blocks()) * u128::from(plan.end);
    let reserved = product.checked_div(old.blocks_count.into()).and_then(|count| u64::try_from(count).ok());
    set(plan.end, reserved.unwrap_or(0));
    raw.s_inodes_count.set(plan.groups * old.inodes_per_group);
    // The kernel counts the blocks of the format again.
    raw.s_overhead_clusters.set(0);
    let desc_blocks = plan.groups.div_ceil(old.descs_per_block());
    if old.incompat.contains(Incompat::META_BG) && desc_blocks < old.raw.s_first_meta_bg.get() {
        // As in resize2fs: all descriptors that are left follow the copies of the super block.
        raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::META_BG.bits());
        raw.s_first_meta_bg.set(0);
    }
    if old.compat.contains(Compat::RESIZE_INODE) {
        let released = old.desc_blocks() - desc_blocks;
        let reserved = u32::from(raw.s_reserved_gdt_blocks.get()) + released;
        // An indirect block contains as many numbers.
        let reserved = reserved.min(old.block_size.pointers());
        raw.s_reserved_gdt_blocks.set(u16::try_from(reserved).unwrap_or(u16::MAX));
    }
    Ok(SuperBlock::decode(raw.as_bytes(), VolBlock(old.first_data_block.into()))?)
}
