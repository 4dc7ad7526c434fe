//! Growing a volume.
//!
//! Order: the new groups, which the old volume does not use; a flush; then, as one transaction of the journal, the
//! primary descriptors, the bitmaps of old groups, the resize inode, the super block and its first backups; then the
//! other copies in old groups. Without a journal, the volume is marked as having errors until the super block is written, so that a check
//! follows an interruption.
//! Invariant: nothing of the old volume changes before the transaction.
//! Source: e2fsprogs `resize/resize2fs.c`; Linux `fs/ext4/resize.c`.
#![allow(clippy::arithmetic_side_effects, reason = "the groups and their structures are in the grown volume")]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{IntoBytes, to_usize};
use obento_block::{BlockDevice, Overlay};
use obento_driver::{CheckOptions, ResizeObserver, ResizeRefusal, ResizeResult};

use super::old::OldGroups;
use super::place::NewGroups;
use super::table::DescriptorTable;
use crate::allocator::{BitmapKind, bitmap_checksum, fresh_inode_bitmap};
use crate::check::commit_growth;
use crate::feature::Incompat;
use crate::format::{Output, time_halves};
use crate::group::{GroupDescriptor, GroupFlags, Totals};
use crate::super_block::{Checksums, PRIMARY_OFFSET, SuperBlock};
use crate::writer::{backup_super_block, seal_super_block, set_counts};

/// Maximum number of backups of the super block that change in the transaction.
const BACKUPS: usize = 32;

/// A volume that grows.
pub(super) struct GrowingVolume<'a> {
    device: &'a Arc<dyn BlockDevice>,
    old: SuperBlock,
    new: SuperBlock,
    table: DescriptorTable,
}

impl<'a> GrowingVolume<'a> {
    /// Reads the descriptors of the volume, which grows from `old` to `new`.
    pub(super) fn open(
        device: &'a Arc<dyn BlockDevice>,
        old: SuperBlock,
        new: SuperBlock,
    ) -> ResizeResult<Self> {
        let table = DescriptorTable::read(&**device, &old, &new)?;
        Ok(Self { device, old, new, table })
    }

    /// Grows the volume.
    ///
    /// # Errors
    ///
    /// - `Refused`: the tables of a new group do not fit. Nothing of the volume was changed.
    /// - `Failed`: the volume is damaged, or the device failed.
    pub(super) fn run(&mut self, options: &CheckOptions, observer: ResizeObserver<'_>) -> ResizeResult<()> {
        let mut old = OldGroups {
            device: &**self.device,
            old: &self.old,
            new: &self.new,
            table: &mut self.table,
            bitmaps: alloc::collections::BTreeMap::new(),
        };
        old.change()?;
        let bitmaps = old.bitmaps;
        let mut output = Output::new(&**self.device)?;
        self.write_groups(&mut output, observer)?;
        self.finish_super_block(options)?;
        self.write_copies(&mut output, Side::New)?;
        output.flush()?;

        let copy = Arc::new(Overlay::new(Arc::clone(self.device)));
        for (group, bitmap) in bitmaps {
            let block = self.table.get(&self.new, group)?.block_bitmap.0;
            copy.write_at(self.byte_of(block), &bitmap)?;
        }
        for (index, block) in self.table.changed() {
            let home = self.new.desc_block(index, 0).0;
            if self.is_old(home) {
                copy.write_at(self.byte_of(home), block)?;
            }
        }
        copy.write_at(PRIMARY_OFFSET, self.new.raw.as_bytes())?;
        // A check restores the layout that all of the first backups have, so that they change with the primary one.
        let backups = (1..self.old.groups).filter(|&group| self.new.has_copy(group)).take(BACKUPS);
        for group in backups {
            let start = self.new.group_start(group).0;
            copy.write_at(self.byte_of(start), backup_super_block(&self.new, group).as_bytes())?;
        }
        commit_growth(self.device, options, &copy, self.changes_resize_inode())?;

        self.write_copies(&mut output, Side::Old)?;
        Ok(output.flush()?)
    }

    /// Writes the bitmaps and inode tables of the new groups, and sets their descriptors.
    fn write_groups(&mut self, output: &mut Output<'_>, observer: ResizeObserver<'_>) -> ResizeResult<()> {
        let total = u64::from(self.new.groups - self.old.groups);
        let mut next = self.old.groups;
        while next < self.new.groups {
            let mut groups = NewGroups::place(&self.new, next)?.ok_or(ResizeRefusal::NoRoom)?;
            let is_zero = self.clear_tables(output, &groups.descriptors)?;
            for index in next..groups.end() {
                let inside = to_usize((index - next).into());
                let Some(descriptor) = groups.descriptors.get_mut(inside) else { continue };
                if is_zero && self.new.checksums != Checksums::None {
                    descriptor.flags.insert(GroupFlags::INODE_ZEROED);
                }
                let descriptor = *descriptor;
                self.write_group(output, &groups, index, &descriptor)?;
            }
            next = groups.end();
            observer((next - self.old.groups).into(), total);
        }
        Ok(())
    }

