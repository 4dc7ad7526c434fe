#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| obento_fuzz::damage(&vec![(1024, 1024)], data));
