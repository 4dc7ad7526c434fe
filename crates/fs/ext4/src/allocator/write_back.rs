//! The state in memory that a commit writes: the inode bitmaps and descriptors of changed groups, with the checksums
//! of their bitmaps.

use obento_base::Result;
use obento_journal::Txn;

use super::Allocator;
use super::group::{BitmapKind, bitmap_checksum, encode_descriptor};

impl Allocator {
    /// Writes the descriptors of all changed groups to `txn`, which no other thread has joined. Returns whether there
    /// were any.
    pub fn write_back(&self, txn: &mut Txn<'_>) -> Result<bool> {
        let dirty = core::mem::take(&mut *self.dirty.lock());
        for index in dirty.iter().filter_map(|&index| u32::try_from(index).ok()) {
            self.write_descriptor(txn, index)?;
        }
        Ok(!dirty.is_empty())
    }

    fn write_descriptor(&self, txn: &mut Txn<'_>, index: u32) -> Result<()> {
        let sb = self.super_block();
        let mut group = self.group(index)?.lock();
        if let Some(bitmap) = group.changed_inodes.take() {
            bitmap.store(txn);
        }
        let descriptor = group.descriptor;
        let mut sums = [None, None];
        if sb.has_metadata_csum() {
            // The checksum of an uninitialised bitmap is not used.
            if !group.has_fresh_blocks(sb) {
                let bitmap = txn.get(descriptor.block_bitmap.0)?;
                sums[0] = bitmap_checksum(sb, BitmapKind::Blocks, &bitmap);
            }
            if !group.has_fresh_inodes(sb) {
                let bitmap = txn.get(descriptor.inode_bitmap.0)?;
                sums[1] = bitmap_checksum(sb, BitmapKind::Inodes, &bitmap);
            }
        }
        let (at, start) = sb.desc_place(index);
        let taken = txn.take(sb.desc_block(at, 0).0)?;
        let mut block = txn.edit(&taken);
        let end = start.saturating_add(sb.desc_size.into());
        if let Some(bytes) = block.get_mut(start..end) {
            encode_descriptor(sb, index, &descriptor, sums, bytes);
        }
        Ok(())
    }
}
