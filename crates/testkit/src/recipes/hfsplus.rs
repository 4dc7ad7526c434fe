//! An empty HFS+.
//!
//! Layout: blocks of 4 KiB. In the first the volume header, then the bitmap of blocks, the trees of extents, of the catalog and of
//! attributes; in the last the copy of the header, 1024 bytes before the end. Numbers are big-endian.
//!
//! Invariant: the catalog has the record of the root folder and its thread, by which Linux finds an inode by its number.
//! Invariant: a clump of data is a block, so that no file takes more than its bytes do.
//! Invariant: the volume is marked as unmounted, or Linux only reads it.
//!
//! Source: Apple, Technical Note TN1150, "HFS Plus Volume Format"; what Linux asks of it, fs/hfsplus/{super,btree,wrapper}.c.

use super::put;

const BLOCK: usize = 4096;
/// "Volume Header": where it is, and its copy from the end.
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
/// 2020-01-01, in seconds since 1904.
const DATE: u32 = 2_082_844_800 + 1_577_836_800;
const NAME: &str = "empty";

/// A tree as it begins.
struct Tree {
    node: usize,
    nodes: u32,
    key_max: u16,
    attributes: u32,
    compare: u8,
    leaf: Vec<Vec<u8>>,
}

/// A volume of so many bytes, whole blocks.
pub fn empty(len: usize) -> Vec<u8> {
    let mut image = vec![0; len];
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
        // A node has room for the longest attribute that Linux keeps, of 3802 bytes.
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
        tree.write(&mut image[next * BLOCK..][..tree.bytes()]);
        forks.push(fork(next, blocks));
        next += blocks;
    }
    let last = len / BLOCK - 1;
    for block in (0..next).chain([last]) {
        image[BLOCK + block / 8] |= 0x80 >> (block % 8);
    }
    let header = volume_header(last + 1, last - next, &forks);
    put(&mut image, HEADER, &header);
    put(&mut image, len - HEADER, &header);
    image
}

/// HFSPlusVolumeHeader.
fn volume_header(blocks: usize, free: usize, forks: &[Vec<u8>]) -> Vec<u8> {
    let mut header = vec![0; 512];
    put(&mut header, 0, b"H+\0\x04");
    put(&mut header, 4, &UNMOUNTED.to_be_bytes());
    // lastMountedVersion: of Mac OS X.
    put(&mut header, 8, b"10.0");
    // createDate, modifyDate, checkedDate.
    [16, 20, 28].into_iter().for_each(|at| put(&mut header, at, &DATE.to_be_bytes()));
    // blockSize, totalBlocks, freeBlocks.
    put(&mut header, 40, &number(BLOCK));
    put(&mut header, 44, &number(blocks));
    put(&mut header, 48, &number(free));
    // rsrcClumpSize, dataClumpSize.
    put(&mut header, 56, &number(BLOCK));
    put(&mut header, 60, &number(BLOCK));
    put(&mut header, 64, &FIRST_USER.to_be_bytes());
    // encodingsBitmap: MacRoman.
    put(&mut header, 72, &1_u64.to_be_bytes());
    put(&mut header, 112, &forks.concat());
    header
}

/// HFSPlusForkData of one extent; what grows does so by as much again.
fn fork(start: usize, blocks: usize) -> Vec<u8> {
    let mut fork = vec![0; FORK];
    put(&mut fork, 4, &number(blocks * BLOCK));
    put(&mut fork, 8, &number(blocks * BLOCK));
    put(&mut fork, 12, &number(blocks));
    put(&mut fork, 16, &number(start));
    put(&mut fork, 20, &number(blocks));
    fork
}

/// HFSPlusCatalogKey.
fn key(parent: u32, name: &str) -> Vec<u8> {
    let name = text(name);
    let len = u16::try_from(4 + name.len()).expect("it is short");
    [&len.to_be_bytes()[..], &parent.to_be_bytes(), &name].concat()
}

