//! Writing a draft to its device.
//!
//! Order: the caller erases old signatures, so that no volume is recognised; everything except the super blocks; a
//! flush; the super block's backups; a flush; the primary super block. A crash therefore leaves no volume or a complete
//! one. If the device reads as zeros, only nonzero blocks are written; otherwise also blocks that must be zero.
//! Source: e2fsprogs `lib/ext2fs/closefs.c` `ext2fs_flush2`, `lib/ext2fs/rw_bitmaps.c`; `misc/mke2fs.c`
//! `write_inode_tables`, `zap_sector`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result as BaseResult;
use obento_base::wire::{IntoBytes, to_u64, to_usize};
use obento_block::BlockDevice;
use obento_driver::{Contents, FormatError};

use super::draft::{Draft, zeroed};
use super::output::Output;
use crate::allocator::{BitmapKind, bitmap_checksum, bits, encode_descriptor, fresh_inode_bitmap};
use crate::checksum::inode_seed;
use crate::feature::Incompat;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::inode::seal_record;
use crate::raw::RawSuperBlock;
use crate::super_block::PRIMARY_OFFSET;
use crate::writer::{backup_super_block, seal_super_block};

/// Writes the contents of a volume beyond those of every volume.
pub(crate) type More<'a> = &'a mut dyn FnMut(&Draft, &mut Output<'_>) -> Result<(), FormatError>;

/// The previous contents of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PriorContents {
    /// The whole device reads as zeros.
    Clean,
    /// The device may have any contents.
    Dirty,
}

impl Draft {
    /// Writes the volume, and `more` after the first inodes. After an error, no volume is recognised on `device`.
    /// Fails if the device fails.
    pub fn write(
        &mut self,
        device: &dyn BlockDevice,
        contents: Contents,
        journal: Option<&dyn BlockDevice>,
        lazy: bool,
        more: More<'_>,
    ) -> Result<(), FormatError> {
        let mut output = Output::new(device)?;
        let written = self.write_all(&mut output, contents, lazy, more).and_then(|()| match journal {
            Some(journal) => self.join_journal(journal),
            None => Ok(()),
        });
        let sealed = written.and_then(|()| self.write_super_blocks(&mut output));
        if sealed.is_err() {
            // The first error is reported, not that of the erasure.
            let _ = self.wipe_super_blocks(&mut Output::new(device)?);
        }
        sealed
    }

    fn write_all(
        &mut self,
        output: &mut Output<'_>,
        contents: Contents,
        lazy: bool,
        more: More<'_>,
    ) -> Result<(), FormatError> {
        let ground = self.prepare(output, contents)?;
        if ground == PriorContents::Dirty {
            self.zero_what_must_be(output, lazy)?;
        }
        if ground == PriorContents::Clean || !lazy {
            self.groups.iter_mut().for_each(|group| group.flags.insert(GroupFlags::INODE_ZEROED));
        }
        self.write_kept_blocks(output, ground)?;
        self.write_blocks(output)?;
        self.write_inodes(output)?;
        more(self, output)?;
        let descriptors = self.write_bitmaps(output)?;
        self.write_descriptors(output, &descriptors)?;
        Ok(output.flush()?)
    }

    /// Erases the super blocks of a previous volume, whose signatures at both ends of the device are erased already.
    /// Returns the state of the rest.
    fn prepare(&self, output: &mut Output<'_>, contents: Contents) -> Result<PriorContents, FormatError> {
        let len = self.sb.volume_len();
        if contents == Contents::Zeros {
            return Ok(PriorContents::Clean);
        }
        if contents == Contents::Unknown && output.punch(0..len)? {
            return Ok(PriorContents::Clean);
        }
        self.wipe_super_blocks(output)?;
        Ok(PriorContents::Dirty)
    }

    /// Erases the super block and its backups, in case the device contained a volume of this shape.
    fn wipe_super_blocks(&self, output: &mut Output<'_>) -> BaseResult<()> {
        let len = to_u64(size_of::<RawSuperBlock>());
        let copies = self.copies().into_iter().map(|group| self.byte_of(self.sb.group_start(group).0));
        for at in core::iter::once(PRIMARY_OFFSET).chain(copies) {
            output.zero(at..at + len)?;
        }
        output.flush()
    }

    fn byte_of(&self, block: u64) -> u64 {
        self.sb.block_size.len(block)
    }

    fn bytes_of(&self, start: u64, len: u64) -> Range<u64> {
        self.byte_of(start)..self.byte_of(start + len)
    }

    /// Zeroes the inode tables, except parts that the descriptors mark as unused, and the journal.
    fn zero_what_must_be(&self, output: &mut Output<'_>, lazy: bool) -> Result<(), FormatError> {
        let per_block = self.sb.inodes_per_block();
        for group in &self.groups {
            let unused = if lazy { group.itable_unused } else { 0 };
            let used = (self.sb.inodes_per_group - unused).div_ceil(per_block);
            output.zero(self.bytes_of(group.inode_table.0, used.into()))?;
        }
        for &(start, len) in &self.zeros {
            output.zero(self.bytes_of(start, len))?;
        }
        Ok(())
    }

    fn write_kept_blocks(&self, output: &mut Output<'_>, ground: PriorContents) -> Result<(), FormatError> {
        let mut block = self.zeroed()?;
        self.each_kept_block(|number, names| {
            if names.is_empty() && ground == PriorContents::Clean {
                return Ok(());
            }
            block.iter_mut().zip(names).for_each(|(to, from)| *to = *from);
            Ok(output.write(self.byte_of(number), &block)?)
        })
    }

