//! The shape of a volume after it grew: the super block's fields, without the counts of free blocks and inodes.
//!
//! Invariant: the blocks at the start of an old group that contain copies of the super block and the descriptors
//! remain the same. New descriptor blocks take the place of reserved ones. When no more blocks are reserved, the
//! further descriptor blocks are in the new groups (`meta_bg`), as when Linux grows a mounted volume.
//! Source: e2fsprogs `resize/resize2fs.c` `adjust_fs_info`; Linux `fs/ext4/resize.c` `ext4_resize_fs`,
//! `ext4_convert_meta_bg`; `docs/decisions/0069-a-volume-without-reserved-descriptor-blocks-grows-with-meta-bg.md`.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` and `limited` bound the volumes")]

use obento_base::wire::{IntoBytes, split};
use obento_driver::{ResizeRefusal, ResizeResult};

use crate::feature::{Compat, Incompat, RoCompat};
use crate::gate::HURD;
use crate::raw::RawSuperBlock;
use crate::super_block::{SuperBlock, VALID_FS};
use crate::unit::VolBlock;
use crate::zones::MAX_LISTED_GROUPS;

/// A last group needs this many blocks in addition to those for its tables: `adjust_fs_info`.
const SPARE: u64 = 50;

/// Returns the super block of the volume after it grew to at most `len` bytes, without its checksum. A last group that
/// is too short for its tables is left out. Returns `None` if the volume would not be longer than it is.
///
/// # Errors
///
/// `Refused`: the volume cannot grow to this size.
pub(super) fn grown(old: &SuperBlock, len: u64) -> ResizeResult<Option<SuperBlock>> {
    let blocks = old.cluster.round_down(old.block_size.whole(len));
    let Some(blocks) = usable(old, limited(old, blocks)?)? else { return Ok(None) };
    let mut raw = *old.raw;
    set_sizes(old, blocks, &mut raw)?;
    let new = SuperBlock::decode(raw.as_bytes(), VolBlock(old.first_data_block.into()))?;
    set_descriptors(old, &new, &mut raw);
    set_backups(old, new.groups, &mut raw);
    Ok(Some(SuperBlock::decode(raw.as_bytes(), VolBlock(old.first_data_block.into()))?))
}

/// Checks whether the volume is in a state in which its size can be changed.
///
/// # Errors
///
/// `Refused`: a feature prevents it, or the volume must be checked first.
pub(super) fn expect_resizable(sb: &SuperBlock) -> ResizeResult<()> {
    sb.check_known()?;
    let feature = |name| Err(ResizeRefusal::Feature(name).into());
    let needs_check = |why| Err(ResizeRefusal::NeedsCheck(why).into());
    if sb.ro_compat.contains(RoCompat::READONLY) {
        return feature("read-only");
    }
    if sb.ro_compat.contains(RoCompat::SHARED_BLOCKS) {
        return feature("shared_blocks");
    }
    if sb.incompat.contains(Incompat::MMP) {
        return feature("mmp");
    }
    if sb.compat.contains(Compat::HAS_JOURNAL) && sb.raw.s_journal_inum.get() == 0 {
        return feature("a journal on another device");
    }
    if sb.raw.s_creator_os.get() == HURD {
        return feature("a volume of the Hurd");
    }
    if sb.is_marked_with_errors() {
        return needs_check("the volume is marked as having errors");
    }
    let is_dirty = sb.incompat.contains(Incompat::NEEDS_RECOVERY);
    let has_orphans = sb.raw.s_last_orphan.get() != 0 || sb.ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    if !is_dirty && (sb.raw.s_state.get() & VALID_FS == 0 || has_orphans) {
        return needs_check("the volume was not unmounted cleanly");
    }
    let has_reserved = sb.compat.contains(Compat::RESIZE_INODE);
    if has_reserved && sb.incompat.contains(Incompat::META_BG) {
        return needs_check("the features resize_inode and meta_bg exclude each other");
    }
    if !has_reserved && sb.raw.s_reserved_gdt_blocks.get() != 0 {
        return needs_check("blocks are reserved for growing without the feature resize_inode");
    }
    if sb.cluster.inside(sb.blocks_count) != 0 {
        return feature("bigalloc with an incomplete last cluster");
    }
    Ok(())
}

