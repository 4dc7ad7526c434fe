//! Repairing features: the super block is made to agree with the volume.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` (`PR_1_EXTENT_FEATURE`), `pass2.c` (`PR_2_FEATURE_LARGE_FILES`), `pass4.c`
//! (`PR_4_DIR_NLINK_FEATURE`), `super.c` `check_resize_inode`, `check_super_block`.

use obento_base::Result;

use super::super::reason::VolumeFeature;
use super::edits::Edits;
use crate::feature::{Compat, Incompat, RoCompat};

impl Edits {
    /// Repairs a feature.
    pub(super) fn repair_feature(&mut self, feature: VolumeFeature) -> Result<bool> {
        match feature {
            VolumeFeature::AttributeInodes => self.add_incompat(Incompat::EA_INODE)?,
            VolumeFeature::LargeFiles => self.add_ro_compat(RoCompat::LARGE_FILE)?,
            VolumeFeature::Extents => self.add_incompat(Incompat::EXTENT)?,
            VolumeFeature::DirLinks => self.add_ro_compat(RoCompat::DIR_NLINK)?,
            VolumeFeature::ResizeInode => self.super_block(|raw| {
                raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::RESIZE_INODE.bits());
                raw.s_reserved_gdt_blocks.set(0);
            })?,
            VolumeFeature::FileTypes => self.super_block(|raw| {
                raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::FILETYPE.bits());
            })?,
            // `replay` adds it before the first round.
            VolumeFeature::Journal => return Ok(false),
        }
        Ok(true)
    }

    fn add_incompat(&mut self, feature: Incompat) -> Result<()> {
        self.super_block(|raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | feature.bits()))
    }

    fn add_ro_compat(&mut self, feature: RoCompat) -> Result<()> {
        self.super_block(|raw| raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | feature.bits()))
    }
}
