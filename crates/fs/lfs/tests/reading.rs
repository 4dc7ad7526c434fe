//! Volumes of both versions and of LFS64, in both byte orders, are read as they were written.

mod common;

use common::recipe::{self, BLOCK, End, Recipe, Width};
use common::{at, contents, names, open, read, recipes};
use obento_base::{Error, Feature, FileKind};
use obento_block::MemDevice;
use obento_driver::{Access, Driver as _, Notice, OpenOptions, Replay};
use obento_env::NO_CLOCK;
use obento_lfs::LfsDriver;
use std::sync::Arc;

/// Whether the changes after the first checkpoint are part of a volume.
fn is_changed(recipe: Recipe) -> bool {
    matches!(recipe.end, End::Clean | End::CleanInSecond) || recipe.width != Width::One
}

#[test]
fn every_kind_of_volume_shows_its_tree() {
    for recipe in recipes() {
        println!("{recipe:?}");
        let bytes = recipe.write();
        let fs = open(bytes.clone()).unwrap();
        let found = names(&*fs, fs.root());
        let mut expected = vec!["big", "device", "dir", "empty", "file", "hard", "long", "pipe", "short"];
        expected.push(if is_changed(recipe) { "new" } else { "gone" });
        expected.sort_unstable();
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected);
        for (name, (ino, kind)) in &found {
            assert_eq!(*kind, Some(fs.getattr(*ino).unwrap().kind), "{name}");
            assert_eq!(at(&*fs, name), Ok(*ino));
        }
        let file = contents(&*fs, "file").unwrap();
        assert!(file == if is_changed(recipe) { recipe::file_after() } else { recipe::file_before() });
        assert_eq!(contents(&*fs, "empty").unwrap(), b"");
        if is_changed(recipe) {
            assert!(contents(&*fs, "new").unwrap() == recipe::bytes_of(3, 700));
        }
        let listed = names(&*fs, at(&*fs, "dir").unwrap());
        assert_eq!(listed.len(), 60);
        for (name, (ino, _)) in listed {
            let text = contents(&*fs, &format!("dir/{name}")).unwrap();
            assert_eq!(text, format!("contents of {}", ino.0).as_bytes());
        }
        assert_eq!(fs.read_link(at(&*fs, "short").unwrap()).unwrap(), b"file");
        assert_eq!(fs.read_link(at(&*fs, "long").unwrap()).unwrap(), recipe::long_target().as_bytes());
        let device = fs.getattr(at(&*fs, "device").unwrap()).unwrap();
        assert_eq!((device.kind, device.rdev.major, device.rdev.minor), (FileKind::CharDevice, 1, 3));
        assert_eq!(LfsDriver.probe(&MemDevice::read_only(bytes)).unwrap().unwrap().fs_type, "lfs");
    }
}

#[test]
fn attributes_are_those_of_the_inode() {
    for recipe in recipes() {
        let fs = open(recipe.write()).unwrap();
        let attr = fs.getattr(at(&*fs, "file").unwrap()).unwrap();
        assert_eq!((attr.uid, attr.gid, attr.nlink, attr.mode.bits()), (1003, 2003, 2, 0o644));
        assert_eq!((attr.atime.secs(), attr.atime.nanos()), (1_600_000_003, 1));
        assert_eq!((attr.mtime.secs(), attr.mtime.nanos()), (1_600_000_004, 2));
        assert_eq!((attr.ctime.secs(), attr.ctime.nanos()), (1_600_000_005, 3));
        assert_eq!(fs.getattr(fs.root()).unwrap().nlink, 3);
    }
}

#[test]
fn blocks_behind_three_levels_and_holes_are_read() {
    for recipe in recipes() {
        println!("{recipe:?}");
        let fs = open(recipe.write()).unwrap();
        let ino = at(&*fs, "big").unwrap();
        let blocks = recipe::big(recipe.width);
        for (&number, bytes) in &blocks {
            assert!(
                read(&*fs, ino, number * BLOCK as u64, BLOCK as u64).unwrap() == *bytes,
                "block {number}"
            );
        }
        let hole = read(&*fs, ino, 4 * BLOCK as u64, BLOCK as u64).unwrap();
        assert_eq!(hole, vec![0; BLOCK]);
        // The whole file, across all holes.
        let whole = contents(&*fs, "big").unwrap();
        let written: usize = blocks.values().map(Vec::len).sum();
        assert!(whole.iter().filter(|&&byte| byte != 0).count() <= written);
    }
}

#[test]
fn what_follows_the_checkpoint_is_reported_and_can_be_left_out() {
    for width in [Width::Two, Width::Wide] {
        let bytes = Recipe { width, end: End::Crash, ..Recipe::default() }.write();
        let fs = open(bytes.clone()).unwrap();
        assert!(matches!(fs.info().notices[..], [Notice::Replayed { transactions: 3.. }]));
        assert_eq!(fs.info().state, "needs recovery");
        let options = OpenOptions { replay: Replay::Skip, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
        let fs = LfsDriver.open(Arc::new(MemDevice::read_only(bytes)), &options).unwrap();
        assert_eq!(fs.info().notices, [Notice::NotReplayed]);
        assert!(contents(&*fs, "file").unwrap() == recipe::file_before());
        assert_eq!(contents(&*fs, "gone").unwrap(), b"removed later");
    }
}

/// A partial segment with a wrong checksum ends the log, as if the machine had stopped before it.
#[test]
fn a_damaged_partial_segment_ends_the_log() {
    for (width, is_big_endian) in [(Width::Two, false), (Width::Two, true), (Width::Wide, false)] {
        let bytes = Recipe { width, is_big_endian, end: End::Crash }.write();
        let after = recipe::file_after();
        // The first word of a block is part of the checksum.
        let place = bytes.windows(16).position(|part| part == &after[..16]).unwrap();
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        let fs = open(damaged).unwrap();
        assert!(fs.info().notices.is_empty(), "{:?}", fs.info().notices);
        assert!(contents(&*fs, "file").unwrap() == recipe::file_before());
    }
}

#[test]
fn a_damaged_first_super_block_is_replaced_by_the_second() {
    let mut bytes = Recipe { end: End::CleanInSecond, ..Recipe::default() }.write();
    bytes[8192 + 300] ^= 1;
    let fs = open(bytes).unwrap();
    assert!(contents(&*fs, "file").unwrap() == recipe::file_after());
    assert!(matches!(fs.info().notices[..], [Notice::Damaged(_), Notice::BackupSuperBlock { .. }]));
}

#[test]
fn writing_and_unknown_versions_are_refused() {
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let device = Arc::new(MemDevice::new(Recipe::default().write()));
    let refused = LfsDriver.open(device, &options).err().unwrap();
    assert_eq!(refused, Error::Unsupported(Feature::Writing));
    let mut bytes = Recipe::default().write();
    bytes[8192 + 4] = 3;
    assert_eq!(open(bytes).err().unwrap(), Error::Unsupported(Feature::Named("this version of LFS")));
}

#[test]
fn info_names_the_checkpoint() {
    let info = open(Recipe::default().write()).unwrap().info();
    let facts: Vec<_> = info.facts.iter().map(|fact| (fact.name, fact.value.as_str())).collect();
    assert!(facts.contains(&("version", "2")) && facts.contains(&("segment size", "65536")), "{facts:?}");
    assert_eq!(info.state, "clean");
}
