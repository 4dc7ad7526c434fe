//! Nodes of an extent tree in memory, and their encoding.
//!
//! On disk: see `map/extents.rs`. Like Linux, this code does not change the bytes after the used entries.
//! Invariant: the maximum number of entries of a node comes from its own header, since the place of the checksum
//! depends on it.
//! Source: Linux `fs/ext4/extents.c` `ext4_ext_space_block`, `ext4_extent_block_csum_set`.
#![allow(clippy::arithmetic_side_effects, reason = "a node fits a block")]

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{IntoBytes, split, to_usize};
use zerocopy::FromBytes;

use super::mapping::{ExtentState, Mapping};
use crate::checksum::Crc;
use crate::map::extents::{MAGIC, extent_len, extent_start, index_leaf};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex};
use crate::size::BlockSize;
use crate::unit::VolBlock;

const HEADER: usize = size_of::<RawExtentHeader>();
const ENTRY: usize = size_of::<RawExtent>();
/// Added to `ee_len` of an unwritten extent.
const UNWRITTEN: u32 = 32768;

/// Returns the maximum number of entries of a node that fills a block.
pub(crate) fn room_in_block(block_size: BlockSize) -> usize {
    to_usize(block_size.into()).saturating_sub(HEADER) / ENTRY
}

/// The place of a node's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeLocation {
    /// In `i_block`.
    Root,
    /// In this block.
    Block(VolBlock),
    /// Not yet allocated.
    New,
    /// In this block, which had other contents.
    Fresh(VolBlock),
    /// Freed.
    Gone,
}

/// A node below an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Child {
    Stored(VolBlock),
    /// Its index in the tree's list.
    Loaded(usize),
}

/// An entry of an inner node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexEntry {
    pub start: u32,
    pub child: Child,
}

/// The entries of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entries {
    Leaf(Vec<Mapping>),
    Inner(Vec<IndexEntry>),
}

impl Entries {
    pub fn len(&self) -> usize {
        match self {
            Self::Leaf(list) => list.len(),
            Self::Inner(list) => list.len(),
        }
    }

    pub fn first_key(&self) -> Option<u32> {
        match self {
            Self::Leaf(list) => list.first().map(|mapping| mapping.start),
            Self::Inner(list) => list.first().map(|index| index.start),
        }
    }

    /// Removes the entries after the first `len`, and returns them.
    pub fn split_off(&mut self, len: usize) -> Self {
        match self {
            Self::Leaf(list) => Self::Leaf(list.split_off(len.min(list.len()))),
            Self::Inner(list) => Self::Inner(list.split_off(len.min(list.len()))),
        }
    }

    /// Appends `other`, which is of the same kind.
    pub fn append(&mut self, other: &mut Self) {
        match (self, other) {
            (Self::Leaf(list), Self::Leaf(other)) => list.append(other),
            (Self::Inner(list), Self::Inner(other)) => list.append(other),
            _ => {}
        }
    }
}

/// A node in memory.
#[derive(Clone, Debug)]
pub(super) struct TreeNode {
    pub home: NodeLocation,
    pub depth: u16,
    /// Maximum number of entries: `eh_max`.
    pub room: usize,
    pub entries: Entries,
    pub changed: bool,
}

impl TreeNode {
    /// Decodes bytes that were checked.
    pub fn decode(bytes: &[u8], home: NodeLocation) -> Result<Self> {
        let Ok((header, rest)) = RawExtentHeader::ref_from_prefix(bytes) else {
            return Ok(Self::empty(home, 0));
        };
        let count = usize::from(header.eh_entries.get());
        let depth = header.eh_depth.get();
        let entries = if depth == 0 {
            let raw =
                <[RawExtent]>::ref_from_prefix_with_elems(rest, count).map_or(&[][..], |(list, _)| list);
            let mut list = reserve(raw.len())?;
            list.extend(raw.iter().map(decode_extent));
            Entries::Leaf(list)
        } else {
            let raw =
                <[RawExtentIndex]>::ref_from_prefix_with_elems(rest, count).map_or(&[][..], |(list, _)| list);
            let mut list = reserve(raw.len())?;
            list.extend(raw.iter().map(decode_index));
            Entries::Inner(list)
        };
        Ok(Self { home, depth, room: header.eh_max.get().into(), entries, changed: false })
    }

    pub fn empty(home: NodeLocation, room: usize) -> Self {
        Self { home, depth: 0, room, entries: Entries::Leaf(Vec::new()), changed: true }
    }

