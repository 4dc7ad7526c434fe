//! A Power-Safe file system of QNX 6 with the contents of a tree and no free block.
//!
//! Layout, little-endian: 8 KiB are reserved for a boot program. Then follow 4 KiB for a super block, the blocks, and a
//! copy of the super block. Block numbers start at the first of these blocks. A file has 16 numbers of its blocks or,
//! if they are too few, of blocks with such numbers. The inodes, the bitmap and the long names are files without a
//! name.
//!
//! Source: Linux 6.1, include/linux/qnx6_fs.h, fs/qnx6/inode.c and dir.c.

use std::path::Path;

use super::bytes::{Bytes, Order};
use super::nodes::{Node, entries, nodes};

const BLOCK: usize = 1024;
/// `QNX6_BOOTBLOCK_SIZE`.
const BOOT: usize = 0x2000;
/// `QNX6_SUPERBLOCK_AREA`.
const AREA: usize = 0x1000;
/// `QNX6_INODE_SIZE`.
const INODE: usize = 128;
/// `QNX6_NO_DIRECT_POINTERS`.
const POINTERS: usize = 16;
/// `QNX6_DIR_ENTRY_SIZE`.
const ENTRY: usize = 32;
/// `QNX6_SHORT_NAME_MAX`.
const NAME_MAX: usize = 27;
/// `QNX6_ROOT_INO`.
const ROOT: usize = 1;
/// No block.
const NONE: u32 = u32::MAX;

/// The position of a file: `struct qnx6_root_node`, and a part of `struct qnx6_inode_entry`.
struct Place {
    len: usize,
    pointers: Vec<u32>,
    levels: usize,
}

/// Returns the volume.
pub(super) fn filled(tree: &Path) -> Vec<u8> {
    let nodes = nodes(tree);
    let (mut blocks, mut inodes) = (Bytes::new(Order::Little), Bytes::new(Order::Little));
    for (at, node) in nodes.iter().enumerate() {
        let folder = node.is_folder().then(|| folder(&nodes, at));
        let place = store(&mut blocks, folder.as_ref().unwrap_or(&node.bytes));
        inode(&mut inodes, at * INODE, node, &place);
    }
    let count = inodes.len().next_multiple_of(BLOCK) / INODE;
    inodes.extend_to(count * INODE);
    let inodes = store(&mut blocks, &inodes.into_vec());
    // A bit for each block, including the blocks of the bitmap, which has few enough blocks for direct pointers.
    let used = blocks.len() / BLOCK;
    let bitmap = vec![0xff; (used + used.div_ceil(BLOCK * 8 - 1)).div_ceil(8)];
    let bitmap = store(&mut blocks, &bitmap);
    let super_block = super_block(&blocks, [&inodes, &bitmap], [count, count - nodes.len()]);
    let mut volume = Bytes::new(Order::Little);
    volume.put(BOOT, &super_block);
    volume.put(BOOT + AREA, &blocks.into_vec());
    let last = volume.len();
    volume.put(last, &super_block);
    volume.extend_to(last + AREA);
    volume.into_vec()
}

/// Writes a file.
fn store(blocks: &mut Bytes, file: &[u8]) -> Place {
    let first = if file.is_empty() { 0 } else { blocks.append(file, BLOCK) };
    let number = |block: usize| u32::try_from(block).expect("a small volume");
    let mut pointers: Vec<u32> = (first..first + file.len().div_ceil(BLOCK)).map(number).collect();
    let mut levels = 0;
    while pointers.len() > POINTERS {
        let tables = pointers.chunks(BLOCK / 4).map(|chunk| {
            let numbers = chunk.iter().copied().chain(std::iter::repeat(NONE));
            let table: Vec<u8> = numbers.take(BLOCK / 4).flat_map(u32::to_le_bytes).collect();
            number(blocks.append(&table, BLOCK))
        });
        pointers = tables.collect();
        levels += 1;
    }
    pointers.resize(POINTERS, NONE);
    Place { len: file.len(), pointers, levels }
}

/// Returns a `struct qnx6_dir_entry` for each name.
fn folder(nodes: &[Node], at: usize) -> Vec<u8> {
    let mut bytes = Bytes::new(Order::Little);
    for (index, (name, node)) in entries(nodes, at).into_iter().enumerate() {
        assert!(name.len() <= NAME_MAX, "a name of {} bytes", name.len());
        bytes.u32(index * ENTRY, ROOT + node); // de_inode
        bytes.u8(index * ENTRY + 4, name.len()); // de_size
        bytes.put(index * ENTRY + 5, name); // de_fname
    }
    bytes.extend_to(bytes.len().next_multiple_of(BLOCK));
    bytes.into_vec()
}

/// Writes a `struct qnx6_inode_entry`.
fn inode(inodes: &mut Bytes, at: usize, node: &Node, place: &Place) {
    inodes.extend_to(at + INODE);
    inodes.u64(at, place.len); // di_size
    inodes.u32(at + 8, node.uid); // di_uid
    inodes.u32(at + 12, node.gid); // di_gid
    for time in [16, 20, 24, 28] {
        inodes.u32(at + time, node.mtime); // di_ftime, di_mtime, di_atime, di_ctime
    }
    inodes.u16(at + 32, node.mode); // di_mode
    point(inodes, at + 36, place); // di_block_ptr
    inodes.u8(at + 100, place.levels); // di_filelevels
    // di_status: `QNX6_FILE_DIRECTORY` or `QNX6_FILE_NORMAL`.
    inodes.u8(at + 101, if node.is_folder() { 1 } else { 3 });
}

fn point(bytes: &mut Bytes, at: usize, place: &Place) {
    for (index, pointer) in place.pointers.iter().enumerate() {
        bytes.u32(at + index * 4, *pointer);
    }
}

/// Returns a `struct qnx6_super_block` with the positions of the inodes and of the bitmap, and the numbers of all and
/// of free inodes.
fn super_block(blocks: &Bytes, places: [&Place; 2], [inodes, free_inodes]: [usize; 2]) -> Vec<u8> {
    let mut bytes = Bytes::new(Order::Little);
    bytes.extend_to(512);
    bytes.u32(0, 0x6819_1122); // sb_magic
    bytes.u64(8, 1); // sb_serial
    bytes.u32(48, BLOCK); // sb_blocksize
    bytes.u32(52, inodes); // sb_num_inodes
    bytes.u32(56, free_inodes); // sb_free_inodes
    bytes.u32(60, blocks.len() / BLOCK); // sb_num_blocks
    let empty = Place { len: 0, pointers: vec![NONE; POINTERS], levels: 0 };
    // Inode, Bitmap, Longfile, Unknown
    for (index, place) in [places[0], places[1], &empty, &empty].into_iter().enumerate() {
        let at = 72 + index * 80;
        bytes.u64(at, place.len); // size
        point(&mut bytes, at + 8, place); // ptr
        bytes.u8(at + 72, place.levels); // levels
    }
    let sum = crc(bytes.get(8, 504));
    bytes.u32(4, sum); // sb_checksum
    bytes.into_vec()
}

/// Returns the CRC with the highest bit first and the polynomial `CRCPOLY_BE` (include/linux/crc32poly.h), with the
/// initial value 0.
fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, byte| {
        let shift = |sum: u32, _| (sum << 1) ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 };
        (0..8).fold(sum ^ u32::from(*byte) << 24, shift)
    })
}
