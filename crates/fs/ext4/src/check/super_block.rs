//! Pass 0: fields of the super block and the descriptors that no other code uses.
//!
//! Source: e2fsprogs `e2fsck/super.c` `check_super_block`.

use alloc::vec::Vec;

use super::events::EventSink;
use super::fields::is_extra_size;
use super::issue::Issue;
use super::reason::{ExtraSizeField, SuperBlockField, VolumeFeature};
use super::state::own_copies;
use super::view::{View, keeps_for_growing_twice};
use crate::feature::Incompat;
use crate::gate::HURD;
use crate::group::GroupFlags;
use crate::quota::QuotaDefect;
use crate::super_block::SuperBlock;
use crate::writer::FULL_EXTRA_ISIZE;

/// Checks the super block and the descriptors.
pub(super) fn check(view: &View, reported: &mut EventSink<'_>) {
    let sb = &view.sb;
    if sb.is_marked_with_errors() {
        reported.found(Issue::MarkedWithErrors { errors: sb.raw.s_error_count.get() });
    }
    if sb.reserved_blocks() > sb.blocks_count / 2 {
        let found = sb.reserved_blocks();
        reported.found(Issue::SuperBlockField { field: SuperBlockField::ReservedBlocks, found, expected: 0 });
    }
    let has_features = !sb.compat.is_empty() || !sb.incompat.is_empty() || !sb.ro_compat.is_empty();
    if sb.raw.s_rev_level.get() == 0 && has_features {
        reported.found(Issue::SuperBlockField { field: SuperBlockField::Revision, found: 0, expected: 1 });
    }
    extra_sizes(sb, reported);
    features(sb, reported);
    for (ino, can_be) in view.named_quota_inodes() {
        if !can_be {
            reported.found(Issue::QuotaInode { ino, why: QuotaDefect::Number });
        }
    }
    metadata(view, reported);
    for group in 0..sb.groups {
        let descriptor = view.group(group);
        let known = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        let says_unused = descriptor.flags.intersects(known) || descriptor.itable_unused != 0;
        if !view.has_descriptor_sums() && says_unused {
            reported.found(Issue::DescriptorFlags { group, found: descriptor.flags.bits() });
        }
        if view.has_descriptor_sums() && descriptor.itable_unused > sb.inodes_per_group {
            reported.found(Issue::UnusedInodes { group, found: descriptor.itable_unused });
        }
    }
}

/// Checks the fields for the size of an inode's fields after its first 128 bytes, if inodes are larger.
fn extra_sizes(sb: &SuperBlock, reported: &mut EventSink<'_>) {
    let sizes = [
        (ExtraSizeField::Min, &sb.raw.s_min_extra_isize),
        (ExtraSizeField::Want, &sb.raw.s_want_extra_isize),
    ];
    for (field, found) in sizes.map(|(field, size)| (field, size.get())) {
        if sb.inode_size > 128 && !is_extra_size(found, sb.inode_size) {
            reported.found(Issue::WantedExtraSize { field, found, expected: FULL_EXTRA_ISIZE });
        }
    }
}

/// Reports features that exclude each other, or that a volume of this system cannot have.
fn features(sb: &SuperBlock, reported: &mut EventSink<'_>) {
    if keeps_for_growing_twice(sb) {
        let why = "it excludes meta_bg, which reserves no blocks for growing";
        reported.found(Issue::Feature { feature: VolumeFeature::ResizeInode, why });
    }
    if sb.raw.s_creator_os.get() == HURD && sb.incompat.contains(Incompat::FILETYPE) {
        reported.found(Issue::Feature {
            feature: VolumeFeature::FileTypes,
            why: "GNU Hurd, which created the volume, does not support it",
        });
    }
}

/// Reports overlapping structures of the volume.
fn metadata(view: &View, reported: &mut EventSink<'_>) {
    let sb = &view.sb;
    let table = u64::from(sb.inode_table_blocks());
    let mut taken: Vec<(u64, u64, u32)> = Vec::new();
    for group in 0..sb.groups {
        let descriptor = view.group(group);
        let own =
            [(descriptor.block_bitmap, 1), (descriptor.inode_bitmap, 1), (descriptor.inode_table, table)];
        // An unknown place is 0, where the first super block may be.
        let own = own.into_iter().filter(|(start, _)| start.0 != 0);
        let places = core::iter::once(own_copies(sb, group)).filter(|(_, len)| *len != 0).chain(own);
        taken.extend(places.map(|(start, len)| (start.0, start.0.saturating_add(len), group)));
    }
    taken.sort_unstable();
    let mut end = 0;
    for (start, next, group) in taken {
        if start < end {
            reported.found(Issue::MetadataTwice { group, block: start });
        }
        end = end.max(next);
    }
}