    /// Writes the header and the entries to `bytes`. `place` returns the blocks of children that had no block before.
    pub fn encode(&self, bytes: &mut [u8], place: impl Fn(usize) -> VolBlock) {
        let header = RawExtentHeader {
            eh_magic: MAGIC.into(),
            eh_entries: narrow(self.entries.len()).into(),
            eh_max: narrow(self.room).into(),
            eh_depth: self.depth.into(),
            eh_generation: RawExtentHeader::ref_from_prefix(bytes)
                .map_or(0.into(), |(old, _)| old.eh_generation),
        };
        let Some((head, rest)) = bytes.split_at_mut_checked(HEADER) else { return };
        head.copy_from_slice(header.as_bytes());
        let slots = rest.chunks_exact_mut(ENTRY);
        match &self.entries {
            Entries::Leaf(list) => {
                for (slot, mapping) in slots.zip(list) {
                    slot.copy_from_slice(encode_extent(mapping).as_bytes());
                }
            }
            Entries::Inner(list) => {
                for (slot, index) in slots.zip(list) {
                    let block = match index.child {
                        Child::Stored(block) => block,
                        Child::Loaded(id) => place(id),
                    };
                    slot.copy_from_slice(encode_index(index.start, block).as_bytes());
                }
            }
        }
    }

    /// Writes the checksum after the space for entries.
    pub fn seal(&self, bytes: &mut [u8], seed: u32) {
        let at = self.room * ENTRY + HEADER;
        let Some((node, tail)) = bytes.split_at_mut_checked(at) else { return };
        let crc = Crc::new(seed).add(node).get();
        if let Some(tail) = tail.first_chunk_mut() {
            *tail = crc.to_le_bytes();
        }
    }
}

pub(super) fn reserve<T>(len: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    // One more, since most lists are extended.
    list.try_reserve_exact(len + 1)?;
    Ok(list)
}

fn narrow(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

fn decode_extent(raw: &RawExtent) -> Mapping {
    let (len, written) = extent_len(raw);
    let state = if written { ExtentState::Written } else { ExtentState::Unwritten };
    Mapping { start: raw.ee_block.get(), len: len.into(), place: extent_start(raw), state }
}

fn decode_index(raw: &RawExtentIndex) -> IndexEntry {
    IndexEntry { start: raw.ei_block.get(), child: Child::Stored(index_leaf(raw)) }
}

fn encode_extent(mapping: &Mapping) -> RawExtent {
    let (low, high) = split(mapping.place.0);
    let len = match mapping.state {
        ExtentState::Written => mapping.len,
        ExtentState::Unwritten => mapping.len + UNWRITTEN,
    };
    RawExtent {
        ee_block: mapping.start.into(),
        ee_len: u16::try_from(len).unwrap_or(u16::MAX).into(),
        ee_start_hi: u16::try_from(high).unwrap_or(u16::MAX).into(),
        ee_start_lo: low.into(),
    }
}

fn encode_index(start: u32, block: VolBlock) -> RawExtentIndex {
    let (low, high) = split(block.0);
    RawExtentIndex {
        ei_block: start.into(),
        ei_leaf_lo: low.into(),
        ei_leaf_hi: u16::try_from(high).unwrap_or(u16::MAX).into(),
        ei_unused: 0.into(),
    }
}

/// Returns the `i_block` of a file without blocks that is mapped by extents: `ext4_ext_tree_init`.
pub(crate) fn empty_root() -> [u8; 60] {
    let mut bytes = [0; 60];
    TreeNode::empty(NodeLocation::Root, room_in_root(bytes.len())).encode(&mut bytes, |_| VolBlock(0));
    bytes
}

fn room_in_root(len: usize) -> usize {
    len.saturating_sub(HEADER).checked_div(ENTRY).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::to_u64;

    #[test]
    fn an_empty_root_is_what_linux_writes() {
        let mut expected = [0; 60];
        expected[..8].copy_from_slice(&[0x0a, 0xf3, 0, 0, 4, 0, 0, 0]);
        assert_eq!(empty_root(), expected);
    }

    #[test]
    fn a_node_s_checksum_has_room_in_every_block_size() {
        for size in (0..=6).filter_map(BlockSize::from_log) {
            let used = to_u64(HEADER + room_in_block(size) * ENTRY + 4);
            assert!(used <= u64::from(size) && used > u64::from(size) - 12);
        }
    }

    #[test]
    fn extents_come_back_as_they_went() {
        let list = [
            Mapping { start: 7, len: 32768, place: VolBlock(0x1234_5678_9abc), state: ExtentState::Written },
            Mapping { start: 99_999, len: 32767, place: VolBlock(5), state: ExtentState::Unwritten },
            Mapping { start: u32::MAX - 1, len: 1, place: VolBlock(9), state: ExtentState::Unwritten },
        ];
        assert_eq!(list.map(|mapping| decode_extent(&encode_extent(&mapping))), list);
    }
}
