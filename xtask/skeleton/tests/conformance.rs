//! The contract's cases, and damage.

use std::sync::Arc;

use skeletonfs::{FlatDriver, pack};
use obento::driver::{Driver as _, FileSystem, OpenOptions};
use obento::{MemDevice, SystemClock};
use obento_testkit::walk::open_and_walk;

fn image() -> Vec<u8> {
    let large: Vec<u8> = (0..100_000_u32).map(|n| (n / 3) as u8).collect();
    pack(&[("hello", b"Hello, world.\n"), ("empty", b""), ("large", &large)])
}

fn volume() -> Option<Arc<dyn FileSystem>> {
    let device = Arc::new(MemDevice::read_only(image()));
    FlatDriver.open(device, &OpenOptions::new(Arc::new(SystemClock))).ok()
}

// One case a sentence of the contract. A driver that can write has `writing_conformance!` too, and `testkit::crash`.
mod reading {
    obento_testkit::reading_conformance!(super::volume());
}

#[test]
fn the_volume_opens() {
    assert!(volume().is_some());
}

#[test]
fn no_byte_that_is_changed_makes_the_driver_panic_or_name_what_is_not_on_the_device() {
    let sound = image();
    for at in 0..300 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = sound.clone();
            bytes[at] = value;
            open_and_walk(&FlatDriver, Arc::new(MemDevice::read_only(bytes)));
        }
    }
}

#[test]
fn a_volume_that_is_cut_short_is_refused_wherever_it_is_cut() {
    let sound = image();
    for len in (0..sound.len()).step_by(7) {
        let device = Arc::new(MemDevice::read_only(sound[..len].to_vec()));
        let opened = FlatDriver.open(device, &OpenOptions::new(Arc::new(SystemClock)));
        assert!(opened.is_err(), "{len} bytes");
    }
}