/// Returns the number of blocks, at most that of the format. Fails with `TooLong`.
fn limited(old: &SuperBlock, blocks: u64) -> ResizeResult<u64> {
    let too_long = |blocks: u64, why| {
        let max = blocks.saturating_mul(old.block_size.into());
        Err(ResizeRefusal::TooLong { max, why }.into())
    };
    let is_wide = old.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    let last = u64::from(u32::MAX);
    if !is_wide && blocks > last + 1 {
        return too_long(last, "without the feature 64bit");
    }
    let blocks = if is_wide { blocks } else { blocks.min(last) };
    let per_group = u64::from(old.blocks_per_group);
    let most = u64::from(MAX_LISTED_GROUPS) * per_group;
    if blocks.saturating_sub(old.first_data_block.into()) > most {
        return too_long(most, "the maximum number of block groups that obento supports");
    }
    let groups = u64::from(u32::MAX).checked_div(old.inodes_per_group.into()).unwrap_or(0);
    let most = groups * per_group + u64::from(old.first_data_block);
    if blocks > most + per_group {
        return too_long(most, "the maximum number of inodes");
    }
    Ok(blocks.min(most))
}

/// Returns the number of blocks without a last group that is too short for its tables, or `None` if the volume would
/// not be longer.
fn usable(old: &SuperBlock, mut blocks: u64) -> ResizeResult<Option<u64>> {
    loop {
        if blocks <= old.blocks_count {
            return Ok(None);
        }
        let inside = blocks - u64::from(old.first_data_block);
        let groups = u32::try_from(inside.div_ceil(old.blocks_per_group.into())).unwrap_or(u32::MAX);
        let rest = inside.checked_rem(old.blocks_per_group.into()).unwrap_or(0);
        let needed = overhead(old, groups) + SPARE;
        if groups < 2 || rest == 0 || rest >= needed {
            return Ok(Some(blocks));
        }
        blocks -= rest;
    }
}

/// Returns the number of blocks for the tables and copies of the last of `groups` groups. As in resize2fs, the blocks
/// of all descriptors count also if `meta_bg` places them elsewhere.
fn overhead(old: &SuperBlock, groups: u32) -> u64 {
    let last = groups - 1;
    let has_copy = if old.compat.contains(Compat::SPARSE_SUPER2) {
        let [first, second] = old.raw.s_backup_bgs;
        if groups == 2 { first.get() != 0 } else { second.get() != 0 }
    } else {
        old.has_copy(last)
    };
    let descriptors = u64::from(groups.div_ceil(old.descs_per_block()));
    let copies = descriptors + 1 + u64::from(old.raw.s_reserved_gdt_blocks.get());
    let tables = u64::from(old.inode_table_blocks()) + 2;
    tables + (if has_copy { copies } else { 0 })
}

/// Sets the numbers of blocks, reserved blocks and inodes.
fn set_sizes(old: &SuperBlock, blocks: u64, raw: &mut RawSuperBlock) -> ResizeResult<()> {
    let is_wide = old.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    let (low, high) = split(blocks);
    raw.s_blocks_count_lo.set(low);
    if is_wide {
        raw.s_blocks_count_hi.set(high);
    }
    // The same part of the volume stays reserved.
    let product = u128::from(old.reserved_blocks()) * u128::from(blocks);
    let reserved = product.checked_div(old.blocks_count.into()).unwrap_or(0);
    let (low, high) = split(u64::try_from(reserved).unwrap_or(0));
    raw.s_r_blocks_count_lo.set(low);
    if is_wide {
        raw.s_r_blocks_count_hi.set(high);
    }
    let inside = blocks - u64::from(old.first_data_block);
    let groups = inside.div_ceil(old.blocks_per_group.into());
    let inodes =
        groups.checked_mul(old.inodes_per_group.into()).and_then(|inodes| u32::try_from(inodes).ok());
    raw.s_inodes_count.set(inodes.ok_or(ResizeRefusal::NoRoom)?);
    // The kernel counts the blocks of the format again.
    raw.s_overhead_clusters.set(0);
    Ok(())
}

/// Takes reserved blocks into use for descriptors, and places further ones by `meta_bg`.
fn set_descriptors(old: &SuperBlock, new: &SuperBlock, raw: &mut RawSuperBlock) {
    let added = new.desc_blocks() - old.desc_blocks();
    if added == 0 || old.incompat.contains(Incompat::META_BG) {
        return;
    }
    let reserved = raw.s_reserved_gdt_blocks.get();
    match u16::try_from(added).ok().and_then(|added| reserved.checked_sub(added)) {
        Some(left) if old.compat.contains(Compat::RESIZE_INODE) => raw.s_reserved_gdt_blocks.set(left),
        _ => {
            raw.s_first_meta_bg.set(old.desc_blocks() + u32::from(reserved));
            raw.s_reserved_gdt_blocks.set(0);
            raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::RESIZE_INODE.bits());
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::META_BG.bits());
        }
    }
}

