//! An empty HPFS volume of OS/2.
//!
//! Layout: sectors of 512 bytes; most structures take four. Sector 16 contains the super block, and sector 17 the spare
//! block. Then follow the list of bitmaps, the bitmaps, the bitmap of the directory band, and reserved sectors for hot
//! fixes and users. The root's fnode, and the directory band with the root's dnode, are last. Numbers are
//! little-endian; a set bit is a free sector, lowest bit first.
//!
//! Invariant: a bitmap covers 16384 sectors; those past the end of the volume are allocated.
//! Invariant: a dnode begins with the entry `\x01\x01` of its folder, and ends with an entry with the name `\xff`.
//! Invariant: `n_code_pages` is 0, so that names are compared as ASCII.
//!
//! Source: Linux 6.1, fs/hpfs/hpfs.h; fs/hpfs/super.c `hpfs_fill_super`, fs/hpfs/namei.c `hpfs_mkdir`.

use super::MADE;
use super::bytes::{Bytes, Order};

const SECTOR: usize = 512;
/// The number of sectors of a bitmap, a dnode and most other structures.
const FOUR: usize = 4;
/// `struct hpfs_super_block` and `struct hpfs_spare_block`.
const SUPER: usize = 16;
const SPARE: usize = 17;
/// The number of sectors that a bitmap covers.
const BAND: usize = FOUR * SECTOR * 8;
/// The position of the list of bitmaps, and of the single structures after it.
const LIST: usize = 20;
const FOLDERS_BITMAP: usize = 24;
const BAD: usize = 28;
const HOTFIXES: usize = 32;
const USERS: usize = 36;
const ROOT: usize = 44;
/// The positions of the bitmaps, of the directory band, and of its dnodes.
const BITMAPS: usize = 48;
const FOLDERS: usize = 80;
const DNODES: usize = 1024;

/// Returns a volume of `len` bytes, at most 64 MiB.
pub fn empty(len: usize) -> Vec<u8> {
    let (mut image, sectors) = (Bytes::of(len, Order::Little), len / SECTOR);
    let bands = sectors.div_ceil(BAND);
    assert!(BITMAPS + bands * FOUR <= FOLDERS, "there is room for few bitmaps");
    image.put(SUPER * SECTOR, &super_block(sectors));
    image.put(SPARE * SECTOR, &spare_block());
    for band in 0..bands {
        let at = BITMAPS + band * FOUR;
        image.u32(LIST * SECTOR + 4 * band, at);
        image.put(at * SECTOR, &bitmap(band * BAND, FOLDERS + DNODES * FOUR..sectors));
    }
    image.put(FOLDERS_BITMAP * SECTOR, &bitmap(0, 1..DNODES));
    image.put(ROOT * SECTOR, &root_fnode());
    image.put(FOLDERS * SECTOR, &root_dnode());
    image.into_vec()
}

/// Returns the bitmap of the sectors from `first` on, in which `free` are free.
fn bitmap(first: usize, free: std::ops::Range<usize>) -> Vec<u8> {
    let byte = |at: usize| (0..8).map(|bit| u8::from(free.contains(&(at + bit))) << bit).sum();
    (first..first + BAND).step_by(8).map(byte).collect()
}

/// Returns a `struct hpfs_super_block`.
fn super_block(sectors: usize) -> Vec<u8> {
    let mut fields = Bytes::of(SECTOR, Order::Little);
    fields.put(0, &[0x49, 0xe8, 0x95, 0xf9, 0xc5, 0xe9, 0x53, 0xfa]);
    // `version`, `funcversion`.
    fields.put(8, &[2, 2]);
    // `root`, `n_sectors`, `bitmaps`, `badblocks`.
    fields.u32(12, ROOT);
    fields.u32(16, sectors);
    fields.u32(24, LIST);
    fields.u32(32, BAD);
    // `n_dir_band`, `dir_band_start`, `dir_band_end`, `dir_band_bitmap`.
    fields.u32(48, DNODES * FOUR);
    fields.u32(52, FOLDERS);
    fields.u32(56, FOLDERS + DNODES * FOUR - 1);
    fields.u32(60, FOLDERS_BITMAP);
    // `user_id_table`.
    fields.u32(96, USERS);
    fields.into_vec()
}

/// Returns a clean `struct hpfs_spare_block`.
fn spare_block() -> Vec<u8> {
    let mut fields = Bytes::of(SECTOR, Order::Little);
    fields.put(0, &[0x49, 0x18, 0x91, 0xf9, 0xc5, 0x29, 0x52, 0xfa]);
    // `hotfix_map`.
    fields.u32(12, HOTFIXES);
    fields.into_vec()
}

/// Returns a `struct fnode`.
fn root_fnode() -> Vec<u8> {
    let mut fields = Bytes::of(SECTOR, Order::Little);
    fields.put(0, &[0xae, 0x0a, 0xe4, 0xf7]);
    // `up`, `dirflag`.
    fields.u32(28, ROOT);
    fields.u8(55, 1);
    // `btree`: `n_free_nodes`, `n_used_nodes`, `first_free`; one extent, whose `disk_secno` is that of the dnode.
    fields.put(60, &[7, 1, 8 + 12, 0]);
    fields.u32(64, u32::MAX);
    fields.u32(72, FOLDERS);
    // `ea_offs`: the position of attributes.
    fields.put(184, &[0xc4, 0]);
    fields.into_vec()
}

/// Returns a `struct dnode`.
fn root_dnode() -> Vec<u8> {
    let mut fields = Bytes::of(FOUR * SECTOR, Order::Little);
    let [first, last] = [entry(&[1, 1], 1), entry(&[0xff], 8)];
    fields.put(0, &[0xae, 0x0a, 0xe4, 0x77]);
    // `first_free`, `root_dnode`, `up`, `self`.
    fields.u32(4, 20 + first.len() + last.len());
    fields.u8(8, 1);
    fields.u32(12, ROOT);
    fields.u32(16, FOLDERS);
    fields.put(20, &[first, last].concat());
    fields.into_vec()
}

/// Returns a `struct hpfs_dirent` with these flags: 1 for the first entry, which is the folder itself, and 8 for the
/// last one.
fn entry(name: &[u8], flags: u8) -> Vec<u8> {
    let len = (31 + name.len()).next_multiple_of(4);
    let mut fields = Bytes::of(len, Order::Little);
    fields.u16(0, len);
    fields.u8(2, flags);
    if flags == 1 {
        // `directory`, `fnode`; `write_date`, `read_date`, `creation_date`.
        fields.u8(3, 0x10);
        fields.u32(4, ROOT);
        [8, 16, 20].into_iter().for_each(|at| fields.u32(at, MADE));
    }
    fields.u8(30, name.len());
    fields.put(31, name);
    fields.into_vec()
}
