//! Moving inodes to other numbers.
//!
//! The number of an inode is in the entries that refer to it (its names, its `.`, and the `..` of its subdirectories),
//! and in the checksums of its record, of the nodes of its tree, and of its directory blocks.
//! Invariant: one transaction changes all of these.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, to_u64, to_usize};
use obento_driver::ResizeResult;

use super::super::bitmaps::RepairedBitmap;
use super::super::edits::Edits;
use super::super::names::{HEAD, RecordHome};
use super::super::volume::halves;
use super::plan::ShrinkPlan;
use super::scan::{OwnedMap, Owners, at};
use super::{JournalUse, PAGE, Shrinking};
use crate::allocator::{bits, fresh_inode_bitmap};
use crate::dir::record_len;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::raw::RawDirEntry;
use crate::unit::VolBlock;

/// A block of a directory: the number of the directory, and the block.
type DirBlock = (u32, u64);

/// The directory blocks that contain the numbers of inodes.
#[derive(Default)]
pub(super) struct NumberPlaces {
    /// The blocks that name an inode.
    pub names: BTreeMap<u32, Vec<DirBlock>>,
    /// The blocks of a directory, whose checksums contain its number.
    pub contents: BTreeMap<u32, Vec<DirBlock>>,
}

impl NumberPlaces {
    /// Finds the blocks that contain the numbers of the inodes that get new ones.
    ///
    /// # Errors
    ///
    /// `Failed`: a directory is damaged, or the device failed.
    pub(super) fn find(edits: &Edits, owners: &Owners, numbers: &BTreeMap<u32, u32>) -> ResizeResult<Self> {
        let (mut this, volume) = (Self::default(), edits.bare_volume());
        let size = edits.view.sb.block_size;
        // Directory, first block, number of blocks.
        let mut runs: Vec<(u32, u64, u64)> = Vec::new();
        for dir in owners.files.iter().filter(|owner| owner.is_dir) {
            match &dir.map {
                OwnedMap::Empty => {}
                OwnedMap::Extents { extents, .. } => {
                    let end = dir.size.div_ceil(size.into());
                    for extent in extents.iter().filter(|extent| !extent.is_unwritten) {
                        let inside = end.saturating_sub(extent.at.into()).min(extent.len.into());
                        runs.push((dir.ino, extent.start, inside));
                    }
                }
                OwnedMap::Pointers(_) => {
                    let blocks = edits.dir_blocks_in(&volume, dir.ino)?;
                    runs.extend(blocks.into_iter().map(|block| (dir.ino, block.0, 1)));
                }
            }
        }
        // In the order of their places.
        runs.sort_unstable_by_key(|&(_, start, _)| start);
        let mut bytes = Vec::new();
        for (dir, start, len) in runs {
            edits.view.read_into(VolBlock(start), len, &mut bytes)?;
            for (block, bytes) in (start..).zip(bytes.chunks_exact_mut(to_usize(size.into()))) {
                this.add_block((dir, block), bytes, numbers);
            }
        }
        Ok(this)
    }

    fn add_block(&mut self, block: DirBlock, bytes: &mut [u8], numbers: &BTreeMap<u32, u32>) {
        if numbers.contains_key(&block.0) {
            self.contents.entry(block.0).or_default().push(block);
        }
        each_record(bytes, |raw| {
            let ino = raw.inode.get();
            if numbers.contains_key(&ino) {
                let blocks = self.names.entry(ino).or_default();
                if blocks.last() != Some(&block) {
                    blocks.push(block);
                }
            }
        });
    }

    /// Returns the number of bytes in memory that change with the number of an inode. `size` is the block size.
    pub(super) fn changed_bytes(&self, ino: u32, size: u64) -> u64 {
        let of = |places: &BTreeMap<u32, Vec<DirBlock>>| places.get(&ino).cloned().unwrap_or_default();
        let blocks = of(&self.names).into_iter().chain(of(&self.contents)).map(|(_, block)| block);
        let unit = size.max(PAGE);
        let units: BTreeSet<u64> =
            blocks.filter_map(|block| block.saturating_mul(size).checked_div(unit)).collect();
        to_u64(units.len()).saturating_mul(unit)
    }
}

/// Passes each record of a directory block to `edit`, up to an invalid one.
fn each_record(bytes: &mut [u8], mut edit: impl FnMut(&mut RawDirEntry)) {
    let (mut at, size) = (0_usize, u32::try_from(bytes.len()).unwrap_or(0));
    loop {
        let room = bytes.len().saturating_sub(at);
        let rest = bytes.get_mut(at..).unwrap_or_default();
        let Ok((raw, _)) = RawDirEntry::mut_from_prefix(rest) else { return };
        let len = to_usize(record_len(raw.rec_len.get(), size).into());
        if len < HEAD || len > room {
            return;
        }
        edit(raw);
        at = at.saturating_add(len);
    }
}

