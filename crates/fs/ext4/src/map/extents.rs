//! Extent trees.
//!
//! On disk: a node is a header and entries sorted by file block. In a separate block, it also has a checksum after the
//! space for entries. The root is in `i_block` and has at most four entries. The depth decreases to 0 at the leaves.
//! Invariant: a walk reads at most [`MAX_DEPTH`] blocks, since the depth of each node must be one less than its
//! parent's.
//! Source: Linux `Documentation/filesystems/ext4/ifork.rst`, `fs/ext4/extents.c` `__ext4_ext_check`.

use core::mem::offset_of;

use obento_base::wire::{FromBytes, join, to_usize};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::Block;

use super::blocks::{Blocks, MappedRun};
use crate::checksum::Crc;
use crate::inode::Inode;
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawExtentTail};
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

/// `EXT4_EXT_MAGIC`.
pub(crate) const MAGIC: u16 = 0xf30a;
/// `EXT4_MAX_EXTENT_DEPTH`: a tree of five levels maps more than 2^32 blocks.
pub(crate) const MAX_DEPTH: u16 = 5;
/// `EXT_INIT_MAX_LEN`: maximum length of a written extent; with a larger `ee_len` it is unwritten.
const MAX_WRITTEN_LEN: u16 = 32768;
/// The file block after the last possible one.
const FILE_END: u64 = 1 << 32;

/// The file blocks that a node may map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub start: u64,
    pub end: u64,
}

impl Bounds {
    pub const ALL: Self = Self { start: 0, end: FILE_END };
}

/// A node with a valid header.
pub(crate) struct ExtentNode<'a> {
    pub bytes: &'a [u8],
    /// Block of the volume; 0 for the root.
    pub block: u64,
    pub depth: u16,
    pub entries: u16,
}

impl Volume {
    /// Returns the run that starts at file block `at`.
    pub(super) fn map_extents(&self, inode: &Inode, at: FileBlock) -> Result<MappedRun> {
        let root = ExtentNode::root(inode)?;
        root.check_entries(inode, Bounds::ALL)?;
        let mut bounds = Bounds::ALL;
        let mut held: Option<Block> = None;
        // One step per level; the depth of the root bounds them.
        for _ in 0..=MAX_DEPTH {
            let node = match &held {
                None => ExtentNode { ..root },
                Some(block) => ExtentNode::in_block(inode, block)?,
            };
            if node.depth == 0 {
                return node.find_extent(inode, at, bounds);
            }
            let Some((child, inside)) = node.find_child(at, bounds) else {
                let first = node.indexes().first().map_or(bounds.end, |entry| entry.ei_block.get().into());
                return Ok(hole(at, first));
            };
            bounds = inside;
            held = Some(self.extent_node(inode, child, node.depth, bounds)?);
        }
        Err(depth_error(inode, root.block, root.depth, MAX_DEPTH))
    }

    /// Reads and checks the node to which an entry of a node of `parent_depth` refers.
    pub(crate) fn extent_node(
        &self,
        inode: &Inode,
        at: VolBlock,
        parent_depth: u16,
        bounds: Bounds,
    ) -> Result<Block> {
        let structure = Structure::ExtentTree(inode.ino());
        if !self.is_data(at, 1) {
            return Err(Corrupt::BlockRange { structure, at: bounds.start, start: at.0, len: 1 }.into());
        }
        let block = self.cache().get(at.0)?;
        let node = ExtentNode::in_block(inode, &block)?;
        if Some(node.depth) != parent_depth.checked_sub(1) {
            return Err(depth_error(inode, at.0, node.depth, parent_depth.saturating_sub(1)));
        }
        if !block.is_verified() {
            if self.super_block().has_metadata_csum() {
                node.verify(inode)?;
            }
            node.check_entries(inode, bounds)?;
            block.set_verified();
        }
        Ok(block)
    }
}

impl<'a> ExtentNode<'a> {
    /// Returns the root, in `i_block`.
    pub fn root(inode: &'a Inode) -> Result<Self> {
        let node = Self::decode(inode, inode.i_block(), 0)?;
        if node.depth > MAX_DEPTH {
            return Err(depth_error(inode, 0, node.depth, MAX_DEPTH));
        }
        Ok(node)
    }

