//! Blocks that two files claim: each has its own after the repair, and e2fsck agrees.

mod common;
mod lab;

use lab::bases;
use lab::judge::{e2fsck_is_clean, findings, repaired};

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
    let mended = lab::Disk::new(repaired(&disk.bytes).unwrap());
    assert_eq!(findings(&mended.bytes).unwrap(), []);
    let verdict = e2fsck_is_clean(&mended.bytes);
    assert!(verdict.is_clean(), "{}", verdict.text);
    let blocks = ["file", "twice"].map(|path| mended.file_block(mended.ino(path), 0));
    assert_ne!(blocks[0], blocks[1]);
    assert_eq!(blocks.map(|block| mended.bytes[mended.range(block)].to_vec()), [before.clone(), before]);
}
