//! Blocks that several files claim. After the repair, each file has its own copies if the volume has space, and e2fsck
//! agrees.

mod common;
mod lab;

use lab::bases::{self, BIGALLOC, Base, EXT2, EXT4};
use lab::judge::{contents, e2fsck_is_clean, findings, lost_to_us_alone, repaired};
use lab::{Bits, Disk, I_BLOCK};

#[test]
fn a_pointer_into_another_file_gets_a_block_of_its_own() {
    if !bases::oracles() {
        return;
    }
    let mut disk = bases::EXT2.disk();
    let taken = disk.file_block(disk.ino("twice"), 0);
    disk.edit_pointer("file", 0, taken);
    let before = disk.bytes[disk.range(taken)].to_vec();
    let found = findings(&disk.bytes).unwrap();
    assert!(found.iter().any(|finding| finding.code == "block-twice"), "{found:?}");
    let fixed = lab::Disk::new(repaired(&disk.bytes).unwrap());
    assert_eq!(findings(&fixed.bytes).unwrap(), []);
    let verdict = e2fsck_is_clean(&fixed.bytes);
    assert!(verdict.is_clean(), "{}", verdict.text);
    let blocks = ["file", "twice"].map(|path| fixed.file_block(fixed.ino(path), 0));
    assert_ne!(blocks[0], blocks[1]);
    assert_eq!(blocks.map(|block| fixed.bytes[fixed.range(block)].to_vec()), [before.clone(), before]);
}

/// The inode of the bad blocks.
const BAD_BLOCKS: u32 = 1;

/// Returns an image whose only free blocks are those that `keep` selects. The others are bad blocks.
fn filled(base: &'static Base, keep: impl Fn(usize) -> bool) -> Disk {
    let mut disk = base.disk();
    let end = disk.super_block().s_blocks_count_lo.get();
    let free: Vec<u32> = (disk.first..end).filter(|&block| !disk.bit(Bits::Blocks, block)).collect();
    let taken: Vec<u32> =
        free.into_iter().enumerate().filter(|&(at, _)| !keep(at)).map(|(_, block)| block).collect();
    let words = disk.block / 4;
    // One indirect block, and one doubly indirect block with as many indirect blocks as the rest needs.
    let (tables, bad) = taken.split_at(2 + (taken.len() - 2 - words).div_ceil(words + 1));
    let table = |list: &[u32]| {
        let mut bytes: Vec<u8> = list.iter().flat_map(|block| block.to_le_bytes()).collect();
        bytes.resize(words * 4, 0);
        bytes
    };
    let at = disk.inode_at(BAD_BLOCKS) + I_BLOCK;
    disk.put(at + 12 * 4, &[tables[0].to_le_bytes(), tables[1].to_le_bytes()].concat());
    let mut lists = bad.chunks(words);
    let place = disk.range(tables[0]).start;
    disk.put(place, &table(lists.next().unwrap()));
    let below: Vec<u32> = lists.clone().zip(&tables[2..]).map(|(_, &block)| block).collect();
    let place = disk.range(tables[1]).start;
    disk.put(place, &table(&below));
    for (list, &block) in lists.zip(&below) {
        let place = disk.range(block).start;
        disk.put(place, &table(list));
    }
    disk.seal_inode(BAD_BLOCKS);
    let full = Disk::new(repaired(&disk.bytes).unwrap());
    assert!(e2fsck_is_clean(&full.bytes).is_clean());
    full
}

/// Repairs the image. Neither checker finds anything afterwards, and no file is lost that e2fsck keeps.
fn repaired_as_e2fsck(damaged: &[u8]) -> Vec<u8> {
    let fixed = repair_copy(damaged);
    assert_eq!(lost_to_us_alone(damaged, &fixed), []);
    fixed
}

/// Repairs the image. Neither checker finds anything afterwards.
fn repair_copy(damaged: &[u8]) -> Vec<u8> {
    let fixed = repaired(damaged).unwrap();
    assert_eq!(findings(&fixed).unwrap(), []);
    let verdict = e2fsck_is_clean(&fixed);
    assert!(verdict.is_clean(), "{}", verdict.text);
    fixed
}

#[test]
fn files_that_claim_each_others_blocks_keep_their_own_where_there_is_no_room() {
    if !bases::oracles() {
        return;
    }
    let mut disk = filled(&EXT2, |_| false);
    let sound = disk.clone();
    let block = |path: &str, at: u32| sound.file_block(sound.ino(path), at);
    // After the ends of the files, so that no block becomes free.
    for (path, at, to) in [
        ("file", 3, block("twice", 0)),
        ("twice", 2, block("pieces", 0)),
        ("pieces", 4, block("file", 1)),
        ("pieces", 5, block("file", 2)),
    ] {
        disk.edit_pointer(path, at, to);
    }
    for path in ["file", "twice"] {
        disk.edit_inode(path, |inode| inode.i_size_lo = 4096.into());
    }
    // e2fsck deletes two of the files, and copies the third into their space.
    let fixed = Disk::new(repair_copy(&disk.bytes));
    // Each block still has an owner, and only one.
    let of = |path: &str, at: u32| fixed.file_block(fixed.ino(path), at);
    for (own, other) in [
        (("twice", 0), ("file", 3)),
        (("pieces", 0), ("twice", 2)),
        (("file", 1), ("pieces", 4)),
        (("file", 2), ("pieces", 5)),
    ] {
        let before = block(own.0, own.1);
        let left = [own, other].map(|(path, at)| of(path, at));
        assert!(left == [before, 0] || left == [0, before], "{own:?} {other:?} {left:?}, {before} before");
    }
    assert_eq!(of("pieces", 3), block("pieces", 3), "a block without another claim stays");
}

