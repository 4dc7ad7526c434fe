//! A BeOS BFS volume with the contents of a tree and no free block.
//!
//! Layout, in blocks of 1024 bytes, little-endian: block 0 contains the super block in its second half, block 1 the
//! bitmap. The empty log follows, and then the data and the inode of each file. All blocks are in one allocation group.
//! A folder is a file with a B+tree of names in nodes of 1024 bytes.
//!
//! Source: Linux 6.1, fs/befs/befs_fs_types.h, btree.c and linuxvfs.c; for the name in an inode, Dominic Giampaolo,
//! "Practical File System Design", 1999, chapter 4.

use std::path::Path;

use super::bytes::{Bytes, Order};
use super::nodes::{Node, entries, nodes};

const BLOCK: usize = 1024;
/// The length of the log.
const LOG_BLOCKS: usize = 16;
const LOG: usize = 2;
const FIRST: usize = LOG + LOG_BLOCKS;
/// The number of bits in one bitmap block.
const GROUP: usize = BLOCK * 8;
/// `struct befs_btree_nodehead`.
const HEAD: usize = 28;
/// No node.
const NONE: u64 = u64::MAX;
/// `BEFS_SYMLINK_LEN`, with the final NUL.
const TARGET: usize = 144;
/// `BEFS_INODE_IN_USE`, without `BEFS_LONG_SYMLINK`.
const FLAGS: u32 = 1;

/// Returns the volume.
pub(super) fn filled(tree: &Path) -> Vec<u8> {
    let nodes = nodes(tree);
    let mut volume = Bytes::new(Order::Little);
    volume.extend_to(FIRST * BLOCK);
    let inodes: Vec<usize> = nodes.iter().map(|_| volume.append(&[0; BLOCK], BLOCK)).collect();
    for (at, node) in nodes.iter().enumerate() {
        inode(&mut volume, &inodes, at, node);
        if node.is_link() {
            assert!(node.bytes.len() < TARGET, "a link of {} bytes", node.bytes.len());
            volume.put(inodes[at] * BLOCK + 72, &node.bytes); // symlink
            continue;
        }
        let folder = node.is_folder().then(|| folder(&nodes, &inodes, at));
        stream(&mut volume, inodes[at] * BLOCK + 72, folder.as_ref().unwrap_or(&node.bytes));
    }
    super_block(&mut volume, inodes[0]);
    volume.into_vec()
}

/// Writes a `befs_block_run`.
fn run(bytes: &mut Bytes, at: usize, start: usize, len: usize) {
    bytes.u32(at, 0); // allocation_group
    bytes.u16(at + 4, start);
    bytes.u16(at + 6, len);
}

/// Writes a file, and its `befs_data_stream` of one run.
fn stream(volume: &mut Bytes, at: usize, file: &[u8]) {
    let blocks = file.len().div_ceil(BLOCK);
    if blocks > 0 {
        let start = volume.append(file, BLOCK);
        run(volume, at, start, blocks); // direct
        volume.u64(at + 96, blocks * BLOCK); // max_direct_range
    }
    volume.u64(at + 136, file.len()); // size
}

/// Writes a `befs_inode`.
fn inode(volume: &mut Bytes, inodes: &[usize], at: usize, node: &Node) {
    let start = inodes[at] * BLOCK;
    volume.u32(start, 0x3bbe_0ad9); // magic1
    run(volume, start + 4, inodes[at], 1); // inode_num
    volume.u32(start + 12, node.uid);
    volume.u32(start + 16, node.gid);
    volume.u32(start + 20, node.mode);
    volume.u32(start + 24, FLAGS);
    volume.u64(start + 28, node.mtime << 16); // create_time
    volume.u64(start + 36, node.mtime << 16); // last_modified_time
    run(volume, start + 44, inodes[node.parent], 1); // parent
    volume.u32(start + 64, BLOCK); // inode_size
    // `befs_small_data`: a string with the name 0x13, which contains the name of the file.
    let data = start + 232;
    volume.u32(data, u32::from_be_bytes(*b"CSTR")); // type
    volume.u16(data + 4, 1); // name_size
    volume.u16(data + 6, node.name.len()); // data_size
    volume.u8(data + 8, 0x13); // name
    volume.put(data + 12, &node.name);
}

