#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use obento_fuzz::{Places, damage, directory_blocks};

static BLOCKS: LazyLock<Places> = LazyLock::new(|| directory_blocks(|_, _| true));

fuzz_target!(|data: &[u8]| damage(&BLOCKS, data));
