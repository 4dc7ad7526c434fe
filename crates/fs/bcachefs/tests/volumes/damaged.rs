//! Damaged volumes: everything ends with a result or an error, in bounded time.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::open;
use crate::recipe::{Recipe, of};
use obento_bcachefs::BcachefsDriver;
use obento_block::MemDevice;
use obento_driver::Cookie;
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::walk::open_and_walk;

fn mutants(recipe: Recipe, seeds: std::ops::Range<u64>) {
    let sound = recipe.write();
    for seed in seeds {
        let mut bytes = sound.clone();
        mutate(&mut bytes, &mut Random::new(seed));
        // Printed by a test that fails.
        println!("{recipe:?}, seed {seed}");
        open_and_walk(&BcachefsDriver, Arc::new(MemDevice::read_only(bytes)));
    }
}

#[test]
fn mutants_of_a_clean_volume_end_with_a_result_or_an_error() {
    mutants(Recipe { sums: 0, ..Recipe::default() }, 0..300);
    mutants(Recipe { sums: 0, is_big_endian: true, is_packed: false, ..Recipe::default() }, 1000..1100);
}

#[test]
fn mutants_of_a_dirty_volume_end_with_a_result_or_an_error() {
    mutants(Recipe { sums: 0, is_dirty: true, ..Recipe::default() }, 2000..2300);
}

#[test]
fn every_part_of_a_volume_may_be_missing() {
    let sound = Recipe { sums: 0, is_dirty: true, ..Recipe::default() }.write();
    for len in (0..sound.len()).step_by(32_768) {
        open_and_walk(&BcachefsDriver, Arc::new(MemDevice::read_only(sound[..len].to_vec())));
        let mut holed = sound.clone();
        holed[len..][..4096].fill(0);
        open_and_walk(&BcachefsDriver, Arc::new(MemDevice::read_only(holed)));
    }
}

#[test]
fn a_listing_in_parts_ends_although_a_name_has_the_greatest_position() {
    let mut bytes = Recipe { sums: 0, is_packed: false, ..Recipe::default() }.write();
    let hash = of("again").to_le_bytes();
    let at = bytes.windows(8).position(|word| word == hash).unwrap();
    bytes[at..][..8].copy_from_slice(&(u64::MAX >> 1).to_le_bytes());
    let fs = open(bytes).unwrap();
    let mut from = Cookie::START;
    loop {
        let mut next = None;
        fs.read_dir(fs.root(), from, &mut |entry| match entry {
            Ok(entry) => {
                assert_ne!(entry.name.as_bytes(), b"again");
                next = Some(entry.next);
                ControlFlow::Break(())
            }
            Err(_) => ControlFlow::Continue(()),
        })
        .unwrap();
        let Some(next) = next else { break };
        assert!(next.0 > from.0, "{next:?} after {from:?}");
        from = next;
    }
}
