#![no_main]
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use obento::MemDevice;
use obento_testkit::walk::open_and_walk;

fuzz_target!(|data: &[u8]| {
    let mut volume = data.to_vec();
    skeletonfs::raw::seal(&mut volume);
    open_and_walk(&skeletonfs::MyDriver, Arc::new(MemDevice::read_only(volume)));
});
