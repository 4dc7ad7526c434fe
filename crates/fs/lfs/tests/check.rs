//! The check: sound volumes have no findings but notes, and damage has its own.

mod common;

use std::sync::Arc;

use common::recipe::{End, Recipe, Width};
use common::{at, open, recipes};
use obento_block::MemDevice;
use obento_driver::{CheckOptions, Driver as _, RepairMode};
use obento_env::NO_CLOCK;
use obento_lfs::LfsDriver;
use obento_testkit::opening::assert_read_once;

fn codes(bytes: Vec<u8>) -> Vec<&'static str> {
    let mut found = Vec::new();
    let options = CheckOptions::new(Arc::new(NO_CLOCK));
    let device = Arc::new(MemDevice::read_only(bytes));
    LfsDriver.check().unwrap().check(device, &options, &mut found).expect("it can be checked");
    for finding in &found {
        println!("{finding}");
    }
    found.iter().map(|finding| finding.code).collect()
}

#[test]
fn sound_volumes_have_no_findings() {
    for recipe in recipes() {
        println!("{recipe:?}");
        let is_rolled =
            recipe.width != Width::One && matches!(recipe.end, End::Crash | End::CrashInOperation);
        let mut expected = if is_rolled { vec!["not-clean"] } else { vec![] };
        if is_rolled {
            // The removed file is in the index file of the checkpoint.
            expected.push("no-name");
        }
        assert_eq!(codes(recipe.write()), expected);
    }
}

/// Returns a volume and the position of the inode of a file.
fn sound(path: &str) -> (Vec<u8>, usize) {
    let bytes = Recipe::default().write();
    let fs = open(bytes.clone()).unwrap();
    let ino = at(&*fs, path).unwrap();
    let number = u32::try_from(ino.0).unwrap().to_le_bytes();
    let uid = u32::try_from(1000 + ino.0).unwrap().to_le_bytes();
    let places = (0..bytes.len() - 128).step_by(128);
    let mut place =
        places.filter(|&place| bytes[place + 4..][..4] == number && bytes[place + 112..][..4] == uid);
    (bytes.clone(), place.next_back().unwrap())
}

#[test]
fn each_damage_has_its_own_finding() {
    let (mut bytes, place) = sound("empty");
    bytes[place + 2] = 5;
    assert_eq!(codes(bytes), ["link-count"]);

    let (mut bytes, place) = sound("file");
    bytes[place + 40..][..4].copy_from_slice(&0x0100_0000_u32.to_le_bytes());
    assert_eq!(codes(bytes), ["block-outside", "block-count"]);

    let (mut bytes, place) = sound("new");
    let other = sound("file").1;
    let address = bytes[other + 40..][..4].to_vec();
    bytes[place + 40..][..4].copy_from_slice(&address);
    assert_eq!(codes(bytes), ["block-shared"]);

    let (mut bytes, place) = sound("pipe");
    bytes[place + 1] = 0;
    assert_eq!(codes(bytes), ["mode", "dangling-name"]);

    let (mut bytes, place) = sound("short");
    bytes[place + 41] = 0;
    assert_eq!(codes(bytes), ["target"]);

    let (mut bytes, _) = sound("file");
    let name = bytes.windows(6).rposition(|part| part == b"device").unwrap();
    bytes[name + 2] = b'/';
    assert_eq!(codes(bytes), ["bad-name"]);

    let mut bytes = Recipe::default().write();
    let name = bytes.windows(6).rposition(|part| part == b"device").unwrap();
    bytes[name - 2] = 8;
    assert_eq!(codes(bytes), ["entry-type"]);

    let mut bytes = Recipe::default().write();
    bytes[8192 + 300] ^= 1;
    // The second super block has the first checkpoint.
    assert!(codes(bytes).contains(&"super-block"));
}

#[test]
fn a_repair_is_refused() {
    let options = CheckOptions { repair_mode: RepairMode::Safe, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    let device = Arc::new(MemDevice::read_only(Recipe::default().write()));
    let refused = LfsDriver.check().unwrap().check(device, &options, &mut Vec::new()).unwrap_err();
    assert_eq!(refused.to_string(), "repairing this type is not supported");
}

#[test]
fn a_probe_a_check_and_an_open_read_each_super_block_once() {
    let second = 8192 + 7 * (64 << 10);
    for place in [8192, second] {
        assert_read_once(&LfsDriver, MemDevice::read_only(Recipe::default().write()), place, 512);
    }
}

#[test]
fn a_damaged_first_super_block_is_one_finding() {
    let mut bytes = Recipe { end: End::CleanInSecond, ..Recipe::default() }.write();
    bytes[8192 + 300] ^= 1;
    assert_eq!(codes(bytes), ["super-block"]);
}
