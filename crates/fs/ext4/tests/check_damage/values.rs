//! Values of attributes in inodes of their own: the hashes by which they are known.

use obento_ext4::raw::RawXattrEntry;

use crate::case::cases;
use crate::lab::Disk;
use crate::lab::bases::{self, oracles};
use crate::lab::judge::{e2fsck_is_clean, findings, line, repaired};

cases! {
    a_hash_in_the_inode_of_a_value(EA_INODE, ["value-hash"], |disk| {
        let value = value(disk);
        disk.edit_inode(&format!("<{value}>"), |inode| inode.i_atime = (inode.i_atime.get() ^ 1).into());
    });
    a_hash_of_an_attribute_whose_value_is_in_an_inode(EA_INODE, ["xattr-value-hash ino=<long>"], |disk| {
        disk.edit_inode_xattr("long", |entry| entry.e_hash = (entry.e_hash.get() ^ 4).into());
    });
}

/// The inode of the value of `user.own-inode` of `long`.
fn value(disk: &Disk) -> u32 {
    let at = disk.inline_xattrs_at(disk.ino("long"));
    disk.read::<RawXattrEntry>(at + 4).e_value_inum.get()
}

#[test]
fn a_value_that_is_not_what_its_hash_says_is_kept_with_the_hash_that_it_has() {
    if oracles() {
        let mut disk = bases::EA_INODE.disk();
        let (value, long) = (value(&disk), disk.ino("long"));
        let at = disk.range(disk.file_block(value, 0)).start;
        disk.bytes[at] ^= 1;
        let found: Vec<String> = findings(&disk.bytes).unwrap().iter().map(line).collect();
        assert!(found.len() == 1 && found[0].starts_with(&format!("value-hash ino={value} ")), "{found:?}");
        let mended = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(findings(&mended.bytes).unwrap(), []);
        assert_eq!(e2fsck_is_clean(&mended.bytes).code, 0);
        let entry = mended.read::<RawXattrEntry>(mended.inline_xattrs_at(long) + 4);
        assert_eq!(entry.e_value_inum.get(), value, "the attribute is gone");
    }
}
