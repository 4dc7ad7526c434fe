#![no_main]
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use obento::block::MemDevice;
use obento_testkit::walk::open_and_walk;

// A fuzzer soon finds valid values for the first bytes of an image, but it never reaches the code after a checksum.
fuzz_target!(|data: &[u8]| {
    for volume in [data.to_vec(), skeletonfs::raw::volume_of(data)] {
        open_and_walk(&skeletonfs::MyDriver, Arc::new(MemDevice::read_only(volume)));
    }
});
