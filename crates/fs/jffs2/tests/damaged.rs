//! Damaged images: everything ends with a result or an error, in bounded time.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use common::{FILE, Flash};
use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice, MemDevice};
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

/// Returns an image with a file, inode 2, that has `count` attributes.
fn with_attributes(count: u32) -> Flash {
    let mut flash = Flash::new(Order::Little);
    flash.entry(1, 1, 2, 8, "file");
    flash.data(2, 1, 1, 0, b"x");
    for id in 1..=count {
        flash.xattr(id, 1, &format!("{id:05}"), b"v");
        flash.xref(2, id, 2 * id);
    }
    flash
}

/// A device that counts its reads.
struct CountedReads(MemDevice, AtomicU64);

impl BlockDevice for CountedReads {
    obento_base::forward! { self.0;
        fn len(&self) -> u64;
        fn is_read_only(&self) -> bool;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
        fn flush(&self) -> Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }
}

#[test]
fn reading_all_attributes_of_a_file_reads_each_name_and_value_once() {
    let device = Arc::new(CountedReads(MemDevice::read_only(with_attributes(1000).bytes), AtomicU64::new(0)));
    let volume = common::open_device(device.clone());
    let xattrs = volume.xattrs().unwrap();
    let (before, mut names) = (device.1.load(Ordering::Relaxed), Vec::new());
    xattrs.list_xattrs(Ino(2), &mut |name| names.push(name.to_vec())).unwrap();
    for name in &names {
        assert_eq!(xattrs.get_xattr(Ino(2), name), Ok(b"v".to_vec()));
    }
    assert_eq!(names.len(), 1000);
    let reads = device.1.load(Ordering::Relaxed) - before;
    assert!(reads <= 2000, "{reads} reads");
}

#[test]
fn a_list_of_attributes_over_64_kib_is_refused_and_each_attribute_stays_readable() {
    // With its NUL, each name has 11 bytes.
    let most = with_attributes(5957).open();
    let mut names = 0;
    most.xattrs().unwrap().list_xattrs(Ino(2), &mut |_| names += 1).unwrap();
    assert_eq!(names, 5957);
    let volume = with_attributes(5958).open();
    let xattrs = volume.xattrs().unwrap();
    let listed = xattrs.list_xattrs(Ino(2), &mut |_| panic!("no name is passed"));
    assert_eq!(listed.unwrap_err().to_string(), "a list of extended attributes over 64 KiB is not supported");
    assert_eq!(xattrs.get_xattr(Ino(2), b"user.05958"), Ok(b"v".to_vec()));
    assert_eq!(xattrs.get_xattr(Ino(2), b"user.x"), Err(Error::NoData));
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
