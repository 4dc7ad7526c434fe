//! Directory entries, and the connection of directories.

use crate::case::{cases, run_unknown};
use crate::lab::Disk;
use crate::lab::bases::{EXT4, oracles};
use crate::lab::judge::{e2fsck_is_clean, findings, repaired};
use obento_ext4::raw::RawDirEntry;

cases! {
    a_length_of_a_record_that_is_too_short(EXT4, ["directory-record dir=<dir> offset=24", "unconnected dir=<dir/sub>", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.rec_len = 8.into());
    });
    a_length_of_a_record_that_is_odd(EXT4, ["directory-record dir=<dir> offset=24", "unconnected dir=<dir/sub>", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.rec_len = 17.into());
    });
    a_length_of_a_record_beyond_the_block(EXT4, ["directory-record dir=<dir> offset=24", "unconnected dir=<dir/sub>", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.rec_len = 2000.into());
    });
    a_length_of_a_record_beyond_the_block_without_checksums(EXT2, ["directory-record dir=<dir> offset=24", "unconnected dir=<dir/sub>", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.rec_len = 2000.into());
    });
    a_name_longer_than_its_record(EXT4, ["directory-record dir=<dir> offset=24", "unconnected dir=<dir/sub>", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.name_len = 200);
    });
    a_name_of_no_length(EXT4, ["entry-name dir=<dir>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.name_len = 0);
    });
    a_name_with_a_slash(EXT4, ["entry-name dir=<dir>"], |disk| {
        disk.rename_entry("dir", "inner", b"in/er");
    });
    a_name_with_a_nul(EXT4, ["entry-name dir=<dir>"], |disk| {
        disk.rename_entry("dir", "inner", b"in\0er");
    });
    a_type_of_an_entry(EXT4, ["entry-type dir=<dir> ino=<dir/inner> found=7 expected=1"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.file_type = 7);
    });
    an_inode_beyond_the_last(EXT4, ["entry-inode dir=<dir> found=100000", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.inode = 100_000.into());
    });
    a_reserved_inode_with_a_name(EXT4, ["entry-inode dir=<dir> found=8", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.inode = 8.into());
    });
    a_name_for_an_inode_that_is_not_in_use(EXT4, ["entry-unused dir=<dir> ino=200", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.inode = 200.into());
    });
    a_name_for_the_root(EXT4, ["entry-root dir=<dir>", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| {
            entry.inode = 2.into();
            entry.file_type = 2;
        });
    });
    two_names_for_a_directory(EXT4, ["directory-twice dir=<dir> ino=<dir/sub>", "unnamed ino=<dir/inner>", "link-count ino=<dir/sub> stored=2"], |disk| {
        let sub = disk.ino("dir/sub");
        disk.edit_entry("dir", "inner", |entry| {
            entry.inode = sub.into();
            entry.file_type = 2;
        });
    });
    a_name_for_a_directory_beside_that_in_its_parent(EXT4, ["directory-twice dir=2 ino=<dir/sub>", "unnamed ino=<empty>", "link-count ino=<dir/sub> stored=2"], |disk| {
        let sub = disk.ino("dir/sub");
        disk.edit_entry("", "empty", |entry| {
            entry.inode = sub.into();
            entry.file_type = 2;
        });
    });
    a_name_for_a_directory_below_it_which_its_parent_entry_agrees_with(EXT4, ["directory-twice dir=<dir/sub> ino=<dir>", "dot-dot dir=<dir> found=<dir/sub>", "link-count ino=2 stored=6", "link-count ino=<dir> stored=3", "link-count ino=<dir/sub> stored=2"], |disk| {
        let (dir, sub) = (disk.ino("dir"), disk.ino("dir/sub"));
        disk.edit_entry("dir", "..", |entry| entry.inode = sub.into());
        let at = disk.entry_at(sub, "..");
        let rest = disk.read::<RawDirEntry>(at).rec_len.get() - 12;
        let record = RawDirEntry { inode: dir.into(), rec_len: rest.into(), name_len: 3, file_type: 2 };
        disk.write(at + 12, &record);
        disk.put(at + 20, b"top");
        disk.edit_entry("dir/sub", "..", |entry| entry.rec_len = 12.into());
    });
    a_name_twice(EXT4, ["duplicate-name"], |disk| {
        disk.rename_entry("", "twice", b"again");
    });
    a_dot_that_names_another(EXT4, ["dot-inode dir=<dir> found=2"], |disk| {
        disk.edit_entry("dir", ".", |entry| entry.inode = 2.into());
    });
    no_dot(EXT4, ["dot dir=<dir>", "entry-inode dir=<dir> found=<dir>", "link-count ino=<dir> stored=3"], |disk| {
        disk.rename_entry("dir", ".", b"x");
    });
    no_dot_dot(EXT4, ["dot dir=<dir>", "entry-root dir=<dir>", "link-count ino=2 stored=6"], |disk| {
        disk.rename_entry("dir", "..", b"x");
    });
    a_dot_dot_that_names_another(EXT4, ["dot-dot dir=<dir/sub> found=2 expected=<dir>", "link-count ino=2", "link-count ino=<dir>"], |disk| {
        disk.edit_entry("dir/sub", "..", |entry| entry.inode = 2.into());
    });
    a_second_dot(EXT4, ["duplicate-dot dir=<dir> offset=24", "unnamed ino=<dir/inner>"], |disk| {
        disk.rename_entry("dir", "inner", b".");
    });
    a_checksum_of_a_block_of_entries(EXT4, ["directory-checksum dir=<dir>"], |disk| {
        let at = disk.range(disk.file_block(disk.ino("dir"), 0)).end - 4;
        disk.put(at, &[1, 2, 3, 4]);
    });
    a_block_without_the_record_of_its_checksum(EXT4, ["directory-no-tail dir=<dir>"], |disk| {
        let at = disk.range(disk.file_block(disk.ino("dir"), 0)).end - 12;
        disk.put(at, &[0; 12]);
        disk.edit_raw(at, |entry: &mut obento_ext4::raw::RawDirEntry| entry.rec_len = 12.into());
    });
    a_directory_that_lost_its_name(EXT4, ["unconnected dir=<dir>"], |disk| {
        disk.edit_entry("", "dir", |entry| entry.inode = 0.into());
    });
    a_lost_and_found_that_is_a_file(EXT4, ["entry-type"], |disk| {
        disk.edit_entry("", "lost+found", |entry| entry.file_type = 1);
    });
    an_inline_entry_that_is_too_long(INLINE, ["inline-directory dir=<dir> offset=44", "unconnected dir=<dir/sub>", "unnamed ino=<dir/inner>"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.rec_len = 200.into());
    });
    an_inline_parent_that_is_another(INLINE, ["dot-dot dir=<dir/sub>", "link-count ino=2 stored=6", "link-count ino=<dir> stored=3"], |disk| {
        let at = disk.inode_at(disk.ino("dir/sub")) + 0x28;
        disk.put(at, &2_u32.to_le_bytes());
        disk.seal_inode(disk.ino("dir/sub"));
    });
    a_dot_that_is_not_followed_by_a_zero(EXT2, ["dot dir=<dir>"], |disk| {
        let at = disk.entry_at(disk.ino("dir"), ".");
        disk.put(at + 9, b"x");
    });
    a_dot_dot_that_is_not_followed_by_a_zero(EXT4, ["dot dir=<dir/sub>"], |disk| {
        let at = disk.entry_at(disk.ino("dir/sub"), "..");
        disk.put(at + 10, b"x");
        disk.seal_entries(disk.ino("dir/sub"), at);
    });
    a_dot_that_takes_the_place_of_what_follows(EXT4, ["dot dir=<dir/sub>", "dot dir=<dir/sub>", "link-count ino=<dir> stored=3"], |disk| {
        disk.edit_entry("dir/sub", ".", |entry| entry.rec_len = 1012.into());
    });
    a_directory_that_names_itself(EXT4, ["entry-inode dir=<dir> found=<dir>", "unnamed ino=<dir/inner>"], |disk| {
        let dir = disk.ino("dir");
        disk.edit_entry("dir", "inner", |entry| {
            entry.inode = dir.into();
            entry.file_type = 2;
        });
    });
    a_hole_before_pointers_in_tables(EXT2, ["directory-hole dir=<wide> at=3", "index-reference dir=<wide>", "block-count ino=<wide>", "link-count ino=<twice>", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_pointer("wide", 3, 0);
    });
    a_hole_between_extents(EXT4, ["size ino=<dir>", "directory-hole dir=<dir> at=0", "duplicate-dot", "duplicate-dot", "dot dir=<dir>", "link-count ino=2", "link-count ino=<dir>"], |disk| {
        disk.edit_extent("dir", &[], 0, |extent| extent.ee_block = 1.into());
    });
    a_directory_without_a_block(EXT4, ["directory-empty dir=<dir/sub>", "size ino=<dir/sub>", "block-count ino=<dir/sub>", "link-count ino=<dir> stored=3", "link-count ino=<dir/sub> stored=2", "block-bitmap group=0 stored=1", "group-free-blocks group=0", "free-blocks"], |disk| {
        disk.edit_extent_header("dir/sub", &[], |header| header.eh_entries = 0.into());
    });
    a_file_that_is_not_encrypted_as_its_directory_is(EXT4, ["entry-encryption dir=<full> ino=<file>"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x1_0000).into());
        encrypt(disk, "full");
        encrypt(disk, "twice");
        let file = disk.ino("file");
        disk.edit_entry("full", "00000000000000000007", |entry| entry.inode = file.into());
        disk.edit_inode("file", |inode| inode.i_links_count = 2.into());
        disk.edit_inode("twice", |inode| inode.i_links_count = (inode.i_links_count.get() - 1).into());
    });
}