/// HFSUniStr255.
fn text(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let len = u16::try_from(units.len()).expect("it is short");
    [len].into_iter().chain(units).flat_map(u16::to_be_bytes).collect()
}

/// HFSPlusCatalogFolder, behind its key.
fn root_record() -> Vec<u8> {
    let mut folder = vec![0; 88];
    put(&mut folder, 0, &FOLDER.to_be_bytes());
    put(&mut folder, 8, &ROOT.to_be_bytes());
    // createDate, contentModDate, attributeModDate, accessDate.
    [12, 16, 20, 24].into_iter().for_each(|at| put(&mut folder, at, &DATE.to_be_bytes()));
    // HFSPlusBSDInfo.fileMode; without one Linux makes up another.
    put(&mut folder, 42, &0o40755_u16.to_be_bytes());
    [key(ROOT_PARENT, NAME), folder].concat()
}

/// HFSPlusCatalogThread, behind its key.
fn root_thread() -> Vec<u8> {
    let kind = [FOLDER_THREAD.to_be_bytes(), [0; 2]].concat();
    [key(ROOT, ""), kind, ROOT_PARENT.to_be_bytes().to_vec(), text(NAME)].concat()
}

impl Tree {
    fn bytes(&self) -> usize {
        self.node * usize::try_from(self.nodes).expect("few")
    }

    /// The header node, and a leaf where there are records.
    fn write(&self, place: &mut [u8]) {
        let leaves = u32::from(!self.leaf.is_empty());
        // Bits of the nodes that are in use; as long as what is left of the node.
        let mut map = vec![0; self.node - DESCRIPTOR - 106 - 128 - 4 * 2];
        map[0] = if leaves > 0 { 0xc0 } else { 0x80 };
        put(place, 0, &self.node(HEADER_NODE, 0, &[self.header(leaves), vec![0; 128], map]));
        if leaves > 0 {
            put(place, self.node, &self.node(LEAF_NODE, 1, &self.leaf));
        }
    }

    /// BTHeaderRec.
    fn header(&self, leaves: u32) -> Vec<u8> {
        let mut header = vec![0; 106];
        // treeDepth, rootNode, leafRecords, firstLeafNode, lastLeafNode.
        put(&mut header, 0, &u16::from(leaves > 0).to_be_bytes());
        put(&mut header, 2, &leaves.to_be_bytes());
        put(&mut header, 6, &number(self.leaf.len()));
        put(&mut header, 10, &leaves.to_be_bytes());
        put(&mut header, 14, &leaves.to_be_bytes());
        put(&mut header, 18, &u16::try_from(self.node).expect("at most 32 KiB").to_be_bytes());
        put(&mut header, 20, &self.key_max.to_be_bytes());
        // totalNodes, freeNodes.
        put(&mut header, 22, &self.nodes.to_be_bytes());
        put(&mut header, 26, &(self.nodes - 1 - leaves).to_be_bytes());
        // clumpSize, keyCompareType, attributes.
        put(&mut header, 32, &number(self.bytes()));
        put(&mut header, 37, &[self.compare]);
        put(&mut header, 38, &self.attributes.to_be_bytes());
        header
    }

    /// BTNodeDescriptor, records, and from the end on where each begins and what is free.
    fn node(&self, kind: i8, height: u8, records: &[Vec<u8>]) -> Vec<u8> {
        let mut node = vec![0; self.node];
        put(&mut node, 8, &kind.to_be_bytes());
        put(&mut node, 9, &[height]);
        put(&mut node, 10, &u16::try_from(records.len()).expect("few").to_be_bytes());
        let (mut at, mut tail) = (DESCRIPTOR, self.node - 2);
        for record in records {
            put(&mut node, tail, &u16::try_from(at).expect("within the node").to_be_bytes());
            put(&mut node, at, record);
            (at, tail) = (at + record.len(), tail - 2);
        }
        put(&mut node, tail, &u16::try_from(at).expect("within the node").to_be_bytes());
        node
    }
}

fn number(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("a small volume").to_be_bytes()
}
