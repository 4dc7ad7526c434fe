//! A VxFS volume of UnixWare, version 2, with the contents of a tree. It has only the structures that Linux reads: no
//! log, no maps of free space, and no checksums.
//!
//! Layout, in blocks of 1024 bytes, little-endian. Block 1 contains the super block, and block 2 the object location
//! table (OLT), which refers to the list of structural inodes. One of them contains the headers of the two filesets,
//! the structural one and the tree; each header names the inode of its inode list. Each file has one extent, and a link
//! is stored in its inode.
//!
//! Source: Linux 6.1, fs/freevxfs/*.h, vxfs_olt.c, vxfs_fshead.c, vxfs_bmap.c and vxfs_lookup.c.

use std::path::Path;

use super::bytes::{Bytes, Order};
use super::nodes::{Node, links, nodes};

const BLOCK: usize = 1024;
const TABLE: usize = 2;
/// The list of structural inodes.
const OWN: usize = 3;
const OWN_BLOCKS: usize = 2;
/// Two headers, a block each.
const HEADERS: usize = OWN + OWN_BLOCKS;
const FIRST: usize = HEADERS + 2;
/// The structural inodes: of the headers, of their own list, and of the list of the tree.
const HEADERS_INO: usize = 3;
const OWN_INO: usize = 4;
const TREE_INO: usize = 5;
/// `VXFS_ISIZE`.
const INODE: usize = 0x100;
/// `VXFS_ROOT_INO`.
const ROOT: usize = 2;
/// `VXFS_NIMMED`.
const IMMEDIATE: usize = 96;
/// `VXFS_IFFSH` and `VXFS_IFILT`: the types of structural inodes.
const HEADER_FILE: u32 = 0x1000_0000;
const INODE_LIST: u32 = 0x2000_0000;
/// `struct vxfs_olt` and its entries.
const TABLE_HEAD: usize = 56;
const TABLE_ENTRY: usize = 16;

/// Returns the volume.
pub(super) fn filled(tree: &Path) -> Vec<u8> {
    let nodes = nodes(tree);
    let mut volume = Bytes::new(Order::Little);
    let list = (ROOT + nodes.len()) * INODE;
    volume.extend_to((FIRST + list.div_ceil(BLOCK)) * BLOCK);
    for (at, node) in nodes.iter().enumerate() {
        let inode = FIRST * BLOCK + (ROOT + at) * INODE;
        describe(&mut volume, inode, node, links(&nodes, at));
        if node.is_link() {
            immediate(&mut volume, inode, &node.bytes);
            continue;
        }
        let folder = node.is_folder().then(|| folder(&nodes, at));
        let bytes = folder.as_ref().unwrap_or(&node.bytes);
        let start = volume.append(bytes, BLOCK);
        extent(&mut volume, inode, start, bytes.len());
        if node.is_folder() {
            volume.u32(inode + 56, ROOT + node.parent); // vdi_dotdot
        }
    }
    let files = [
        (HEADERS_INO, HEADER_FILE, HEADERS, 2 * BLOCK),
        (OWN_INO, INODE_LIST, OWN, OWN_BLOCKS * BLOCK),
        (TREE_INO, INODE_LIST, FIRST, list),
    ];
    for (ino, kind, start, len) in files {
        let inode = OWN * BLOCK + ino * INODE;
        volume.u32(inode, kind); // vdi_mode
        volume.u32(inode + 4, 1); // vdi_nlink
        extent(&mut volume, inode, start, len);
    }
    // fsdb_vxfs(1M) calls the filesets with these numbers the structural and the unnamed one.
    header(&mut volume, HEADERS, [1, OWN_BLOCKS * BLOCK / INODE, OWN_INO]);
    header(&mut volume, HEADERS + 1, [999, ROOT + nodes.len(), TREE_INO]);
    table(&mut volume);
    super_block(&mut volume);
    volume.into_vec()
}

/// Writes a `struct vxfs_dinode` without the position of the file.
fn describe(volume: &mut Bytes, inode: usize, node: &Node, links: usize) {
    volume.u32(inode, node.mode); // vdi_mode
    volume.u32(inode + 4, links); // vdi_nlink
    volume.u32(inode + 8, node.uid); // vdi_uid
    volume.u32(inode + 12, node.gid); // vdi_gid
    for time in [24, 32, 40] {
        volume.u32(inode + time, node.mtime); // vdi_atime, vdi_mtime, vdi_ctime
    }
}

/// `struct vxfs_immed`.
fn immediate(volume: &mut Bytes, inode: usize, bytes: &[u8]) {
    assert!(bytes.len() < IMMEDIATE, "a link of {} bytes", bytes.len());
    volume.u64(inode + 16, bytes.len()); // vdi_size
    volume.u8(inode + 49, 2); // vdi_orgtype: `VXFS_ORG_IMMED`
    volume.put(inode + 80, bytes);
}