#[test]
fn the_last_of_two_files_with_one_block_keeps_it_without_free_space() {
    if !bases::oracles() {
        return;
    }
    let mut disk = filled(&EXT2, |_| false);
    let (file, twice) = (disk.ino("file"), disk.ino("twice"));
    let (first, last) = if file < twice { ("file", "twice") } else { ("twice", "file") };
    let own = disk.file_block(disk.ino(last), 0);
    // After its end, so that no block becomes free.
    let end = disk.file_blocks(disk.ino(first)).len() as u32;
    disk.edit_pointer(first, end as usize, own);
    disk.edit_inode(first, |inode| inode.i_size_lo = ((end + 1) * 1024).into());
    let fixed = Disk::new(repaired_as_e2fsck(&disk.bytes));
    assert_eq!(fixed.file_block(fixed.ino(last), 0), own);
    assert_eq!(fixed.file_block(fixed.ino(first), end), 0);
}

#[test]
fn a_file_with_extents_keeps_its_unshared_blocks_without_free_space() {
    if !bases::oracles() {
        return;
    }
    let mut disk = filled(&EXT4, |_| false);
    let sound = disk.clone();
    // Over the blocks of the next extent, so that no block becomes free.
    disk.edit_extent("pieces", &[0], 0, |extent| extent.ee_len = 6.into());
    let fixed = Disk::new(repaired_as_e2fsck(&disk.bytes));
    let ino = fixed.ino("pieces");
    let blocks = |disk: &Disk, nth: u32| [0, 1, 2, 3].map(|at| disk.file_block(ino, nth * 64 + at));
    for nth in [0, 2, 3, 4, 5] {
        assert_eq!(blocks(&fixed, nth), blocks(&sound, nth), "extent {nth}");
    }
}

#[test]
fn an_extent_is_copied_in_pieces_where_there_is_no_room_for_it_in_a_row() {
    if !bases::oracles() {
        return;
    }
    // Every third free block stays free.
    let mut disk = filled(&EXT4, |at| at > 200 && at % 3 == 0);
    let [file, twice] = ["file", "twice"].map(|path| disk.file_block(disk.ino(path), 0));
    disk.edit_extent("pieces", &[0], 2, |extent| extent.ee_start_lo = (file + 1).into());
    disk.edit_extent("pieces", &[0], 4, |extent| extent.ee_start_lo = twice.into());
    let after = repaired_as_e2fsck(&disk.bytes);
    assert_eq!(contents(&after), contents(&disk.bytes));
}

#[test]
fn clusters_of_an_extent_are_copied_in_pieces_where_there_is_no_room_for_it_in_a_row() {
    const LEN: u16 = 5000;
    if !bases::oracles() {
        return;
    }
    // Over most of the volume.
    let mut disk = BIGALLOC.disk();
    disk.edit_extent("pieces", &[0], 5, |extent| extent.ee_len = LEN.into());
    disk.edit_inode("pieces", |inode| inode.i_size_lo = ((5 * 64 + u32::from(LEN)) * 1024).into());
    let after = repaired_as_e2fsck(&disk.bytes);
    assert_eq!(contents(&after), contents(&disk.bytes));
}

#[test]
fn a_directory_in_the_cluster_of_a_bitmap_gets_a_cluster_of_its_own() {
    if !bases::oracles() {
        return;
    }
    let mut disk = BIGALLOC.disk();
    let other = disk.file_block(2, 0) + 3;
    let bitmap = disk.bytes[disk.range(disk.group_of(0).bg_block_bitmap_lo.get())].to_vec();
    disk.put(disk.range(other).start, &bitmap);
    disk.edit_group(0, |group| group.bg_block_bitmap_lo = other.into());
    let after = repaired_as_e2fsck(&disk.bytes);
    assert_eq!(contents(&after), contents(&disk.bytes));
}

#[test]
fn a_table_that_two_files_share_is_copied_as_it_was() {
    if !bases::oracles() {
        return;
    }
    let mut disk = EXT2.disk();
    let at = disk.inode_at(disk.ino("pieces")) + I_BLOCK + 12 * 4;
    let (table, pieces) = (disk.word(at), disk.ino("pieces"));
    let size = disk.inode_of(pieces).i_size_lo.get();
    for path in ["file", "twice", "dir/inner"] {
        disk.edit_pointer(path, 12, table);
        disk.edit_inode(path, |inode| inode.i_size_lo = size.into());
    }
    let after = repaired_as_e2fsck(&disk.bytes);
    assert_eq!(contents(&after), contents(&disk.bytes));
}
