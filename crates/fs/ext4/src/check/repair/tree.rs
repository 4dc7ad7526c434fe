//! Repairs of extent trees and block maps: an invalid entry is removed, with everything below it.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` `scan_extent_node`, `process_block`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, IntoBytes};
use obento_base::{FileKind, Result};

use super::super::blocks::on_volume;
use super::super::claims::is_own;
use super::super::inode_check::RESIZE_INO;
use super::edits::Edits;
use crate::inode::InodeFlags;
use crate::map::check::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf, numbers};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawInode};
use crate::unit::VolBlock;

/// Size of a header, and of an entry.
pub(super) const ENTRY: usize = 12;
/// Maximum number of nodes of a tree; more of them mean a cycle.
const MAX_NODES: usize = 1 << 16;
/// `EXT4_EXT_INIT_MAX_LEN`: longer extents are unwritten ones.
const MAX_LEN: u16 = 1 << 15;

/// A change of a node: its block (0 for the root), its depth, its entries. Returns whether it changed anything.
type Change<'a> = &'a mut dyn FnMut(u64, u16, &mut Vec<[u8; ENTRY]>) -> bool;

impl Edits {
    /// Removes an extent.
    pub(super) fn remove_extent(&mut self, ino: u32, at: u64, place: (u64, u64)) -> Result<bool> {
        self.change_nodes(ino, &mut |_, depth, entries| {
            let before = entries.len();
            entries.retain(|entry| depth > 0 || !begins(entry, at) || place_of(entry) != place);
            entries.len() < before
        })
    }

    /// Removes the entry `index` of a node, which begins at file block `at`.
    pub(super) fn remove_entry(&mut self, ino: u32, block: u64, index: usize, at: u64) -> Result<bool> {
        self.change_nodes(ino, &mut |node, _, entries| {
            let is_it = node == block && entries.get(index).is_some_and(|entry| begins(entry, at));
            if is_it {
                entries.remove(index);
            }
            is_it
        })
    }

    /// Removes the entries of node `block` that lead to node `below`.
    pub(super) fn remove_link(&mut self, ino: u32, block: u64, below: u64) -> Result<bool> {
        self.change_nodes(ino, &mut |node, depth, entries| {
            let before = entries.len();
            entries.retain(|entry| node != block || depth == 0 || leaf_of(entry) != below);
            entries.len() < before
        })
    }

    /// Sets the first file block in the entry that leads to node `block`.
    pub(super) fn set_start(&mut self, ino: u32, block: u64, start: u64) -> Result<bool> {
        let first = u32::try_from(start).unwrap_or(0).to_le_bytes();
        self.change_nodes(ino, &mut |_, depth, entries| {
            let entry = entries.iter_mut().find(|entry| depth > 0 && leaf_of(entry) == block);
            entry.is_some_and(|entry| {
                entry.iter_mut().zip(first).for_each(|(to, from)| *to = from);
                true
            })
        })
    }

    /// Marks the extent that begins at file block `at` as written.
    pub(super) fn mark_written(&mut self, ino: u32, at: u64) -> Result<bool> {
        self.change_nodes(ino, &mut |_, depth, entries| {
            let entry = entries.iter_mut().find(|entry| depth == 0 && begins(entry, at));
            entry.is_some_and(|entry| {
                edit(entry, |extent: &mut RawExtent| {
                    extent.ee_len.set(extent.ee_len.get().saturating_sub(MAX_LEN));
                })
            })
        })
    }

    /// Removes an illegal block of an inode.
    pub(super) fn remove_block(&mut self, ino: u32, at: u64, block: u64) -> Result<bool> {
        if self.has_tree(ino)? {
            return self.cut_node(ino, block).map(|()| true);
        }
        if at > 0 && self.is_link(ino)? {
            // The other numbers may refer to the block that is the link's only one.
            self.inode(ino, |raw| raw.i_block.iter_mut().skip(4).for_each(|byte| *byte = 0))?;
            return Ok(true);
        }
        self.change_pointers(ino, &mut |pointer| (pointer == block).then_some(0))
    }

    pub(super) fn has_tree(&self, ino: u32) -> Result<bool> {
        self.has_flag(ino, InodeFlags::EXTENTS)
    }

