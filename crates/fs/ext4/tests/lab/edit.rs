//! Changing one structure by the names of the format.

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout};
use obento_ext4::raw::{
    RawDirEntry, RawDxCountLimit, RawDxEntry, RawDxRootInfo, RawExtent, RawExtentHeader, RawExtentIndex,
    RawGroup32, RawInode, RawInodeExtra, RawSuperBlock, RawXattrEntry, RawXattrHeader,
};

use super::disk::{Bits, Disk, I_BLOCK};

const HEADER: usize = size_of::<RawExtentHeader>();
/// `struct dx_root_info` in an index's first block, after `.` and `..`.
const DX_ROOT: usize = 0x18;

impl Disk {
    /// Changes a structure without correcting its checksum.
    pub fn edit_raw<T>(&mut self, at: usize, change: impl FnOnce(&mut T))
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable,
    {
        let mut value: T = self.read(at);
        change(&mut value);
        self.write(at, &value);
    }

    pub fn edit_super_block(&mut self, change: impl FnOnce(&mut RawSuperBlock)) {
        self.edit_raw(1024, change);
        self.seal_super_block();
    }

    pub fn edit_group(&mut self, group: u32, change: impl FnOnce(&mut RawGroup32)) {
        self.edit_raw(self.group_at(group), change);
        self.seal_group(group);
    }

    /// Sets the bit of a block or an inode.
    pub fn edit_bit(&mut self, bits: Bits, number: u32, used: bool) {
        let (group, at, mask) = self.bit_at(bits, number);
        self.bytes[at] = if used { self.bytes[at] | mask } else { self.bytes[at] & !mask };
        self.seal_bitmap(bits, group);
    }

    pub fn edit_inode(&mut self, path: &str, change: impl FnOnce(&mut RawInode)) {
        let ino = self.ino(path);
        self.edit_raw(self.inode_at(ino), change);
        self.seal_inode(ino);
    }

    pub fn edit_extra(&mut self, path: &str, change: impl FnOnce(&mut RawInodeExtra)) {
        let ino = self.ino(path);
        self.edit_raw(self.inode_at(ino) + 128, change);
        self.seal_inode(ino);
    }

    /// Changes the header of the extent tree node to which the steps of `node` lead.
    pub fn edit_extent_header(
        &mut self,
        path: &str,
        node: &[usize],
        change: impl FnOnce(&mut RawExtentHeader),
    ) {
        let ino = self.ino(path);
        let at = self.node_at(ino, node);
        self.edit_raw(at, change);
        self.seal_extent_node(ino, at);
    }

    /// Changes entry `n` of that node, which is a leaf.
    pub fn edit_extent(&mut self, path: &str, node: &[usize], n: usize, change: impl FnOnce(&mut RawExtent)) {
        let ino = self.ino(path);
        let at = self.node_at(ino, node);
        self.edit_raw(at + HEADER * (1 + n), change);
        self.seal_extent_node(ino, at);
    }

    /// Changes entry `n` of that node, which is an inner node.
    pub fn edit_extent_index(
        &mut self,
        path: &str,
        node: &[usize],
        n: usize,
        change: impl FnOnce(&mut RawExtentIndex),
    ) {
        let ino = self.ino(path);
        let at = self.node_at(ino, node);
        self.edit_raw(at + HEADER * (1 + n), change);
        self.seal_extent_node(ino, at);
    }

    /// Changes block number `n` in `i_block` of a file without extents.
    pub fn edit_pointer(&mut self, path: &str, n: usize, to: u32) {
        let ino = self.ino(path);
        self.put(self.inode_at(ino) + I_BLOCK + n * 4, &to.to_le_bytes());
        self.seal_inode(ino);
    }

    /// Changes the record of `name` in the directory `dir`.
    pub fn edit_entry(&mut self, dir: &str, name: &str, change: impl FnOnce(&mut RawDirEntry)) {
        let dir = self.ino(dir);
        let at = self.entry_at(dir, name);
        self.edit_raw(at, change);
        self.seal_entries(dir, at);
    }

    /// Overwrites the name `name` by another one that is not longer.
    pub fn rename_entry(&mut self, dir: &str, name: &str, to: &[u8]) {
        let dir = self.ino(dir);
        let at = self.entry_at(dir, name);
        self.edit_raw(at, |record: &mut RawDirEntry| record.name_len = to.len() as u8);
        self.put(at + 8, to);
        self.seal_entries(dir, at);
    }

    /// Returns the place of count and limit of an index node: of the root, or of a block of the directory below it.
    pub fn index_table(&self, dir: u32, block: u32) -> usize {
        let at = self.range(self.file_block(dir, block)).start;
        if block > 0 {
            return at + 8;
        }
        let info: RawDxRootInfo = self.read(at + DX_ROOT);
        at + DX_ROOT + usize::from(info.info_length)
    }

    pub fn edit_index_info(&mut self, dir: &str, change: impl FnOnce(&mut RawDxRootInfo)) {
        let dir = self.ino(dir);
        let table = self.index_table(dir, 0);
        self.edit_raw(table - size_of::<RawDxRootInfo>(), change);
        self.seal_index(dir, table);
    }

    pub fn edit_index_bounds(&mut self, dir: &str, block: u32, change: impl FnOnce(&mut RawDxCountLimit)) {
        let dir = self.ino(dir);
        let table = self.index_table(dir, block);
        self.edit_raw(table, change);
        self.seal_index(dir, table);
    }

    pub fn edit_index_entry(
        &mut self,
        dir: &str,
        block: u32,
        n: usize,
        change: impl FnOnce(&mut RawDxEntry),
    ) {
        let dir = self.ino(dir);
        let table = self.index_table(dir, block);
        self.edit_raw(table + n * size_of::<RawDxEntry>(), change);
        self.seal_index(dir, table);
    }

    pub fn xattr_block(&self, path: &str) -> u32 {
        self.inode_of(self.ino(path)).i_file_acl_lo.get()
    }

    pub fn edit_xattr_header(&mut self, path: &str, change: impl FnOnce(&mut RawXattrHeader)) {
        let block = self.xattr_block(path);
        self.edit_raw(self.range(block).start, change);
        self.seal_xattr_block(block);
    }

    /// Changes the first attribute in a file's block of attributes.
    pub fn edit_block_xattr(&mut self, path: &str, change: impl FnOnce(&mut RawXattrEntry)) {
        let block = self.xattr_block(path);
        self.edit_raw(self.range(block).start + size_of::<RawXattrHeader>(), change);
        self.seal_xattr_block(block);
    }

    /// Changes the first attribute in an inode.
    pub fn edit_inode_xattr(&mut self, path: &str, change: impl FnOnce(&mut RawXattrEntry)) {
        let ino = self.ino(path);
        self.edit_raw(self.inline_xattrs_at(ino) + 4, change);
        self.seal_inode(ino);
    }
}
