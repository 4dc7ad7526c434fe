//! The blocks and inodes that files own.
//!
//! Invariant: the contents of an unused or damaged map are not followed; a damaged map fails with `NeedsCheck`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use obento_base::FileKind;
use obento_base::wire::{FromBytes, join, to_u64, to_usize};
use obento_driver::{ResizeRefusal, ResizeResult};

use super::super::edits::Edits;
use super::super::tree::ENTRY;
use crate::allocator::bits;
use crate::check::blocks::on_volume;
use crate::check::inode_check::RESIZE_INO;
use crate::inode::InodeFlags;
use crate::map::check::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf, numbers};
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawInode};
use crate::unit::VolBlock;

/// The inode of bad blocks: `EXT4_BAD_INO`.
const BAD_INO: u32 = 1;
/// Index of the doubly indirect block in `i_block`.
pub(super) const DOUBLY: usize = 13;

/// An extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    /// First file block.
    pub at: u32,
    /// First block of the volume.
    pub start: u64,
    /// Number of blocks.
    pub len: u16,
    pub is_unwritten: bool,
}

/// The blocks of a file.
#[derive(Clone, Debug)]
pub(super) enum OwnedMap {
    Empty,
    Extents {
        extents: Vec<Extent>,
        /// The nodes below the root.
        nodes: Vec<u64>,
    },
    /// The blocks of a block map in any order, including those of the map itself.
    Pointers(Vec<u64>),
}

impl OwnedMap {
    /// Returns a number of blocks that the map contains if no block is in it twice.
    fn least_blocks(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Extents { extents, nodes } => to_u64(extents.len().saturating_add(nodes.len())),
            Self::Pointers(blocks) => to_u64(blocks.len()),
        }
    }
}

/// A file.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub ino: u32,
    pub is_dir: bool,
    /// The length of the contents in bytes.
    pub size: u64,
    pub map: OwnedMap,
}

/// The files of a volume.
pub(super) struct Owners {
    /// In the order of their numbers.
    pub files: Vec<Owner>,
    /// The inodes that use each block of attributes.
    pub attributes: BTreeMap<u64, Vec<u32>>,
    /// The inode bitmaps of all groups. A bitmap that was never written is empty.
    pub inodes: Vec<Vec<u8>>,
    /// The number of blocks of the volume that no map has claimed yet.
    unclaimed: u64,
}

/// Reads the maps of all inodes in use.
pub(super) fn owners(edits: &mut Edits) -> ResizeResult<Owners> {
    let unclaimed = edits.view.sb.blocks_count;
    let mut owners = Owners { files: Vec::new(), attributes: BTreeMap::new(), inodes: Vec::new(), unclaimed };
    let (groups, per_group) = (edits.view.sb.groups, edits.view.sb.inodes_per_group);
    for group in 0..groups {
        let used = edits.view.used_inodes(group);
        let bitmap = if used == 0 && edits.view.has_descriptor_sums() {
            Vec::new()
        } else {
            edits.view.read(edits.view.group(group).inode_bitmap, 1)?
        };
        let records = read_table(edits, group, used)?;
        let size = usize::from(edits.view.sb.inode_size);
        for (index, record) in (0..used).zip(records.chunks_exact(size)) {
            let next = bits::next_set(&bitmap, index..index.saturating_add(1));
            if next != index {
                continue;
            }
            let ino = group.saturating_mul(per_group).saturating_add(index).saturating_add(1);
            if let Ok((raw, _)) = RawInode::ref_from_prefix(record) {
                owners.add(edits, ino, raw)?;
            }
        }
        owners.inodes.push(bitmap);
    }
    Ok(owners)
}

/// Returns the first `used` records of a table.
fn read_table(edits: &Edits, group: u32, used: u32) -> ResizeResult<Vec<u8>> {
    let sb = &edits.view.sb;
    let len = used.div_ceil(sb.inodes_per_block());
    if len == 0 {
        return Ok(Vec::new());
    }
    Ok(edits.view.read(edits.view.group(group).inode_table, len.into())?)
}

impl Owners {
    /// Returns the file with the number `ino`.
    pub(super) fn file(&self, ino: u32) -> Option<&Owner> {
        let index = self.files.binary_search_by_key(&ino, |owner| owner.ino).ok()?;
        self.files.get(index)
    }