impl Shrinking<'_> {
    /// Gives all inodes of the plan their new numbers.
    pub(super) fn move_inodes(&mut self, plan: &ShrinkPlan) -> ResizeResult<()> {
        if plan.inodes.is_empty() {
            return Ok(());
        }
        let places = &plan.places;
        let home = plan.homes();
        let (mut moved, mut blocks) = (BTreeMap::new(), BTreeSet::new());
        for (&from, &to) in &plan.inodes {
            self.move_inode(from, to)?;
            moved.insert(from, to);
            let old = [&places.names, &places.contents]
                .into_iter()
                .filter_map(|places| places.get(&from))
                .flatten();
            blocks.extend(old.map(|&(dir, block)| (dir, home(block))));
            if self.is_due(blocks.len()) {
                self.renumber(core::mem::take(&mut blocks), &moved)?;
                self.commit(JournalUse::Available)?;
            }
        }
        self.renumber(blocks, &moved)?;
        self.commit(JournalUse::Available)
    }

    fn move_inode(&mut self, from: u32, to: u32) -> ResizeResult<()> {
        let owner = self.owners.file(from);
        let is_dir = owner.is_some_and(|owner| owner.is_dir);
        let has_nodes = owner
            .is_some_and(|owner| matches!(&owner.map, OwnedMap::Extents { nodes, .. } if !nodes.is_empty()));
        self.claim_number(to, is_dir)?;
        let record = self.edits.record(from)?;
        self.edits.edit_record(to, |new| new.copy_from_slice(&record))?;
        self.edits.edit_record(from, |old| old.fill(0))?;
        self.release_number(from, is_dir);
        if has_nodes {
            // Nodes below the root are written with the checksum of the new number.
            self.edits.change_nodes(to, &mut |node, _, _| node != 0)?;
        }
        Ok(())
    }

    /// Replaces numbers in the entries of directory blocks, and updates the checksums of the blocks.
    fn renumber(&mut self, blocks: BTreeSet<DirBlock>, moved: &BTreeMap<u32, u32>) -> ResizeResult<()> {
        for (dir, block) in blocks {
            // Directories that moved have their new numbers.
            let dir = moved.get(&dir).copied().unwrap_or(dir);
            self.edits.edit_home(dir, RecordHome::Block(VolBlock(block)), |bytes| {
                each_record(bytes, |raw| {
                    if let Some(&to) = moved.get(&raw.inode.get()) {
                        raw.inode.set(to);
                    }
                });
            })?;
        }
        Ok(())
    }

    /// Marks a number as in use.
    fn claim_number(&mut self, ino: u32, is_dir: bool) -> ResizeResult<()> {
        let (group, index) = self.place_of(ino);
        let mut known = *self.edits.view.group(group);
        let is_sealed = self.edits.view.has_descriptor_sums();
        if is_sealed && known.flags.contains(GroupFlags::INODE_UNINIT) {
            known.flags.remove(GroupFlags::INODE_UNINIT);
            known.itable_unused = self.edits.view.sb.inodes_per_group;
        }
        known.free_inodes = known.free_inodes.saturating_sub(1);
        known.used_dirs = known.used_dirs.saturating_add(u32::from(is_dir));
        if is_sealed {
            let after = self.edits.view.sb.inodes_per_group.saturating_sub(index).saturating_sub(1);
            known.itable_unused = known.itable_unused.min(after);
        }
        if let Some(bitmap) = self.owners.inodes.get_mut(at(group)) {
            if bitmap.is_empty() {
                *bitmap = fresh_inode_bitmap(&self.edits.view.sb)?;
            }
            bits::set(bitmap, index..index.saturating_add(1));
        }
        self.note_group(group, known);
        Ok(())
    }

    fn release_number(&mut self, ino: u32, is_dir: bool) {
        let (group, index) = self.place_of(ino);
        let mut known = *self.edits.view.group(group);
        known.free_inodes = known.free_inodes.saturating_add(1);
        known.used_dirs = known.used_dirs.saturating_sub(u32::from(is_dir));
        if let Some(bitmap) = self.owners.inodes.get_mut(at(group)) {
            bits::clear(bitmap, index..index.saturating_add(1));
        }
        self.note_group(group, known);
    }

    fn note_group(&mut self, group: u32, known: GroupDescriptor) {
        if let Some(place) = self.edits.view.groups.get_mut(at(group)) {
            *place = known;
            self.changed_inodes.insert(group);
        }
    }

    /// Writes the changed inode bitmaps, the counts of inodes and the flags of their groups to the copy.
    pub(super) fn write_inode_bitmaps(&mut self) -> ResizeResult<()> {
        for group in core::mem::take(&mut self.changed_inodes) {
            let known = *self.edits.view.group(group);
            if let Some(bitmap) = self.owners.inodes.get(at(group)) {
                self.edits.put(known.inode_bitmap, bitmap)?;
            }
            self.edits.set_free_inodes(group, known.free_inodes.into())?;
            self.edits.set_directories(group, known.used_dirs.into())?;
            self.edits.descriptor(group, |low, high| {
                let (low_half, high_half) = halves(known.itable_unused.into());
                low.bg_itable_unused_lo.set(low_half);
                low.bg_flags.set(known.flags.bits());
                if let Some(high) = high {
                    high.bg_itable_unused_hi.set(high_half);
                }
            })?;
            self.edits.seal_bitmap(RepairedBitmap::Inodes, group)?;
        }
        Ok(())
    }

    fn place_of(&self, ino: u32) -> (u32, u32) {
        let (index, all) = (ino.saturating_sub(1), self.edits.view.sb.inodes_per_group.max(1));
        (index.checked_div(all).unwrap_or(0), index.checked_rem(all).unwrap_or(0))
    }
}
