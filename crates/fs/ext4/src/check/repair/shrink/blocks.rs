//! Moving the blocks of files.
//!
//! Invariant: contents are copied, durably, before a map refers to the copy (`contents.rs`). A new tree of extents is in
//! new blocks.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes, IntoBytes, join, split, to_u64, to_usize};
use obento_driver::{ResizeObserver, ResizeResult};

use super::super::tree::{ENTRY, set_entries};
use super::plan::{BlockMove, FilePlan, ShrinkPlan};
use super::scan::{DOUBLY, Extent, OwnedMap};
use super::{JournalUse, Shrinking};
use crate::check::inode_check::RESIZE_INO;
use crate::check::orphans::clear;
use crate::feature::Compat;
use crate::format::{JOURNAL_INO, ROOT_ENTRIES};
use crate::inode::InodeFlags;
use crate::map::check::MAGIC;
use crate::map::room_in_block;
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawInode};
use crate::unit::VolBlock;

impl Shrinking<'_> {
    /// Moves all blocks of the plan.
    pub(super) fn move_blocks(
        &mut self,
        plan: &ShrinkPlan,
        observer: ResizeObserver<'_>,
    ) -> ResizeResult<()> {
        let is_journal =
            |file: &&FilePlan| self.owners.files.get(file.file).is_some_and(|file| file.ino == JOURNAL_INO);
        let (first, mut others): (Vec<&FilePlan>, Vec<&FilePlan>) = plan.files.iter().partition(is_journal);
        // The contents of quota files change with the maps of other files, so their own maps change first.
        let quota_files = self.edits.view.quota_inodes();
        let is_quota = |file: &FilePlan| {
            self.owners.files.get(file.file).is_some_and(|file| quota_files.contains(&file.ino))
        };
        others.sort_by_key(|file| !is_quota(file));
        for file in first {
            self.copy_contents(&file.moves, &mut |_, _| {})?;
            self.move_file(file)?;
            self.commit(JournalUse::Moves)?;
        }
        let moves: Vec<BlockMove> = others.iter().flat_map(|file| &file.moves).copied().collect();
        self.copy_contents(&moves, observer)?;
        for file in others {
            self.move_file(file)?;
            if self.is_due(0) {
                self.commit(JournalUse::Available)?;
            }
        }
        for moved in &plan.attributes {
            self.move_attributes(moved)?;
            if self.is_due(0) {
                self.commit(JournalUse::Available)?;
            }
        }
        self.commit(JournalUse::Available)
    }

    /// Changes the map of a file whose contents were copied.
    fn move_file(&mut self, plan: &FilePlan) -> ResizeResult<()> {
        let Some(owner) = self.owners.files.get_mut(plan.file) else { return Ok(()) };
        let ino = owner.ino;
        match &mut owner.map {
            OwnedMap::Empty => return Ok(()),
            OwnedMap::Extents { extents, nodes } => {
                *extents = plan.extents.clone();
                let nodes = core::mem::replace(nodes, plan.nodes.clone());
                self.write_tree(ino, &plan.extents, &plan.nodes, nodes.len())?;
                nodes.iter().for_each(|&node| self.set_blocks(node..node.saturating_add(1), false));
                plan.nodes.iter().for_each(|&node| self.set_blocks(node..node.saturating_add(1), true));
            }
            OwnedMap::Pointers(_) => self.write_pointers(ino, &plan.moves)?,
        }
        for moved in &plan.moves {
            self.note_move(moved);
        }
        let sb = &self.edits.view.sb;
        if sb.compat.contains(Compat::ORPHAN_FILE) && sb.raw.s_orphan_file_inum.get() == ino {
            self.seal_orphans(ino, &plan.moves)?;
        }
        if ino == JOURNAL_INO {
            self.note_journal()?;
        }
        Ok(())
    }

    fn note_move(&mut self, moved: &BlockMove) {
        self.set_blocks(range(moved.from, moved.len), false);
        self.set_blocks(range(moved.to, moved.len), true);
    }

    /// Replaces the block numbers of a block map.
    fn write_pointers(&mut self, ino: u32, moves: &[BlockMove]) -> ResizeResult<()> {
        let mut replace = |block: u64| {
            let index = moves.partition_point(|moved| moved.from <= block).checked_sub(1)?;
            let moved = moves.get(index)?;
            let inside = block.checked_sub(moved.from).filter(|inside| *inside < moved.len)?;
            u32::try_from(moved.to.saturating_add(inside)).ok()
        };
        if ino != RESIZE_INO {
            self.edits.change_pointers(ino, &mut replace)?;
            return Ok(());
        }
        self.edits.inode(ino, |raw| {
            if let Some(entry) = raw.i_block.as_chunks_mut::<4>().0.get_mut(DOUBLY)
                && let Some(new) = replace(u32::from_le_bytes(*entry).into())
            {
                *entry = new.to_le_bytes();
            }
        })?;
        Ok(())
    }

    /// Writes a tree of extents whose nodes are in `blocks`. The previous one had `before` nodes.
    fn write_tree(
        &mut self,
        ino: u32,
        extents: &[Extent],
        blocks: &[u64],
        before: usize,
    ) -> ResizeResult<()> {
        let size = self.edits.view.sb.block_size;
        let seed = if blocks.is_empty() { 0 } else { self.edits.seed_of(ino)? };
        let room = room_in_block(size).max(1);
        let mut entries: Vec<[u8; ENTRY]> = extents.iter().map(leaf_entry).collect();
        let (mut depth, mut places) = (0_u16, blocks.iter());
        while entries.len() > ROOT_ENTRIES {
            let mut above = Vec::new();
            for chunk in entries.chunks(room) {
                let Some(&place) = places.next() else { return Err(obento_base::Error::Invalid.into()) };
                let mut bytes = alloc::vec![0; to_usize(size.into())];
                write_node(&mut bytes, depth, room, chunk);
                self.edits.seal_node(&mut bytes, seed);
                self.edits.put(VolBlock(place), &bytes)?;
                above.push(index_entry(chunk.first(), place));
            }
            entries = above;
            depth = depth.saturating_add(1);
        }
        let mut root = [0; 60];
        write_node(&mut root, depth, ROOT_ENTRIES, &entries);
        let sectors = |count: usize| u64::try_from(count).unwrap_or(0).saturating_mul(size.sectors().into());
        self.edits.inode(ino, |raw| {
            raw.i_block = root;
            let is_huge = raw.i_flags.get() & InodeFlags::HUGE_FILE.bits() != 0;
            let units =
                |count: usize| if is_huge { u64::try_from(count).unwrap_or(0) } else { sectors(count) };
            let all = join(raw.i_blocks_lo.get(), raw.l_i_blocks_high.get().into());
            let (low, high) = split(all.saturating_add(units(blocks.len())).saturating_sub(units(before)));
            raw.i_blocks_lo.set(low);
            raw.l_i_blocks_high.set(u16::try_from(high).unwrap_or(0));
        })?;
        let bytes =
            |count: usize| i64::try_from(u64::from(size).saturating_mul(to_u64(count))).unwrap_or(i64::MAX);
        self.edits.add_usage(ino, bytes(blocks.len()).saturating_sub(bytes(before)))?;
        Ok(())
    }

    /// Moves a block of attributes for all inodes that use it.
    fn move_attributes(&mut self, moved: &BlockMove) -> ResizeResult<()> {
        let bytes = self.edits.view.read(VolBlock(moved.from), 1)?;
        self.edits.put(VolBlock(moved.to), &bytes)?;
        self.edits.seal_xattr_block(VolBlock(moved.to), |_| {})?;
        let (low, high) = split(moved.to);
        for ino in self.owners.attributes.get(&moved.from).cloned().unwrap_or_default() {
            self.edits.inode(ino, |raw| {
                raw.i_file_acl_lo.set(low);
                raw.l_i_file_acl_high.set(u16::try_from(high).unwrap_or(0));
            })?;
        }
        self.note_move(moved);
        Ok(())
    }

    /// Updates the checksums of empty blocks of the orphan file, which contain their places.
    fn seal_orphans(&mut self, ino: u32, moves: &[BlockMove]) -> ResizeResult<()> {
        let seed = self.edits.seed_of(ino)?;
        let seed = self.edits.view.sb.has_metadata_csum().then_some(seed);
        for place in moves.iter().flat_map(|moved| range(moved.to, moved.len)).map(VolBlock) {
            self.edits.block(place, |bytes| clear(bytes, place, seed))?;
        }
        Ok(())
    }

    /// Copies the map of the journal to the super block: `s_jnl_blocks`.
    fn note_journal(&mut self) -> ResizeResult<()> {
        let record = self.edits.record(JOURNAL_INO)?;
        let Ok((raw, _)) = RawInode::ref_from_prefix(&record) else { return Ok(()) };
        let words = raw.i_block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let all: Vec<u32> = words.chain([raw.i_size_high.get(), raw.i_size_lo.get()]).collect();
        self.edits.super_block(|raw| {
            if raw.s_jnl_backup_type == 1 {
                raw.s_jnl_blocks.iter_mut().zip(&all).for_each(|(to, from)| to.set(*from));
            }
        })?;
        Ok(())
    }
}

