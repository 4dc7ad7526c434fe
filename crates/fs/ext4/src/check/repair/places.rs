//! Bitmaps and inode tables in impossible places: each gets another place.
//!
//! The blocks in use are determined from the inodes and not from the bitmaps, one of which may be missing. A bitmap
//! is recomputed. The readable part of a table is copied, and the rest becomes unused inodes.
//! Source: e2fsprogs `e2fsck/pass1.c` `new_table_block`, `handle_fs_bad_blocks`.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, CheckReport};

use super::super::events::EventSink;
use super::super::inodes::{self, PassContext};
use super::super::state::CheckState;
use super::super::view::View;
use super::bitmaps::RepairedBitmap;
use super::edits::{Copy, Edits};
use crate::allocator::bits;
use crate::feature::Incompat;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::unit::VolBlock;

/// A structure in a group's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GroupStructure {
    Bitmap(RepairedBitmap),
    Table,
}

impl Edits {
    /// Moves one of two structures that share a block.
    pub(super) fn separate(&mut self, group: u32, block: u64) -> Result<bool> {
        match self.first_to_move(group, block) {
            Some((group, structure)) => self.move_to_free(group, structure),
            None => Ok(false),
        }
    }

    /// Uses the place in a backup of the descriptors, if it is possible; otherwise moves the structure.
    pub(super) fn restore_or_move(&mut self, group: u32, structure: GroupStructure) -> Result<bool> {
        let known = *self.view.group(group);
        match structure.place(&known).0 {
            0 => self.move_to_free(group, structure),
            _ => self.write_places(group, &known).map(|()| true),
        }
    }

    /// Returns which of two structures in one place moves: one that can be recomputed, a bitmap before a table.
    fn first_to_move(&self, group: u32, block: u64) -> Option<(u32, GroupStructure)> {
        let table = self.view.group(group).inode_table.0;
        let len = u64::from(self.view.sb.inode_table_blocks());
        let kinds = [RepairedBitmap::Inodes, RepairedBitmap::Blocks].map(GroupStructure::Bitmap);
        let is_there =
            |group: u32, structure: GroupStructure| structure.place(self.view.group(group)).0 == block;
        let own = kinds.into_iter().find(|&kind| is_there(group, kind)).map(|kind| (group, kind));
        own.or_else(|| {
            let within = table..table.saturating_add(len);
            let all = (0..self.view.sb.groups).flat_map(|group| kinds.map(|kind| (group, kind)));
            let mut inside =
                all.filter(|&(group, kind)| within.contains(&kind.place(self.view.group(group)).0));
            inside.next().or((table == block).then_some((group, GroupStructure::Table)))
        })
    }

    /// Finds space for a structure, fills it, and updates the descriptor.
    fn move_to_free(&mut self, group: u32, structure: GroupStructure) -> Result<bool> {
        let state = self.in_use()?;
        let len = match structure {
            GroupStructure::Bitmap(_) => 1,
            GroupStructure::Table => u64::from(self.view.sb.inode_table_blocks()),
        };
        let Some(start) = self.room_for(&state, group, len) else { return Ok(false) };
        let old = structure.place(self.view.group(group));
        let size = to_usize(self.view.sb.block_size.into());
        for n in 0..len {
            let from = VolBlock(old.0.saturating_add(n));
            let bytes = match structure {
                GroupStructure::Table if old.0 != 0 => self.view.read(from, 1).unwrap_or_default(),
                GroupStructure::Bitmap(RepairedBitmap::Blocks) => used_blocks(&state, group),
                GroupStructure::Bitmap(RepairedBitmap::Inodes) => self.used_inodes(&state, group),
                GroupStructure::Table => Vec::new(),
            };
            let mut bytes = bytes;
            bytes.resize(size, 0);
            self.put(VolBlock(start.saturating_add(n)), &bytes)?;
        }
        let mut descriptor = *self.view.group(group);
        *structure.place_mut(&mut descriptor) = VolBlock(start);
        if let Some(known) = self.view.groups.get_mut(to_usize(group.into())) {
            *known = descriptor;
        }
        self.write_places(group, &descriptor)?;
        if let GroupStructure::Bitmap(kind) = structure {
            let bits = match kind {
                RepairedBitmap::Blocks => self.view.sb.group_clusters(group),
                RepairedBitmap::Inodes => self.view.sb.inodes_per_group,
            };
            self.set_bits(kind, group, u64::from(bits)..to_u64(size).saturating_mul(8), true)?;
        }
        Ok(true)
    }