    /// Returns whether an inode contains the value of an attribute.
    pub(super) fn is_value(&self, ino: u32) -> Result<bool> {
        self.has_flag(ino, InodeFlags::EA_INODE)
    }

    fn has_flag(&self, ino: u32, flag: InodeFlags) -> Result<bool> {
        let record = self.record(ino)?;
        Ok(RawInode::ref_from_prefix(&record).is_ok_and(|(raw, _)| raw.i_flags.get() & flag.bits() != 0))
    }

    fn is_link(&self, ino: u32) -> Result<bool> {
        let record = self.record(ino)?;
        Ok(RawInode::ref_from_prefix(&record)
            .is_ok_and(|(raw, _)| FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Symlink)))
    }

    /// Turns an inode's map into an extent tree without entries.
    pub(super) fn empty_root(&mut self, ino: u32) -> Result<()> {
        self.inode(ino, |raw| {
            raw.i_block = [0; 60];
            if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(&mut raw.i_block) {
                header.eh_magic.set(MAGIC);
                header.eh_max.set(4);
            }
        })
    }

    /// Removes the entry that leads to a node from a tree.
    pub(super) fn cut_node(&mut self, ino: u32, block: u64) -> Result<()> {
        self.change_nodes(ino, &mut |_, depth, entries| {
            drop_one(entries, |entry| depth > 0 && leaf_of(entry) == block)
        })
        .map(drop)
    }

    /// Sets the depth of a node to that of its level. If its contents are of another depth, the next round finds
    /// them, since they are invalid entries of this depth.
    pub(super) fn set_depth(&mut self, ino: u32, block: u64) -> Result<bool> {
        let mut above = None;
        self.change_nodes(ino, &mut |_, depth, entries| {
            let is_parent = depth > 0 && entries.iter().any(|entry| leaf_of(entry) == block);
            above = above.or(is_parent.then_some(depth));
            false
        })?;
        let Some(depth) = above.and_then(|above: u16| above.checked_sub(1)) else { return Ok(false) };
        let (place, seed) = (VolBlock(block), self.seed_of(ino)?);
        let mut bytes = self.view.read(place, 1)?;
        if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(&mut bytes) {
            header.eh_depth.set(depth);
        }
        self.seal_node(&mut bytes, seed);
        self.put(place, &bytes).map(|()| true)
    }

    /// Passes every readable node of a tree to `change`, and writes the changed ones with their checksums.
    pub(super) fn change_nodes(&mut self, ino: u32, change: Change<'_>) -> Result<bool> {
        let record = self.record(ino)?;
        let Ok((raw, _)) = RawInode::ref_from_prefix(&record) else { return Ok(false) };
        let mut waiting = Vec::from([(0_u64, raw.i_block.to_vec(), MAX_DEPTH)]);
        let (mut seen, mut any) = (0_usize, false);
        while let Some((block, bytes, most)) = waiting.pop() {
            seen = seen.saturating_add(1);
            let Ok((header, rest)) = RawExtentHeader::ref_from_prefix(&bytes) else { continue };
            if seen > MAX_NODES || header.eh_magic.get() != MAGIC || header.eh_depth.get() > most {
                continue;
            }
            let (depth, count) = (header.eh_depth.get(), usize::from(header.eh_entries.get()));
            let (all, _) = rest.as_chunks::<ENTRY>();
            let mut entries = all.get(..count).unwrap_or_default().to_vec();
            if change(block, depth, &mut entries) {
                any = true;
                self.write_node(ino, block, &bytes, &entries)?;
            }
            if depth == 0 {
                continue;
            }
            for child in entries.iter().map(leaf_of) {
                if on_volume(&self.view.sb, child, 1)
                    && let Ok(bytes) = self.view.read(VolBlock(child), 1)
                {
                    waiting.push((child, bytes, depth.saturating_sub(1)));
                }
            }
        }
        Ok(any)
    }

    fn write_node(&mut self, ino: u32, block: u64, old: &[u8], entries: &[[u8; ENTRY]]) -> Result<()> {
        let mut bytes = old.to_vec();
        set_entries(&mut bytes, entries);
        if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(&mut bytes)
            && entries.is_empty()
            && block == 0
        {
            header.eh_depth.set(0);
        }
        if block == 0 {
            return self.inode(ino, |raw| {
                raw.i_block.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
            });
        }
        let seed = self.seed_of(ino)?;
        self.seal_node(&mut bytes, seed);
        self.put(VolBlock(block), &bytes)
    }

    /// Passes every block number of a map to `change`, which returns its replacement.
    pub(super) fn change_pointers(
        &mut self,
        ino: u32,
        change: &mut dyn FnMut(u64) -> Option<u32>,
    ) -> Result<bool> {
        let record = self.record(ino)?;
        let Ok((raw, _)) = RawInode::ref_from_prefix(&record) else { return Ok(false) };
        let mut map: Vec<u32> = numbers(&raw.i_block).iter().map(|number| number.get()).collect();
        let mut any = replace(&mut map, change);
        if any {
            self.inode(ino, |raw| {
                raw.i_block.copy_from_slice(&to_bytes(&map, 60));
            })?;
        }
        let mut waiting: Vec<(u32, u32)> = map.iter().skip(12).copied().zip([0, 1, 2]).collect();
        // A table that is named more than once is passed once.
        let mut seen = BTreeSet::new();
        while let Some((table, below)) = waiting.pop() {
            let is_known = seen.len() >= MAX_NODES || !seen.insert(table);
            if is_known || !on_volume(&self.view.sb, table.into(), 1) {
                continue;
            }
            let place = VolBlock(table.into());
            let Ok(bytes) = self.view.read(place, 1) else { continue };
            let mut list: Vec<u32> = numbers(&bytes).iter().map(|number| number.get()).collect();
            // The volume's own block keeps its contents, whatever claims it.
            let may_change = ino == RESIZE_INO || !is_own(&self.view, table.into());
            if replace(&mut list, change) && may_change {
                any = true;
                self.put(place, &to_bytes(&list, bytes.len()))?;
            }
            if let Some(below) = below.checked_sub(1) {
                waiting.extend(list.iter().filter(|&&table| table != 0).map(|&table| (table, below)));
            }
        }
        Ok(any)
    }
}