    /// Returns a node in a block of its own.
    pub fn in_block(inode: &Inode, block: &'a Block) -> Result<Self> {
        let node = Self::decode(inode, block, block.number())?;
        if node.entries == 0 {
            return Err(node.bad_field(inode, "eh_entries", offset_of!(RawExtentHeader, eh_entries), 0));
        }
        Ok(node)
    }

    fn decode(inode: &Inode, bytes: &'a [u8], block: u64) -> Result<Self> {
        let structure = Structure::ExtentTree(inode.ino());
        let truncated = Corrupt::Truncated { structure, block, offset: 0, len: 12 };
        let (header, room) = RawExtentHeader::ref_from_prefix(bytes).map_err(|_| truncated)?;
        let found = header.eh_magic.get();
        if found != MAGIC {
            let (found, expected) = (found.into(), MAGIC.into());
            return Err(Corrupt::Magic { structure, block, found, expected }.into());
        }
        let (entries, max) = (header.eh_entries.get(), header.eh_max.get());
        let this = Self { bytes, block, depth: header.eh_depth.get(), entries };
        if max == 0 || usize::from(max).saturating_mul(size_of::<RawExtent>()) > room.len() {
            return Err(this.bad_field(inode, "eh_max", offset_of!(RawExtentHeader, eh_max), max));
        }
        if entries > max {
            return Err(this.bad_field(
                inode,
                "eh_entries",
                offset_of!(RawExtentHeader, eh_entries),
                entries,
            ));
        }
        Ok(this)
    }