    /// Returns what the readable inodes and the volume itself use.
    fn in_use(&self) -> Result<CheckState> {
        let (mut report, mut emit) = (CheckReport::default(), |_| {});
        let mut reported = EventSink { report: &mut report, emit: &mut emit };
        let copy: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&self.device);
        let options = CheckOptions::new(Arc::new(obento_env::NO_CLOCK));
        let mut view = View::open(copy, &options, &mut reported)?;
        // Including structures that were already moved in this round.
        view.groups.clone_from(&self.view.groups);
        // A group with more unused inodes than free ones may have files in any inode.
        let all = view.sb.inodes_per_group;
        for group in &mut view.groups {
            if group.itable_unused > group.free_inodes {
                group.itable_unused = 0;
            }
            if group.free_inodes != all {
                group.flags.remove(GroupFlags::INODE_UNINIT);
            }
        }
        let view = Arc::new(view);
        let state = CheckState::new(&view)?;
        state.take_metadata(&view);
        let known = PassContext::new(&view, BTreeSet::new());
        Ok(inodes::check(&view, state, known, 1, &mut reported).0)
    }

    /// Returns `len` contiguous free blocks, in the group itself if possible, and in others only if groups may share.
    fn room_for(&self, state: &CheckState, group: u32, len: u64) -> Option<u64> {
        let sb = &self.view.sb;
        let others = if sb.incompat.contains(Incompat::FLEX_BG) { 0..sb.groups } else { 0..0 };
        let wanted = u32::try_from(len.div_ceil(sb.cluster_blocks().into())).ok()?;
        core::iter::once(group).chain(others).find_map(|group| {
            let (bitmap, all) = (used_blocks(state, group), sb.group_clusters(group));
            let mut at = 0;
            while at < all {
                let first = bits::next_clear(&bitmap, at..all);
                let end = bits::next_set(&bitmap, first..all);
                if end.saturating_sub(first) >= wanted {
                    let inside = sb.cluster.len(first.into());
                    return sb.group_start(group).0.checked_add(inside);
                }
                at = end.max(first.saturating_add(1));
            }
            None
        })
    }

    /// Returns a bitmap of the inodes of a group.
    fn used_inodes(&self, state: &CheckState, group: u32) -> Vec<u8> {
        let count = self.view.sb.inodes_per_group;
        let first = group.saturating_mul(count).saturating_add(1);
        let is_used = |ino: u32| state.slot(ino).is_some_and(|slot| slot.is_used()) || self.view.is_own(ino);
        let mut bytes = alloc::vec![0_u8; to_usize(u64::from(count.div_ceil(8)))];
        for bit in (0..count).filter(|&bit| is_used(first.saturating_add(bit))) {
            if let Some(byte) = bytes.get_mut(to_usize(u64::from(bit / 8))) {
                *byte |= 1_u8.checked_shl(bit % 8).unwrap_or(0);
            }
        }
        bytes
    }

    /// Writes the places of the bitmaps and the table.
    pub(super) fn write_places(&mut self, group: u32, places: &GroupDescriptor) -> Result<()> {
        let sb = self.view.sb.clone();
        let (index, at) = sb.desc_place(group);
        let end = at.saturating_add(sb.desc_size.into());
        self.block(sb.desc_block(index, 0), |bytes| {
            places.encode_places(bytes.get_mut(at..end).unwrap_or_default());
        })?;
        self.descriptor(group, |_, _| {})
    }
}

impl GroupStructure {
    fn place(self, descriptor: &GroupDescriptor) -> VolBlock {
        match self {
            Self::Bitmap(RepairedBitmap::Blocks) => descriptor.block_bitmap,
            Self::Bitmap(RepairedBitmap::Inodes) => descriptor.inode_bitmap,
            Self::Table => descriptor.inode_table,
        }
    }

    fn place_mut(self, descriptor: &mut GroupDescriptor) -> &mut VolBlock {
        match self {
            Self::Bitmap(RepairedBitmap::Blocks) => &mut descriptor.block_bitmap,
            Self::Bitmap(RepairedBitmap::Inodes) => &mut descriptor.inode_bitmap,
            Self::Table => &mut descriptor.inode_table,
        }
    }
}

/// Returns a bitmap of the used clusters of a group.
fn used_blocks(state: &CheckState, group: u32) -> Vec<u8> {
    state.with_used(group, |words| {
        words.unwrap_or_default().iter().flat_map(|word| word.to_le_bytes()).collect()
    })
}
