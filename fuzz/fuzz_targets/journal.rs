#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use obento_base::Ino;
use obento_ext4::FileBlock;
use obento_fuzz::{Places, SOUND, block_place, damage};

/// The journal's super block and the blocks at the start of its log.
static BLOCKS: LazyLock<Places> = LazyLock::new(|| {
    let journal = SOUND.inode(Ino(8)).expect("the journal's inode");
    (0..24).filter_map(|at| SOUND.map_block(&journal, FileBlock(at)).ok()?).map(|block| block_place(block.0)).collect()
});

fuzz_target!(|data: &[u8]| damage(&BLOCKS, data));
