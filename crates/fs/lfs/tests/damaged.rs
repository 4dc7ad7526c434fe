//! Damaged volumes: everything ends with a result or an error, in bounded time.

mod common;

use std::sync::Arc;

use common::recipe::{End, Recipe, Width, sum};
use obento_block::MemDevice;
use obento_lfs::LfsDriver;
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::walk::open_and_walk;

#[test]
fn mutants_end_with_a_result_or_an_error() {
    for (width, end) in
        [(Width::One, End::Clean), (Width::Two, End::Crash), (Width::Wide, End::CrashInOperation)]
    {
        let recipe = Recipe { width, is_big_endian: width == Width::Wide, end };
        let sound = recipe.write();
        for seed in 0..60 {
            let mut bytes = sound.clone();
            mutate(&mut bytes, &mut Random::new(seed));
            // Printed by a test that fails.
            println!("{recipe:?}, seed {seed}");
            open_and_walk(&LfsDriver, Arc::new(MemDevice::read_only(bytes)));
        }
    }
}

/// Every number of the super block has hostile values, and the checksum is right.
#[test]
fn hostile_super_blocks_end_with_a_result_or_an_error() {
    for width in [Width::Two, Width::Wide] {
        let sound = Recipe { width, end: End::Crash, ..Recipe::default() }.write();
        for at in (4..508).step_by(4) {
            for value in [0_u32, 1, 511, 1 << 20, u32::MAX] {
                let mut bytes = sound.clone();
                for copy in [8192, 8192 + 7 * 65536] {
                    bytes[copy + at..][..4].copy_from_slice(&value.to_le_bytes());
                    let checked = sum(&bytes[copy..][..508], false);
                    bytes[copy + 508..][..4].copy_from_slice(&checked.to_le_bytes());
                }
                println!("{width:?}: {value:#x} at {at}");
                open_and_walk(&LfsDriver, Arc::new(MemDevice::read_only(bytes)));
            }
        }
    }
}

#[test]
fn a_truncated_volume_ends_with_a_result_or_an_error() {
    let sound = Recipe { end: End::Crash, ..Recipe::default() }.write();
    for len in (0..sound.len()).step_by(8192 + 512) {
        open_and_walk(&LfsDriver, Arc::new(MemDevice::read_only(sound[..len].to_vec())));
    }
}
