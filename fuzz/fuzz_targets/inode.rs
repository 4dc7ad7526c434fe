#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use obento_fuzz::places::{self, Places};

static PLACES: LazyLock<Places> = LazyLock::new(|| places::of("inode"));

fuzz_target!(|data: &[u8]| obento_fuzz::damage(&PLACES, data));
