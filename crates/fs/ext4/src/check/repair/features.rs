//! Repairing features: the super block is made to agree with the volume.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` (`PR_1_EXTENT_FEATURE`), `pass2.c` (`PR_2_FEATURE_LARGE_FILES`), `pass4.c`
//! (`PR_4_DIR_NLINK_FEATURE`), `super.c` `check_resize_inode`, `check_super_block`.

use obento_base::Result;

use super::super::issue::Issue;
use super::edits::Edits;
use crate::feature::{Compat, Incompat, RoCompat};

impl Edits {
    /// Repairs a feature. Returns false for another issue.
    pub(super) fn repair_feature(&mut self, issue: &Issue) -> Result<bool> {
        match *issue {
            Issue::Feature { feature: "ea_inode", .. } => self.add_incompat(Incompat::EA_INODE)?,
            Issue::MissingFeature { feature: "large_file" } => self.add_ro_compat(RoCompat::LARGE_FILE)?,
            Issue::Feature { feature: "extent", .. } => self.add_incompat(Incompat::EXTENT)?,
            Issue::Feature { feature: "dir_nlink", .. } => self.add_ro_compat(RoCompat::DIR_NLINK)?,
            Issue::Feature { feature: "resize_inode", .. } => self.super_block(|raw| {
                raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::RESIZE_INODE.bits());
                raw.s_reserved_gdt_blocks.set(0);
            })?,
            Issue::Feature { feature: "filetype", .. } => self.super_block(|raw| {
                raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::FILETYPE.bits());
            })?,
            _ => return Ok(false),
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
