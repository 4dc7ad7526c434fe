#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use obento_fuzz::{Places, block_place, damage, inodes};

/// Attributes in inodes, behind the fixed fields, and in blocks of their own.
static ATTRIBUTES: LazyLock<Places> = LazyLock::new(|| {
    let mut places = Places::new();
    for inode in inodes().filter(|inode| inode.size() > 0) {
        places.push((inode.place().block.0 * 1024 + u64::from(inode.place().offset) + 128, 128));
        places.extend(inode.xattr_block().map(|block| block_place(block.0)));
    }
    places
});

fuzz_target!(|data: &[u8]| damage(&ATTRIBUTES, data));
