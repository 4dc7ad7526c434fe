//! Counts and bitmaps of groups and inodes.

use crate::case::cases;
use crate::lab::Bits;

cases! {
    a_link_count_that_is_too_high(EXT4, ["link-count ino=<file> stored=9 found=1"], |disk| {
        disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
    });
    a_link_count_that_is_too_low(EXT4, ["link-count ino=<dir> stored=2 found=3"], |disk| {
        disk.edit_inode("dir", |inode| inode.i_links_count = 2.into());
    });
    a_used_block_marked_free(EXT4, ["block-bitmap group=0 stored=0"], |disk| {
        let block = disk.file_block(disk.ino("file"), 1);
        disk.edit_bit(Bits::Blocks, block, false);
    });
    a_used_block_marked_free_without_checksums(EXT2, ["block-bitmap group=0 stored=0"], |disk| {
        let block = disk.file_block(disk.ino("file"), 1);
        disk.edit_bit(Bits::Blocks, block, false);
    });
    a_free_block_marked_used(EXT4, ["block-bitmap stored=1 len=1"], |disk| {
        let block = disk.free_block();
        disk.edit_bit(Bits::Blocks, block, true);
    });
    a_used_cluster_marked_free(BIGALLOC, ["block-bitmap stored=0"], |disk| {
        let block = disk.file_block(disk.ino("file"), 1);
        disk.edit_bit(Bits::Blocks, block, false);
    });
    a_used_inode_marked_free(EXT4, ["inode-bitmap stored=0 ino=<file> len=1"], |disk| {
        let ino = disk.ino("file");
        disk.edit_bit(Bits::Inodes, ino, false);
    });
    a_free_inode_marked_used(EXT4, ["inode-bitmap stored=1 len=1"], |disk| {
        let free = (1..).find(|&ino| !disk.bit(Bits::Inodes, ino)).unwrap();
        disk.edit_bit(Bits::Inodes, free, true);
    });
    a_free_block_count_of_a_group(EXT4, ["group-free-blocks group=0 found=1"], |disk| {
        disk.edit_group(0, |group| group.bg_free_blocks_count_lo = 1.into());
    });
    a_free_block_count_of_a_group_without_checksums(PLAIN, ["group-free-blocks group=1 found=7"], |disk| {
        disk.edit_group(1, |group| group.bg_free_blocks_count_lo = 7.into());
    });
    a_free_inode_count_of_a_group(EXT4, ["group-free-inodes group=0 found=1"], |disk| {
        disk.edit_group(0, |group| group.bg_free_inodes_count_lo = 1.into());
    });
    a_count_of_directories(EXT4, ["group-directories group=0 found=99"], |disk| {
        disk.edit_group(0, |group| group.bg_used_dirs_count_lo = 99.into());
    });
    the_checksum_of_a_block_bitmap(EXT4, ["block-bitmap-checksum group=0"], |disk| {
        disk.edit_group(0, |group| group.bg_block_bitmap_csum_lo = 1.into());
    });
    the_checksum_of_an_inode_bitmap(EXT4, ["inode-bitmap-checksum group=0"], |disk| {
        disk.edit_group(0, |group| group.bg_inode_bitmap_csum_lo = 1.into());
    });
    the_end_of_a_block_bitmap(EXT2, ["block-bitmap group=0 stored=1", "block-bitmap-padding group=0"], |disk| {
        let at = disk.bitmap_at(Bits::Blocks, 0) + disk.block - 1;
        disk.put(at, &[0x7f]);
    });
    the_end_of_an_inode_bitmap(EXT4, ["inode-bitmap-padding group=0"], |disk| {
        let at = disk.bitmap_at(Bits::Inodes, 0) + disk.block - 1;
        disk.put(at, &[0x7f]);
    });
    a_block_bitmap_with_more_wrong_runs_than_are_reported(EXT2, [
        "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1",
        "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1",
        "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1",
        "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1",
        "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1", "block-bitmap stored=1 len=1",
        "block-bitmap stored=1 len=1", "block-bitmap-others group=0 runs=4",
    ], |disk| {
        let last = disk.free_block();
        (0..20).for_each(|n| disk.edit_bit(Bits::Blocks, last - 2 * n, true));
    });
    an_inode_bitmap_with_more_wrong_runs_than_are_reported(EXT2, [
        "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1",
        "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1",
        "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1",
        "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1",
        "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1", "inode-bitmap stored=1 len=1",
        "inode-bitmap stored=1 len=1", "inode-bitmap-others group=0 runs=4",
    ], |disk| {
        let last = disk.inodes_per_group;
        (0..20).for_each(|n| disk.edit_bit(Bits::Inodes, last - 2 * n, true));
    });
}
