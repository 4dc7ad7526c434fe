//! The positions of structures in the sound ext4 volumes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use obento_base::Ino;
use obento_base::wire::to_u64;
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{Access, OpenOptions};
use obento_env::NO_CLOCK;
use obento_ext4::{FileBlock, Inode, InodeFlags, Volume, open_volume};

use crate::volumes::{EXT4, FAST, LOG};

/// Byte ranges of one kind of structure.
pub type Places = Vec<(u64, usize)>;

/// The kinds, with the volume and the positions of each.
type Kinds = BTreeMap<&'static str, (&'static Arc<MemDevice>, Places)>;

/// The blocks for fast commits in the volume with fast commits: an offset and a length.
pub const FAST_COMMITS: (u64, usize) = (1059 << 10, 15 << 10);

static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    Kinds::from([
        ("super_block", (&*EXT4, vec![(1024, 1024)])),
        // Block 1 contains the super block; the descriptors follow it.
        ("group", (&*EXT4, vec![block_place(2)])),
        ("bitmaps", (&*EXT4, bitmaps())),
        ("inode", (&*EXT4, inodes().map(|inode| (place_of(&inode), 256)).collect())),
        ("extents", (&*EXT4, nodes())),
        ("directory", (&*EXT4, directory_blocks(|_, _| true))),
        // The root of every index. The fuzzer reaches the nodes below it through `directory`.
        ("htree", (&*EXT4, directory_blocks(|inode, at| at == 0 && inode.has(InodeFlags::INDEX)))),
        ("journal", (&*EXT4, journal())),
        ("xattr", (&*EXT4, attributes())),
        ("orphan_file", (&*FAST, ORPHANS.map(|block| (block << 10, 1024)).collect())),
        ("fast_commit", (&*FAST, fast_commits())),
        // The super block of a file system, the super block of the journal in block 2, and the log.
        ("external_journal", (&*LOG, (1..40).map(|block| (block << 10, 1024)).collect())),
    ])
});

/// Returns the volume and the positions of a kind.
pub fn of(kind: &str) -> &'static (&'static Arc<MemDevice>, Places) {
    KINDS.get(kind).expect("a kind that exists")
}

/// The first blocks of the orphan file in the volume with an orphan file.
const ORPHANS: Range<u64> = 1074..1078;

/// Returns the blocks for fast commits that are not empty.
fn fast_commits() -> Places {
    let blocks = (0..FAST_COMMITS.1).step_by(1024).map(|at| FAST_COMMITS.0 + to_u64(at));
    let is_used = |&at: &u64| {
        let mut start = [0; 4];
        FAST.read_at(at, &mut start).expect("the place is on the volume");
        start != [0; 4]
    };
    blocks.filter(is_used).map(|at| (at, 1024)).collect()
}

/// Returns the positions of the bitmaps of blocks and of inodes, from the only group descriptor.
fn bitmaps() -> Places {
    let mut blocks = [0; 8];
    EXT4.read_at(2 << 10, &mut blocks).expect("the place is on the volume");
    let (of_blocks, of_inodes) = blocks.split_at(4);
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    [of_blocks, of_inodes].map(|bytes| block_place(number(bytes).into())).into()
}

static SOUND: LazyLock<Volume> = LazyLock::new(|| {
    let options = OpenOptions { access: Access::ReadOnly, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    open_volume(EXT4.clone(), &options).expect("the seed volume opens")
});

fn inodes() -> impl Iterator<Item = Inode> {
    (1..=SOUND.super_block().inodes_count.into()).filter_map(|ino| SOUND.inode(Ino(ino)).ok())
}

fn place_of(inode: &Inode) -> u64 {
    inode.place().block.0 * 1024 + u64::from(inode.place().offset)
}

fn block_place(block: u64) -> (u64, usize) {
    let size = SOUND.block_size();
    (block * u64::from(size), u32::from(size) as usize)
}

/// Returns the directory blocks that `wanted` accepts.
fn directory_blocks(wanted: impl Fn(&Inode, u32) -> bool) -> Places {
    let mut places = Places::new();
    for inode in inodes().filter(|inode| inode.is_dir()) {
        let blocks = u32::try_from(inode.size() / u64::from(SOUND.block_size())).unwrap_or(0);
        for at in (0..blocks).filter(|&at| wanted(&inode, at)) {
            if let Ok(Some(block)) = SOUND.map_block(&inode, FileBlock(at)) {
                places.push(block_place(block.0));
            }
        }
    }
    places
}

/// Returns the roots of all mappings, and every block to which a root refers.
fn nodes() -> Places {
    let mut places = Places::new();
    for inode in inodes() {
        places.push((place_of(&inode) + 40, 60));
        let map: Vec<u32> =
            inode.i_block().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let node = match map[0] & 0xffff == 0xf30a {
            true if map[1] >> 16 != 0 => map[4],
            true => 0,
            false => map[12],
        };
        if node > 10 && node < 4096 {
            places.push(block_place(node.into()));
        }
    }
    places
}

/// Returns the super block of the journal, and the first blocks of its log.
fn journal() -> Places {
    let journal = SOUND.inode(Ino(8)).expect("the journal's inode");
    let blocks = (0..24).filter_map(|at| SOUND.map_block(&journal, FileBlock(at)).ok()?);
    blocks.map(|block| block_place(block.0)).collect()
}

/// Returns the attributes in inodes, after the fixed fields, and in blocks of their own.
fn attributes() -> Places {
    let mut places = Places::new();
    for inode in inodes().filter(|inode| inode.size() > 0) {
        places.push((place_of(&inode) + 128, 128));
        places.extend(inode.xattr_block().map(|block| block_place(block.0)));
    }
    places
}
