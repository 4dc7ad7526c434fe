//! Inspection: the on-disk structures field by field, and the structure that contains a byte.

mod common;
#[path = "common/damage.rs"]
mod damage;

use std::sync::Arc;

use damage::{E, F, LONG, Volume};
use obento_base::{Error, Ino};
use obento_block::MemDevice;
use obento_driver::{ByteUse, FieldValue, FileSystem, Record, Target};

const ALL: &[&str] = &["fat12", "fat16", "fat32"];

/// Calls `test` with an open volume of each shape.
fn each(test: impl Fn(&Volume, &dyn FileSystem)) {
    if !common::oracles() {
        return;
    }
    for shape in ALL {
        let volume = Volume::new(shape);
        let fs = common::open(Arc::new(MemDevice::read_only(volume.bytes.clone()))).unwrap();
        // An inode number is known once its directory has been read.
        common::resolve(&*fs, "/D/F").unwrap();
        test(&volume, &*fs);
    }
}

fn records(fs: &dyn FileSystem, target: Target) -> Vec<Record> {
    let mut records = Vec::new();
    fs.inspect().unwrap().inspect(target, &mut |record| records.push(record.unwrap())).unwrap();
    records
}

fn error(fs: &dyn FileSystem, target: Target) -> Error {
    fs.inspect().unwrap().inspect(target, &mut |_| panic!("a record of {target:?}")).unwrap_err()
}

fn kinds(records: &[Record]) -> Vec<&'static str> {
    records.iter().map(|record| record.kind).collect()
}

fn field<'r>(records: &'r [Record], name: &str) -> &'r obento_driver::Field {
    records.iter().flat_map(|record| &record.fields).find(|field| field.name == name).expect(name)
}

fn number(records: &[Record], name: &str) -> u64 {
    match field(records, name).value {
        FieldValue::Number(value) | FieldValue::Hex(value) => value,
        ref other => panic!("{name}: {other:?}"),
    }
}

/// Tests that each field has the shown bytes at the shown offset, which are read without the driver.
fn is_where_it_says(bytes: &[u8], records: &[Record]) {
    let mut compared = 0;
    for field in records.iter().flat_map(|record| &record.fields).filter(|field| field.len > 0) {
        let lies = &bytes[field.offset as usize..][..field.len as usize];
        match &field.value {
            FieldValue::Number(value) | FieldValue::Hex(value) => {
                let mut number = [0; 8];
                number[..lies.len()].copy_from_slice(lies);
                assert_eq!(*value, u64::from_le_bytes(number), "{}", field.name);
            }
            FieldValue::Bytes(value) => assert_eq!(value, lies, "{}", field.name),
            _ => continue,
        }
        compared += 1;
    }
    assert!(compared > 3, "{records:?}");
}

#[test]
fn the_boot_sector_and_its_copy_are_shown_with_their_places() {
    each(|volume, fs| {
        let first = records(fs, Target::SuperBlock(0));
        let expected: &[&str] = match volume.width {
            32 => &["boot sector", "FAT32 part", "extended boot record", "FSInfo"],
            _ => &["boot sector", "extended boot record"],
        };
        assert_eq!(kinds(&first), expected);
        is_where_it_says(&volume.bytes, &first);
        assert_eq!(number(&first, "BS_VolID"), 0x1234_abcd);
        if volume.width == 32 {
            let copy = records(fs, Target::SuperBlock(1));
            assert_eq!(kinds(&copy), expected[..3]);
            is_where_it_says(&volume.bytes, &copy);
            assert_eq!(field(&copy, "BS_jmpBoot").offset, 6 * 512);
        } else {
            assert_eq!(error(fs, Target::SuperBlock(1)), Error::NotFound);
        }
        assert_eq!(error(fs, Target::SuperBlock(2)), Error::NotFound);
        assert_eq!(error(fs, Target::Journal), Error::NotSupported);
        assert_eq!(error(fs, Target::Group(0)), Error::NotSupported);
    });
}

