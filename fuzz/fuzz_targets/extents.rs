#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use obento_fuzz::{Places, block_place, damage, inodes};

/// The roots of all mappings, and every block that a root names.
static NODES: LazyLock<Places> = LazyLock::new(|| {
    let mut places = Places::new();
    for inode in inodes() {
        places.push((inode.place().block.0 * 1024 + u64::from(inode.place().offset) + 40, 60));
        let map: Vec<u32> = inode.i_block().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let node = match map[0] & 0xffff == 0xf30a {
            true if map[1] >> 16 != 0 || (map[1] & 0xffff_0000) != 0 => map[4],
            true => 0,
            false => map[12],
        };
        if node > 10 && node < 4096 {
            places.push(block_place(node.into()));
        }
    }
    places
});

fuzz_target!(|data: &[u8]| damage(&NODES, data));