    fn write_blocks(&self, output: &mut Output<'_>) -> Result<(), FormatError> {
        self.blocks.iter().try_for_each(|(&number, bytes)| Ok(output.write(self.byte_of(number), bytes)?))
    }

    /// Returns the place of an inode's record: the byte offset of its block on the device, and the offset in the
    /// block.
    pub fn record_place(&self, ino: u32) -> (u64, usize) {
        let (group, index) = self.place_of(ino);
        let (at, start) = self.sb.inode_place(index);
        let table = self.groups.get(to_usize(group.into())).map_or(0, |group| group.inode_table.0);
        (self.byte_of(table + u64::from(at)), to_usize(start.into()))
    }

    /// Writes the inode table blocks with inodes.
    fn write_inodes(&self, output: &mut Output<'_>) -> Result<(), FormatError> {
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (&ino, record) in &self.inodes {
            let (byte, start) = self.record_place(ino);
            let block = self.sb.block_size.whole(byte);
            let bytes = match blocks.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.zeroed()?),
            };
            if let Some(target) = bytes.get_mut(start..start + record.len()) {
                target.copy_from_slice(record);
                if self.sb.has_metadata_csum() {
                    seal_record(target, inode_seed(self.sb.checksum_seed, ino, 0));
                }
            }
        }
        blocks.iter().try_for_each(|(&block, bytes)| Ok(output.write(self.byte_of(block), bytes)?))
    }

    /// Writes the bitmaps that cannot be computed from the descriptors, and returns the blocks of descriptors.
    fn write_bitmaps(&self, output: &mut Output<'_>) -> Result<Vec<u8>, FormatError> {
        let len = to_u64(self.block_len()) * u64::from(self.sb.desc_blocks());
        let mut descriptors = zeroed(to_usize(len))?;
        let has_flags = self.sb.checksums != crate::super_block::Checksums::None;
        for (index, group) in (0..).zip(&self.groups) {
            let is_written = |flag| !has_flags || !group.flags.contains(flag);
            let mut sums = [None, None];
            if is_written(GroupFlags::BLOCK_UNINIT) {
                let bitmap = self.block_bitmap(index)?;
                output.write(self.byte_of(group.block_bitmap.0), &bitmap)?;
                sums[0] = bitmap_checksum(&self.sb, BitmapKind::Blocks, &bitmap);
            }
            if is_written(GroupFlags::INODE_UNINIT) {
                let bitmap = self.inode_bitmap(group)?;
                output.write(self.byte_of(group.inode_bitmap.0), &bitmap)?;
                sums[1] = bitmap_checksum(&self.sb, BitmapKind::Inodes, &bitmap);
            }
            let (block, start) = self.sb.desc_place(index);
            let start = to_u64(start) + self.byte_of(block.into());
            let range = to_usize(start)..to_usize(start + u64::from(self.sb.desc_size));
            if let Some(bytes) = descriptors.get_mut(range) {
                group.encode_places(bytes);
                encode_descriptor(&self.sb, index, group, sums, bytes);
            }
        }
        Ok(descriptors)
    }

    fn block_bitmap(&self, index: u32) -> Result<Vec<u8>, FormatError> {
        let mut bitmap = self.zeroed()?;
        for run in self.space.taken_in(self.sb.group_blocks(index)) {
            let len = run.end - run.start;
            let clusters = self.sb.clusters_in_group(index, crate::unit::VolBlock(run.start), len);
            bits::set(&mut bitmap, clusters);
        }
        bits::set(&mut bitmap, self.sb.group_clusters(index)..self.sb.block_size.bits());
        Ok(bitmap)
    }

    /// Returns the inode bitmap of a group. Inodes are allocated from the first on, without gaps.
    fn inode_bitmap(&self, group: &GroupDescriptor) -> Result<Vec<u8>, FormatError> {
        let mut bitmap = fresh_inode_bitmap(&self.sb)?;
        let taken = self.sb.inodes_per_group - group.free_inodes;
        bits::set(&mut bitmap, 0..taken);
        Ok(bitmap)
    }

    fn write_descriptors(&self, output: &mut Output<'_>, descriptors: &[u8]) -> Result<(), FormatError> {
        let len = self.block_len();
        if !self.sb.incompat.contains(Incompat::META_BG) {
            for group in core::iter::once(0).chain(self.copies()) {
                output.write(self.byte_of(self.sb.desc_block(0, group).0), descriptors)?;
            }
            return Ok(());
        }
        for (index, block) in (0..).zip(descriptors.chunks(len.max(1))) {
            for home in self.sb.desc_homes(index) {
                output.write(self.byte_of(home.0), block)?;
            }
        }
        Ok(())
    }

    /// Writes the backups, and then the primary super block.
    fn write_super_blocks(&mut self, output: &mut Output<'_>) -> Result<(), FormatError> {
        let raw = &mut self.sb.raw;
        if raw.s_kbytes_written.get() > 0 {
            let written = output.written() >> 10;
            raw.s_kbytes_written.set(raw.s_kbytes_written.get() + written);
        }
        for group in self.copies() {
            let raw = backup_super_block(&self.sb, group);
            output.write(self.byte_of(self.sb.group_start(group).0), raw.as_bytes())?;
        }
        output.flush()?;
        let mut raw = *self.sb.raw;
        seal_super_block(&self.sb, &mut raw);
        output.write(PRIMARY_OFFSET, raw.as_bytes())?;
        Ok(output.flush()?)
    }
}
