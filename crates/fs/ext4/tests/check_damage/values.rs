//! Attribute values in inodes of their own, and the hashes that identify them.

use obento_base::Ino;
use obento_ext4::raw::RawXattrEntry;

use crate::case::{cases, run_unknown};
use crate::lab::Disk;
use crate::lab::bases::{self, oracles};
use crate::lab::judge::{contents, e2fsck_is_clean, findings, line, repaired, same};

cases! {
    a_hash_in_the_inode_of_a_value(EA_INODE, ["value-hash"], |disk| {
        let value = value(disk);
        disk.edit_inode(&format!("<{value}>"), |inode| inode.i_atime = (inode.i_atime.get() ^ 1).into());
    });
    a_hash_of_an_attribute_whose_value_is_in_an_inode(EA_INODE, ["xattr-value-hash ino=<long>"], |disk| {
        disk.edit_inode_xattr("long", |entry| entry.e_hash = (entry.e_hash.get() ^ 4).into());
    });
}

#[test]
fn a_size_of_a_value_that_its_inode_does_not_have() {
    run_unknown(&bases::EA_INODE, &["xattr-value-size ino=<long> found=1000 expected=1024"], |disk| {
        disk.edit_inode_xattr("long", |entry| entry.e_value_size = 1000.into());
    });
}

#[test]
fn a_size_of_the_inode_of_a_value() {
    run_unknown(&bases::EA_INODE, &["value-size found=900 expected=1024"], |disk| {
        let value = value(disk);
        disk.edit_inode(&format!("<{value}>"), |inode| inode.i_size_lo = 900.into());
    });
}

/// The flag of inodes that contain values.
const EA_INODE: u32 = 0x20_0000;

fn set_flag(disk: &mut Disk, path: &str) {
    disk.edit_inode(path, |inode| inode.i_flags = (inode.i_flags.get() | EA_INODE).into());
}

/// Tests that the files with these names equal those of the intact image after a repair, apart from the findings.
fn is_kept(damaged: &Disk, sound: &Disk, expected: &[&str], names: &[&str]) {
    let found = findings(&damaged.bytes).unwrap();
    assert!(same(sound, expected, &found), "{:#?}", found.iter().map(line).collect::<Vec<_>>());
    let fixed = Disk::new(repaired(&damaged.bytes).unwrap());
    assert_eq!(findings(&fixed.bytes).unwrap(), []);
    assert_eq!(e2fsck_is_clean(&fixed.bytes).code, 0);
    let (before, after) = (contents(&sound.bytes), contents(&fixed.bytes));
    for name in names {
        let ino = sound.ino(name);
        assert_eq!(fixed.ino(name), ino, "the name {name} is missing");
        assert_eq!(after[&Ino(ino.into())], before[&Ino(ino.into())], "{name} has changed");
    }
}

#[test]
fn a_file_with_the_flag_of_values_that_no_attribute_names_keeps_its_names() {
    if oracles() {
        let sound = bases::EA_INODE.disk();
        for name in ["file", "twice"] {
            let mut disk = sound.clone();
            set_flag(&mut disk, name);
            let expected = format!("inode-flag ino=<{name}> flag=Text(\"ea_inode\")");
            is_kept(&disk, &sound, &[&expected], &["file", "twice"]);
        }
    }
}

#[test]
fn a_file_with_the_flag_of_values_that_an_attribute_does_not_go_by_is_a_file() {
    if oracles() {
        let sound = bases::EA_INODE.disk();
        let (mut disk, value) = (sound.clone(), value(&sound));
        let file = disk.ino("file");
        set_flag(&mut disk, "file");
        disk.edit_inode_xattr("long", |entry| entry.e_value_inum = file.into());
        let expected = ["inode-flag ino=<file> flag=Text(\"ea_inode\")", &format!("unnamed ino={value}")];
        is_kept(&disk, &sound, &expected, &["file"]);
    }
}

/// Returns the inode of the value of `user.own-inode` of `long`.
fn value(disk: &Disk) -> u32 {
    let at = disk.inline_xattrs_at(disk.ino("long"));
    disk.read::<RawXattrEntry>(at + 4).e_value_inum.get()
}

/// Turns the value of `long` into one of Lustre: its inode refers to its owner, which does not count its blocks.
fn make_lustres(disk: &mut Disk) {
    let (value, long) = (value(disk), disk.ino("long"));
    let (generation, sectors) = (disk.inode_of(long).i_generation, disk.inode_of(value).i_blocks_lo.get());
    disk.edit_inode(&format!("<{value}>"), |inode| {
        (inode.i_mtime, inode.i_generation) = (long.into(), generation);
    });
    disk.edit_inode_xattr("long", |entry| entry.e_hash = 0.into());
    disk.edit_inode("long", |inode| inode.i_blocks_lo = (inode.i_blocks_lo.get() - sectors).into());
}

#[test]
fn a_value_in_the_form_of_lustre_is_not_counted() {
    if oracles() {
        let mut disk = bases::EA_INODE.disk();
        make_lustres(&mut disk);
        assert_eq!(findings(&disk.bytes).unwrap(), []);
        let second = e2fsck_is_clean(&disk.bytes);
        assert!(second.is_silent(), "{}", second.text);
    }
}

#[test]
fn values_on_a_volume_whose_features_have_none_are_kept() {
    // e2fsck 1.47.2 finds it, too.
    run_unknown(&bases::EA_INODE, &["super-block-value field=Text(\"s_feature_incompat\")"], drop_feature);
    if oracles() {
        let mut disk = bases::EA_INODE.disk();
        let (value, long) = (value(&disk), disk.ino("long"));
        drop_feature(&mut disk);
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        let entry = fixed.read::<RawXattrEntry>(fixed.inline_xattrs_at(long) + 4);
        assert_eq!(entry.e_value_inum.get(), value, "the attribute is missing");
    }
}

fn drop_feature(disk: &mut Disk) {
    disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !0x400).into());
}

#[test]
fn a_value_with_a_wrong_hash_is_kept_with_its_hash() {
    if oracles() {
        let mut disk = bases::EA_INODE.disk();
        let (value, long) = (value(&disk), disk.ino("long"));
        let at = disk.range(disk.file_block(value, 0)).start;
        disk.bytes[at] ^= 1;
        let found: Vec<String> = findings(&disk.bytes).unwrap().iter().map(line).collect();
        assert!(found.len() == 1 && found[0].starts_with(&format!("value-hash ino={value} ")), "{found:?}");
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(findings(&fixed.bytes).unwrap(), []);
        assert_eq!(e2fsck_is_clean(&fixed.bytes).code, 0);
        let entry = fixed.read::<RawXattrEntry>(fixed.inline_xattrs_at(long) + 4);
        assert_eq!(entry.e_value_inum.get(), value, "the attribute is missing");
    }
}
