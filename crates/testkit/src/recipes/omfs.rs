//! An OMFS volume (ReplayTV, Rio Karma) with the contents of a tree. Only a very small volume has free blocks.
//!
//! Layout, in blocks of 8 KiB, big-endian: the super block, the root block, the root folder, the bitmap. The inode and
//! the data of each file follow. A structure takes the first 2 KiB of a block. Except for the super block and the
//! bitmap, it is stored twice. An inode is identified by its block. The inode of a folder contains the heads of hash
//! chains of names.
//!
//! Invariant: shorter names come first in a chain, because Linux uses the first name that begins with the requested
//! name.
//!
//! Source: Linux 6.1, fs/omfs/omfs_fs.h, dir.c, file.c and inode.c.

use std::ops::Range;
use std::path::Path;

use super::bytes::{Bytes, Order};
use super::nodes::{Node, nodes};

const BLOCK: usize = 8192;
/// `s_sys_blocksize`.
const SYSTEM: usize = 2048;
/// `s_mirrors`.
const MIRRORS: usize = 2;
const ROOT_BLOCK: usize = 1;
const ROOT: usize = ROOT_BLOCK + MIRRORS;
const BITMAP: usize = ROOT + MIRRORS;
/// The position after the bitmap, of one block, which is enough for 512 MiB.
const FIRST: usize = BITMAP + 1;
/// Linux requires that the position of the bitmap, in blocks of `SYSTEM`, is less than the number of blocks
/// (fs/omfs/inode.c `omfs_get_imap`).
const BLOCKS_MIN: usize = BITMAP * (BLOCK / SYSTEM) + 1;
/// `struct omfs_header`.
const HEADER: usize = 24;
/// `OMFS_DIR_START`.
const CHAINS: usize = 0x1b8;
/// `OMFS_EXTENT_START`.
const EXTENTS: usize = 0x1d0;
/// The end of a chain, of extents, and no parent.
const NONE: u64 = u64::MAX;

/// Returns the volume.
pub(super) fn filled(tree: &Path) -> Vec<u8> {
    let nodes = nodes(tree);
    let mut volume = Bytes::new(Order::Big);
    volume.extend_to(FIRST * BLOCK);
    // The position of each inode, of two blocks, followed by the data.
    let inodes: Vec<usize> = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| {
            assert!(!node.is_link(), "OMFS has no links");
            let ino = if at == 0 { ROOT } else { volume.append(&[0; MIRRORS * BLOCK], BLOCK) };
            volume.append(&node.bytes, BLOCK);
            ino
        })
        .collect();
    for (at, node) in nodes.iter().enumerate() {
        inode(&mut volume, &inodes, at, node);
    }
    nodes.iter().enumerate().for_each(|(at, _)| chain(&mut volume, &nodes, &inodes, at));
    let used = volume.len() / BLOCK;
    let blocks = used.max(BLOCKS_MIN);
    volume.extend_to(blocks * BLOCK);
    bitmap(&mut volume, used..blocks);
    root_block(&mut volume, blocks);
    inodes.iter().for_each(|ino| seal(&mut volume, *ino, b'e'));
    seal(&mut volume, ROOT_BLOCK, b's');
    super_block(&mut volume, blocks);
    volume.into_vec()
}

/// Writes a `struct omfs_inode`. The inode of a file contains a `struct omfs_extent` for all its blocks, which follow
/// the inode.
fn inode(volume: &mut Bytes, inodes: &[usize], at: usize, node: &Node) {
    let start = inodes[at] * BLOCK;
    let parent = if at == 0 { NONE } else { inodes[node.parent] as u64 };
    volume.u64(start + 24, parent); // i_parent
    volume.u64(start + 32, NONE); // i_sibling
    volume.u64(start + 40, node.mtime * 1000); // i_ctime
    volume.u8(start + 83, if node.is_folder() { b'D' } else { b'F' }); // i_type
    if at > 0 {
        volume.put(start + 152, &node.name); // i_name
    }
    if node.is_folder() {
        volume.u64(start + 408, SYSTEM); // i_size
        volume.put(start + CHAINS, &[0xff; SYSTEM - CHAINS]);
        return;
    }
    volume.u64(start + 408, node.bytes.len()); // i_size
    let (extent, blocks) = (start + EXTENTS, node.bytes.len().div_ceil(BLOCK) as u64);
    volume.u64(extent, NONE); // e_next
    volume.u32(extent + 8, 1 + u32::from(blocks > 0)); // e_extent_count
    volume.u32(extent + 12, 0x22); // e_fill
    let mut entry = extent + 16;
    if blocks > 0 {
        volume.u64(entry, inodes[at] + MIRRORS); // e_cluster
        volume.u64(entry + 8, blocks); // e_blocks
        entry += 16;
    }
    // The last extent contains the inverted number of all blocks.
    volume.u64(entry, NONE);
    volume.u64(entry + 8, !blocks);
}