    fn write_group(
        &mut self,
        output: &mut Output<'_>,
        groups: &NewGroups,
        group: u32,
        descriptor: &GroupDescriptor,
    ) -> ResizeResult<()> {
        let mut sums = [None, None];
        if !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bitmap = groups.block_bitmap(&self.new, group)?;
            output.write(self.byte_of(descriptor.block_bitmap.0), &bitmap)?;
            sums[0] = bitmap_checksum(&self.new, BitmapKind::Blocks, &bitmap);
        }
        if !descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            let bitmap = fresh_inode_bitmap(&self.new)?;
            output.write(self.byte_of(descriptor.inode_bitmap.0), &bitmap)?;
            sums[1] = bitmap_checksum(&self.new, BitmapKind::Inodes, &bitmap);
        }
        self.table.set(&self.new, group, descriptor, sums);
        Ok(())
    }

    /// Zeroes the inode tables, unless the descriptors mark them as unused. Returns whether all tables are zeros.
    fn clear_tables(&self, output: &mut Output<'_>, groups: &[GroupDescriptor]) -> ResizeResult<bool> {
        let len = u64::from(self.new.inode_table_blocks());
        let mut is_zero = true;
        let mut at = groups.iter().map(|group| group.inode_table.0).peekable();
        while let Some(start) = at.next() {
            let mut end = start + len;
            while at.next_if_eq(&end).is_some() {
                end += len;
            }
            let range = self.bytes_of(start..end);
            let bytes = range.end - range.start;
            if self.device.known_zeros(range.clone()) >= bytes {
                continue;
            }
            if self.new.checksums != Checksums::None {
                is_zero = false;
            } else if !output.punch(range.clone())? {
                output.zero(range)?;
            }
        }
        Ok(is_zero)
    }

    /// Sets the counts and the times of the super block.
    fn finish_super_block(&mut self, options: &CheckOptions) -> ResizeResult<()> {
        let mut counts = Totals::default();
        for group in 0..self.new.groups {
            let descriptor = self.table.get(&self.new, group)?;
            counts.free_blocks += u64::from(descriptor.free_blocks);
            counts.free_inodes += u64::from(descriptor.free_inodes);
        }
        let mut raw = *self.new.raw;
        set_counts(&self.new, &mut raw, counts);
        let (low, high) = time_halves(options.clock.now());
        raw.s_wtime.set(low);
        raw.s_wtime_hi = high;
        seal_super_block(&self.new, &mut raw);
        *self.new.raw = raw;
        Ok(())
    }

    /// Writes the backups of the super block, and the copies of the descriptors except the primary ones of the old
    /// volume, that are on one side of the end of the old volume.
    fn write_copies(&self, output: &mut Output<'_>, side: Side) -> ResizeResult<()> {
        let sb = &self.new;
        let is_on_side = |block: u64| self.is_old(block) == (side == Side::Old);
        let has_copy = |group: &u32| sb.has_copy(*group) && is_on_side(sb.group_start(*group).0);
        let plain =
            if sb.incompat.contains(Incompat::META_BG) { sb.raw.s_first_meta_bg.get() } else { u32::MAX };
        for group in (1..sb.groups).filter(has_copy) {
            let start = sb.group_start(group).0;
            output.write(self.byte_of(start), backup_super_block(sb, group).as_bytes())?;
            if !sb.has_plain_copies(group) {
                continue;
            }
            for (index, block) in self.table.blocks().take_while(|(index, _)| *index < plain) {
                output.write(self.byte_of(sb.desc_block(index, group).0), block)?;
            }
        }
        let meta: Vec<(u32, &[u8])> = match side {
            Side::Old => self.table.changed().filter(|(index, _)| *index >= plain).collect(),
            Side::New => self.table.blocks().filter(|(index, _)| *index >= plain).collect(),
        };
        for (index, block) in meta {
            let homes = sb.desc_homes(index).into_iter().map(|home| home.0);
            let is_written = |&(at, home): &(usize, u64)| is_on_side(home) && (at > 0 || side == Side::New);
            for (_, home) in homes.enumerate().filter(is_written) {
                output.write(self.byte_of(home), block)?;
            }
        }
        Ok(())
    }

    /// Returns whether the resize inode refers to other blocks than before.
    fn changes_resize_inode(&self) -> bool {
        use crate::feature::Compat;
        self.old.compat.contains(Compat::RESIZE_INODE) && self.old.groups != self.new.groups
    }

    /// Returns whether a block belongs to the old volume.
    fn is_old(&self, block: u64) -> bool {
        block < self.old.blocks_count
    }

    fn byte_of(&self, block: u64) -> u64 {
        self.new.block_size.len(block)
    }

    fn bytes_of(&self, blocks: Range<u64>) -> Range<u64> {
        self.byte_of(blocks.start)..self.byte_of(blocks.end)
    }
}

/// A part of the grown volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// The blocks of the old volume.
    Old,
    /// The added blocks.
    New,
}
