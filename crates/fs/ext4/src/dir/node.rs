//! Changing the nodes of a directory index, as edits of their bytes.
//!
//! Invariant: the first entry of a table has no hash, since `limit` and `count` are in its place. Code that moves
//! entries leaves these two fields in the table that they describe.
//! Invariant: an edit leaves `count` at most `limit`, which the caller has checked. An edit that does not fit changes
//! nothing.
//! Source: Linux fs/ext4/namei.c, `dx_insert_block`, `ext4_dx_add_entry`, `make_indexed_dir`, `ext4_dx_csum_set`.
#![allow(clippy::arithmetic_side_effects, reason = "a table and its entries are within their block")]

use obento_base::wire::{FromBytes, IntoBytes, to_usize};

use super::index::{ENTRY, INFO, NODE_TABLE, ROOT_TABLE};
use super::leaf::{needed, write};
use super::shape::DirShape;
use crate::checksum::Crc;
use crate::raw::{RawDxCountLimit, RawDxEntry, RawDxRootInfo, RawDxTail};

/// `struct dx_tail`.
const TAIL: usize = size_of::<RawDxTail>();

impl DirShape {
    /// Returns the maximum number of entries of a table at byte `table` of a block.
    pub(super) fn table_limit(&self, table: usize) -> u16 {
        let tail = if self.checksum_seed.is_some() { TAIL } else { 0 };
        let room = to_usize(self.block_size.into()) - table - tail;
        u16::try_from(room / ENTRY).unwrap_or(u16::MAX)
    }

    /// Turns the first block of a directory into the root of an index with one leaf, block `leaf`. `.` and `..` stay.
    pub(super) fn make_root(&self, block: &mut [u8], hash_version: u8, leaf: u32) {
        let dots = needed(1);
        self.set_len(block, dots, self.block_size - dots);
        if let Some(rest) = block.get_mut(INFO..) {
            rest.fill(0);
        }
        let info = RawDxRootInfo {
            reserved_zero: 0.into(),
            hash_version,
            info_length: 8,
            indirect_levels: 0,
            unused_flags: 0,
        };
        write(block, place(INFO), info.as_bytes());
        self.only_child(block, leaf);
    }

    /// Adds a level below the root: its table moves to block `child`.
    pub(super) fn deepen(&self, root: &mut [u8], child: u32) {
        if let Some(levels) = root.get_mut(INFO + 6) {
            *levels += 1;
        }
        self.only_child(root, child);
    }

    fn only_child(&self, root: &mut [u8], child: u32) {
        let entry = RawDxEntry { hash: 0.into(), block: child.into() };
        write(root, place(ROOT_TABLE), entry.as_bytes());
        self.set_count(root, ROOT_TABLE, 1);
    }

    /// Turns `block` into a node with the `count` entries of `entries`, the first of which has no hash.
    pub(super) fn make_node(&self, block: &mut [u8], entries: &[u8], count: u16) {
        block.fill(0);
        self.unused(block, 0, self.block_size);
        write(block, place(NODE_TABLE), entries);
        self.set_count(block, NODE_TABLE, count);
    }

    /// Inserts an entry after the one at `at` of the table at byte `table`.
    pub(super) fn insert_child(&self, block: &mut [u8], table: usize, at: u16, hash: u32, child: u32) {
        let Some(count) = count(block, table).filter(|&count| at < count && count < self.table_limit(table))
        else {
            debug_assert!(false, "no room for one more child");
            return;
        };
        let start = entry_at(table, at + 1);
        let end = entry_at(table, count);
        if end + ENTRY <= block.len() && start <= end {
            block.copy_within(start..end, start + ENTRY);
        }
        let entry = RawDxEntry { hash: hash.into(), block: child.into() };
        write(block, place(start), entry.as_bytes());
        self.set_count(block, table, count + 1);
    }

    /// Sets the number and the maximum number of entries of the table at `table`, and the checksum.
    pub(super) fn set_count(&self, block: &mut [u8], table: usize, count: u16) {
        let raw = RawDxCountLimit { limit: self.table_limit(table).into(), count: count.into() };
        write(block, place(table), raw.as_bytes());
        self.seal_node(block, table, count);
    }

    /// Stores the checksum of a node: over its bytes up to the last entry, then its tail with a checksum of 0.
    pub(super) fn seal_node(&self, block: &mut [u8], table: usize, count: u16) {
        let Some(seed) = self.checksum_seed else { return };
        let blank = RawDxTail { dt_reserved: 0.into(), dt_checksum: 0.into() };
        let covered = block.get(..entry_at(table, count)).unwrap_or_default();
        let sum = Crc::new(seed).add(covered).add(blank.as_bytes()).get();
        let tail = RawDxTail { dt_checksum: sum.into(), ..blank };
        write(block, place(entry_at(table, self.table_limit(table))), tail.as_bytes());
    }

    /// Sets the inode of `..` in the first block of a directory.
    pub(super) fn set_block_parent(&self, block: &mut [u8], parent: u32) {
        let dots = self.len_at(block, 0).map_or(needed(1), |(len, _)| len);
        write(block, dots, &parent.to_le_bytes());
        match count(block, ROOT_TABLE) {
            Some(count) if self.indexed => self.seal_node(block, ROOT_TABLE, count),
            _ => self.seal(block),
        }
    }
}

/// Returns the bytes of the entries from `from` to before `to` of a table.
pub(super) fn entries(block: &[u8], table: usize, from: u16, to: u16) -> &[u8] {
    block.get(entry_at(table, from)..entry_at(table, to)).unwrap_or_default()
}

fn count(block: &[u8], table: usize) -> Option<u16> {
    let (raw, _) = RawDxCountLimit::ref_from_prefix(block.get(table..)?).ok()?;
    Some(raw.count.get())
}

pub(super) fn entry_at(table: usize, at: u16) -> usize {
    table + usize::from(at) * ENTRY
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
