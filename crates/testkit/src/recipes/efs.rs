//! An EFS volume (IRIX before XFS) with the contents of a tree and no free block.
//!
//! Layout, in blocks of 512 bytes, big-endian: block 0 is reserved for a boot program, block 1 contains the super
//! block. Then follow the bitmap, one cylinder group of inodes and data, and a copy of the super block.
//!
//! Source: Linux 6.1, fs/efs/efs.h and include/linux/efs_fs_sb.h; the checksum of the super block is that of NetBSD,
//! sys/fs/efs/efs_subr.c.

use std::path::Path;

use super::bytes::{Bytes, Order};
use super::nodes::{Node, entries, links, nodes};

const BLOCK: usize = 512;
/// `struct efs_dinode`.
const INODE: usize = 128;
/// `EFS_ROOTINODE`.
const ROOT: usize = 2;
/// `EFS_NEWMAGIC`.
const MAGIC: u32 = 0x0007_295a;
/// `EFS_DIRBLK_MAGIC`.
const FOLDER: u32 = 0xbeef;
/// `EFS_DIRECTEXTENTS`; more extents would be in a block of their own.
const EXTENTS: usize = 12;
/// The greatest number of blocks in an extent (IRIX, `EFS_MAXEXTENTLEN`).
const EXTENT_MAX: usize = 248;
/// The number of bitmap blocks, for volumes of up to 32 MiB.
const BITMAP: usize = 16;
/// `fs_bmblock`.
const BITMAP_AT: usize = 2;
/// `fs_firstcg`.
const GROUP_AT: usize = BITMAP_AT + BITMAP;

/// Returns the volume.
pub(super) fn filled(tree: &Path) -> Vec<u8> {
    let nodes = nodes(tree);
    let inode_blocks = (ROOT + nodes.len()).div_ceil(BLOCK / INODE);
    let mut volume = Bytes::new(Order::Big);
    volume.extend_to((GROUP_AT + inode_blocks) * BLOCK);
    for (at, node) in nodes.iter().enumerate() {
        let folder = node.is_folder().then(|| folder(&nodes, at));
        let bytes = folder.as_ref().unwrap_or(&node.bytes);
        let first = volume.append(bytes, BLOCK);
        inode(&mut volume, ROOT + at, node, links(&nodes, at), bytes.len());
        extents(&mut volume, ROOT + at, first, bytes.len().div_ceil(BLOCK));
    }
    let free_inodes = inode_blocks * (BLOCK / INODE) - ROOT - nodes.len();
    super_block(&mut volume, inode_blocks, free_inodes);
    volume.into_vec()
}

/// Returns a `struct efs_dir`: the number of entries and, in two bytes each, their positions. The entries fill the
/// block from its end.
fn folder(nodes: &[Node], at: usize) -> Vec<u8> {
    let mut blocks = Bytes::new(Order::Big);
    let (mut block, mut slots, mut first) = (0, 0, BLOCK);
    for (name, node) in entries(nodes, at) {
        // A `struct efs_dentry`, only as long as its name requires.
        let len = (5 + name.len()).next_multiple_of(2);
        if first < len + 4 + slots + 1 {
            (block, slots, first) = (block + BLOCK, 0, BLOCK);
        }
        first -= len;
        blocks.u32(block + first, ROOT + node);
        blocks.u8(block + first + 4, name.len());
        blocks.put(block + first + 5, name);
        blocks.u8(block + 4 + slots, first / 2);
        slots += 1;
        blocks.u16(block, FOLDER);
        blocks.u8(block + 2, first / 2);
        blocks.u8(block + 3, slots);
    }
    blocks.into_vec()
}

fn inode_at(ino: usize) -> usize {
    GROUP_AT * BLOCK + ino * INODE
}

fn inode(volume: &mut Bytes, ino: usize, node: &Node, links: usize, len: usize) {
    let at = inode_at(ino);
    volume.u16(at, node.mode); // di_mode
    volume.u16(at + 2, links); // di_nlink
    volume.u16(at + 4, node.uid); // di_uid
    volume.u16(at + 6, node.gid); // di_gid
    volume.u32(at + 8, len); // di_size
    for time in [12, 16, 20] {
        volume.u32(at + time, node.mtime); // di_atime, di_mtime, di_ctime
    }
}

/// Writes `di_extents`: a zero byte, the position in 24 bits, the number of blocks in 8, and the first file block in
/// 24.
fn extents(volume: &mut Bytes, ino: usize, first: usize, blocks: usize) {
    let at = inode_at(ino);
    let count = blocks.div_ceil(EXTENT_MAX);
    assert!(count <= EXTENTS, "a file of {blocks} blocks");
    volume.u16(at + 28, count); // di_numextents
    for extent in 0..count {
        let offset = extent * EXTENT_MAX;
        let len = EXTENT_MAX.min(blocks - offset);
        volume.u64(at + 32 + extent * 8, (first + offset) << 32 | len << 24 | offset);
    }
}

/// Writes the `struct efs_super`. All bits of the bitmap are zero; a set bit is a free block.
fn super_block(volume: &mut Bytes, inode_blocks: usize, free_inodes: usize) {
    let end = volume.len() / BLOCK;
    assert!(end <= BITMAP * BLOCK * 8, "a volume of {end} blocks");
    let at = BLOCK;
    volume.u32(at, end); // fs_size
    volume.u32(at + 4, GROUP_AT); // fs_firstcg
    volume.u32(at + 8, end - GROUP_AT); // fs_cgfsize
    volume.u16(at + 12, inode_blocks); // fs_cgisize
    volume.u16(at + 14, 32); // fs_sectors
    volume.u16(at + 16, 1); // fs_heads
    volume.u16(at + 18, 1); // fs_ncg
    volume.u32(at + 28, MAGIC); // fs_magic
    volume.u32(at + 44, end.div_ceil(8)); // fs_bmsize
    volume.u32(at + 52, free_inodes); // fs_tinode
    volume.u32(at + 56, BITMAP_AT); // fs_bmblock
    volume.u32(at + 60, end); // fs_replsb
    let sum = sum(volume.get(at, 88));
    volume.u32(at + 88, sum); // fs_checksum
    let copy = volume.get(at, BLOCK).to_vec();
    volume.append(&copy, BLOCK);
}

/// Returns the checksum of the preceding bytes: numbers of two bytes, each added to the rotated sum of the earlier
/// ones.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    words.fold(0, |sum: u32, word| (sum ^ word).rotate_left(1))
}