/// `struct vxfs_ext4`.
fn extent(volume: &mut Bytes, inode: usize, start: usize, len: usize) {
    let blocks = len.div_ceil(BLOCK);
    volume.u64(inode + 16, len); // vdi_size
    volume.u8(inode + 49, 1); // vdi_orgtype: `VXFS_ORG_EXT4`
    volume.u32(inode + 64, blocks); // vdi_blocks
    volume.u32(inode + 96, start); // ve4_direct
    volume.u32(inode + 100, blocks);
}

/// Returns blocks with a `struct vxfs_dirblk` without a hash, and a `struct vxfs_direct` for each name; the last one
/// takes the rest of the block. The entries `.` and `..` do not exist.
fn folder(nodes: &[Node], at: usize) -> Vec<u8> {
    let mut bytes = Bytes::new(Order::Little);
    bytes.extend_to(BLOCK);
    let (mut last, mut end) = (None, 4);
    for child in &nodes[at].children {
        let name = &nodes[*child].name;
        let len = (10 + name.len()).next_multiple_of(4);
        if end % BLOCK + len > BLOCK || end % BLOCK == 0 {
            end = close(&mut bytes, last, end) + 4;
        }
        bytes.u32(end, ROOT + child); // d_ino
        bytes.u16(end + 4, len); // d_reclen
        bytes.u16(end + 6, name.len()); // d_namelen
        bytes.put(end + 10, name); // d_name
        (last, end) = (Some(end), end + len);
    }
    let end = close(&mut bytes, last, end);
    bytes.extend_to(end);
    bytes.into_vec()
}

/// Extends the last entry of a block to the end of the block. Returns the position of the next block.
fn close(bytes: &mut Bytes, last: Option<usize>, end: usize) -> usize {
    let next = end.next_multiple_of(BLOCK);
    if let Some(last) = last {
        bytes.u16(last + 4, next - last); // d_reclen
    }
    bytes.u16(next - BLOCK, next - end); // d_free
    next
}

/// Writes a `struct vxfs_fsh`: its number, the number of its inodes, and the inode of their list.
fn header(volume: &mut Bytes, block: usize, [index, inodes, list]: [usize; 3]) {
    let at = block * BLOCK;
    volume.u32(at, 1); // fsh_version
    volume.u32(at + 4, index); // fsh_fsindex
    volume.u32(at + 20, inodes); // fsh_ninodes
    volume.u32(at + 40, inodes); // fsh_maxinode
    volume.u32(at + 48, list); // fsh_ilistino
}

/// `struct vxfs_olt`, `struct vxfs_oltfshead`, `struct vxfs_oltilist` and, for the rest, `struct vxfs_oltfree`.
fn table(volume: &mut Bytes) {
    let at = TABLE * BLOCK;
    volume.u32(at, 0xa504_fcf5_u32); // olt_magic
    volume.u32(at + 4, TABLE_HEAD); // olt_size
    volume.u32(at + 28, TABLE); // olt_extents
    volume.u32(at + 36, 1); // olt_esize
    let free = BLOCK - TABLE_HEAD - 2 * TABLE_ENTRY;
    volume.u32(at + 24, free); // olt_totfree
    let entries = [(2, TABLE_ENTRY, HEADERS_INO), (4, TABLE_ENTRY, OWN), (1, free, 0)];
    let mut entry = at + TABLE_HEAD;
    for (kind, len, what) in entries {
        volume.u32(entry, kind); // olt_type
        volume.u32(entry + 4, len); // olt_size
        volume.u32(entry + 8, what); // olt_fsino, olt_iext
        entry += len;
    }
}

/// `struct vxfs_sb`.
fn super_block(volume: &mut Bytes) {
    let (at, blocks) = (BLOCK, volume.len() / BLOCK);
    volume.u32(at, 0xa501_fcf5_u32); // vs_magic
    volume.u32(at + 4, 2); // vs_version
    volume.u32(at + 32, BLOCK); // vs_bsize
    volume.u32(at + 36, blocks); // vs_size
    volume.u32(at + 40, blocks - FIRST); // vs_dsize
    volume.u32(at + 64, IMMEDIATE); // vs_immedlen
    volume.u32(at + 68, 10); // vs_ndaddr: `VXFS_NDADDR`
    volume.u32(at + 148, BLOCK / INODE); // vs_inopb
    volume.u32(at + 168, BLOCK.ilog2()); // vs_bshift
    volume.u32(at + 172, (BLOCK / INODE).ilog2()); // vs_inoshift
    volume.u32(at + 176, u32::MAX << BLOCK.ilog2()); // vs_bmask
    volume.u32(at + 180, BLOCK - 1); // vs_boffmask
    volume.u32(at + 368, TABLE); // vs_oltext
    volume.u32(at + 376, 1); // vs_oltsize
    volume.u32(at + 388, INODE); // vs_dinosize
}
