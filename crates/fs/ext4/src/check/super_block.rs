//! Pass 0: fields of the super block and the descriptors that nothing else needs.
//!
//! Source: e2fsprogs `e2fsck/super.c` `check_super_block`.

use super::view::View;
use super::{Issue, Told};
use crate::group::GroupFlags;

/// Looks at the super block and the descriptors.
pub(super) fn check(view: &View, told: &mut Told<'_>) {
    let sb = &view.sb;
    if sb.is_marked_with_errors() {
        told.found(Issue::MarkedWithErrors { errors: sb.raw.s_error_count.get() });
    }
    if sb.reserved_blocks() > sb.blocks_count / 2 {
        let found = sb.reserved_blocks();
        told.found(Issue::SuperBlockField { field: "s_r_blocks_count", found, expected: 0 });
    }
    for group in 0..sb.groups {
        let descriptor = view.group(group);
        let known = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        if !view.has_descriptor_sums() && descriptor.flags.intersects(known) {
            told.found(Issue::DescriptorFlags { group, found: descriptor.flags.bits() });
        }
        if view.has_descriptor_sums() && descriptor.itable_unused > sb.inodes_per_group {
            told.found(Issue::UnusedInodes { group, found: descriptor.itable_unused });
        }
    }
}
