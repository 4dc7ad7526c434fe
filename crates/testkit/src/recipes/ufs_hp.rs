//! A UFS volume of HP-UX, with long names and the contents of a tree.
//!
//! Layout, in fragments of 1024 bytes, eight per block, big-endian. The super block is at 8, its copy at 16, the
//! cylinder group at 24, and the inodes begin at 32. Then follow a summary and the files, each starting at a block. The
//! unused fragments of the last block of a file are free.
//!
//! Source: Linux 6.1, fs/ufs/ufs_fs.h, super.c (`UFS_MOUNT_UFSTYPE_HP`) and dir.c; McKusick and others, "A Fast File
//! System for UNIX", 1984.

use std::ops::Range;
use std::path::Path;

use super::bytes::{Bytes, Order};
use super::nodes::{Node, entries, links, nodes};

const FRAGMENT: usize = 1024;
const BLOCK: usize = 8192;
/// The number of fragments in a block.
const FRAGMENTS: usize = BLOCK / FRAGMENT;
/// The positions of the structures.
const SUPER: usize = 8;
const COPY: usize = 16;
const GROUP: usize = 24;
const INODES: usize = 32;
/// `struct ufs_inode`.
const INODE: usize = 128;
/// `UFS_ROOTINO`.
const ROOT: usize = 2;
/// `UFS_NDADDR`.
const DIRECT: usize = 12;
/// The number of block numbers in an indirect block.
const INDIRECT: usize = BLOCK / 4;
/// The unit that no directory entry crosses.
const CHUNK: usize = 512;
/// The number of inodes of `struct ufs_old_cylinder_group`.
const INODES_MAX: usize = 2048;

/// Returns the volume.
pub(super) fn filled(tree: &Path) -> Vec<u8> {
    let nodes = nodes(tree);
    let inodes = (ROOT + nodes.len()).next_multiple_of(BLOCK / INODE);
    assert!(inodes <= INODES_MAX, "{} files", nodes.len());
    let mut volume = Bytes::new(Order::Big);
    let summary = INODES + inodes * INODE / FRAGMENT;
    volume.extend_to(summary * FRAGMENT + BLOCK);
    // The free fragments of the last block of each file, and of the summary.
    let mut free = Vec::new();
    free.push(summary + 1..summary + FRAGMENTS);
    for (at, node) in nodes.iter().enumerate() {
        let folder = node.is_folder().then(|| folder(&nodes, at));
        let bytes = folder.as_ref().unwrap_or(&node.bytes);
        let start = inode(&mut volume, at, node, links(&nodes, at), bytes.len());
        free.push(store(&mut volume, start, bytes));
    }
    let folders = nodes.iter().filter(|node| node.is_folder()).count();
    let used = ROOT + nodes.len();
    let fragments: usize = free.iter().map(ExactSizeIterator::len).sum();
    // `struct ufs_csum`
    let sum = [folders, 0, inodes - used, fragments];
    group(&mut volume, used, inodes, &sum, &free);
    super_block(&mut volume, summary, inodes, &sum);
    volume.into_vec()
}

/// Writes a `struct ufs_inode` without its blocks. Returns its position.
fn inode(volume: &mut Bytes, at: usize, node: &Node, links: usize, len: usize) -> usize {
    let start = INODES * FRAGMENT + (ROOT + at) * INODE;
    volume.u16(start, node.mode); // ui_mode
    volume.u16(start + 2, links); // ui_nlink
    volume.u16(start + 4, node.uid); // ui_suid
    volume.u16(start + 6, node.gid); // ui_sgid
    volume.u64(start + 8, len); // ui_size
    for time in [16, 24, 32] {
        volume.u32(start + time, node.mtime); // ui_atime, ui_mtime, ui_ctime
    }
    start
}

/// Writes a file, and the numbers of its blocks into its inode. Returns the free fragments after it.
fn store(volume: &mut Bytes, inode: usize, file: &[u8]) -> Range<usize> {
    let blocks = file.len().div_ceil(BLOCK);
    assert!(blocks <= DIRECT + INDIRECT, "a file of {blocks} blocks");
    let first = volume.append(file, BLOCK) * FRAGMENTS;
    let number = |block: usize| first + block * FRAGMENTS;
    for block in 0..blocks.min(DIRECT) {
        volume.u32(inode + 40 + block * 4, number(block)); // ui_db
    }
    // Only a file without an indirect block may end with fragments.
    let mut fragments = file.len().div_ceil(FRAGMENT);
    let end = number(blocks);
    let free = if blocks > DIRECT { end..end } else { first + fragments..end };
    if blocks > DIRECT {
        let table = volume.append(&[0; BLOCK], BLOCK);
        (DIRECT..blocks).for_each(|block| volume.u32(table * BLOCK + (block - DIRECT) * 4, number(block)));
        volume.u32(inode + 88, table * FRAGMENTS); // ui_ib
        fragments = (blocks + 1) * FRAGMENTS;
    }
    volume.u32(inode + 104, fragments * FRAGMENT / 512); // ui_blocks
    free
}

