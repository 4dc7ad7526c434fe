//! Btrfs volumes that no Debian program creates.
//!
//! Source: Linux 6.1, fs/btrfs/ctree.h: `struct btrfs_super_block` (`fsid` at 0x20, `total_bytes` at 0x70, `nodesize`
//! at 0x94, `dev_item.total_bytes` at 0xd1) and `struct btrfs_header`. The checksum of a block is the CRC-32C of the
//! bytes after its first 32.

use std::fs;
use std::path::Path;

use obento_base::crc::crc32c;

/// Sets the length of the only device of the Btrfs volume at `path` to `len` bytes, and corrects the checksums.
pub fn set_length(path: &Path, len: u64) {
    const SUPER: usize = 0x1_0000;
    let mut bytes = fs::read(path).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let old = number(&bytes, SUPER + 0x70).to_le_bytes();
    let node = usize::try_from(u32::from_le_bytes(bytes[SUPER + 0x94..][..4].try_into().unwrap())).unwrap();
    let fsid = bytes[SUPER + 0x20..][..16].to_vec();
    let seal = |block: &mut [u8]| {
        let sum = crc32c(!0, &block[32..]);
        block[..4].copy_from_slice(&(!sum).to_le_bytes());
    };
    for at in [0x70, 0xd1] {
        bytes[SUPER + at..][..8].copy_from_slice(&len.to_le_bytes());
    }
    seal(&mut bytes[SUPER..SUPER + 4096]);
    // The device item is also in the chunk tree. Each copy of the tree has a checksum.
    for block in bytes.chunks_exact_mut(node).skip(SUPER / node + 1) {
        let Some(at) = block.windows(8).position(|word| word == old) else { continue };
        if block[32..48] == fsid && at > 101 {
            block[at..at + 8].copy_from_slice(&len.to_le_bytes());
            seal(block);
        }
    }
    fs::write(path, bytes).unwrap();
}
