//! An empty HFS+ volume.
//!
//! Layout: blocks of 4 KiB. The first block contains the volume header; then follow the block bitmap, and the trees of
//! extents, of the catalog and of attributes. The last block contains the copy of the header, 1024 bytes before the
//! end. Numbers are big-endian.
//!
//! Invariant: the catalog contains the record of the root folder and its thread, by which Linux finds an inode by
//! number.
//! Invariant: a clump of data is one block, so that a file takes no more blocks than its bytes require.
//! Invariant: the volume is marked as unmounted, because Linux otherwise mounts read-only.
//!
//! Source: Apple, Technical Note TN1150, "HFS Plus Volume Format"; the checks of Linux,
//! fs/hfsplus/{super,btree,wrapper}.c.

use super::MADE;
use super::bytes::{Bytes, Order};

const BLOCK: usize = 4096;
/// "Volume Header": its offset, and that of its copy from the end.
const HEADER: usize = 1024;
/// kHFSVolumeUnmountedBit.
const UNMOUNTED: u32 = 1 << 8;
/// kHFSRootParentID, kHFSRootFolderID, kHFSFirstUserCatalogNodeID.
const ROOT_PARENT: u32 = 1;
const ROOT: u32 = 2;
const FIRST_USER: u32 = 16;
/// kHFSPlusFolderRecord, kHFSPlusFolderThreadRecord.
const FOLDER: u16 = 1;
const FOLDER_THREAD: u16 = 3;
/// kBTLeafNode, kBTHeaderNode.
const LEAF_NODE: i8 = -1;
const HEADER_NODE: i8 = 1;
/// kBTBigKeysMask, kBTVariableIndexKeysMask.
const BIG_KEYS: u32 = 2;
const VARIABLE_KEYS: u32 = 4;
/// kHFSCaseFolding.
const CASE_FOLDING: u8 = 0xcf;
/// BTNodeDescriptor.
const DESCRIPTOR: usize = 14;
/// HFSPlusForkData.
const FORK: usize = 80;
/// In seconds since 1904.
const DATE: u32 = 2_082_844_800 + MADE;
const NAME: &str = "empty";

/// An initial tree.
struct Tree {
    node: usize,
    nodes: u32,
    key_max: u16,
    attributes: u32,
    compare: u8,
    leaf: Vec<Vec<u8>>,
}

/// Returns a volume of `len` bytes, a multiple of a block.
pub fn empty(len: usize) -> Vec<u8> {
    let mut image = Bytes::of(len, Order::Big);
    let trees = [
        Tree { node: BLOCK, nodes: 16, key_max: 10, attributes: BIG_KEYS, compare: 0, leaf: Vec::new() },
        Tree {
            node: BLOCK,
            nodes: 128,
            key_max: 516,
            attributes: BIG_KEYS | VARIABLE_KEYS,
            compare: CASE_FOLDING,
            leaf: vec![root_record(), root_thread()],
        },
        // A node has room for the longest attribute of Linux, 3802 bytes.
        Tree {
            node: 2 * BLOCK,
            nodes: 32,
            key_max: 266,
            attributes: BIG_KEYS | VARIABLE_KEYS,
            compare: 0,
            leaf: Vec::new(),
        },
    ];
    let bitmap = (len / BLOCK).div_ceil(8 * BLOCK);
    let mut forks = vec![fork(1, bitmap)];
    let mut next = 1 + bitmap;
    for tree in &trees {
        let blocks = tree.bytes() / BLOCK;
        tree.write(&mut image, next * BLOCK);
        forks.push(fork(next, blocks));
        next += blocks;
    }
    let last = len / BLOCK - 1;
    let mut used = vec![0_u8; bitmap * BLOCK];
    (0..next).chain([last]).for_each(|block| used[block / 8] |= 0x80 >> (block % 8));
    image.put(BLOCK, &used);
    let header = volume_header(last + 1, last - next, &forks);
    image.put(HEADER, &header);
    image.put(len - HEADER, &header);
    image.into_vec()
}

/// Returns an HFSPlusVolumeHeader.
fn volume_header(blocks: usize, free: usize, forks: &[Vec<u8>]) -> Vec<u8> {
    let mut header = Bytes::of(512, Order::Big);
    header.put(0, b"H+\0\x04");
    header.u32(4, UNMOUNTED);
    // lastMountedVersion: of Mac OS X.
    header.put(8, b"10.0");
    // createDate, modifyDate, checkedDate.
    [16, 20, 28].into_iter().for_each(|at| header.u32(at, DATE));
    // blockSize, totalBlocks, freeBlocks.
    header.u32(40, BLOCK);
    header.u32(44, blocks);
    header.u32(48, free);
    // rsrcClumpSize, dataClumpSize.
    header.u32(56, BLOCK);
    header.u32(60, BLOCK);
    header.u32(64, FIRST_USER);
    // encodingsBitmap: MacRoman.
    header.u64(72, 1);
    header.put(112, &forks.concat());
    header.into_vec()
}

