//! Small files with inline data: written in the inode while the data fits, and moved to a block otherwise.
//!
//! Invariant: an inode with inline data has the attribute `system.data`, which is empty if all data is in `i_block`.
//! Source: Linux `fs/ext4/inline.c` `ext4_write_inline_data`, `ext4_convert_inline_data_nolock`,
//! `ext4_inline_data_truncate`.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};

use crate::inode::{Inode, InodeFlags};
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::ExtentState;
use crate::unit::VolBlock;
use crate::writer::{InodeEdit, InodeGuard, InodeWrite, Writer, cost};
use crate::xattr::{inline_rest_max, with_inline_rest};

/// Size of `i_block`.
const HEAD: usize = 60;

impl Writer {
    /// Returns the maximum number of bytes in the inode.
    pub(super) fn inline_max(&self, inode: &Inode) -> Result<u64> {
        let rest = inline_rest_max(inode)?.unwrap_or(0);
        Ok(to_u64(HEAD.saturating_add(rest)))
    }

    /// Writes `bytes`, which fit, at `offset`.
    pub(super) fn write_inline(&self, inode: InodeWrite<'_>, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(to_u64(bytes.len()));
        let mut data = self.inline_bytes(&inode, end)?;
        let target = to_usize(offset)..to_usize(end);
        if let Some(target) = data.get_mut(target) {
            target.copy_from_slice(bytes);
        }
        self.store_inline(inode, &data, end.max(inode.size()))
    }

    /// Sets the size of a file with inline data.
    pub(super) fn truncate_inline(&self, inode: &mut InodeGuard<'_>, size: u64) -> Result<()> {
        if size > self.inline_max(inode)? {
            self.move_out(inode)?;
            return self.set_size(inode.view(), size);
        }
        let mut data = self.inline_bytes(inode, size)?;
        data.truncate(to_usize(size));
        self.store_inline(inode.view(), &data, size)
    }

    /// Returns the data of the file, at least up to `end`.
    fn inline_bytes(&self, inode: &Inode, end: u64) -> Result<Vec<u8>> {
        let inline = self.volume().inline_data(inode)?;
        let len = inline.len(inode);
        let mut data = Vec::new();
        data.try_reserve_exact(to_usize(len.max(end)))?;
        data.resize(to_usize(len), 0);
        inline.copy(inode, 0, &mut data);
        data.resize(to_usize(len.max(end)), 0);
        Ok(data)
    }

    fn store_inline(&self, inode: InodeWrite<'_>, data: &[u8], size: u64) -> Result<()> {
        let (head, rest) = data.split_at_checked(HEAD).unwrap_or((data, &[]));
        let attributes = with_inline_rest(&inode, Some(rest))?;
        let mut txn = self.begin(cost::INODE)?;
        let mut edit = self.edit_inode(&mut txn, inode)?;
        let mut block = [0; HEAD];
        block.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
        *edit.i_block_mut() = block;
        replace(edit.xattr_bytes_mut(), &attributes);
        edit.set_size(size);
        edit.touch_data(self.now());
        self.store_inode(&mut txn, &edit);
        txn.commit();
        Ok(())
    }

    /// Moves inline data to a block.
    pub(super) fn without_inline(&self, inode: &mut InodeGuard<'_>) -> Result<()> {
        if inode.has(InodeFlags::INLINE_DATA) { self.move_out(inode) } else { Ok(()) }
    }

    /// Moves the data from the inode to a block; the contents of the file do not change.
    fn move_out(&self, inode: &mut InodeGuard<'_>) -> Result<()> {
        self.move_to_block(inode.view()).inspect_err(|_| self.give_back(inode.ino(), &(0..1)))?;
        self.refresh(inode)
    }

    fn move_to_block(&self, inode: InodeWrite<'_>) -> Result<()> {
        let data = self.inline_bytes(&inode, 0)?;
        let attributes = with_inline_rest(&inode, None)?;
        let blocks: Range<u64> = 0..u64::from(!data.is_empty());
        let mut txn = self.begin(cost::INODE + cost::APPEND)?;
        let mut edit = self.edit_inode(&mut txn, inode)?;
        self.make_bare(&mut edit, &attributes);
        // The inode without its data, as it is before the block is mapped.
        let bare = edit.inode()?;
        let nodes = Nodes { volume: self.volume(), inode: &bare };
        let mut map = FileMap::new(&nodes)?;
        let (mut gained, mut journalled) = (Vec::new(), None);
        if !blocks.is_empty() {
            let hole = 0..map.end();
            let place = self.reservation(&bare, &mut map, &hole, 1)?.place;
            if self.is_journalled(&inode) {
                journalled = Some(txn.take_new(place.0)?);
            } else {
                // Before the inode refers to the block.
                self.write_block(place, &data)?;
            }
            let (new, runs) = self.filled(&bare, &mut map, &blocks, ExtentState::Written)?;
            map.splice(blocks.clone(), &new, &mut Vec::new())?;
            gained = runs;
        }
        let change = self.plan_change(&bare, map, gained, Vec::new())?;
        self.apply_change(&mut txn, &mut edit, change)?;
        if let Some(taken) = journalled {
            replace(&mut txn.edit(&taken), &data);
        }
        edit.touch(self.now());
        self.store_inode(&mut txn, &edit);
        txn.commit();
        self.end_holding(inode.ino(), &self.whole_clusters(&blocks));
        Ok(())
    }

    fn write_block(&self, place: VolBlock, data: &[u8]) -> Result<()> {
        let mut block = Vec::new();
        let len = to_usize(self.block_bytes());
        block.try_reserve_exact(len)?;
        block.extend_from_slice(data.get(..data.len().min(len)).unwrap_or(data));
        block.resize(len, 0);
        let offset = place.0.saturating_mul(self.block_bytes());
        self.volume().device().write_at(offset, &block)
    }

    /// Turns `edit` into an inode that maps nothing, with `attributes` after its fields.
    fn make_bare(&self, edit: &mut InodeEdit, attributes: &[u8]) {
        edit.remove_flags(InodeFlags::INLINE_DATA);
        *edit.i_block_mut() = [0; HEAD];
        self.start_extents(edit);
        replace(edit.xattr_bytes_mut(), attributes);
    }

    /// Returns whether `ino` has inline data and could contain `end` bytes, for a test before a write.
    pub(super) fn fits_inline(&self, inode: &Inode, end: u64) -> Result<bool> {
        Ok(inode.has(InodeFlags::INLINE_DATA) && end <= self.inline_max(inode)?)
    }
}

fn replace(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}