    fn add(&mut self, edits: &mut Edits, ino: u32, raw: &RawInode) -> ResizeResult<()> {
        let attributes = u64::from(raw.i_file_acl_lo.get()) | u64::from(raw.l_i_file_acl_high.get()) << 32;
        if attributes != 0 {
            if !on_volume(&edits.view.sb, attributes, 1) {
                return Err(ResizeRefusal::NeedsCheck("an attribute block is outside the volume").into());
            }
            self.attributes.entry(attributes).or_default().push(ino);
        }
        if ino == BAD_INO && raw.i_block.iter().any(|&byte| byte != 0) {
            return Err(ResizeRefusal::Feature("bad blocks").into());
        }
        let kind = FileKind::from_mode(raw.i_mode.get());
        let maps = match kind {
            Some(FileKind::Regular | FileKind::Directory) => true,
            Some(FileKind::Symlink) => !is_fast_link(edits, raw),
            // As for the check: an inode without a type has no map.
            Some(_) | None => false,
        };
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let map = if ino == RESIZE_INO {
            let doubly = numbers(&raw.i_block).get(DOUBLY).map_or(0, |number| u64::from(number.get()));
            OwnedMap::Pointers(if doubly == 0 { Vec::new() } else { Vec::from([doubly]) })
        } else if !maps || flags.contains(InodeFlags::INLINE_DATA) || raw.i_links_count.get() == 0 {
            OwnedMap::Empty
        } else if flags.contains(InodeFlags::EXTENTS) {
            extents(edits, raw)?
        } else {
            pointers(edits, ino)?
        };
        let left = self.unclaimed.checked_sub(map.least_blocks());
        self.unclaimed = left.ok_or(ResizeRefusal::NeedsCheck("blocks belong to several files"))?;
        let size = join(raw.i_size_lo.get(), raw.i_size_high.get());
        self.files.push(Owner { ino, is_dir: kind == Some(FileKind::Directory), size, map });
        Ok(())
    }
}

/// Returns whether the target of a symbolic link is in its inode: `ext4_inode_is_fast_symlink`.
fn is_fast_link(edits: &Edits, raw: &RawInode) -> bool {
    let sectors = join(raw.i_blocks_lo.get(), raw.l_i_blocks_high.get().into());
    let sb = &edits.view.sb;
    let cluster = u64::from(sb.block_size.sectors()).saturating_mul(sb.cluster_blocks().into());
    let has_attributes = raw.i_file_acl_lo.get() != 0 || raw.l_i_file_acl_high.get() != 0;
    sectors <= if has_attributes { cluster } else { 0 }
}

fn damaged() -> ResizeRefusal {
    ResizeRefusal::NeedsCheck("the map of a file is damaged")
}

fn extents(edits: &Edits, raw: &RawInode) -> ResizeResult<OwnedMap> {
    let (mut extents, mut nodes) = (Vec::new(), Vec::new());
    let mut waiting = Vec::from([(raw.i_block.to_vec(), MAX_DEPTH)]);
    let mut seen = BTreeSet::new();
    while let Some((bytes, most)) = waiting.pop() {
        let (header, rest) = RawExtentHeader::ref_from_prefix(&bytes).map_err(|_| damaged())?;
        let depth = header.eh_depth.get();
        if header.eh_magic.get() != MAGIC || depth > most {
            return Err(damaged().into());
        }
        let count = usize::from(header.eh_entries.get());
        let entries = rest.as_chunks::<ENTRY>().0.get(..count).ok_or_else(damaged)?;
        for entry in entries {
            if depth > 0 {
                let child = RawExtentIndex::ref_from_bytes(entry).map_or(0, |index| index_leaf(index).0);
                if !on_volume(&edits.view.sb, child, 1) || !seen.insert(child) {
                    return Err(damaged().into());
                }
                nodes.push(child);
                waiting.push((edits.view.read(VolBlock(child), 1)?, depth.saturating_sub(1)));
            } else if let Ok(extent) = RawExtent::ref_from_bytes(entry) {
                let (len, is_written) = extent_len(extent);
                let start = extent_start(extent).0;
                if !on_volume(&edits.view.sb, start, len.into()) {
                    return Err(damaged().into());
                }
                extents.push(Extent { at: extent.ee_block.get(), start, len, is_unwritten: !is_written });
            }
        }
    }
    extents.sort_unstable_by_key(|extent| extent.at);
    Ok(OwnedMap::Extents { extents, nodes })
}

fn pointers(edits: &mut Edits, ino: u32) -> ResizeResult<OwnedMap> {
    let mut blocks = Vec::new();
    edits.change_pointers(ino, &mut |block| {
        blocks.push(block);
        None
    })?;
    if blocks.iter().any(|&block| !on_volume(&edits.view.sb, block, 1)) {
        return Err(damaged().into());
    }
    Ok(OwnedMap::Pointers(blocks))
}

/// Returns the index of a group in a list of all groups.
pub(super) fn at(group: u32) -> usize {
    to_usize(group.into())
}
