#![no_main]
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use obento::MemDevice;
use obento_testkit::walk::open_and_walk;

fuzz_target!(|data: &[u8]| open_and_walk(&skeletonfs::FlatDriver, Arc::new(MemDevice::read_only(data.to_vec()))));