/// Moves the last backup of `sparse_super2` to the last of `groups` groups.
fn set_backups(old: &SuperBlock, groups: u32, raw: &mut RawSuperBlock) {
    if !old.compat.contains(Compat::SPARSE_SUPER2) || groups <= old.groups {
        return;
    }
    let [first, second] = &mut raw.s_backup_bgs;
    if old.groups == 1 {
        first.set(1);
    }
    if old.groups < 3 && groups > 2 || second.get() != 0 {
        second.set(groups - 1);
    }
}

#[cfg(test)]
mod tests {
    use obento_base::wire::FromZeros;

    use obento_driver::ResizeError;

    use super::*;

    /// Returns the super block of a volume with 4 KiB blocks, 32 MiB groups and 512 inodes per group.
    fn volume(blocks: u32, change: impl FnOnce(&mut RawSuperBlock)) -> SuperBlock {
        let mut raw = RawSuperBlock::new_zeroed();
        raw.s_magic.set(0xef53);
        raw.s_rev_level.set(1);
        raw.s_state.set(VALID_FS);
        raw.s_first_ino.set(11);
        raw.s_inode_size.set(256);
        raw.s_log_block_size.set(2);
        raw.s_log_cluster_size.set(2);
        raw.s_blocks_count_lo.set(blocks);
        raw.s_r_blocks_count_lo.set(blocks / 20);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192);
        raw.s_inodes_per_group.set(512);
        raw.s_inodes_count.set(512 * blocks.div_ceil(8192));
        raw.s_feature_ro_compat.set(RoCompat::SPARSE_SUPER.bits());
        change(&mut raw);
        SuperBlock::decode(raw.as_bytes(), VolBlock(0)).unwrap()
    }

    fn with_reserved(count: u16) -> impl FnOnce(&mut RawSuperBlock) {
        move |raw| {
            raw.s_reserved_gdt_blocks.set(count);
            raw.s_feature_compat.set(Compat::RESIZE_INODE.bits());
        }
    }

    fn blocks(count: u64) -> u64 {
        count * 4096
    }

    #[test]
    fn a_last_group_that_is_too_short_for_its_tables_is_left_out() {
        let old = volume(8192, |_| ());
        // Group 2 has no copy: two bitmaps, 32 blocks of inodes, and 50 more.
        assert_eq!(grown(&old, blocks(16384 + 83)).unwrap().unwrap().blocks_count, 16384);
        assert_eq!(grown(&old, blocks(16384 + 84)).unwrap().unwrap().blocks_count, 16384 + 84);
        assert!(grown(&old, blocks(8192 + 80)).unwrap().is_none());
    }

    #[test]
    fn descriptors_use_reserved_blocks_and_then_meta_groups() {
        let old = volume(8192, with_reserved(2));
        let new = grown(&old, blocks(8192 * 300)).unwrap().unwrap();
        assert_eq!((new.desc_blocks(), new.raw.s_reserved_gdt_blocks.get()), (3, 0));
        assert!(new.compat.contains(Compat::RESIZE_INODE));
        let new = grown(&old, blocks(8192 * 400)).unwrap().unwrap();
        assert_eq!((new.desc_blocks(), new.raw.s_first_meta_bg.get()), (4, 3));
        assert!(!new.compat.contains(Compat::RESIZE_INODE) && new.incompat.contains(Incompat::META_BG));
        assert_eq!(old.copy_blocks(1).1 + 2, new.copy_blocks(1).1);
    }

    #[test]
    fn the_second_backup_of_sparse_super2_moves_to_the_last_group() {
        let sparse = |raw: &mut RawSuperBlock| raw.s_feature_compat.set(Compat::SPARSE_SUPER2.bits());
        let moved = |old: &SuperBlock, groups: u64| {
            let new = grown(old, blocks(8192 * groups)).unwrap().unwrap();
            new.raw.s_backup_bgs.map(|group| group.get())
        };
        assert_eq!(moved(&volume(8192, sparse), 2), [1, 0]);
        assert_eq!(moved(&volume(8192, sparse), 5), [1, 4]);
        let three = volume(8192 * 3, |raw| {
            sparse(raw);
            raw.s_backup_bgs[0].set(1);
            raw.s_backup_bgs[1].set(2);
        });
        assert_eq!(moved(&three, 9), [1, 8]);
    }

    #[test]
    fn sizes_beyond_the_format_are_refused() {
        let old = volume(8192, |_| ());
        let refused = |len| match grown(&old, len) {
            Err(ResizeError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(matches!(refused(blocks((1 << 32) + 1)), ResizeRefusal::TooLong { .. }));
        let new = grown(&old, blocks(8192 * 40)).unwrap().unwrap();
        assert_eq!(new.reserved_blocks(), old.reserved_blocks() * 40);
    }
}