    /// Returns the entries of an inner node.
    pub fn indexes(&self) -> &'a [RawExtentIndex] {
        self.after_header()
            .and_then(|bytes| <[RawExtentIndex]>::ref_from_prefix_with_elems(bytes, self.entries.into()).ok())
            .map_or(&[], |(entries, _)| entries)
    }

    /// Returns the entries of a leaf.
    pub fn extents(&self) -> &'a [RawExtent] {
        self.after_header()
            .and_then(|bytes| <[RawExtent]>::ref_from_prefix_with_elems(bytes, self.entries.into()).ok())
            .map_or(&[], |(entries, _)| entries)
    }

    fn after_header(&self) -> Option<&'a [u8]> {
        self.bytes.get(size_of::<RawExtentHeader>()..)
    }

    /// Verifies the checksum after the space for entries, which has the size `eh_max`.
    fn verify(&self, inode: &Inode) -> Result<()> {
        let max = RawExtentHeader::ref_from_prefix(self.bytes).map_or(0, |(header, _)| header.eh_max.get());
        let at = usize::from(max).saturating_mul(size_of::<RawExtent>()).saturating_add(12);
        let structure = Structure::ExtentTree(inode.ino());
        let split = self.bytes.split_at_checked(at);
        let tail = split.and_then(|(node, rest)| Some((node, RawExtentTail::ref_from_prefix(rest).ok()?.0)));
        let offset = u32::try_from(at).unwrap_or(u32::MAX);
        let (node, tail) = tail.ok_or(Corrupt::Truncated { structure, block: self.block, offset, len: 4 })?;
        let expected = Crc::new(inode.checksum_seed()).add(node).get();
        let found = tail.et_checksum.get();
        if found == expected {
            return Ok(());
        }
        Err(Corrupt::Checksum { structure, block: self.block, found, expected }.into())
    }

    /// Checks that entries are in order, do not overlap, and are within the range that the parent gives this node.
    pub fn check_entries(&self, inode: &Inode, bounds: Bounds) -> Result<()> {
        let mut free_from = bounds.start;
        let mut check = |index: usize, start: u32, len: u64| {
            let at = u64::from(start);
            let end = at.saturating_add(len);
            if at < free_from || end > bounds.end {
                let index = u16::try_from(index).unwrap_or(u16::MAX);
                return Err(Corrupt::ExtentOrder { ino: inode.ino(), block: self.block, index, at });
            }
            free_from = end;
            Ok(())
        };
        if self.depth == 0 {
            for (index, extent) in self.extents().iter().enumerate() {
                let (len, _) = extent_len(extent);
                if len == 0 {
                    let offset = index.saturating_mul(12).saturating_add(12 + 4);
                    return Err(self.bad_field(inode, "ee_len", offset, extent.ee_len.get()));
                }
                check(index, extent.ee_block.get(), len.into())?;
            }
        } else {
            for (index, entry) in self.indexes().iter().enumerate() {
                check(index, entry.ei_block.get(), 1)?;
            }
        }
        Ok(())
    }

    /// Returns the last entry that starts at or before `at`, and the range that it may map.
    fn find_child(&self, at: FileBlock, bounds: Bounds) -> Option<(VolBlock, Bounds)> {
        let entries = self.indexes();
        let after = entries.partition_point(|entry| entry.ei_block.get() <= at.0);
        let entry = entries.get(after.checked_sub(1)?)?;
        let end = entries.get(after).map_or(bounds.end, |next| next.ei_block.get().into());
        Some((index_leaf(entry), Bounds { start: entry.ei_block.get().into(), end }))
    }

    /// Returns the extent that contains `at`, from `at` on, or the hole up to the next extent.
    fn find_extent(&self, inode: &Inode, at: FileBlock, bounds: Bounds) -> Result<MappedRun> {
        let extents = self.extents();
        let after = extents.partition_point(|extent| extent.ee_block.get() <= at.0);
        let next = extents.get(after).map_or(bounds.end, |next| next.ee_block.get().into());
        let Some(extent) = after.checked_sub(1).and_then(|index| extents.get(index)) else {
            return Ok(hole(at, next));
        };
        let (len, written) = extent_len(extent);
        let skip = at.0.saturating_sub(extent.ee_block.get());
        let Some(left) = u32::from(len).checked_sub(skip).filter(|&left| left > 0) else {
            return Ok(hole(at, next));
        };
        let start = extent_start(extent);
        let structure = Structure::ExtentTree(inode.ino());
        let out_of_range =
            Corrupt::BlockRange { structure, at: at.0.into(), start: start.0, len: len.into() };
        let start = start.checked_add(skip.into()).ok_or(out_of_range)?;
        let place = if written { Blocks::Mapped(start) } else { Blocks::Unwritten(start) };
        Ok(MappedRun { len: left, place })
    }

    fn bad_field(&self, inode: &Inode, field: &'static str, offset: usize, found: u16) -> Error {
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let structure = Structure::ExtentTree(inode.ino());
        Corrupt::Field { structure, field, block: self.block, offset, found: found.into() }.into()
    }
}

/// Returns the number of blocks of an extent, and whether it is written.
pub(crate) fn extent_len(extent: &RawExtent) -> (u16, bool) {
    let len = extent.ee_len.get();
    match len.checked_sub(MAX_WRITTEN_LEN) {
        Some(unwritten) if unwritten > 0 => (unwritten, false),
        _ => (len, true),
    }
}

/// Returns the first volume block of an extent.
pub(crate) fn extent_start(extent: &RawExtent) -> VolBlock {
    VolBlock(join(extent.ee_start_lo.get(), extent.ee_start_hi.get().into()))
}

/// Returns the node below an entry.
pub(crate) fn index_leaf(entry: &RawExtentIndex) -> VolBlock {
    VolBlock(join(entry.ei_leaf_lo.get(), entry.ei_leaf_hi.get().into()))
}

/// Returns a hole from `at` to before `end`.
fn hole(at: FileBlock, end: u64) -> MappedRun {
    let len = end.saturating_sub(at.0.into()).max(1);
    MappedRun { len: u32::try_from(to_usize(len)).unwrap_or(u32::MAX), place: Blocks::Hole }
}

fn depth_error(inode: &Inode, block: u64, found: u16, expected: u16) -> Error {
    Corrupt::Depth { structure: Structure::ExtentTree(inode.ino()), block, found, expected }.into()
}

/// Returns whether a map starts like the root of an extent tree.
pub(crate) fn extents_magic(map: &[u8]) -> bool {
    map.first_chunk().is_some_and(|magic| u16::from_le_bytes(*magic) == MAGIC)
}
