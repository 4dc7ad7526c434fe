//! Moving inodes to other numbers.
//!
//! The number of an inode is in the entries that refer to it (its names, its `.`, and the `..` of its subdirectories),
//! and in the checksums of its record, of the nodes of its tree, and of its directory blocks.
//! Invariant: one transaction changes all of these.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use obento_base::wire::FromBytes;
use obento_driver::ResizeResult;

use super::super::bitmaps::RepairedBitmap;
use super::super::edits::Edits;
use super::super::names::{HEAD, RecordHome};
use super::super::volume::halves;
use super::plan::ShrinkPlan;
use super::scan::{Owners, at};
use super::{JournalUse, Shrinking};
use crate::allocator::fresh_inode_bitmap;
use crate::group::GroupFlags;
use crate::raw::RawDirEntry;
use crate::unit::VolBlock;

/// The directory blocks that name an inode: directory and block.
type Places = BTreeSet<(u32, u64)>;

/// Finds the directory blocks that name the inodes that get new numbers.
///
/// # Errors
///
/// `Failed`: a directory is damaged, or the device failed.
pub(super) fn names_of(
    edits: &Edits,
    owners: &Owners,
    numbers: &BTreeMap<u32, u32>,
) -> ResizeResult<BTreeMap<u32, Places>> {
    let mut names: BTreeMap<u32, Places> = BTreeMap::new();
    for dir in owners.files.iter().filter(|owner| owner.is_dir).map(|owner| owner.ino) {
        for block in edits.dir_blocks(dir)? {
            let bytes = edits.view.read(block, 1)?;
            let mut records = Vec::new();
            edits.walk(RecordHome::Block(block), &bytes, 0..bytes.len(), &mut records);
            for record in records.iter().filter(|record| numbers.contains_key(&record.ino)) {
                names.entry(record.ino).or_default().insert((dir, block.0));
            }
        }
    }
    Ok(names)
}

impl Shrinking<'_> {
    /// Gives all inodes of the plan their new numbers.
    pub(super) fn move_inodes(&mut self, plan: &ShrinkPlan) -> ResizeResult<()> {
        if plan.inodes.is_empty() {
            return Ok(());
        }
        let names = names_of(&self.edits, &self.owners, &plan.inodes)?;
        let dirs: BTreeSet<u32> =
            self.owners.files.iter().filter(|owner| owner.is_dir).map(|owner| owner.ino).collect();
        let mut moved = BTreeMap::new();
        for (&from, &to) in &plan.inodes {
            moved.insert(from, to);
            self.move_inode(from, to, dirs.contains(&from))?;
            for &(dir, block) in names.get(&from).into_iter().flatten() {
                // Directories that moved before have their new numbers.
                let dir = moved.get(&dir).copied().unwrap_or(dir);
                self.rename_entries(dir, VolBlock(block), from, to)?;
            }
            if self.is_due() {
                self.commit(JournalUse::Available)?;
            }
        }
        self.commit(JournalUse::Available)
    }

    fn move_inode(&mut self, from: u32, to: u32, is_dir: bool) -> ResizeResult<()> {
        self.claim_number(to, is_dir)?;
        let record = self.edits.record(from)?;
        self.edits.edit_record(to, |new| new.copy_from_slice(&record))?;
        self.edits.edit_record(from, |old| old.fill(0))?;
        self.release_number(from, is_dir)?;
        if self.edits.has_tree(to)? {
            // Nodes below the root are written with the checksum of the new number.
            self.edits.change_nodes(to, &mut |node, _, _| node != 0)?;
        }
        if is_dir {
            for block in self.edits.dir_blocks(to)? {
                self.edits.seal_directory_block(to, block)?;
            }
        }
        Ok(())
    }

    /// Replaces the inode in the entries of a directory block.
    fn rename_entries(&mut self, dir: u32, block: VolBlock, from: u32, to: u32) -> ResizeResult<()> {
        let bytes = self.edits.view.read(block, 1)?;
        let mut records = Vec::new();
        self.edits.walk(RecordHome::Block(block), &bytes, 0..bytes.len(), &mut records);
        let places: Vec<usize> =
            records.iter().filter(|record| record.ino == from).map(|record| record.at).collect();
        self.edits.edit_home(dir, RecordHome::Block(block), |bytes| {
            for place in places {
                let record = bytes.get_mut(place..place.saturating_add(HEAD)).unwrap_or_default();
                if let Ok((raw, _)) = RawDirEntry::mut_from_prefix(record) {
                    raw.inode.set(to);
                }
            }
        })?;
        Ok(())
    }

    /// Marks a number as in use.
    fn claim_number(&mut self, ino: u32, is_dir: bool) -> ResizeResult<()> {
        let (group, index) = self.place_of(ino);
        let mut known = *self.edits.view.group(group);
        let is_sealed = self.edits.view.has_descriptor_sums();
        let is_fresh = is_sealed && known.flags.contains(GroupFlags::INODE_UNINIT);
        if is_fresh {
            let bitmap = fresh_inode_bitmap(&self.edits.view.sb)?;
            self.edits.put(known.inode_bitmap, &bitmap)?;
            known.flags.remove(GroupFlags::INODE_UNINIT);
            known.itable_unused = self.edits.view.sb.inodes_per_group;
        }
        known.free_inodes = known.free_inodes.saturating_sub(1);
        known.used_dirs = known.used_dirs.saturating_add(u32::from(is_dir));
        if is_sealed {
            let after = self.edits.view.sb.inodes_per_group.saturating_sub(index).saturating_sub(1);
            known.itable_unused = known.itable_unused.min(after);
        }
        self.store_group(group, known)?;
        self.edits.set_bits(RepairedBitmap::Inodes, group, bit(index), true)?;
        Ok(())
    }

    fn release_number(&mut self, ino: u32, is_dir: bool) -> ResizeResult<()> {
        let (group, index) = self.place_of(ino);
        let mut known = *self.edits.view.group(group);
        known.free_inodes = known.free_inodes.saturating_add(1);
        known.used_dirs = known.used_dirs.saturating_sub(u32::from(is_dir));
        self.store_group(group, known)?;
        self.edits.set_bits(RepairedBitmap::Inodes, group, bit(index), false)?;
        Ok(())
    }

    /// Stores the counts of inodes and the flags of a group.
    fn store_group(&mut self, group: u32, known: crate::group::GroupDescriptor) -> ResizeResult<()> {
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
        if let Some(place) = self.edits.view.groups.get_mut(at(group)) {
            *place = known;
        }
        Ok(())
    }

    fn place_of(&self, ino: u32) -> (u32, u32) {
        let (index, all) = (ino.saturating_sub(1), self.edits.view.sb.inodes_per_group.max(1));
        (index.checked_div(all).unwrap_or(0), index.checked_rem(all).unwrap_or(0))
    }
}

fn bit(index: u32) -> core::ops::Range<u64> {
    u64::from(index)..u64::from(index).saturating_add(1)
}