/// Returns an HFSPlusForkData of one extent. The clump size is the size of the fork.
fn fork(start: usize, blocks: usize) -> Vec<u8> {
    let mut fork = Bytes::of(FORK, Order::Big);
    fork.u32(4, blocks * BLOCK);
    fork.u32(8, blocks * BLOCK);
    fork.u32(12, blocks);
    fork.u32(16, start);
    fork.u32(20, blocks);
    fork.into_vec()
}

/// Returns an HFSPlusCatalogKey.
fn key(parent: u32, name: &str) -> Vec<u8> {
    let name = text(name);
    let len = u16::try_from(4 + name.len()).expect("it is short");
    [&len.to_be_bytes()[..], &parent.to_be_bytes(), &name].concat()
}

/// Returns an HFSUniStr255.
fn text(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let len = u16::try_from(units.len()).expect("it is short");
    [len].into_iter().chain(units).flat_map(u16::to_be_bytes).collect()
}

/// Returns an HFSPlusCatalogFolder after its key.
fn root_record() -> Vec<u8> {
    let mut folder = Bytes::of(88, Order::Big);
    folder.u16(0, FOLDER);
    folder.u32(8, ROOT);
    // createDate, contentModDate, attributeModDate, accessDate.
    [12, 16, 20, 24].into_iter().for_each(|at| folder.u32(at, DATE));
    // HFSPlusBSDInfo.fileMode; without it Linux uses a default.
    folder.u16(42, 0o40755);
    [key(ROOT_PARENT, NAME), folder.into_vec()].concat()
}

/// Returns an HFSPlusCatalogThread after its key.
fn root_thread() -> Vec<u8> {
    let kind = [FOLDER_THREAD.to_be_bytes(), [0; 2]].concat();
    [key(ROOT, ""), kind, ROOT_PARENT.to_be_bytes().to_vec(), text(NAME)].concat()
}

impl Tree {
    fn bytes(&self) -> usize {
        self.node * usize::try_from(self.nodes).expect("few")
    }

    /// Writes the header node, and a leaf if there are records.
    fn write(&self, image: &mut Bytes, at: usize) {
        let leaves = u32::from(!self.leaf.is_empty());
        // The bits of the nodes in use fill the rest of the node.
        let mut map = vec![0; self.node - DESCRIPTOR - 106 - 128 - 4 * 2];
        map[0] = if leaves > 0 { 0xc0 } else { 0x80 };
        image.put(at, &self.node(HEADER_NODE, 0, &[self.header(leaves), vec![0; 128], map]));
        if leaves > 0 {
            image.put(at + self.node, &self.node(LEAF_NODE, 1, &self.leaf));
        }
    }

    /// Returns a BTHeaderRec.
    fn header(&self, leaves: u32) -> Vec<u8> {
        let mut header = Bytes::of(106, Order::Big);
        // treeDepth, rootNode, leafRecords, firstLeafNode, lastLeafNode.
        header.u16(0, u16::from(leaves > 0));
        header.u32(2, leaves);
        header.u32(6, self.leaf.len());
        header.u32(10, leaves);
        header.u32(14, leaves);
        header.u16(18, self.node);
        header.u16(20, self.key_max);
        // totalNodes, freeNodes.
        header.u32(22, self.nodes);
        header.u32(26, self.nodes - 1 - leaves);
        // clumpSize, keyCompareType, attributes.
        header.u32(32, self.bytes());
        header.u8(37, self.compare);
        header.u32(38, self.attributes);
        header.into_vec()
    }

    /// Returns a node: BTNodeDescriptor, records, and at the end the offsets of the records and of the free space.
    fn node(&self, kind: i8, height: u8, records: &[Vec<u8>]) -> Vec<u8> {
        let mut node = Bytes::of(self.node, Order::Big);
        node.put(8, &kind.to_be_bytes());
        node.u8(9, height);
        node.u16(10, records.len());
        let (mut at, mut tail) = (DESCRIPTOR, self.node - 2);
        for record in records {
            node.u16(tail, at);
            node.put(at, record);
            (at, tail) = (at + record.len(), tail - 2);
        }
        node.u16(tail, at);
        node.into_vec()
    }
}