/// Returns a B+tree: its `befs_btree_super`, the leaves, and the nodes above them up to the root.
fn folder(nodes: &[Node], inodes: &[usize], at: usize) -> Vec<u8> {
    let mut tree = Bytes::new(Order::Little);
    tree.extend_to(BLOCK);
    let mut names = entries(nodes, at);
    names.sort();
    // For each node of the level below, its last name and its position.
    let leaves = names.into_iter().map(|(name, node)| (name, inodes[node] as u64)).collect();
    let (mut level, mut depth) = (lay(&mut tree, leaves, Level::Leaves), 1);
    while level.len() > 1 {
        level = lay(&mut tree, level, Level::Above);
        depth += 1;
    }
    tree.u32(0, 0x69f6_c2e8); // magic
    tree.u32(4, BLOCK); // node_size
    tree.u32(8, depth); // max_depth
    tree.u64(16, level[0].1); // root_node_ptr
    tree.u64(24, NONE); // free_node_ptr
    let len = tree.len();
    tree.u64(32, len); // max_size
    tree.into_vec()
}

#[derive(Clone, Copy)]
enum Level {
    Leaves,
    Above,
}

/// Names, each with the number to which it refers.
type Keys<'a> = Vec<(&'a [u8], u64)>;

/// Writes the nodes of a level from left to right. Returns the keys of the level above.
fn lay<'a>(tree: &mut Bytes, keys: Keys<'a>, level: Level) -> Keys<'a> {
    let mut groups: Vec<Keys<'a>> = vec![Vec::new()];
    let mut used = HEAD + 8;
    for (name, value) in keys {
        if used + name.len() + 10 > BLOCK {
            groups.push(Vec::new());
            used = HEAD + 8;
        }
        used += name.len() + 10;
        groups.last_mut().expect("one").push((name, value));
    }
    let (first, count) = (tree.len(), groups.len());
    let place = |index: usize| if index < count { (first + index * BLOCK) as u64 } else { NONE };
    let mut above = Vec::new();
    for (index, mut group) in groups.into_iter().enumerate() {
        let last = group.last().expect("each has a name").0;
        // The last child of an inner node contains the names that are greater than all keys.
        let overflow = match level {
            Level::Leaves => NONE,
            Level::Above => group.pop().expect("one").1,
        };
        let left = index.checked_sub(1).map_or(NONE, place);
        node(tree, first + index * BLOCK, [left, place(index + 1), overflow], &group);
        above.push((last, place(index)));
    }
    above
}

/// Writes a node: `befs_btree_nodehead` with its `left`, `right` and `overflow`; the names; the end of each; and their
/// numbers.
fn node(tree: &mut Bytes, at: usize, links: [u64; 3], keys: &[(&[u8], u64)]) {
    tree.extend_to(at + BLOCK);
    for (index, link) in links.into_iter().enumerate() {
        tree.u64(at + index * 8, link);
    }
    let names: Vec<u8> = keys.iter().flat_map(|(name, _)| name.iter().copied()).collect();
    tree.u16(at + 24, keys.len()); // all_key_count
    tree.u16(at + 26, names.len()); // all_key_length
    tree.put(at + HEAD, &names);
    let ends = at + (HEAD + names.len()).next_multiple_of(8);
    let mut end = 0;
    for (index, (name, value)) in keys.iter().enumerate() {
        end += name.len();
        tree.u16(ends + index * 2, end);
        tree.u64(ends + keys.len() * 2 + index * 8, *value);
    }
}

/// Writes the `befs_super_block`. All blocks are in use.
fn super_block(volume: &mut Bytes, root: usize) {
    let blocks = volume.len() / BLOCK;
    assert!(blocks <= GROUP, "a volume of {blocks} blocks");
    volume.put(BLOCK, &[0xff; BLOCK]);
    let at = 512;
    volume.put(at, b"filled"); // name
    volume.u32(at + 32, 0x4246_5331); // magic1
    volume.u32(at + 36, 0x4249_4745); // fs_byte_order
    volume.u32(at + 40, BLOCK); // block_size
    volume.u32(at + 44, BLOCK.ilog2()); // block_shift
    volume.u64(at + 48, blocks); // num_blocks
    volume.u64(at + 56, blocks); // used_blocks
    volume.u32(at + 64, BLOCK); // inode_size
    volume.u32(at + 68, 0xdd12_1031_u32); // magic2
    volume.u32(at + 72, 1); // blocks_per_ag
    volume.u32(at + 76, GROUP.ilog2()); // ag_shift
    volume.u32(at + 80, 1); // num_ags
    volume.u32(at + 84, 0x434c_454e); // flags: `BEFS_CLEAN`
    run(volume, at + 88, LOG, LOG_BLOCKS); // log_blocks
    volume.u32(at + 112, 0x15b6_830e); // magic3
    run(volume, at + 116, root, 1); // root_dir
}
