#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: obento_fuzzing::begin("fuse_reply"), |data: &[u8]| obento_fuzzing::run(data));
