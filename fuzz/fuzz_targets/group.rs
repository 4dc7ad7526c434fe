#![no_main]
use libfuzzer_sys::fuzz_target;
use obento_fuzz::{block_place, damage};

// Block 1 holds the super block, the descriptors follow it.
fuzz_target!(|data: &[u8]| damage(&vec![block_place(2)], data));
