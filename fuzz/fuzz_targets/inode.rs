#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use obento_fuzz::{Places, damage, inodes};

static INODES: LazyLock<Places> = LazyLock::new(|| {
    let places = inodes().map(|inode| (inode.place().block.0 * 1024 + u64::from(inode.place().offset), 256));
    places.collect()
});

fuzz_target!(|data: &[u8]| damage(&INODES, data));
