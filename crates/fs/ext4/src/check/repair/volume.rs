//! Repairs of the fields of the super block and of the groups' descriptors.

use obento_base::Result;
use obento_base::wire::split;

use super::super::reason::{ExtraSizeField, SuperBlockField};
use super::edits::Edits;
use crate::feature::Incompat;
use crate::group::GroupFlags;
use crate::layout;
use crate::unit::VolBlock;

impl Edits {
    pub(super) fn repair_super_block_field(&mut self, field: SuperBlockField) -> Result<()> {
        self.super_block(|raw| match field {
            SuperBlockField::ReservedBlocks => {
                raw.s_r_blocks_count_lo.set(0);
                raw.s_r_blocks_count_hi.set(0);
            }
            SuperBlockField::Revision => {
                raw.s_rev_level.set(1);
                raw.s_first_ino.set(11);
                raw.s_inode_size.set(128);
            }
        })
    }

    /// Writes the layout fields that the view took from a backup.
    pub(super) fn restore_layout(&mut self) -> Result<()> {
        let right = *self.view.sb.raw;
        self.super_block(|primary| *primary = layout::with_fields(primary, &right))
    }

    /// Replaces the primary super block by the backup that is in use.
    pub(super) fn use_backup(&mut self) -> Result<()> {
        let mut raw = *self.view.sb.raw;
        raw.s_block_group_nr.set(0);
        self.super_block(|primary| *primary = raw)
    }

    pub(super) fn set_wanted_extra_size(&mut self, field: ExtraSizeField, size: u16) -> Result<()> {
        self.super_block(|raw| match field {
            ExtraSizeField::Min => raw.s_min_extra_isize.set(size),
            ExtraSizeField::Want => raw.s_want_extra_isize.set(size),
        })
    }

    /// Removes the request for recovery.
    pub(super) fn drop_recovery(&mut self) -> Result<()> {
        self.super_block(|raw| {
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits());
        })
    }

    /// Removes the number of a quota file.
    pub(super) fn drop_quota_file(&mut self, ino: u32) -> Result<()> {
        self.super_block(|raw| {
            let places = [&mut raw.s_usr_quota_inum, &mut raw.s_grp_quota_inum, &mut raw.s_prj_quota_inum];
            places.into_iter().filter(|place| place.get() == ino).for_each(|place| place.set(0));
        })
    }

    /// Writes a block of the multiple mount protection that marks the volume as not in use.
    pub(super) fn repair_mmp(&mut self, block: u64) -> Result<bool> {
        let (seed, sealed) = (self.view.sb.checksum_seed, self.view.sb.has_metadata_csum());
        if !self.view.sb.holds_blocks(VolBlock(block), 1) {
            return Ok(false);
        }
        self.block(VolBlock(block), |bytes| crate::check::mmp::write_free(bytes, sealed.then_some(seed)))?;
        Ok(true)
    }

    /// Marks all inodes and blocks of a group as possibly in use.
    pub(super) fn mark_used(&mut self, group: u32) -> Result<()> {
        self.descriptor(group, |low, high| {
            low.bg_itable_unused_lo.set(0);
            low.bg_flags.set(low.bg_flags.get() & !3);
            if let Some(high) = high {
                high.bg_itable_unused_hi.set(0);
            }
        })
    }

    /// Marks the block bitmap of a group as written.
    pub(super) fn mark_bitmap_written(&mut self, group: u32) -> Result<()> {
        self.descriptor(group, |low, _| {
            low.bg_flags.set(low.bg_flags.get() & !GroupFlags::BLOCK_UNINIT.bits());
        })
    }

    pub(super) fn set_free_inodes(&mut self, group: u32, count: u64) -> Result<()> {
        self.descriptor(group, |low, high| {
            let (a, b) = halves(count);
            low.bg_free_inodes_count_lo.set(a);
            if let Some(high) = high {
                high.bg_free_inodes_count_hi.set(b);
            }
        })
    }

    pub(super) fn set_directories(&mut self, group: u32, count: u64) -> Result<()> {
        self.descriptor(group, |low, high| {
            let (a, b) = halves(count);
            low.bg_used_dirs_count_lo.set(a);
            if let Some(high) = high {
                high.bg_used_dirs_count_hi.set(b);
            }
        })
    }

    pub(super) fn set_all_free_blocks(&mut self, count: u64) -> Result<()> {
        let (low, high) = split(count);
        self.super_block(|raw| {
            raw.s_free_blocks_count_lo.set(low);
            raw.s_free_blocks_count_hi.set(high);
        })
    }

    pub(super) fn set_all_free_inodes(&mut self, count: u64) -> Result<()> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.super_block(|raw| raw.s_free_inodes_count.set(count))
    }

    /// Writes the places of the bitmaps and the table, which the view took from a backup if the primary ones are
    /// impossible.
    pub(super) fn restore_places(&mut self, group: u32) -> Result<()> {
        let known = *self.view.group(group);
        if known.check_group(&self.view.sb, group).is_err() {
            return Ok(());
        }
        self.write_places(group, &known)
    }
}

/// Returns the low and the high 16 bits.
pub(super) fn halves(count: u64) -> (u16, u16) {
    let [a, b, c, d, ..] = count.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}
