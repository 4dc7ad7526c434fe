//! The super block, descriptors, orphans, and other structures of the volume itself.

use crate::case::cases;
use crate::lab::bases::{self, ORPHAN_FILE, oracles};
use crate::lab::judge::{e2fsck_is_clean, findings, repaired};
use crate::lab::{Disk, I_BLOCK};

cases! {
    a_magic_number_of_the_orphan_file(ORPHAN_FILE, ["orphan-file"], |disk| {
        let file = disk.super_block().s_orphan_file_inum.get();
        let end = disk.range(disk.file_block(file, 0)).end;
        disk.put(end - 8, &[1]);
    });
    a_kept_block_that_the_resize_inode_does_not_name(EXT4, ["resize-inode", "block-count ino=7"], |disk| {
        let table = disk.range(disk.word(disk.inode_at(7) + 0x28 + 13 * 4)).start;
        let kept = disk.range(disk.word(table + 4)).start;
        disk.put(kept, &[0; 4]);
    });
    a_resize_inode_without_its_block(EXT2, ["resize-inode", "block-count ino=7", "block-bitmap", "group-free-blocks", "free-blocks"], |disk| {
        disk.put(disk.inode_at(7) + 0x28 + 13 * 4, &[0; 4]);
    });
    a_checksum_of_the_super_block(EXT4, ["super-block-damaged", "free-blocks", "free-inodes"], |disk| {
        disk.put(1024 + 0x3fc, &[1, 2, 3, 4]);
    });
    a_size_of_inodes(EXT4, ["super-block-damaged", "free-blocks", "free-inodes"], |disk| {
        disk.edit_super_block(|sb| sb.s_inode_size = 100.into());
    });
    a_count_of_inodes(EXT4, ["super-block-damaged", "free-blocks", "free-inodes"], |disk| {
        disk.edit_super_block(|sb| sb.s_inodes_count = 77.into());
    });
    more_reserved_blocks_than_there_are(EXT4, ["super-block-field"], |disk| {
        disk.edit_super_block(|sb| sb.s_r_blocks_count_lo = 90_000.into());
    });
    a_checksum_of_a_descriptor_by_crc16(UNINIT, ["descriptor-checksum group=1"], |disk| {
        let at = disk.group_at(1);
        disk.put(at + 0x1e, &[1, 2]);
    });
    a_block_bitmap_outside_the_volume(EXT4, ["block-bitmap-place group=0"], |disk| {
        disk.edit_group(0, |group| group.bg_block_bitmap_lo = 0x7fff_0000.into());
    });
    an_inode_bitmap_outside_the_volume(EXT4, ["inode-bitmap-place group=0"], |disk| {
        disk.edit_group(0, |group| group.bg_inode_bitmap_lo = 0x7fff_0000.into());
    });
    an_inode_table_outside_the_volume(EXT4, ["inode-table-place group=1"], |disk| {
        disk.edit_group(1, |group| group.bg_inode_table_lo = 0x7fff_0000.into());
    });
    a_bitmap_where_the_other_bitmap_is_and_a_copy_says_another_place(PLAIN, ["inode-bitmap-place group=0"], |disk| {
        let other = disk.group_of(0).bg_block_bitmap_lo;
        disk.edit_group(0, |group| group.bg_inode_bitmap_lo = other);
    });
    a_bitmap_where_the_other_bitmap_is(LARGE, [
        "metadata-twice group=0", "block-bitmap group=0 stored=1", "group-free-blocks group=0",
        "inode-bitmap group=0 stored=1", "inode-bitmap-padding group=0", "inode-bitmap-checksum group=0", "free-blocks"
    ], |disk| {
        let other = disk.group_of(0).bg_block_bitmap_lo;
        disk.edit_group(0, |group| group.bg_inode_bitmap_lo = other);
    });
    a_file_that_its_group_says_was_never_used(UNINIT, ["hidden-inode group=0 ino=<char>", "inode-bitmap group=0 ino=<char> stored=1", "group-free-inodes group=0", "free-inodes"], |disk| {
        let unused = disk.inodes_per_group - (disk.ino("char") - 1);
        disk.edit_group(0, |group| group.bg_itable_unused_lo = u16::try_from(unused).unwrap().into());
    });
    a_checksum_of_the_block_that_says_who_has_the_volume(MMP, ["mmp"], |disk| {
        let at = disk.range(u32::try_from(disk.super_block().s_mmp_block.get()).unwrap()).start;
        disk.put(at + 1020, &[1, 2, 3, 4]);
    });
    an_owner_of_the_inode_of_bad_blocks(EXT2, ["bad-blocks-inode"], |disk| {
        disk.edit_inode("<1>", |inode| inode.i_gid = 5.into());
    });
    an_inode_of_the_boot_loader_with_extents_and_inline_data(LARGE, [
        "reserved-inode ino=5", "extent-header ino=5"
    ], |disk| {
        disk.edit_inode("<5>", |inode| {
            inode.i_mode = 0o100_600.into();
            inode.i_flags = 0x1008_0000.into();
        });
    });
    a_bad_block_that_is_the_volumes_own(EXT2, ["block-of-volume ino=1"], |disk| {
        let bitmap = disk.group_of(0).bg_block_bitmap_lo.get();
        disk.edit_pointer("<1>", 0, bitmap);
    });
    an_orphan_to_be_freed(EXT2, ["orphan ino=<empty>", "inode-bitmap group=0 ino=<empty> stored=1", "group-free-inodes group=0", "free-inodes"], |disk| {
        let file = disk.ino("empty");
        disk.edit_entry("", "empty", |entry| entry.inode = 0.into());
        disk.edit_inode(&format!("<{file}>"), |inode| inode.i_links_count = 0.into());
        disk.edit_super_block(|sb| sb.s_last_orphan = file.into());
    });
    an_orphan_file_without_a_block(ORPHAN_FILE, [
        "orphan-file", "block-count", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"
    ], |disk| {
        let file = format!("<{}>", disk.super_block().s_orphan_file_inum.get());
        disk.edit_extent_header(&file, &[], |header| header.eh_entries = 0.into());
    });
    an_orphan_file_that_is_none(ORPHAN_FILE, [
        "orphan-file", "block-count", "block-bitmap", "group-free-blocks", "free-blocks"
    ], |disk| {
        let file = disk.super_block().s_orphan_file_inum.get();
        disk.edit_inode(&format!("<{file}>"), |inode| inode.i_mode = 0.into());
    });
    a_link_count_of_zero_of_the_orphan_file(ORPHAN_FILE, ["orphan-file"], |disk| {
        let file = disk.super_block().s_orphan_file_inum.get();
        disk.edit_inode(&format!("<{file}>"), |inode| inode.i_links_count = 0.into());
    });
    an_orphan_file_without_a_journal(ORPHAN_FILE, ["journal-named ino=8", "reserved-inode ino=8", "orphan-file"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_compat.set(sb.s_feature_compat.get() & !4));
    });
    orphans_that_are_announced_but_not_in_the_file(ORPHAN_FILE, ["orphans-announced"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_ro_compat.set(sb.s_feature_ro_compat.get() | 0x10000));
    });
    a_size_of_the_inode_of_the_boot_loader(INLINE, ["size ino=5 found=3472328296227680464 expected=0"], |disk| {
        disk.edit_inode("<5>", |inode| {
            inode.i_flags.set(0x1000_0000);
            inode.i_size_lo.set(0x3030_30d0);
            inode.i_size_high.set(0x3030_3030);
        });
    });
}