#[test]
fn a_file_is_its_entry_with_its_long_name_and_the_runs_of_its_clusters() {
    each(|volume, fs| {
        let long = records(fs, Target::Inode(Ino(volume.ino(LONG))));
        assert_eq!(kinds(&long), ["part of a long name", "part of a long name", "short entry", "clusters"]);
        is_where_it_says(&volume.bytes, &long);
        assert_eq!(field(&long, "LDIR_Name").value, FieldValue::Text("xt".into()));
        assert_eq!(number(&long, "DIR_FileSize"), volume.cluster as u64);

        let file = records(fs, Target::Inode(Ino(volume.ino(F))));
        assert_eq!(kinds(&file), ["short entry", "clusters"]);
        assert_eq!(number(&file, "first"), u64::from(volume.first(F)));
        assert_eq!(number(&file, "count"), 3);
        assert_eq!(field(&file, "first").offset, volume.offset(volume.first(F)) as u64);
        assert_eq!(error(fs, Target::Inode(Ino(999_999_999))), Error::NotFound);
        let root = records(fs, Target::Inode(Ino(1)));
        let all = ["root directory", "clusters"];
        assert_eq!(kinds(&root), all[..if volume.width == 32 { 2 } else { 1 }]);
    });
}

#[test]
fn a_directory_is_all_its_entries_up_to_its_end() {
    each(|volume, fs| {
        let root = records(fs, Target::Directory(Ino(1)));
        assert_eq!(kinds(&root), ["volume label", "short entry", "end of the directory"]);
        let e = records(fs, Target::Directory(Ino(volume.ino(E))));
        assert_eq!(kinds(&e), ["dot entry", "dot entry", "end of the directory"]);
        is_where_it_says(&volume.bytes, &e);
        assert_eq!(error(fs, Target::Directory(Ino(volume.ino(F)))), Error::Invalid);
    });
}

#[test]
fn a_cluster_is_shown_with_its_bytes_and_its_fat_entry() {
    each(|volume, fs| {
        let first = volume.first(F);
        let cluster = records(fs, Target::Block(first.into()));
        assert_eq!(field(&cluster, "bytes").value, FieldValue::Bytes(vec![7; volume.cluster]));
        let next = format!("next cluster {}", first + 1);
        assert_eq!(field(&cluster, "FAT entry").value, FieldValue::Text(next));
        for none in [0, 1, 1 << 28, 1 << 40] {
            assert_eq!(error(fs, Target::Block(none)), Error::NotFound);
        }
    });
}

#[test]
fn each_byte_of_the_volume_belongs_to_its_structure() {
    each(|volume, fs| {
        let at = |offset: usize| fs.inspect().unwrap().locate(offset as u64);
        let named = |offset: usize| match at(offset) {
            Ok(ByteUse::Structure { name, target }) => (name, target),
            other => panic!("{offset}: {other:?}"),
        };
        assert_eq!(named(511), ("the boot sector".into(), Some(Target::SuperBlock(0))));
        let cluster = volume.first(F);
        let within = cluster as usize * volume.width as usize / 8;
        // If two entries share a byte, the first one is reported.
        let reported = within * 8 / volume.width as usize;
        for copy in 0..2 {
            let expected =
                (format!("FAT {copy}'s entry of cluster {reported}"), Some(Target::Block(reported as u64)));
            assert_eq!(named(volume.fat + copy * volume.fat_len + within), expected);
        }
        if volume.width == 32 {
            assert_eq!(named(512), ("FSInfo".into(), Some(Target::SuperBlock(0))));
            assert_eq!(named(6 * 512), ("the copy of the boot sector".into(), Some(Target::SuperBlock(1))));
        } else {
            let expected = ("entry 1 of the root directory".into(), Some(Target::Directory(Ino(1))));
            assert_eq!(named(volume.root + 33), expected);
        }
        assert_eq!(at(volume.offset(cluster)), Ok(ByteUse::OfFiles));
        assert_eq!(at(volume.offset(cluster + 100)), Ok(ByteUse::Unused));
        assert_eq!(at(volume.bytes.len()), Err(Error::NotFound));
    });
}
