//! An empty Amiga file system, FFS with international names.
//!
//! Layout: blocks of 512 bytes. The first two are boot blocks, and the first of them contains the type. The root is in
//! the middle, at the block that Linux calculates from the length of the device; the bitmap blocks follow it. Numbers
//! are big-endian.
//!
//! Invariant: the numbers of the root, and of each bitmap block, add up to 0.
//! Invariant: the bits of the bitmap begin with the block after the boot blocks, lowest bit first; a set bit is a free
//! block.
//! Invariant: the root contains the numbers of all bitmap blocks, at most 25, and marks the bitmap as valid, because
//! Linux otherwise mounts read-only.
//!
//! Source: Linux 6.1, fs/affs/{super,bitmap}.c, fs/affs/amigaffs.h `struct affs_root_head` and `affs_root_tail`;
//! Laurent Clevy, "The .ADF (Amiga Disk File) format FAQ", 4.2 and 4.3.

use super::bytes::{Bytes, Order};

const BLOCK: usize = 512;
/// The number of boot blocks.
const BOOT: usize = 2;
/// `FS_INTLFFS`.
const KIND: &[u8; 4] = b"DOS\x03";
/// The number of blocks whose bits a bitmap block contains.
const BITS: usize = (BLOCK - 4) * 8;
/// `AFFS_ROOT_BMAPS`.
const BITMAPS: usize = 25;
/// `T_SHORT`, `ST_ROOT`.
const SHORT: u32 = 2;
const ROOT: u32 = 1;
/// The offset of `struct affs_root_tail`.
const TAIL: usize = BLOCK - 200;
/// `struct affs_date` of 2020-01-01: days since 1978, minutes, and ticks.
const DATE: [u32; 3] = [15340, 0, 0];

/// Returns a volume of `len` bytes, at most 50 MiB.
pub fn empty(len: usize) -> Vec<u8> {
    let (mut image, blocks) = (Bytes::of(len, Order::Big), len / BLOCK);
    let root = (BOOT + blocks - 1) / 2;
    let bitmaps = (blocks - BOOT).div_ceil(BITS);
    assert!(bitmaps <= BITMAPS, "the root has room for {BITMAPS}");
    image.put(0, KIND);
    image.put(root * BLOCK, &root_block(root + 1..root + 1 + bitmaps));
    let is_free = |block: usize| (BOOT..blocks).contains(&block) && !(root..=root + bitmaps).contains(&block);
    for nth in 0..bitmaps {
        let first = BOOT + nth * BITS;
        let words = (first..first + BITS)
            .step_by(32)
            .map(|block| (0..32).map(|bit| u32::from(is_free(block + bit)) << bit).sum::<u32>());
        let bitmap = [vec![0; 4], words.flat_map(u32::to_be_bytes).collect()].concat();
        image.put((root + 1 + nth) * BLOCK, &sealed(bitmap, 0));
    }
    image.into_vec()
}

/// Returns a root without entries.
fn root_block(bitmaps: std::ops::Range<usize>) -> Vec<u8> {
    let mut root = Bytes::of(BLOCK, Order::Big);
    root.u32(0, SHORT);
    // The hash table of entries, with its maximum size.
    root.u32(12, BLOCK / 4 - 56);
    // `bm_flag`, `bm_blk`.
    root.u32(TAIL, u32::MAX);
    bitmaps.enumerate().for_each(|(nth, block)| root.u32(TAIL + 4 + 4 * nth, block));
    // `root_change`, `disk_name` after its length, `disk_change`, `disk_create`.
    [108, 160, 172].into_iter().for_each(|at| root.put(TAIL + at, &DATE.map(u32::to_be_bytes).concat()));
    root.put(TAIL + 120, b"\x05empty");
    root.u32(BLOCK - 4, ROOT);
    sealed(root.into_vec(), 20)
}

/// Returns `block` with a checksum at `at` (which is 0), so that all numbers add up to 0.
fn sealed(mut block: Vec<u8>, at: usize) -> Vec<u8> {
    let numbers = block.chunks_exact(4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four")));
    let sum = numbers.fold(0_u32, u32::wrapping_add);
    block[at..at + 4].copy_from_slice(&sum.wrapping_neg().to_be_bytes());
    block
}
