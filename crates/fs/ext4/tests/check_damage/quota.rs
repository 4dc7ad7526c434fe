//! Quota files: their counts, their place, and other damage beside them.

use crate::case::{cases, run};
use crate::lab::Disk;
use crate::lab::bases::{Base, oracles};
use crate::lab::judge::{e2fsck_is_clean, findings};

/// With attribute values in inodes of their own, which are counted for their users, and with projects.
static VALUES: Base = Base {
    name: "QUOTA-VALUES",
    mke2fs: "-t ext4 -b 1024 -g 4096 -J size=1 -O ea_inode,quota,project",
    debugfs: concat!(
        "ea_set xattrs user.small in-the-inode\nea_set -f FILES/value-300 xattrs user.large\n",
        "ea_set -f FILES/value-3000 long user.own-inode\nea_set -f FILES/value-3000 file user.own-inode\n",
        "set_inode_field file uid 77\nset_inode_field file gid 78\nset_inode_field file projid 79\n"
    ),
};

cases! {
    a_count_of_a_quota_file(QUOTA, ["quota-usage ino=3 id=0 found_inodes=99"], |disk| {
        // After the header and the four levels of the tree: the inode count of an entry.
        let entry = disk.range(disk.file_block(3, 5)).start + 16;
        disk.put(entry + 0x18, &[99]);
    });
    a_tree_of_a_quota_file(QUOTA, ["quota-inode ino=4"], |disk| {
        let root = disk.range(disk.file_block(4, 1)).start;
        disk.put(root, &900_u32.to_le_bytes());
    });
    a_quota_file_without_an_entry(QUOTA, ["quota-usage ino=4 id=0 found=0"], |disk| {
        let entry = disk.range(disk.file_block(4, 5)).start + 16;
        disk.put(entry, &[0; 72]);
    });
    a_size_of_a_quota_file_that_cannot_be(QUOTA, ["quota-inode ino=3"], |disk| {
        disk.edit_inode("<3>", |inode| inode.i_size_high = 64.into());
    });
    a_quota_file_that_is_a_link(QUOTA, ["quota-inode ino=3"], |disk| {
        disk.edit_inode("<3>", |inode| inode.i_mode = 0o120_600.into());
    });
    a_quota_file_whose_tree_is_lost(QUOTA, [
        "extent-header ino=4", "block-count ino=4", "block-bitmap group=0", "group-free-blocks group=0", "free-blocks",
        "quota-inode ino=4"
    ], |disk| {
        disk.edit_extent_header("<4>", &[], |header| header.eh_entries = 99.into());
    });
    a_number_of_a_quota_file_that_cannot_be(QUOTA, ["super-block-value found=9 expected=3"], |disk| {
        disk.edit_super_block(|sb| sb.s_usr_quota_inum = 9.into());
    });
}

/// Returns the place of an entry in the quota file `ino`: the byte offset of its inode count.
fn count_at(disk: &Disk, ino: u32) -> usize {
    disk.range(disk.file_block(ino, 5)).start + 16 + 0x18
}

#[test]
fn values_in_inodes_are_counted_with_their_references() {
    if oracles() {
        let disk = VALUES.disk();
        assert_eq!(e2fsck_is_clean(&disk.bytes).code, 0);
        assert_eq!(findings(&disk.bytes).unwrap(), []);
        run(&VALUES, &["quota-usage ino=3 id=0 found_inodes=99"], |disk| {
            let at = count_at(disk, 3);
            disk.put(at, &[99]);
        });
    }
}

#[test]
fn a_count_of_a_project_is_compared() {
    if oracles() {
        run(&VALUES, &["quota-usage id=0 found_inodes=99"], |disk| {
            let at = count_at(disk, disk.super_block().s_prj_quota_inum.get());
            disk.put(at, &[99]);
        });
    }
}

#[test]
fn a_count_is_compared_where_something_else_is_wrong_too() {
    if oracles() {
        let expected =
            ["block-count ino=<file>", "link-count ino=<pieces>", "quota-usage ino=3 id=0 found_inodes=99"];
        run(&crate::lab::bases::QUOTA, &expected, |disk| {
            let at = count_at(disk, 3);
            disk.put(at, &[99]);
            disk.edit_inode("file", |inode| inode.i_blocks_lo = 90.into());
            disk.edit_inode("pieces", |inode| inode.i_links_count = 9.into());
        });
    }
}
