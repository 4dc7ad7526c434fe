//! An empty HPFS, as OS/2 has it.
//!
//! Layout: sectors of 512 bytes, and of most structures four at once. The super block is the sixteenth, the spare block behind it; then
//! come the list of bitmaps, these, the bitmap of the band of folders, what lies ready for bad sectors and users, the root's fnode,
//! and the band of folders with the root's dnode. Little-endian; a bit is set where something is free, the lowest of a byte first.
//!
//! Invariant: a bitmap is of 16384 sectors; those that the volume does not have are taken in it.
//! Invariant: a dnode begins with the entry `\x01\x01` of its folder, and ends with one of the name `\xff`.
//! Invariant: `n_code_pages` is 0, so that names are told apart as ASCII.
//!
//! Source: Linux 6.1, fs/hpfs/hpfs.h; fs/hpfs/super.c `hpfs_fill_super`, fs/hpfs/namei.c `hpfs_mkdir`.

use super::put;

const SECTOR: usize = 512;
/// Sectors of a bitmap, a dnode and most else.
const FOUR: usize = 4;
/// `struct hpfs_super_block` and `struct hpfs_spare_block`.
const SUPER: usize = 16;
const SPARE: usize = 17;
/// Sectors that a bitmap is of.
const BAND: usize = FOUR * SECTOR * 8;
/// Where the list of bitmaps is, and behind it what there is one of.
const LIST: usize = 20;
const FOLDERS_BITMAP: usize = 24;
const BAD: usize = 28;
const HOTFIXES: usize = 32;
const USERS: usize = 36;
const ROOT: usize = 44;
/// Then bitmaps, up to where the band of folders begins, and its dnodes.
const BITMAPS: usize = 48;
const FOLDERS: usize = 80;
const DNODES: usize = 1024;
/// 2020-01-01.
const TIME: u32 = 1_577_836_800;

/// A volume of so many bytes, of 64 MiB at most.
pub fn empty(len: usize) -> Vec<u8> {
    let (mut image, sectors) = (vec![0; len], len / SECTOR);
    let bands = sectors.div_ceil(BAND);
    assert!(BITMAPS + bands * FOUR <= FOLDERS, "there is room for few bitmaps");
    put(&mut image, SUPER * SECTOR, &super_block(sectors));
    put(&mut image, SPARE * SECTOR, &spare_block());
    for band in 0..bands {
        let at = BITMAPS + band * FOUR;
        put(&mut image, LIST * SECTOR + 4 * band, &number(at));
        put(&mut image, at * SECTOR, &bitmap(band * BAND, FOLDERS + DNODES * FOUR..sectors));
    }
    put(&mut image, FOLDERS_BITMAP * SECTOR, &bitmap(0, 1..DNODES));
    put(&mut image, ROOT * SECTOR, &root_fnode());
    put(&mut image, FOLDERS * SECTOR, &root_dnode());
    image
}

/// That from `first` on, where `free` are free.
fn bitmap(first: usize, free: std::ops::Range<usize>) -> Vec<u8> {
    let byte = |at: usize| (0..8).map(|bit| u8::from(free.contains(&(at + bit))) << bit).sum();
    (first..first + BAND).step_by(8).map(byte).collect()
}

/// `struct hpfs_super_block`.
fn super_block(sectors: usize) -> Vec<u8> {
    let mut fields = vec![0; SECTOR];
    put(&mut fields, 0, &[0x49, 0xe8, 0x95, 0xf9, 0xc5, 0xe9, 0x53, 0xfa]);
    // `version`, `funcversion`.
    put(&mut fields, 8, &[2, 2]);
    // `root`, `n_sectors`, `bitmaps`, `badblocks`.
    put(&mut fields, 12, &number(ROOT));
    put(&mut fields, 16, &number(sectors));
    put(&mut fields, 24, &number(LIST));
    put(&mut fields, 32, &number(BAD));
    // `n_dir_band`, `dir_band_start`, `dir_band_end`, `dir_band_bitmap`.
    put(&mut fields, 48, &number(DNODES * FOUR));
    put(&mut fields, 52, &number(FOLDERS));
    put(&mut fields, 56, &number(FOLDERS + DNODES * FOUR - 1));
    put(&mut fields, 60, &number(FOLDERS_BITMAP));
    // `user_id_table`.
    put(&mut fields, 96, &number(USERS));
    fields
}

/// `struct hpfs_spare_block`, clean.
fn spare_block() -> Vec<u8> {
    let mut fields = vec![0; SECTOR];
    put(&mut fields, 0, &[0x49, 0x18, 0x91, 0xf9, 0xc5, 0x29, 0x52, 0xfa]);
    // `hotfix_map`.
    put(&mut fields, 12, &number(HOTFIXES));
    fields
}

/// `struct fnode`.
fn root_fnode() -> Vec<u8> {
    let mut fields = vec![0; SECTOR];
    put(&mut fields, 0, &[0xae, 0x0a, 0xe4, 0xf7]);
    // `up`, `dirflag`.
    put(&mut fields, 28, &number(ROOT));
    put(&mut fields, 55, &[1]);
    // `btree`: `n_free_nodes`, `n_used_nodes`, `first_free`; one extent, whose `disk_secno` is that of the dnode.
    put(&mut fields, 60, &[7, 1, 8 + 12, 0]);
    put(&mut fields, 64, &u32::MAX.to_le_bytes());
    put(&mut fields, 72, &number(FOLDERS));
    // `ea_offs`: where attributes would be.
    put(&mut fields, 184, &[0xc4, 0]);
    fields
}

/// `struct dnode`.
fn root_dnode() -> Vec<u8> {
    let mut fields = vec![0; FOUR * SECTOR];
    let [first, last] = [entry(&[1, 1], 1), entry(&[0xff], 8)];
    put(&mut fields, 0, &[0xae, 0x0a, 0xe4, 0x77]);
    // `first_free`, `root_dnode`, `up`, `self`.
    put(&mut fields, 4, &number(20 + first.len() + last.len()));
    put(&mut fields, 8, &[1]);
    put(&mut fields, 12, &number(ROOT));
    put(&mut fields, 16, &number(FOLDERS));
    put(&mut fields, 20, &[first, last].concat());
    fields
}

/// `struct hpfs_dirent` with these of its flags: 1 for the first, which is the folder itself, 8 for the last.
fn entry(name: &[u8], flags: u8) -> Vec<u8> {
    let len = (31 + name.len()).next_multiple_of(4);
    let mut fields = vec![0; len];
    put(&mut fields, 0, &number(len)[..2]);
    put(&mut fields, 2, &[flags]);
    if flags == 1 {
        // `directory`, `fnode`; `write_date`, `read_date`, `creation_date`.
        put(&mut fields, 3, &[0x10]);
        put(&mut fields, 4, &number(ROOT));
        [8, 16, 20].into_iter().for_each(|at| put(&mut fields, at, &TIME.to_le_bytes()));
    }
    put(&mut fields, 30, &number(name.len())[..1]);
    put(&mut fields, 31, name);
    fields
}

fn number(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("a small volume").to_le_bytes()
}
