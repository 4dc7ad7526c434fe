//! Indexes of directories.

use crate::case::cases;
use crate::lab::Disk;
use crate::lab::bases::{EXT3, EXT4, LARGE, PLAIN, oracles};
use crate::lab::judge::{contents, e2fsck_is_clean, lost, repaired};

cases! {
    a_limit_of_an_index(EXT4, ["index dir=<full>"], |disk| {
        disk.edit_index_bounds("full", 0, |bounds| bounds.limit = 9.into());
    });
    a_count_above_the_limit(EXT4, ["index dir=<full>"], |disk| {
        disk.edit_index_bounds("full", 0, |bounds| bounds.count = 600.into());
    });
    a_count_that_leaves_out_a_block(EXT4, ["index-reference dir=<full>"], |disk| {
        disk.edit_index_bounds("full", 0, |bounds| bounds.count = (bounds.count.get() - 1).into());
    });
    a_hash_version_that_there_is_not(EXT4, ["index dir=<full>"], |disk| {
        disk.edit_index_info("full", |info| info.hash_version = 77);
    });
    a_length_of_the_root_of_an_index(EXT4, ["index dir=<full>"], |disk| {
        let at = disk.range(disk.file_block(disk.ino("full"), 0)).start + 0x18;
        disk.put(at + 5, &[4]);
        disk.seal_index(disk.ino("full"), at + 8);
    });
    levels_that_are_too_many(EXT4, ["index dir=<full>"], |disk| {
        disk.edit_index_info("full", |info| info.indirect_levels = 5);
    });
    a_flag_of_an_index(EXT4, ["index dir=<full>"], |disk| {
        disk.edit_index_info("full", |info| info.unused_flags = 1);
    });
    a_hash_that_is_out_of_order(EXT4, ["index dir=<full> at=0", "index-hash dir=<full> at=3"], |disk| {
        disk.edit_index_entry("full", 0, 2, |entry| entry.hash = 0xffff_fff0.into());
    });
    a_hash_that_is_not_that_of_its_leaf(EXT4, ["index-hash dir=<full>"], |disk| {
        disk.edit_index_entry("full", 0, 1, |entry| entry.hash = (entry.hash.get() + 0x0100_0000).into());
    });
    a_leaf_outside_the_directory(EXT4, ["index-reference dir=<full> at=900", "index-reference dir=<full> at=2"], |disk| {
        disk.edit_index_entry("full", 0, 1, |entry| entry.block = 900.into());
    });
    a_checksum_of_an_index(EXT4, ["index-checksum dir=<full>"], |disk| {
        let at = disk.range(disk.file_block(disk.ino("full"), 0)).end - 4;
        disk.put(at, &[1, 2, 3, 4]);
    });
    a_count_of_a_node(EXT4, ["directory-no-tail dir=<wide>", "index-reference dir=<wide> at=141", "index-reference dir=<wide> at=1", "index-reference dir=<wide> at=2", "index-reference dir=<wide> at=3", "index-reference dir=<wide> at=4", "index-reference dir=<wide> at=5", "index-reference dir=<wide> at=6", "index-reference dir=<wide> at=7", "index-reference dir=<wide> at=8", "index-reference dir=<wide> at=9", "index-reference dir=<wide> at=10", "index-reference dir=<wide> at=11", "index-reference dir=<wide> at=12", "index-reference dir=<wide> at=13", "index-reference dir=<wide> at=14", "index-reference dir=<wide> at=15", "index-reference dir=<wide> at=16", "index-reference dir=<wide> at=17", "index-reference dir=<wide> at=18", "index-reference dir=<wide> at=19", "index-reference dir=<wide> at=20", "index-reference dir=<wide> at=21", "index-reference dir=<wide> at=22", "index-reference dir=<wide> at=23", "index-reference dir=<wide> at=24", "index-reference dir=<wide> at=25", "index-reference dir=<wide> at=26", "index-reference dir=<wide> at=27", "index-reference dir=<wide> at=28", "index-reference dir=<wide> at=29", "index-reference dir=<wide> at=30", "index-reference dir=<wide> at=31", "index-reference dir=<wide> at=32", "index-reference dir=<wide> at=33", "index-reference dir=<wide> at=34", "index-reference dir=<wide> at=35", "index-reference dir=<wide> at=36", "index-reference dir=<wide> at=37", "index-reference dir=<wide> at=38", "index-reference dir=<wide> at=39", "index-reference dir=<wide> at=40", "index-reference dir=<wide> at=41", "index-reference dir=<wide> at=42", "index-reference dir=<wide> at=43", "index-reference dir=<wide> at=44", "index-reference dir=<wide> at=45", "index-reference dir=<wide> at=46", "index-reference dir=<wide> at=47", "index-reference dir=<wide> at=48", "index-reference dir=<wide> at=49", "index-reference dir=<wide> at=50", "index-reference dir=<wide> at=51", "index-reference dir=<wide> at=52", "index-reference dir=<wide> at=53", "index-reference dir=<wide> at=54", "index-reference dir=<wide> at=55", "index-reference dir=<wide> at=56", "index-reference dir=<wide> at=57", "index-reference dir=<wide> at=58", "index-reference dir=<wide> at=59", "index-reference dir=<wide> at=60", "index-reference dir=<wide> at=61", "index-reference dir=<wide> at=62", "index-reference dir=<wide> at=63", "index-reference dir=<wide> at=64", "index-reference dir=<wide> at=65", "index-reference dir=<wide> at=66", "index-reference dir=<wide> at=67", "index-reference dir=<wide> at=68", "index-reference dir=<wide> at=69", "index-reference dir=<wide> at=70", "index-reference dir=<wide> at=71", "index-reference dir=<wide> at=72", "index-reference dir=<wide> at=73", "index-reference dir=<wide> at=74", "index-reference dir=<wide> at=75", "index-reference dir=<wide> at=76", "index-reference dir=<wide> at=77", "index-reference dir=<wide> at=78", "index-reference dir=<wide> at=79", "index-reference dir=<wide> at=80", "index-reference dir=<wide> at=81", "index-reference dir=<wide> at=82", "index-reference dir=<wide> at=83", "index-reference dir=<wide> at=84", "index-reference dir=<wide> at=85", "index-reference dir=<wide> at=86", "index-reference dir=<wide> at=87", "index-reference dir=<wide> at=88", "index-reference dir=<wide> at=89", "index-reference dir=<wide> at=90", "index-reference dir=<wide> at=91", "index-reference dir=<wide> at=92", "index-reference dir=<wide> at=93", "index-reference dir=<wide> at=94", "index-reference dir=<wide> at=95", "index-reference dir=<wide> at=96", "index-reference dir=<wide> at=97", "index-reference dir=<wide> at=98", "index-reference dir=<wide> at=99", "index-reference dir=<wide> at=100", "index-reference dir=<wide> at=101", "index-reference dir=<wide> at=102", "index-reference dir=<wide> at=103", "index-reference dir=<wide> at=104", "index-reference dir=<wide> at=105", "index-reference dir=<wide> at=106", "index-reference dir=<wide> at=107", "index-reference dir=<wide> at=108", "index-reference dir=<wide> at=109", "index-reference dir=<wide> at=110", "index-reference dir=<wide> at=111", "index-reference dir=<wide> at=112", "index-reference dir=<wide> at=113", "index-reference dir=<wide> at=114", "index-reference dir=<wide> at=115", "index-reference dir=<wide> at=116", "index-reference dir=<wide> at=117", "index-reference dir=<wide> at=118", "index-reference dir=<wide> at=119", "index-reference dir=<wide> at=120", "index-reference dir=<wide> at=121", "index-reference dir=<wide> at=122", "index-reference dir=<wide> at=123", "index-reference dir=<wide> at=124", "index-reference dir=<wide> at=125", "index-reference dir=<wide> at=126"], |disk| {
        let node = first_node(disk);
        disk.edit_index_bounds("wide", node, |bounds| bounds.count = 900.into());
    });
    a_hash_of_a_node_that_is_out_of_order(EXT4, ["index dir=<wide> at=141", "index-hash dir=<wide> at=3"], |disk| {
        let node = first_node(disk);
        disk.edit_index_entry("wide", node, 3, |entry| entry.hash = 2.into());
    });
    an_index_without_the_flag(EXT4, ["directory-no-tail dir=<full>"], |disk| {
        disk.edit_inode("full", |inode| inode.i_flags = (inode.i_flags.get() & !0x1000).into());
    });
    a_flag_without_an_index(EXT4, ["index dir=<dir>"], |disk| {
        disk.edit_inode("dir", |inode| inode.i_flags = (inode.i_flags.get() | 0x1000).into());
    });
    an_index_without_the_feature(EXT4, ["inode-flag ino=<full>", "inode-flag ino=<wide>", "directory-no-tail dir=<full>", "directory-no-tail dir=<wide>", "directory-no-tail dir=<wide>", "directory-no-tail dir=<wide>"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_compat = (sb.s_feature_compat.get() & !0x20).into());
    });
}

/// Returns the block of the directory to which the root's first entry refers.
fn first_node(disk: &crate::lab::Disk) -> u32 {
    let table = disk.index_table(disk.ino("wide"), 0);
    disk.word(table + 4)
}

#[test]
fn a_directory_is_still_indexed_after_the_repair_of_its_index() {
    if !oracles() {
        return;
    }
    for (base, path) in
        [(&EXT4, "full"), (&EXT4, "wide"), (&PLAIN, "wide"), (&EXT3, "wide"), (&LARGE, "wide")]
    {
        let mut disk = base.disk();
        let levels = |disk: &Disk| disk.bytes[disk.range(disk.file_block(disk.ino(path), 0)).start + 30];
        let before = levels(&disk);
        disk.edit_index_bounds(path, 0, |bounds| bounds.count = 0.into());
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        let flags = fixed.inode_of(fixed.ino(path)).i_flags.get();
        assert_eq!((flags & 0x1000, levels(&fixed)), (0x1000, before), "{} {path}", base.name);
        let second = e2fsck_is_clean(&fixed.bytes);
        assert!(second.is_clean(), "{} {path}: {}", base.name, second.text);
        assert_eq!(lost(&contents(&disk.bytes), &contents(&fixed.bytes)), []);
    }
}
