//! Correcting checksums after a change. On a volume without `metadata_csum` these functions do nothing.
//!
//! Source: Documentation/filesystems/ext4/checksums.rst; e2fsprogs lib/ext2fs/csum.c.

use obento_base::crc::{crc16, crc32c};
use obento_ext4::raw::{
    RawDirTail, RawDxCountLimit, RawDxEntry, RawDxTail, RawExtentHeader, RawInode, RawInodeExtra,
    RawSuperBlock,
};

use super::disk::{Bits, Disk};

const TAIL: usize = size_of::<RawDirTail>();
const GDT_CSUM: u32 = 0x10;

impl Disk {
    /// Returns the seed for the structures of an inode.
    pub fn inode_seed(&self, ino: u32) -> u32 {
        self.inode_seed_at(ino, self.inode_at(ino))
    }

    /// Returns the seed for the inode whose record is at byte `at`.
    pub(super) fn inode_seed_at(&self, ino: u32, at: usize) -> u32 {
        let generation = self.read::<RawInode>(at).i_generation.get();
        crc32c(crc32c(self.seed, &ino.to_le_bytes()), &generation.to_le_bytes())
    }

    pub fn seal_super_block(&mut self) {
        if self.checked {
            let sum = crc32c(!0, &self.bytes[1024..1024 + 0x3fc]);
            self.edit_raw(1024, |sb: &mut RawSuperBlock| sb.s_checksum = sum.into());
        }
    }

    pub fn seal_group(&mut self, group: u32) {
        const CHECKSUM: usize = 0x1e;
        let (at, number) = (self.group_at(group), group.to_le_bytes());
        let (before, after) = (at..at + CHECKSUM, at + CHECKSUM + 2..at + self.desc);
        let sum = if self.checked {
            let head = crc32c(crc32c(self.seed, &number), &self.bytes[before]);
            crc32c(crc32c(head, &[0; 2]), &self.bytes[after]) as u16
        } else if self.super_block().s_feature_ro_compat.get() & GDT_CSUM != 0 {
            let head = crc16(crc16(!0, &self.super_block().s_uuid), &number);
            crc16(crc16(head, &self.bytes[before]), &self.bytes[after])
        } else {
            return;
        };
        self.put(at + CHECKSUM, &sum.to_le_bytes());
    }

    /// Corrects the checksum of a bitmap, which is in the descriptor.
    pub fn seal_bitmap(&mut self, bits: Bits, group: u32) {
        if !self.checked {
            return;
        }
        let (len, low, high) = match bits {
            Bits::Blocks => (self.clusters_per_group / 8, 0x18, 0x38),
            Bits::Inodes => (self.inodes_per_group / 8, 0x1a, 0x3a),
        };
        let (at, from) = (self.group_at(group), self.bitmap_at(bits, group));
        let sum = crc32c(self.seed, &self.bytes[from..from + len as usize]).to_le_bytes();
        self.put(at + low, &sum[..2]);
        if self.desc >= 64 {
            self.put(at + high, &sum[2..]);
        }
        self.seal_group(group);
    }

    pub fn seal_inode(&mut self, ino: u32) {
        self.seal_inode_at(ino, self.inode_at(ino));
    }

    pub(super) fn seal_inode_at(&mut self, ino: u32, at: usize) {
        if !self.checked {
            return;
        }
        let (low, high) = (0x7c, 0x82);
        let whole = self.inode_size > 128 && self.read::<RawInodeExtra>(at + 128).i_extra_isize.get() >= 4;
        let mut bytes = self.bytes[at..at + self.inode_size].to_vec();
        bytes[low..low + 2].fill(0);
        if whole {
            bytes[high..high + 2].fill(0);
        }
        let sum = crc32c(self.inode_seed_at(ino, at), &bytes).to_le_bytes();
        self.put(at + low, &sum[..2]);
        if whole {
            self.put(at + high, &sum[2..]);
        }
    }

    /// Corrects the checksum of an extent tree node that fills a block. The inode's checksum covers the root.
    pub fn seal_extent_node(&mut self, ino: u32, at: usize) {
        let root = self.inode_at(ino)..self.inode_at(ino) + size_of::<RawInode>();
        if root.contains(&at) {
            self.seal_inode(ino);
        } else if self.checked {
            self.seal_node_with(self.inode_seed(ino), at);
        }
    }

    /// Corrects the checksum of a node that fills a block, unless its header leaves no space for it.
    pub(super) fn seal_node_with(&mut self, seed: u32, at: usize) {
        let max = usize::from(self.read::<RawExtentHeader>(at).eh_max.get());
        let tail = at + size_of::<RawExtentHeader>() * (1 + max);
        if tail + size_of::<u32>() <= at + self.block {
            let sum = crc32c(seed, &self.bytes[at..tail]);
            self.put(tail, &sum.to_le_bytes());
        }
    }

    /// Corrects the checksum of a block of directory entries, or of the inode that contains them.
    pub fn seal_entries(&mut self, dir: u32, at: usize) {
        let inode = self.inode_at(dir);
        if (inode..inode + self.inode_size).contains(&at) {
            self.seal_inode(dir);
        } else if self.checked {
            self.seal_leaf_with(self.inode_seed(dir), at - at % self.block);
        }
    }

    pub(super) fn seal_leaf_with(&mut self, seed: u32, block: usize) {
        let tail = block + self.block - TAIL;
        let sum = crc32c(seed, &self.bytes[block..tail]);
        self.edit_raw(tail, |tail: &mut RawDirTail| tail.det_checksum = sum.into());
    }

    /// Corrects the checksum of a node of a directory index, whose count and limit are at `table`.
    pub fn seal_index(&mut self, dir: u32, table: usize) {
        if self.checked {
            self.seal_index_with(self.inode_seed(dir), table);
        }
    }

    pub(super) fn seal_index_with(&mut self, seed: u32, table: usize) {
        let block = table - table % self.block;
        let bounds: RawDxCountLimit = self.read(table);
        let entry = size_of::<RawDxEntry>();
        let used = table + usize::from(bounds.count.get()) * entry;
        let tail = table + usize::from(bounds.limit.get()) * entry;
        if used > tail || tail + size_of::<RawDxTail>() > block + self.block {
            return;
        }
        let head = crc32c(seed, &self.bytes[block..used]);
        let sum = crc32c(crc32c(head, &self.bytes[tail..tail + 4]), &[0; 4]);
        self.edit_raw(tail, |tail: &mut RawDxTail| tail.dt_checksum = sum.into());
    }

    /// Corrects the checksum of a block of attributes.
    pub fn seal_xattr_block(&mut self, block: u32) {
        const CHECKSUM: usize = 0x10;
        if self.checked {
            let range = self.range(block);
            let start = range.start;
            let mut bytes = self.bytes[range].to_vec();
            bytes[CHECKSUM..CHECKSUM + 4].fill(0);
            let sum = crc32c(crc32c(self.seed, &u64::from(block).to_le_bytes()), &bytes);
            self.put(start + CHECKSUM, &sum.to_le_bytes());
        }
    }

    /// Corrects the checksum of the block of the multiple mount protection.
    pub fn seal_mmp(&mut self, block: u32) {
        const CHECKSUM: usize = 1020;
        if self.checked {
            let at = self.range(block).start;
            let sum = crc32c(self.seed, &self.bytes[at..at + CHECKSUM]);
            self.put(at + CHECKSUM, &sum.to_le_bytes());
        }
    }
}
