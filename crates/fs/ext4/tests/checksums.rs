//! Metadata with a wrong checksum. Reading reports it and nevertheless shows the entries of a directory, and changes
//! refuse it. A reader that ignores checksums sees everything that can be decoded.

mod common;
mod lab;

use std::sync::Arc;

use obento_base::{Corrupt, Error, Ino, Name, Structure};
use obento_block::MemDevice;
use obento_driver::{Access, Checksums, Driver as _, FileSystem, Notice, OpenOptions};
use obento_ext4::{Ext4, Ext4Driver, open_volume};

use lab::bases::{EXT4, oracles};
use lab::{Disk, ROOT};

fn open(disk: &Disk, checksums: Checksums) -> Ext4 {
    let options = OpenOptions { checksums, ..common::options() };
    Ext4::new(open_volume(Arc::new(MemDevice::read_only(disk.bytes.clone())), &options).unwrap())
}

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Returns a volume whose directory `full` has a block with a wrong checksum, and that block.
fn damaged() -> (Disk, u32, Ino) {
    let mut disk = EXT4.disk();
    let full = disk.ino("full");
    let block = disk.file_block(full, 1);
    let end = disk.range(block).end;
    disk.bytes[end - 1] ^= 1;
    (disk, block, Ino(full.into()))
}

fn is_checksum_of(error: &Error, dir: Ino, at: u32) -> bool {
    matches!(*error, Error::Corrupt(Corrupt::Checksum { structure: Structure::Directory(found), block, .. })
        if found == dir && block == u64::from(at))
}

#[test]
fn a_directory_block_with_a_wrong_checksum_is_listed_in_full_and_reported_once() {
    if !oracles() {
        return;
    }
    let (disk, block, full) = damaged();
    let before = common::read_everything(&open(&EXT4.disk(), Checksums::Verify));
    let fs = open(&disk, Checksums::Verify);
    let all = common::read_everything(&fs);
    let paths = |all: &common::Everything| {
        let mut paths: Vec<_> = all.entries.iter().map(|(path, _)| path.clone()).collect();
        paths.sort();
        paths
    };
    assert_eq!(paths(&all), paths(&before));
    assert!(
        matches!(&all.errors[..], [(_, error)] if is_checksum_of(error, full, block)),
        "{:?}",
        all.errors
    );
    // The listing reported it.
    assert_eq!(fs.info().notices, []);
}

#[test]
fn a_name_in_a_block_with_a_wrong_checksum_is_found_and_the_damage_is_noted() {
    if !oracles() {
        return;
    }
    let (disk, block, full) = damaged();
    let fs = open(&disk, Checksums::Verify);
    let names: Vec<String> = (0..90).map(|n| format!("{n:020}")).collect();
    for text in &names {
        assert_eq!(fs.lookup(full, name(text)), Ok(Ino(disk.ino("twice").into())), "{text}");
    }
    let notices = fs.info().notices;
    let [Notice::Damaged(error)] = &notices[..] else { panic!("{notices:?}") };
    assert!(is_checksum_of(error, full, block));
    // The damaged block may have contained a name that is in no other block.
    assert!(fs.lookup(full, name("absent")).is_err());
}

#[test]
fn a_change_refuses_a_directory_block_with_a_wrong_checksum() {
    if !oracles() {
        return;
    }
    let (disk, block, full) = damaged();
    let options = OpenOptions { access: Access::ReadWrite, ..common::options() };
    let device = Arc::new(MemDevice::new(disk.bytes.clone()));
    let fs = Ext4Driver.open(device, &options).unwrap();
    let writable = fs.writable().unwrap();
    let names: Vec<String> = (0..90).map(|n| format!("{n:020}")).collect();
    let outcomes: Vec<_> = names.iter().map(|text| writable.unlink(full, name(text))).collect();
    let refused =
        outcomes.iter().filter(|outcome| matches!(outcome, Err(error) if is_checksum_of(error, full, block)));
    assert!(refused.count() > 1, "{outcomes:?}");
}

#[test]
fn a_reader_that_ignores_checksums_sees_all_decodable_data() {
    if !oracles() {
        return;
    }
    let (mut disk, _, full) = damaged();
    // The last byte of the checksums of an inode, of a descriptor and of the super block.
    let inode = disk.inode_at(disk.ino("file"));
    disk.bytes[inode + 0x7d] ^= 1;
    let group = disk.group_at(1);
    disk.bytes[group + 0x1f] ^= 1;
    disk.bytes[2047] ^= 1;
    let verifying = open(&disk, Checksums::Verify);
    assert!(verifying.lookup(Ino(ROOT.into()), name("file")).and_then(|ino| verifying.getattr(ino)).is_err());
    let fs = open(&disk, Checksums::Ignore);
    assert_eq!(fs.info().notices, []);
    let all = common::read_everything(&fs);
    assert_eq!(all.errors, []);
    let sound = common::read_everything(&open(&EXT4.disk(), Checksums::Verify));
    assert_eq!((all.entries.len(), all.bytes), (sound.entries.len(), sound.bytes));
    assert!(fs.lookup(full, name("absent")).is_err_and(|error| error == Error::NotFound));
}
