//! Fields of inodes.

use crate::case::{cases, run_unknown};
use crate::lab::bases;

const INDEX: u32 = 0x1000;
const EXTENTS: u32 = 0x8_0000;
const CASEFOLD: u32 = 0x4000_0000;

cases! {
    a_directory_that_says_it_is_a_pipe(EXT4, ["directory-mode ino=<dir>"], |disk| {
        disk.edit_inode("dir", |inode| inode.i_mode = 0o010_755.into());
    });
    a_directory_without_a_type(EXT2, ["directory-mode ino=<full>"], |disk| {
        disk.edit_inode("full", |inode| inode.i_mode = 0o755.into());
    });
    a_flag_of_a_reserved_inode(EXT4, ["inode-flag ino=5"], |disk| {
        disk.edit_inode("<5>", |inode| inode.i_flags = 0x4000_0000.into());
    });
    a_mode_that_names_no_type(EXT4, ["bad-mode ino=<file>", "block-count ino=<file>", "entry-type dir=2 ino=<file>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_inode("file", |inode| inode.i_mode = 0o644.into());
    });
    a_checksum_of_an_inode(EXT4, ["inode-checksum ino=<file>"], |disk| {
        let at = disk.inode_at(disk.ino("file"));
        disk.put(at + 0x7c, &[1, 2]);
    });
    a_generation_that_the_checksum_does_not_cover(EXT4, ["inode-checksum ino=<pieces>", "extent-checksum ino=<pieces>"], |disk| {
        let at = disk.inode_at(disk.ino("pieces"));
        disk.put(at + 0x64, &[1, 2]);
    });
    a_size_beyond_the_blocks_of_a_directory(EXT4, ["size ino=<dir> found=5120 expected=1024"], |disk| {
        disk.edit_inode("dir", |inode| inode.i_size_lo = 5120.into());
    });
    a_size_below_the_blocks_of_a_file(EXT4, ["size ino=<file> found=1000"], |disk| {
        disk.edit_inode("file", |inode| inode.i_size_lo = 1000.into());
    });
    a_size_below_the_blocks_of_a_file_with_pointers(EXT2, ["size ino=<file> found=1000"], |disk| {
        disk.edit_inode("file", |inode| inode.i_size_lo = 1000.into());
    });
    a_size_below_the_blocks_of_a_file_with_inner_nodes(EXT4, ["size-of-tree ino=<pieces> found=1000"], |disk| {
        disk.edit_inode("pieces", |inode| inode.i_size_lo = 1000.into());
    });
    a_count_of_blocks(EXT4, ["block-count ino=<file> found=100 expected=6"], |disk| {
        disk.edit_inode("file", |inode| inode.i_blocks_lo = 100.into());
    });
    a_count_of_blocks_of_pointers(EXT3, ["block-count ino=<pieces> found=2"], |disk| {
        disk.edit_inode("pieces", |inode| inode.i_blocks_lo = 2.into());
    });
    a_count_of_blocks_of_clusters(BIGALLOC, ["block-count ino=<file> found=6 expected=8"], |disk| {
        disk.edit_inode("file", |inode| inode.i_blocks_lo = 6.into());
    });
    a_time_of_deletion_of_a_file_in_use(EXT4, ["deletion-time ino=<file>"], |disk| {
        disk.edit_inode("file", |inode| inode.i_dtime = 1_000_000_000.into());
    });
    no_link_and_no_time_of_deletion(EXT2, ["deleted-without-time ino=<empty>", "entry-unused dir=2 ino=<empty>", "inode-bitmap group=0 ino=<empty> stored=1", "group-free-inodes group=0", "free-inodes"], |disk| {
        disk.edit_inode("empty", |inode| inode.i_links_count = 0.into());
    });
    an_extra_size_that_is_too_large(EXT4, ["extra-size ino=<file> found=300"], |disk| {
        disk.edit_extra("file", |extra| extra.i_extra_isize = 300.into());
    });
    an_extra_size_that_is_odd(PLAIN, ["extra-size ino=<file> found=30"], |disk| {
        disk.edit_extra("file", |extra| extra.i_extra_isize = 30.into());
    });
    a_link_that_names_a_second_block(EXT2, ["illegal-block ino=<slow> at=8 block=4000"], |disk| {
        disk.edit_inode("slow", |inode| inode.i_block[32..36].copy_from_slice(&4000_u32.to_le_bytes()));
    });
    a_link_that_names_its_block_again(EXT3, ["illegal-block ino=<slow> at=8"], |disk| {
        disk.edit_inode("slow", |inode| inode.i_block.copy_within(..4, 32));
    });
    a_flag_against_changes_on_a_device(EXT4, ["inode-flag ino=<char>"], |disk| {
        disk.edit_inode("char", |inode| inode.i_flags = 0x10.into());
    });
    an_extents_flag_on_a_link_in_its_inode(EXT4, ["inode-flag ino=<link>"], |disk| {
        disk.edit_inode("link", |inode| inode.i_flags = (inode.i_flags.get() | EXTENTS).into());
    });
    an_inline_flag_without_its_attribute(INLINE, ["inline-data ino=<empty>"], |disk| {
        let at = disk.inline_xattrs_at(disk.ino("empty"));
        disk.put(at, &[0; 4]);
        disk.edit_inode("empty", |inode| inode.i_flags = 0x1000_0000.into());
    });
    an_index_flag_on_a_file(EXT4, ["inode-flag ino=<file>"], |disk| {
        disk.edit_inode("file", |inode| inode.i_flags = (inode.i_flags.get() | INDEX).into());
    });
    an_extents_flag_where_there_are_pointers(EXT2, ["inode-flag ino=<file>"], |disk| {
        disk.edit_inode("file", |inode| inode.i_flags = EXTENTS.into());
    });
    a_missing_extents_flag(EXT4, ["inode-flag-missing ino=<file>", "illegal-block ino=<file> at=0", "size ino=<file>", "block-of-volume ino=<file> at=1", "block-of-volume ino=<file> at=4", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_inode("file", |inode| inode.i_flags = 0.into());
    });
    a_casefold_flag_without_the_feature(EXT4, ["inode-flag ino=<dir>"], |disk| {
        disk.edit_inode("dir", |inode| inode.i_flags = (inode.i_flags.get() | CASEFOLD).into());
    });
    a_short_symbolic_link_with_another_length(EXT4, ["bad-symlink ino=<link>"], |disk| {
        disk.edit_inode("link", |inode| inode.i_size_lo = 3.into());
    });
    a_symbolic_link_of_no_length(EXT4, ["bad-symlink ino=<link>"], |disk| {
        disk.edit_inode("link", |inode| inode.i_size_lo = 0.into());
    });
    a_long_symbolic_link_that_is_too_long(EXT4, ["bad-symlink ino=<slow>"], |disk| {
        disk.edit_inode("slow", |inode| inode.i_size_lo = 2000.into());
    });
    a_pipe_with_a_size(EXT4, ["size ino=<pipe>"], |disk| {
        disk.edit_inode("pipe", |inode| inode.i_size_lo = 5.into());
    });
    a_device_with_extents(EXT4, ["inode-flag ino=<char>"], |disk| {
        disk.edit_inode("char", |inode| inode.i_flags = EXTENTS.into());
    });
    a_high_word_of_the_attributes_block(EXT4, ["inode-field ino=<file>"], |disk| {
        disk.edit_inode("file", |inode| inode.l_i_file_acl_high = 1.into());
    });
    a_fragment_address(EXT2, ["inode-field ino=<file>"], |disk| {
        disk.edit_inode("file", |inode| inode.i_obso_faddr = 5.into());
    });
    a_directory_that_is_a_file(EXT4, ["entry-type dir=2 ino=<dir>", "entry-type dir=<dir/sub> ino=<dir>", "unconnected dir=<dir/sub>", "link-count ino=2 stored=6", "link-count ino=<dir> stored=3", "unnamed ino=<dir/inner>", "group-directories group=0"], |disk| {
        disk.edit_inode("dir", |inode| inode.i_mode = 0o100_644.into());
    });
    an_inode_in_use_that_has_no_name(EXT4, ["unnamed"], |disk| {
        disk.edit_entry("", "empty", |entry| entry.inode = 0.into());
    });
    a_reserved_inode_with_a_mode(EXT4, ["reserved-inode ino=9"], |disk| {
        disk.edit_inode("<9>", |inode| {
            inode.i_mode = 0o100_644.into();
            inode.i_links_count = 1.into();
        });
    });
    a_reserved_inode_with_the_flag_of_indexes(EXT4, ["inode-flag ino=5"], |disk| {
        disk.edit_inode("<5>", |inode| inode.i_flags = INDEX.into());
    });
    a_resize_inode_with_the_flag_of_indexes(EXT4, ["inode-flag ino=7"], |disk| {
        disk.edit_inode("<7>", |inode| inode.i_flags = (inode.i_flags.get() | INDEX).into());
    });
    a_journal_with_the_flag_of_indexes(EXT4, ["inode-flag ino=8"], |disk| {
        disk.edit_inode("<8>", |inode| inode.i_flags = (inode.i_flags.get() | INDEX).into());
    });
    a_quota_file_with_the_flag_of_indexes(QUOTA, ["inode-flag ino=3"], |disk| {
        disk.edit_inode("<3>", |inode| inode.i_flags = (inode.i_flags.get() | INDEX).into());
    });
    inline_data_and_extents(INLINE, ["inode-flag ino=<dir/inner>"], |disk| {
        disk.edit_inode("dir/inner", |inode| inode.i_flags = (inode.i_flags.get() | EXTENTS).into());
    });
    a_device_that_is_said_to_be_indexed(EXT4, ["inode-flag ino=<char>"], |disk| {
        disk.edit_inode("char", |inode| inode.i_flags = INDEX.into());
    });
    a_kept_device_with_blocks(EXT4, ["bad-special ino=<char>", "inode-flag ino=<char>"], |disk| {
        disk.edit_inode("char", |inode| {
            inode.i_flags = 0x10.into();
            inode.i_block[40] = 1;
        });
    });
    a_root_that_is_a_file(EXT4, below_no_root(), |disk| {
        disk.edit_inode("<2>", |inode| inode.i_mode = 0o100_755.into());
    });
    a_bad_blocks_inode_with_a_mode(EXT4, ["bad-blocks-inode"], |disk| {
        disk.edit_inode("<1>", |inode| inode.i_mode = 0o100_644.into());
    });
    an_inode_left_by_a_broken_orphan_list(EXT4, ["lost-orphan ino=<file>", "deletion-time ino=<file>"], |disk| {
        disk.edit_inode("file", |inode| inode.i_dtime = 20.into());
    });
    more_illegal_blocks_than_are_reported(EXT2, [["illegal-block ino=<pieces>"; 11].as_slice(), &["too-many-illegal ino=<pieces>"]].concat(), |disk| {
        let table = disk.word(disk.inode_at(disk.ino("pieces")) + 0x28 + 12 * 4);
        (0..20).for_each(|n| disk.put(disk.range(table).start + n * 4, &0x7fff_0000_u32.to_le_bytes()));
    });
    a_time_before_1970_as_old_kernels_wrote_it(EXT4, ["time ino=<file> field=Text(\"i_mtime\")"], |disk| {
        disk.edit_inode("file", |inode| inode.i_mtime = 0x8000_0000.into());
        disk.edit_extra("file", |extra| extra.i_mtime_extra = 3.into());
    });
}

