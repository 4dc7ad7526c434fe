//! Files with block maps on volumes with clusters.

use crate::case::cases;
use crate::lab::Disk;
use crate::lab::bases::{self, oracles};
use crate::lab::judge::{contents, lost, repaired};

cases! {
    a_file_with_block_numbers_on_clusters(BIGALLOC, ["block-mapped ino=<file>"], to_numbers);
}

/// Gives `file`, which has three blocks, a block map.
fn to_numbers(disk: &mut Disk) {
    let ino = disk.ino("file");
    let numbers = [0, 1, 2].map(|n| disk.file_block(ino, n));
    disk.edit_inode("file", |inode| {
        inode.i_flags = (inode.i_flags.get() & !0x80000).into();
        inode.i_block = [0; 60];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        inode.i_block.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    });
}

#[test]
fn such_a_file_gets_extents_and_keeps_its_blocks() {
    if oracles() {
        let mut disk = bases::BIGALLOC.disk();
        let (before, ino) = (contents(&disk.bytes), disk.ino("file"));
        let blocks = disk.file_blocks(ino);
        to_numbers(&mut disk);
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(lost(&before, &contents(&fixed.bytes)), []);
        assert_eq!(fixed.file_blocks(ino), blocks);
    }
}
