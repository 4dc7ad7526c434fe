//! Damaged volumes: every operation ends with a result or an error, in bounded time, and reads no bytes outside of
//! the volume.

mod common;

use std::sync::Arc;

use common::FORMAT;
use obento_base::{Corrupt, Error};
use obento_block::MemDevice;
use obento_driver::{Driver as _, FileSystem, Notice};
use obento_exfat::ExFatDriver;

fn mutants(shape: &str, seeds: std::ops::Range<u64>) {
    if let Some(sound) = FORMAT.filled(shape) {
        FORMAT.mutants(shape, &sound, seeds);
    }
}

#[test]
fn mutants_with_clusters_of_a_sector_end_with_an_answer_or_an_error() {
    mutants("sector", 0..200);
}

#[test]
fn mutants_with_clusters_of_many_pages_end_with_an_answer_or_an_error() {
    mutants("pages", 200..300);
}

/// A volume with the tree, and the offset of the set of `name`.
struct Victim {
    bytes: Vec<u8>,
    at: usize,
}

impl Victim {
    fn new(name: &str) -> Option<Self> {
        if !common::oracles() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let bytes = common::bytes_of(&common::shape("page").filled(folder.path()));
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let is_it = |at: &usize| {
            let (stream, part) = (&bytes[at + 32..at + 64], &bytes[at + 64..at + 96]);
            bytes[*at] == 0x85 && usize::from(stream[3]) * 2 == units.len() && part[2..].starts_with(&units)
        };
        let at = (0..bytes.len() - 96).step_by(32).find(is_it).expect("it was made");
        Some(Self { bytes, at })
    }

    /// Changes bytes of the set and corrects its checksum.
    fn change(&mut self, offset: usize, bytes: &[u8]) {
        let at = self.at + offset;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        let count = usize::from(self.bytes[self.at + 1]) + 1;
        let set = &self.bytes[self.at..self.at + 32 * count];
        let summed = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = summed.fold(0, |sum: u16, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
        self.bytes[self.at + 2..self.at + 4].copy_from_slice(&sum.to_le_bytes());
    }

    fn open(&self) -> Arc<dyn FileSystem> {
        common::open_bytes(&self.bytes).unwrap()
    }
}

#[test]
fn no_directory_is_below_itself() {
    let Some(mut victim) = Victim::new("p") else { return };
    let fs = victim.open();
    assert!(obento_testkit::changes::resolve(&*fs, "/d/e/e/p/file").is_ok());
    // It begins where the directory with many names begins, or where the root begins.
    let root = u32::from_le_bytes(victim.bytes[96..100].try_into().unwrap());
    victim.change(52, &root.to_le_bytes());
    let fs = victim.open();
    let error = obento_testkit::changes::resolve(&*fs, "/d/e/e/p/file").unwrap_err();
    assert!(matches!(error, Error::Corrupt(Corrupt::Chain { .. })), "{error:?}");
    FORMAT.look_at_everything(victim.bytes);
}

#[test]
fn lengths_and_clusters_that_cannot_be_cost_their_file() {
    let fields: [(usize, &[u8], &str); 4] = [
        (40, &[0xff; 8], "ValidDataLength"),
        (56, &[0xff; 8], "DataLength"),
        (52, &[1, 0, 0, 0], "FirstCluster"),
        (52, &[0; 4], "FirstCluster"),
    ];
    for (offset, bytes, field) in fields {
        let Some(mut victim) = Victim::new("32769") else { return };
        victim.change(offset, bytes);
        let fs = victim.open();
        let error = obento_testkit::changes::resolve(&*fs, "/sizes/32769").unwrap_err();
        match error {
            Error::Corrupt(Corrupt::Field { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
        assert!(obento_testkit::changes::resolve(&*fs, "/sizes/32768").is_ok(), "{field}");
    }
}

#[test]
fn a_set_with_another_checksum_costs_its_file() {
    let Some(mut victim) = Victim::new("32769") else { return };
    let at = victim.at;
    victim.bytes[at + 40] ^= 1;
    let error = obento_testkit::changes::resolve(&*victim.open(), "/sizes/32769").unwrap_err();
    assert!(matches!(error, Error::Corrupt(Corrupt::Checksum { .. })), "{error:?}");
}

#[test]
fn known_entries_after_a_name_are_skipped_and_unknown_ones_are_not() {
    for (kind, is_read) in [(0xe0, true), (0xe1, true), (0xc5, false)] {
        let Some(mut victim) = Victim::new("gone") else { return };
        // The entry replaces the entries after the set.
        let at = victim.at + 96;
        victim.bytes[at..at + 32].fill(0);
        victim.bytes[at] = kind;
        victim.change(1, &[3]);
        let found = obento_testkit::changes::resolve(&*victim.open(), "/gone");
        assert_eq!(found.is_ok(), is_read, "{kind:#x}: {found:?}");
    }
}

#[test]
fn a_boot_region_that_is_damaged_is_read_from_its_copy() {
    let Some(mut victim) = Victim::new("gone") else { return };
    let copy = victim.bytes[12 * 512];
    for at in [0, 3, 70, 108, 109, 300, 11 * 512] {
        let mut bytes = victim.bytes.clone();
        bytes[at] ^= 0xff;
        let fs = common::open_bytes(&bytes).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(fs.info().notices.contains(&Notice::BackupSuperBlock { block: 12 }), "{at}");
        let options = FORMAT.writing();
        let refused = ExFatDriver::default().open(Arc::new(MemDevice::new(bytes)), &options);
        assert!(refused.is_err(), "{at}: it is not changed before it is repaired");
    }
    // Both regions have wrong checksums, so the plausible region is read.
    victim.bytes[300] ^= 1;
    victim.bytes[12 * 512] = !copy;
    assert!(matches!(victim.open().info().notices[..], [Notice::Damaged(_)]));
}

#[test]
fn without_its_up_case_table_a_volume_is_read_by_the_usual_one() {
    let Some(mut victim) = Victim::new("gone") else { return };
    let at = (0..victim.bytes.len())
        .step_by(32)
        .find(|&at| victim.bytes[at..].starts_with(&[0x82, 0, 0, 0]))
        .unwrap();
    victim.bytes[at + 4] ^= 1;
    let fs = victim.open();
    assert!(matches!(fs.info().notices[..], [Notice::Damaged(_)]));
    assert!(obento_testkit::changes::resolve(&*fs, "/NAMES/\u{dc}ML\u{c4}UT").is_ok());
}
