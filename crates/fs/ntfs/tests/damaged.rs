//! Damaged volumes: everything ends with a result or an error, in bounded time.

mod common;

use std::sync::Arc;

use common::FORMAT;
use obento_block::MemDevice;
use obento_ntfs::NtfsDriver;
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::walk::open_and_walk;

fn mutants(shape: &str, seeds: std::ops::Range<u64>) {
    let Some(sound) = FORMAT.filled(shape) else { return };
    for seed in seeds {
        let mut bytes = sound.to_vec();
        mutate(&mut bytes, &mut Random::new(seed));
        // Printed by a test that fails.
        println!("{shape}, seed {seed}");
        open_and_walk(&NtfsDriver::default(), Arc::new(MemDevice::read_only(bytes)));
    }
}

#[test]
fn mutants_with_clusters_of_a_sector_end_with_a_result_or_an_error() {
    mutants("512", 0..150);
}

#[test]
fn mutants_with_clusters_of_a_page_end_with_a_result_or_an_error() {
    mutants("4k", 1000..1100);
}
