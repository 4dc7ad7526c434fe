//! Several writes that are open at the same time, on volumes that `fsck.fat` checks afterwards.

mod common;

use common::FORMAT;
use obento_testkit::open_writes::writes_that_are_open_together_keep_their_blocks;

/// The seeds of one shape.
const SEEDS: std::ops::Range<u64> = 1..25;

#[test]
fn open_writes_that_end_in_any_order_keep_their_blocks() {
    for shape in ["fat12", "fat12-4k", "fat16", "fat32"] {
        for seed in SEEDS {
            let Some(volume) = FORMAT.to_change(shape) else { return };
            writes_that_are_open_together_keep_their_blocks(&*volume, seed, 150, seed % 2 == 0);
        }
    }
}
