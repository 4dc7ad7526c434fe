//! Damaged images: everything ends with a result or an error, in bounded time.

mod common;

use std::sync::Arc;
use std::time::Instant;

use common::{FILE, Flash};
use obento_block::MemDevice;
use obento_jffs2::{Jffs2Driver, Order};
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::walk::open_and_walk;

#[test]
fn mutants_end_with_a_result_or_an_error() {
    let Some(sound) = common::filled() else { return };
    for seed in 0..40 {
        let mut bytes = sound.clone();
        mutate(&mut bytes, &mut Random::new(seed));
        // Printed by a test that fails.
        println!("seed {seed}");
        open_and_walk(&Jffs2Driver, Arc::new(MemDevice::read_only(bytes)));
    }
}

/// Nodes with valid checksums and hostile fields.
#[test]
fn hostile_nodes_end_with_a_result_or_an_error() {
    for seed in 0..200_u32 {
        let mut random = seed.wrapping_mul(0x9e37_79b9).wrapping_add(1);
        let mut next = |bound: u32| {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random % bound
        };
        let mut flash = Flash::new(if seed % 2 == 0 { Order::Little } else { Order::Big });
        for _ in 0..60 {
            let ino = 1 + next(6);
            let version = next(9);
            match next(4) {
                0 => {
                    flash.entry(
                        1 + next(6),
                        version,
                        next(7),
                        next(16) as u8,
                        ["a", "b", "c", "..", "d/e"][next(5) as usize],
                    );
                }
                1 => flash.xref(ino, next(4), next(9)),
                2 => flash.xattr(next(4), version, ["a", "", "b"][next(3) as usize], &[7; 9]),
                _ => {
                    let mode = [FILE, 0o040_755, 0o120_777, 0o020_600, 0][next(5) as usize];
                    let bytes =
                        [[0x78, 0x9c, 3, 0].as_slice(), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], &[]]
                            [next(3) as usize];
                    let at = [0, 1, 4096, u32::MAX - 1][next(4) as usize];
                    let len = [bytes.len() as u32, 0, 1 << 20, 1 << 21, u32::MAX][next(5) as usize];
                    flash.inode(
                        ino,
                        version,
                        mode,
                        [9000, u32::MAX, 5][next(3) as usize],
                        at,
                        (next(10) as u8, len, bytes),
                    );
                }
            }
        }
        println!("seed {seed}");
        open_and_walk(&Jffs2Driver, Arc::new(MemDevice::read_only(flash.bytes)));
    }
}

/// Headers alone, each with the least length: the most nodes that an image can have.
#[test]
fn an_image_of_64_mib_of_small_nodes_opens_in_seconds() {
    let mut flash = Flash::new(Order::Little);
    let start = flash.bytes.len();
    flash.entry(1, 1, 2, 8, "a");
    flash.data(2, 1, 1, 0, b"x");
    let unit = flash.bytes.split_off(start);
    let count = (64 << 20) / unit.len();
    flash.bytes.extend(unit.repeat(count));
    let began = Instant::now();
    let volume = flash.open();
    assert_eq!(common::paths(&*volume), [("a".into(), "x".into())]);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