/// Adds all entries of a folder to its chains.
fn chain(volume: &mut Bytes, nodes: &[Node], inodes: &[usize], at: usize) {
    let mut children = nodes[at].children.clone();
    children.sort_by_key(|child| std::cmp::Reverse(nodes[*child].name.len()));
    for child in children {
        let bucket = hash(&nodes[child].name) % ((SYSTEM - CHAINS) / 8);
        let head = inodes[at] * BLOCK + CHAINS + bucket * 8;
        let next = volume.get(head, 8).to_vec();
        volume.put(inodes[child] * BLOCK + 32, &next); // i_sibling
        volume.u64(head, inodes[child]);
    }
}

/// fs/omfs/dir.c `omfs_hash`.
fn hash(name: &[u8]) -> usize {
    let shifted =
        name.iter().enumerate().map(|(at, byte)| usize::from(byte.to_ascii_lowercase()) << (at % 24));
    shifted.fold(0, |hash, byte| hash ^ byte)
}

/// Writes a bit for each block in use, and for those past the end.
fn bitmap(volume: &mut Bytes, free: Range<usize>) {
    assert!(free.end <= BLOCK * 8, "a volume of {} blocks", free.end);
    let mut bits = [0xff; BLOCK];
    free.for_each(|block| bits[block / 8] &= !(1 << (block % 8)));
    volume.put(BITMAP * BLOCK, &bits);
}

/// `struct omfs_root_block`.
fn root_block(volume: &mut Bytes, blocks: usize) {
    let at = ROOT_BLOCK * BLOCK;
    volume.u64(at + 32, blocks); // r_num_blocks
    volume.u64(at + 40, ROOT); // r_root_dir
    volume.u64(at + 48, BITMAP); // r_bitmap
    volume.u32(at + 56, BLOCK); // r_blocksize
    volume.u32(at + 60, 8); // r_clustersize
    volume.u64(at + 64, MIRRORS); // r_mirrors
    volume.put(at + 72, b"filled"); // r_name
}

/// `struct omfs_super_block`.
fn super_block(volume: &mut Bytes, blocks: usize) {
    volume.u64(256, ROOT_BLOCK); // s_root_block
    volume.u64(264, blocks); // s_num_blocks
    volume.u32(272, 0xc299_3d87_u32); // s_magic
    volume.u32(276, BLOCK); // s_blocksize
    volume.u32(280, MIRRORS); // s_mirrors
    volume.u32(284, SYSTEM); // s_sys_blocksize
}

/// Writes the `struct omfs_header` of a complete block, and its mirror copies.
fn seal(volume: &mut Bytes, block: usize, kind: u8) {
    let at = block * BLOCK;
    volume.u64(at, block); // h_self
    volume.u32(at + 8, SYSTEM - HEADER); // h_body_size
    let sum = crc(volume.get(at + HEADER, SYSTEM - HEADER));
    volume.u16(at + 12, sum); // h_crc
    volume.u8(at + 16, 1); // h_version
    volume.u8(at + 17, kind); // h_type
    volume.u8(at + 18, 0xd2); // h_magic
    let check = volume.get(at, 19).iter().fold(0, |sum, byte| sum ^ byte);
    volume.u8(at + 19, check); // h_check_xor
    let whole = volume.get(at, SYSTEM).to_vec();
    volume.put(at + BLOCK, &whole);
}

/// CRC-ITU-T (Linux, lib/crc-itu-t.c), with the initial value 0.
fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum: u16, byte| {
        let shift = |sum: u16, _| (sum << 1) ^ if sum >> 15 == 1 { 0x1021 } else { 0 };
        (0..8).fold(sum ^ u16::from(*byte) << 8, shift)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_the_digits_equals_the_published_checksum() {
        // The check value of CRC-16/XMODEM.
        assert_eq!(crc(b"123456789"), 0x31c3);
    }
}