/// Marks an inode as encrypted, with one key for all: sets the flag, and the attribute `c` with a context.
fn encrypt(disk: &mut Disk, path: &str) {
    const ENCRYPT: u32 = 0x800;
    const CONTEXT: [u8; 28] =
        [1, 1, 4, 0, 7, 7, 7, 7, 7, 7, 7, 7, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
    let (at, ino) = (disk.inline_xattrs_at(disk.ino(path)), disk.ino(path));
    let end = disk.inode_at(ino) + disk.inode_size;
    let value = end - CONTEXT.len();
    // Length of the name, name space, offset of the value from the first entry, no inode, length, no hash, name.
    let mut entry = vec![1, 9];
    entry.extend(u16::try_from(value - at - 4).unwrap().to_le_bytes());
    entry.extend(0_u32.to_le_bytes());
    entry.extend(28_u32.to_le_bytes());
    entry.extend([0, 0, 0, 0, b'c', 0, 0, 0]);
    disk.put(at, &0xea02_0000_u32.to_le_bytes());
    disk.put(at + 4, &entry);
    disk.put(value, &CONTEXT);
    disk.edit_inode(path, |inode| inode.i_flags = (inode.i_flags.get() | ENCRYPT).into());
}

#[test]
fn unnamed_inodes_get_names_beside_an_encrypted_lost_and_found() {
    if oracles() {
        let mut disk = EXT4.disk();
        disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x1_0000).into());
        encrypt(&mut disk, "lost+found");
        let (old, lost) = (disk.ino("lost+found"), disk.ino("dir/sub"));
        disk.edit_entry("dir", "sub", |entry| entry.inode = 0.into());
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(findings(&fixed.bytes).unwrap(), []);
        assert!(e2fsck_is_clean(&fixed.bytes).is_clean());
        assert_eq!(fixed.ino(&format!("lost+found/#{lost}")), lost);
        assert_eq!(fixed.ino(&format!("#{old}")), old, "what was in it is lost");
    }
}

#[test]
fn an_entry_without_a_type() {
    run_unknown(&EXT4, &["entry-type-missing dir=<dir> ino=<dir/inner> expected=1"], |disk| {
        disk.edit_entry("dir", "inner", |entry| entry.file_type = 0);
    });
}