/// The findings if the root is not a directory: all its entries are unconnected.
fn below_no_root() -> Vec<&'static str> {
    let all = [
        ("root-not-directory ino=2", 1),
        ("no-root", 1),
        ("entry-type ino=2", 4),
        ("unconnected parent=2", 4),
        ("link-count ino=2", 1),
        ("link-count ino=<twice>", 1),
        ("unnamed", 9),
        ("group-directories", 1),
    ];
    all.into_iter().flat_map(|(finding, count)| vec![finding; count]).collect()
}

/// For names that refer to an inode that only attributes may refer to.
const EA_INODE: u32 = 0x20_0000;

#[test]
fn a_file_with_the_flag_of_values_on_a_volume_without_them() {
    run_unknown(&bases::EXT4, &["inode-flag ino=<file> flag=Text(\"ea_inode\")"], |disk| {
        disk.edit_inode("file", |inode| inode.i_flags = (inode.i_flags.get() | EA_INODE).into());
    });
}

#[test]
fn a_directory_with_the_flag_of_values() {
    run_unknown(&bases::EA_INODE, &["inode-flag ino=<dir> flag=Text(\"ea_inode\")"], |disk| {
        disk.edit_inode("dir", |inode| inode.i_flags = (inode.i_flags.get() | EA_INODE).into());
    });
}