#[test]
fn an_orphan_file_with_an_invalid_inode_is_recreated() {
    if oracles() {
        let mut disk = ORPHAN_FILE.disk();
        let file = disk.super_block().s_orphan_file_inum.get();
        disk.edit_inode(&format!("<{file}>"), |inode| inode.i_mode = 0o020_600.into());
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(fixed.super_block().s_orphan_file_inum.get(), file);
        assert_eq!(fixed.file_blocks(file).len(), 32);
        assert!(e2fsck_is_clean(&fixed.bytes).is_clean());
    }
}

#[test]
fn a_reserved_inode_without_a_type_owns_no_blocks() {
    if !oracles() {
        return;
    }
    for base in [&bases::EXT2, &bases::EXT4] {
        for ino in [6, 9, 10] {
            let mut disk = base.disk();
            let block = disk.free_block();
            let at = disk.inode_at(ino) + I_BLOCK;
            disk.put(at, &block.to_le_bytes());
            disk.edit_inode(&format!("<{ino}>"), |inode| {
                inode.i_mode = 0.into();
                inode.i_blocks_lo = 2.into();
            });
            let fixed = repaired(&disk.bytes).unwrap();
            assert_eq!(findings(&fixed).unwrap(), [], "inode {ino} of {}", base.name);
            let second = e2fsck_is_clean(&fixed);
            assert!(second.is_silent(), "inode {ino} of {}: {}", base.name, second.text);
        }
    }
}