fn replace(list: &mut [u32], change: &mut dyn FnMut(u64) -> Option<u32>) -> bool {
    let mut any = false;
    for pointer in list.iter_mut().filter(|pointer| **pointer != 0) {
        if let Some(new) = change(u64::from(*pointer)) {
            *pointer = new;
            any = true;
        }
    }
    any
}

fn to_bytes(list: &[u32], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = list.iter().flat_map(|number| number.to_le_bytes()).collect();
    bytes.resize(len, 0);
    bytes
}

fn drop_one(entries: &mut Vec<[u8; ENTRY]>, is_it: impl Fn(&[u8; ENTRY]) -> bool) -> bool {
    let at = entries.iter().position(is_it);
    at.map(|at| entries.remove(at)).is_some()
}

/// Replaces the entries of a node.
pub(super) fn set_entries(bytes: &mut [u8], entries: &[[u8; ENTRY]]) {
    if let Ok((header, rest)) = RawExtentHeader::mut_from_prefix(bytes) {
        header.eh_entries.set(u16::try_from(entries.len()).unwrap_or(0));
        rest.as_chunks_mut().0.iter_mut().zip(entries).for_each(|(to, from)| *to = *from);
    }
}

/// Changes an entry as a structure of type `T`.
pub(super) fn edit<T>(entry: &mut [u8; ENTRY], change: impl FnOnce(&mut T)) -> bool
where
    T: FromBytes + IntoBytes + obento_base::wire::KnownLayout,
{
    T::mut_from_bytes(entry).is_ok_and(|value| {
        change(value);
        true
    })
}

/// Returns the first file block of an entry of either kind.
fn first_block(entry: &[u8; ENTRY]) -> u32 {
    entry.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Returns whether an entry of either kind begins at file block `at`.
fn begins(entry: &[u8; ENTRY], at: u64) -> bool {
    u64::from(first_block(entry)) == at
}

/// Returns place and length of an extent.
fn place_of(entry: &[u8; ENTRY]) -> (u64, u64) {
    RawExtent::ref_from_bytes(entry)
        .map_or((0, 0), |extent| (extent_start(extent).0, extent_len(extent).0.into()))
}

fn leaf_of(entry: &[u8; ENTRY]) -> u64 {
    RawExtentIndex::ref_from_bytes(entry).map_or(0, |index| index_leaf(index).0)
}