/// Returns a `struct ufs_dir_entry` for each name, with 16 bits for the length of the name. The last entry of a chunk
/// takes the rest of it.
fn folder(nodes: &[Node], at: usize) -> Vec<u8> {
    let mut bytes = Bytes::new(Order::Big);
    let (mut last, mut end) = (0, 0);
    for (name, node) in entries(nodes, at) {
        let len = (8 + name.len() + 1).next_multiple_of(4);
        if end % CHUNK + len > CHUNK {
            end = end.next_multiple_of(CHUNK);
            bytes.u16(last + 4, end - last);
        }
        last = end;
        end += len;
        bytes.u32(last, ROOT + node); // d_ino
        bytes.u16(last + 4, len); // d_reclen
        bytes.u16(last + 6, name.len()); // d_namlen
        bytes.put(last + 8, name); // d_name
    }
    let end = end.next_multiple_of(CHUNK);
    bytes.u16(last + 4, end - last);
    bytes.extend_to(end);
    bytes.into_vec()
}

fn numbers(volume: &mut Bytes, at: usize, numbers: &[usize]) {
    for (index, number) in numbers.iter().enumerate() {
        volume.u32(at + index * 4, *number);
    }
}

/// Writes the only `struct ufs_old_cylinder_group`.
fn group(volume: &mut Bytes, used: usize, inodes: usize, sum: &[usize; 4], free: &[Range<usize>]) {
    let (at, end) = (GROUP * FRAGMENT, volume.len() / FRAGMENT);
    assert!(984 + end / 8 <= BLOCK, "a volume of {end} fragments");
    volume.u16(at + 16, 1); // cg_ncyl
    volume.u16(at + 18, inodes); // cg_niblk
    volume.u32(at + 20, end); // cg_ndblk
    numbers(volume, at + 24, sum); // cg_cs
    for len in 1..FRAGMENTS {
        let count = free.iter().filter(|range| range.len() == len).count();
        volume.u32(at + 52 + len * 4, count); // cg_frsum
    }
    (0..used).for_each(|inode| set(volume, at + 724, inode)); // cg_iused
    volume.u32(at + 980, 0x0009_0255); // cg_magic
    free.iter().cloned().flatten().for_each(|fragment| set(volume, at + 984, fragment)); // cg_free
}

fn set(volume: &mut Bytes, map: usize, bit: usize) {
    let byte = volume.get(map + bit / 8, 1)[0] | 1 << (bit % 8);
    volume.u8(map + bit / 8, byte);
}

/// Writes the `struct ufs_super_block`, its copy and the summary.
fn super_block(volume: &mut Bytes, summary: usize, inodes: usize, sum: &[usize; 4]) {
    let (at, end) = (SUPER * FRAGMENT, volume.len() / FRAGMENT);
    numbers(volume, at + 8, &[COPY, GROUP, INODES, summary]); // fs_sblkno, fs_cblkno, fs_iblkno, fs_dblkno
    // fs_size, fs_dsize, fs_ncg, fs_bsize, fs_fsize, fs_frag
    numbers(volume, at + 36, &[end, end - summary - 1, 1, BLOCK, FRAGMENT, FRAGMENTS]);
    volume.u32(at + 72, u32::MAX << BLOCK.ilog2()); // fs_bmask
    volume.u32(at + 76, u32::MAX << FRAGMENT.ilog2()); // fs_fmask
    volume.u32(at + 80, BLOCK.ilog2()); // fs_bshift
    volume.u32(at + 84, FRAGMENT.ilog2()); // fs_fshift
    volume.u32(at + 96, FRAGMENTS.ilog2()); // fs_fragshift
    volume.u32(at + 104, 2 * FRAGMENT); // fs_sbsize
    // fs_nindir, fs_inopb, fs_nspf
    numbers(volume, at + 116, &[INDIRECT, BLOCK / INODE, FRAGMENT / 512]);
    numbers(volume, at + 152, &[summary, FRAGMENT, BLOCK]); // fs_csaddr, fs_cssize, fs_cgsize
    numbers(volume, at + 176, &[1, 1, inodes, end]); // fs_ncyl, fs_cpg, fs_ipg, fs_fpg
    numbers(volume, at + 192, sum); // fs_cstotal
    volume.u8(at + 209, 0x17); // fs_clean (HP-UX, `FS_CLEAN`)
    volume.u32(at + 1372, 0x0009_5014); // fs_magic: `UFS_MAGIC_LFN`
    let copy = volume.get(at, 2 * FRAGMENT).to_vec();
    volume.put(COPY * FRAGMENT, &copy);
    numbers(volume, summary * FRAGMENT, sum);
}
