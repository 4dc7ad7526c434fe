//! An empty volume of System V, Release 4, for Intel processors: little-endian.
//!
//! Layout: blocks of 1 KiB. The first block contains the boot program and, in its second half, the super block; the
//! second block is empty. The inodes, of 64 bytes, begin in the third block; the first one is unused, and the second is
//! the root. The data follows; the data of the root is first.
//!
//! Invariant: the super block lists up to 50 free blocks. The first one in the list is allocated last and contains the
//! next list. A 0 in its place marks the end.
//! Invariant: the time of the super block is after 1980, because Linux otherwise detects Release 2.
//!
//! Source: Linux 6.1, include/linux/sysv_fs.h `struct sysv4_super_block`, `sysv_inode`, `sysv_dir_entry`;
//! fs/sysv/{super,balloc,inode}.c.

use super::MADE;
use super::bytes::{Bytes, Order};

const BLOCK: usize = 1024;
/// `struct sysv4_super_block`, and the value of `s_type` for blocks of 1 KiB.
const SUPER: usize = 512;
const MAGIC: u32 = 0xfd18_7e20;
const KIND: u32 = 2;
/// The sum of `s_state` and `s_time` of an unmounted volume.
const CLEAN: u32 = 0x7c26_9d38;
/// `struct sysv_inode`.
const INODE: usize = 64;
const INODES: usize = 2048;
/// The first block of inodes, `s_firstinodezone`, and the first block of data.
const FIRST_INODE: usize = 2;
const FIRST_DATA: usize = FIRST_INODE + INODES * INODE / BLOCK;
/// `SYSV_ROOT_INO`.
const ROOT: u16 = 2;
/// `struct sysv_dir_entry`.
const ENTRY: usize = 16;
/// `SYSV_NICFREE`.
const LISTED: usize = 50;

/// Returns a volume of `len` bytes.
pub fn empty(len: usize) -> Vec<u8> {
    let (mut image, blocks) = (Bytes::of(len, Order::Little), len / BLOCK);
    let at = FIRST_INODE * BLOCK + usize::from(ROOT - 1) * INODE;
    image.put(at, &root_inode());
    for (nth, name) in [".", ".."].into_iter().enumerate() {
        let entry = [&ROOT.to_le_bytes()[..], name.as_bytes()].concat();
        image.put(FIRST_DATA * BLOCK + nth * ENTRY, &entry);
    }
    let free = FIRST_DATA + 1..blocks;
    let count = free.len();
    // The lists are written from the last one on. Each begins with the block of the previous list; the last begins with
    // 0.
    let mut list = vec![0];
    for block in free.rev() {
        if list.len() == LISTED {
            image.put(block * BLOCK, &list_of(&list));
            list.clear();
        }
        list.push(block);
    }
    image.put(SUPER, &super_block(blocks, count, &list));
    image.into_vec()
}

/// Returns the number of blocks, in four bytes, and the blocks.
fn list_of(blocks: &[usize]) -> Vec<u8> {
    [blocks.len()].iter().chain(blocks).flat_map(|block| number(*block)).collect()
}

/// Returns a `struct sysv4_super_block` without a list of free inodes, for which Linux searches.
fn super_block(blocks: usize, free: usize, list: &[usize]) -> Vec<u8> {
    let mut fields = Bytes::of(512, Order::Little);
    // `s_isize`, `s_fsize`, `s_nfree` and `s_free`.
    fields.u32(0, FIRST_DATA);
    fields.u32(4, blocks);
    fields.put(8, &list_of(list));
    // `s_time`, `s_tfree`, `s_tinode`, `s_state`, `s_magic`, `s_type`.
    fields.u32(420, MADE);
    fields.u32(432, free);
    fields.u16(436, INODES - 2);
    fields.u32(500, CLEAN - MADE);
    fields.u32(504, MAGIC);
    fields.u32(508, KIND);
    fields.into_vec()
}

/// Returns a `struct sysv_inode` of a folder with two names.
fn root_inode() -> Vec<u8> {
    let mut inode = Bytes::of(INODE, Order::Little);
    inode.u16(0, 0o40755);
    inode.u16(2, 2);
    inode.u32(8, 2 * ENTRY);
    // `i_data`: numbers of three bytes.
    inode.put(12, &number(FIRST_DATA)[..3]);
    // `i_atime`, `i_mtime`, `i_ctime`.
    [52, 56, 60].into_iter().for_each(|at| inode.u32(at, MADE));
    inode.into_vec()
}

fn number(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("a small volume").to_le_bytes()
}
