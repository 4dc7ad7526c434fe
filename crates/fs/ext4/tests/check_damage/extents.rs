//! Extent trees and block maps, and blocks with two owners.

use crate::case::{cases, run_unknown};
use crate::lab::bases::EXT4;

cases! {
    a_place_in_a_cluster_that_is_not_that_in_the_file(BIGALLOC, ["cluster-rule ino=<file> at=0"], |disk| {
        disk.edit_extent("file", &[], 0, |extent| extent.ee_start_lo = (extent.ee_start_lo.get() + 1).into());
    });
    a_magic_number_of_a_root(EXT4, ["extent-header ino=<file>", "block-count ino=<file>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent_header("file", &[], |header| header.eh_magic = 0xf300.into());
    });
    more_entries_in_a_root_than_fit(EXT4, ["extent-header ino=<file>", "block-count ino=<file>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent_header("file", &[], |header| header.eh_entries = 5.into());
    });
    room_in_a_root_that_there_is_not(EXT4, ["extent-header ino=<file>", "block-count ino=<file>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent_header("file", &[], |header| header.eh_max = 9.into());
    });
    a_magic_number_of_a_node(EXT4, ["extent-header ino=<pieces>", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent_header("pieces", &[0], |header| header.eh_magic = 0.into());
    });
    a_checksum_of_a_node(EXT4, ["extent-checksum ino=<pieces>"], |disk| {
        let at = disk.node_at(disk.ino("pieces"), &[0]);
        disk.put(at + 12 + 12 * 84, &[1, 2, 3, 4]);
    });
    an_extent_of_no_length(EXT4, ["bad-extent ino=<pieces> at=64", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent("pieces", &[0], 1, |extent| extent.ee_len = 0.into());
    });
    an_extent_outside_the_volume(EXT4, ["bad-extent ino=<file> at=0", "block-count ino=<file>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent("file", &[], 0, |extent| extent.ee_start_lo = 0x7fff_0000.into());
    });
    an_extent_across_the_end_of_the_volume(EXT4, ["bad-extent ino=<file> at=0", "block-count ino=<file>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent("file", &[], 0, |extent| extent.ee_start_lo = 8190.into());
    });
    extents_out_of_order(EXT4, ["extent-order ino=<pieces> at=1", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent("pieces", &[0], 3, |extent| extent.ee_block = 1.into());
    });
    extents_that_overlap(EXT4, ["extent-order ino=<pieces> at=2", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent("pieces", &[0], 1, |extent| extent.ee_block = 2.into());
    });
    a_node_that_names_itself(EXT4, [
        "extent-circle ino=<pieces>", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "block-bitmap group=0 stored=1",
        "group-free-blocks group=0", "free-blocks"
    ], |disk| {
        let node = u32::try_from(disk.node_at(disk.ino("pieces"), &[0]) / disk.block).unwrap();
        disk.edit_extent_header("pieces", &[], |header| header.eh_depth = 2.into());
        disk.edit_extent_header("pieces", &[0], |header| {
            header.eh_depth = 1.into();
            header.eh_entries = 1.into();
        });
        disk.edit_extent_index("pieces", &[0], 0, |index| {
            index.ei_leaf_lo = node.into();
            index.ei_leaf_hi = 0.into();
        });
    });
    a_node_that_begins_elsewhere(EXT4, ["extent-start ino=<pieces>"], |disk| {
        disk.edit_extent_index("pieces", &[], 0, |index| index.ei_block = 1.into());
    });
    a_node_outside_the_volume(EXT4, ["illegal-block ino=<pieces> at=0", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent_index("pieces", &[], 0, |index| index.ei_leaf_lo = 0x7fff_0000.into());
    });
    an_unwritten_extent_of_a_directory(EXT4, ["extent-unwritten ino=<dir>"], |disk| {
        disk.edit_extent("dir", &[], 0, |extent| extent.ee_len = 0x8001.into());
    });
    a_pointer_outside_the_volume(EXT2, ["illegal-block ino=<file> at=1", "block-count ino=<file>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_pointer("file", 1, 0x7fff_0000);
    });
    a_table_of_pointers_outside_the_volume(EXT2, ["illegal-block ino=<pieces> at=12", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_pointer("pieces", 12, 0x7fff_0000);
    });
    a_pointer_in_a_table_outside_the_volume(EXT3, ["illegal-block ino=<pieces> at=64", "block-count ino=<pieces>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        let table = disk.word(disk.inode_at(disk.ino("pieces")) + 0x28 + 12 * 4);
        disk.put(disk.range(table).start + 52 * 4, &0x7fff_0000_u32.to_le_bytes());
    });
}

#[test]
fn a_depth_of_a_node_that_is_not_one_less_than_above() {
    run_unknown(&EXT4, &["extent-header ino=<pieces> found=16"], |disk| {
        disk.edit_extent_header("pieces", &[0], |header| header.eh_depth = 16.into());
    });
}