fn range(start: u64, len: u64) -> Range<u64> {
    start..start.saturating_add(len)
}

fn write_node(bytes: &mut [u8], depth: u16, room: usize, entries: &[[u8; ENTRY]]) {
    if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(bytes) {
        header.eh_magic.set(MAGIC);
        header.eh_max.set(u16::try_from(room).unwrap_or(u16::MAX));
        header.eh_depth.set(depth);
    }
    set_entries(bytes, entries);
}

fn leaf_entry(extent: &Extent) -> [u8; ENTRY] {
    let (low, high) = split(extent.start);
    // Above this length, an extent is an unwritten one.
    let mark = if extent.is_unwritten { 1 << 15 } else { 0 };
    let raw = RawExtent {
        ee_block: extent.at.into(),
        ee_len: extent.len.saturating_add(mark).into(),
        ee_start_hi: u16::try_from(high).unwrap_or(0).into(),
        ee_start_lo: low.into(),
    };
    raw.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// Returns the entry for a node at `place`, whose first entry is given.
fn index_entry(first: Option<&[u8; ENTRY]>, place: u64) -> [u8; ENTRY] {
    let start = first.and_then(|entry| entry.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let (low, high) = split(place);
    let raw = RawExtentIndex {
        ei_block: start.into(),
        ei_leaf_lo: low.into(),
        ei_leaf_hi: u16::try_from(high).unwrap_or(0).into(),
        ei_unused: 0.into(),
    };
    raw.as_bytes().first_chunk().copied().unwrap_or_default()
}
