//! The inode that owns the reserved descriptor blocks, so that the volume can grow while it is mounted.
//!
//! On disk: a doubly indirect block refers to the reserved blocks after the primary descriptors. Each of these is
//! used as an indirect block and refers to those at the same place after the backups.
//! Source: e2fsprogs `lib/ext2fs/res_gdt.c`; Linux `fs/ext4/resize.c` `verify_reserved_gdb`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, le, to_usize};
use obento_driver::FormatError;

use super::draft::Draft;
use super::inodes::{NewInode, PRIVATE_FILE, RESIZE_INO};
use crate::feature::Compat;
use crate::inode::InodeFlags;

/// Index of the doubly indirect block in `i_block`.
const DOUBLY: usize = 13;

impl Draft {
    /// Creates the inode, if requested. Fails with `TooSmall`.
    pub fn make_resize_inode(&mut self) -> Result<(), FormatError> {
        let kept = u64::from(self.sb.raw.s_reserved_gdt_blocks.get());
        if !self.sb.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        if self.resize_inode_size() > u32::MAX.into() {
            self.set_large_file();
        }
        let copies = self.copies();
        let first = u64::from(self.sb.desc_blocks());
        let goal =
            u64::from(self.sb.first_data_block) + 2 + first + kept + u64::from(self.sb.inode_table_blocks());
        let own = self.allocate(goal)?;
        let mut numbers = self.zeroed()?;
        for at in first..first + kept {
            let place = to_usize(self.sb.block_size.inside(at * 4).into());
            let number = u32::try_from(self.kept_block(at)).unwrap_or(0);
            if let Some(entry) = numbers.get_mut(place..place + 4) {
                entry.copy_from_slice(&number.to_le_bytes());
            }
        }
        self.blocks.insert(own, numbers);
        let each = u64::try_from(copies.len()).unwrap_or(0) + 1;
        let blocks = kept * each + 1;
        let mut i_block = [0; 60];
        if let Some(entry) = i_block.chunks_exact_mut(4).nth(DOUBLY) {
            entry.copy_from_slice(&u32::try_from(own).unwrap_or(0).to_le_bytes());
        }
        self.add_inode(&NewInode {
            ino: RESIZE_INO,
            mode: PRIVATE_FILE,
            owner: (0, 0),
            links: 1,
            size: self.resize_inode_size(),
            blocks: self.sb.cluster.len(blocks),
            flags: InodeFlags::empty(),
            i_block,
        })
    }

    /// Returns the number of bytes that direct, indirect and doubly indirect blocks map.
    fn resize_inode_size(&self) -> u64 {
        let per_block = u64::from(self.sb.block_size.pointers());
        let blocks = per_block * per_block + per_block + 12;
        self.sb.block_size.len(blocks)
    }

    /// Returns the groups with backups.
    pub fn copies(&self) -> Vec<u32> {
        (1..self.sb.groups).filter(|&group| self.sb.has_copy(group)).collect()
    }

    /// Returns descriptor block `at`, counted over existing and reserved ones.
    fn kept_block(&self, at: u64) -> u64 {
        self.sb.desc_block(0, 0).0 + at
    }

    /// Passes each reserved block that is an indirect block, and its contents, to `write`.
    pub fn each_kept_block(
        &self,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        if !self.sb.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let copies = self.copies();
        let first = u64::from(self.sb.desc_blocks());
        let kept = u64::from(self.sb.raw.s_reserved_gdt_blocks.get());
        let mut names: Vec<le::U32> = Vec::new();
        for at in first..first + kept {
            let number = self.kept_block(at);
            names.clear();
            names.extend(copies.iter().map(|&group| {
                let shift = u64::from(group) * u64::from(self.sb.blocks_per_group);
                le::U32::new(u32::try_from(number + shift).unwrap_or(0))
            }));
            write(number, names.as_bytes())?;
        }
        Ok(())
    }
}
