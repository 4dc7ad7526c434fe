//! Names in case-insensitive directories.

use crate::case::run;
use crate::lab::Disk;
use crate::lab::bases::{Base, oracles};
use crate::lab::judge::{e2fsck_is_clean, findings, repaired};

const CASEFOLD_FL: u32 = 0x4000_0000;

/// Names are UTF-8 in directories with the flag.
static CASEFOLD: Base =
    Base { name: "CASEFOLD", mke2fs: "-t ext4 -b 1024 -g 4096 -J size=1 -O casefold", debugfs: "" };

/// Makes `dir` case-insensitive, and the volume strict or not.
fn ignore_case(disk: &mut Disk, strict: bool) {
    disk.edit_super_block(|sb| sb.s_encoding_flags = u16::from(strict).into());
    disk.edit_inode("dir", |inode| inode.i_flags = (inode.i_flags.get() | CASEFOLD_FL).into());
}

#[test]
fn a_name_that_is_not_utf8_where_it_has_to_be() {
    run(&CASEFOLD, &["entry-encoding dir=<dir> ino=<dir/inner>"], |disk| {
        ignore_case(disk, true);
        disk.rename_entry("dir", "inner", b"in\xffer");
    });
}

#[test]
fn a_name_of_no_character_at_all() {
    run(&CASEFOLD, &["entry-encoding dir=<dir> ino=<dir/inner>"], |disk| {
        ignore_case(disk, true);
        disk.rename_entry("dir", "inner", b"\xff");
    });
}

#[test]
fn names_that_differ_in_case_alone() {
    run(&CASEFOLD, &["duplicate-name dir=<dir>"], |disk| {
        ignore_case(disk, true);
        disk.rename_entry("dir", "inner", b"SUB");
    });
}

#[test]
fn invalid_characters_of_a_name_are_replaced_and_the_rest_stays() {
    if oracles() {
        let mut disk = CASEFOLD.disk();
        let inner = disk.ino("dir/inner");
        ignore_case(&mut disk, true);
        disk.rename_entry("dir", "inner", b"i\xc3\xbc\xfer");
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(fixed.ino("dir/i\u{fc}_r"), inner);
    }
}

#[test]
fn a_name_that_is_not_utf8_may_be_where_nothing_asks_for_it() {
    if oracles() {
        let mut disk = CASEFOLD.disk();
        ignore_case(&mut disk, false);
        disk.rename_entry("dir", "inner", b"in\xffer");
        assert_eq!(findings(&disk.bytes).unwrap(), []);
        assert!(e2fsck_is_clean(&disk.bytes).is_silent());
    }
}
