//! Extended attributes.

use crate::case::cases;

cases! {
    a_magic_number_of_a_block_of_attributes(EXT4, ["xattr-block ino=<xattrs>"], |disk| {
        disk.edit_xattr_header("xattrs", |header| header.h_magic = 0.into());
    });
    a_checksum_of_a_block_of_attributes(EXT4, ["xattr-block ino=<xattrs>"], |disk| {
        let at = disk.range(disk.xattr_block("xattrs")).start;
        disk.put(at + 0x10, &[1, 2, 3, 4]);
    });
    a_count_of_blocks_of_attributes(EXT4, ["xattr-block ino=<xattrs>"], |disk| {
        disk.edit_xattr_header("xattrs", |header| header.h_blocks = 2.into());
    });
    users_of_a_block_of_attributes(EXT4, ["xattr-users found=5 expected=1"], |disk| {
        disk.edit_xattr_header("xattrs", |header| header.h_refcount = 5.into());
    });
    users_of_a_block_of_attributes_without_checksums(EXT2, ["xattr-users found=5 expected=1"], |disk| {
        disk.edit_xattr_header("xattrs", |header| header.h_refcount = 5.into());
    });
    a_value_outside_its_block(EXT4, ["xattr-entry ino=<xattrs>"], |disk| {
        disk.edit_block_xattr("xattrs", |entry| entry.e_value_offs = 1000.into());
    });
    a_value_over_the_names(EXT4, ["xattr-entry ino=<xattrs>"], |disk| {
        disk.edit_block_xattr("xattrs", |entry| entry.e_value_offs = 32.into());
    });
    a_hash_of_an_attribute_in_a_block(EXT4, ["xattr-entry ino=<xattrs>"], |disk| {
        disk.edit_block_xattr("xattrs", |entry| entry.e_hash = 77.into());
    });
    a_value_in_an_inode_without_the_feature(EXT4, ["xattr-inode ino=<xattrs>"], |disk| {
        disk.edit_block_xattr("xattrs", |entry| entry.e_value_inum = 12.into());
    });
    a_value_larger_than_the_inode(EXT4, ["xattr-entry ino=<xattrs>"], |disk| {
        disk.edit_inode_xattr("xattrs", |entry| entry.e_value_size = 900.into());
    });
    a_name_longer_than_the_inode(EXT4, ["xattr ino=<xattrs>"], |disk| {
        disk.edit_inode_xattr("xattrs", |entry| entry.e_name_len = 200);
    });
    a_hash_of_an_attribute_in_an_inode(EXT4, ["xattr-entry ino=<xattrs>"], |disk| {
        disk.edit_inode_xattr("xattrs", |entry| entry.e_hash = 77.into());
    });
    a_block_of_attributes_outside_the_volume(EXT4, ["inode-field ino=<xattrs>", "block-count ino=<xattrs>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_inode("xattrs", |inode| inode.i_file_acl_lo = 0x7fff_0000.into());
    });
    a_block_of_attributes_that_is_free(EXT4, ["block-count ino=<empty>", "xattr-block ino=<empty>", "block-bitmap group=1 stored=0", "group-free-blocks group=1", "free-blocks"], |disk| {
        let free = disk.free_block();
        disk.edit_inode("empty", |inode| inode.i_file_acl_lo = free.into());
    });
    a_value_in_an_inode_that_holds_none(EA_INODE, ["xattr-inode ino=<long>", "unnamed ino=27"], |disk| {
        let file = disk.ino("file");
        disk.edit_inode_xattr("long", |entry| entry.e_value_inum = file.into());
    });
    a_value_in_an_inode_beyond_the_last(EA_INODE, ["xattr-inode ino=<long>", "unnamed ino=27"], |disk| {
        disk.edit_inode_xattr("long", |entry| entry.e_value_inum = 99_999.into());
    });
    users_of_a_value(EA_INODE, ["value-users found=7 expected=1"], |disk| {
        let value = value_of(disk);
        // The reference count is in ctime and the low version.
        disk.edit_inode(&value, |inode| inode.l_i_version = 7.into());
    });
}

/// Returns the inode of the first value of `long` as a path.
fn value_of(disk: &crate::lab::Disk) -> String {
    let ino = disk.ino("long");
    let at = disk.inline_xattrs_at(ino) + 4;
    format!("<{}>", disk.read::<obento_ext4::raw::RawXattrEntry>(at).e_value_inum.get())
}
