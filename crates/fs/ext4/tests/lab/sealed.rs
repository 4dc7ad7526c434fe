//! Correcting all checksums of a volume.

use obento_base::crc::crc32c;
use obento_ext4::raw::RawDirEntry;

use super::disk::{Bits, Disk, EXTENTS_FL};
use super::harm::{INDEX_FL, Places};

impl Disk {
    /// Corrects every checksum at the places of the structures of `sound`, also where other bytes were changed.
    pub fn seal_all(&mut self, sound: &Disk) {
        let places = Places::of(sound);
        for &ino in &places.inodes {
            let at = sound.inode_at(ino);
            self.seal_inode_at(ino, at);
            match sound.inode_of(ino).i_file_acl_lo.get() {
                0 => {}
                block => self.seal_xattr_block(block),
            }
        }
        if self.checked {
            for &(dir, number, block) in &places.directories {
                self.seal_dir_block(sound, dir, number, block);
            }
            for &(ino, block) in &places.trees {
                if sound.inode_of(ino).i_flags.get() & EXTENTS_FL != 0 {
                    let seed = self.inode_seed_at(ino, sound.inode_at(ino));
                    self.seal_node_with(seed, sound.range(block).start);
                }
            }
        }
        for group in 0..sound.groups() {
            self.seal_group_of(sound, group);
        }
        self.seal_super_block();
    }

    fn seal_dir_block(&mut self, sound: &Disk, dir: u32, number: u32, block: u32) {
        let (seed, at) = (self.inode_seed_at(dir, sound.inode_at(dir)), sound.range(block).start);
        let head: RawDirEntry = sound.read(at);
        let is_node = head.inode.get() == 0 && usize::from(head.rec_len.get()) == sound.block;
        let is_indexed = sound.inode_of(dir).i_flags.get() & INDEX_FL != 0;
        match number {
            0 if is_indexed => self.seal_index_with(seed, at + 32),
            _ if is_indexed && is_node => self.seal_index_with(seed, at + 8),
            _ => self.seal_leaf_with(seed, at),
        }
    }

    /// Corrects the checksums of the bitmaps and the descriptor of a group.
    fn seal_group_of(&mut self, sound: &Disk, group: u32) {
        if self.checked {
            for (bits, len, low, high) in [
                (Bits::Blocks, self.clusters_per_group / 8, 0x18, 0x38),
                (Bits::Inodes, self.inodes_per_group / 8, 0x1a, 0x3a),
            ] {
                let (at, from) = (self.group_at(group), sound.bitmap_at(bits, group));
                let sum = crc32c(self.seed, &self.bytes[from..from + len as usize]).to_le_bytes();
                self.put(at + low, &sum[..2]);
                if self.desc >= 64 {
                    self.put(at + high, &sum[2..]);
                }
            }
        }
        self.seal_group(group);
    }
}
