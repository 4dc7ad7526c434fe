//! Showing an inode and its mapping.

use alloc::vec::Vec;

use obento_base::wire::le::U32;
use obento_base::wire::{FromBytes, join, to_u64};
use obento_base::{Corrupt, Error, FileKind, Ino, Result, Structure};
use obento_driver::fields;
use obento_driver::record::Builder;

use super::{Sink, xattr};
use crate::inode::InodeFlags;
use crate::raw::{RawExtent, RawExtentHeader, RawExtentIndex, RawInode, RawInodeExtra};
use crate::unit::VolBlock;
use crate::volume::Volume;

/// Byte offset of `i_block` in an inode.
const I_BLOCK: u64 = 40;
/// `EXT4_EXT_MAGIC`
const MAGIC: u16 = 0xf30a;
/// Maximum number of nodes: more than the tree of any sensible file has. It ends trees whose nodes occur again and
/// again.
const MAX_NODES: usize = 1 << 16;

/// Passes the record of `ino` and the nodes of its mapping to `sink`.
pub(super) fn inspect(volume: &Volume, ino: Ino, sink: Sink<'_>) -> Result<()> {
    let sb = volume.super_block();
    let slot = volume
        .inode_slot(ino)
        .map_err(|error| if error == Error::Stale { Error::NotFound } else { error })?;
    let block = volume.cache().get(slot.block.0)?;
    let end = slot.offset.saturating_add(sb.inode_size.into());
    let record = block.get(slot.offset..end).unwrap_or_default();
    let start = slot.block.0.saturating_mul(sb.block_size.into()).saturating_add(to_u64(slot.offset));
    let Ok((raw, rest)) = RawInode::ref_from_prefix(record) else { return Ok(()) };
    sink(Ok(fields_of(raw, rest, start)));
    // A free inode has no mapping, and its checksum has no meaning.
    if raw.i_links_count.get() == 0 && raw.i_mode.get() == 0 {
        return Ok(());
    }
    match volume.stored_inode(ino) {
        Ok(inode) => xattr::inspect(volume, &inode, sink),
        Err(Error::Stale) => {}
        Err(error) => sink(Err(error)),
    }
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let place = start.saturating_add(I_BLOCK);
    let kind = FileKind::from_mode(raw.i_mode.get());
    if flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    if flags.contains(InodeFlags::EXTENTS) {
        Walk { volume, ino, left: MAX_NODES }.extents(&raw.i_block, place, sink);
    } else if matches!(kind, Some(FileKind::Regular | FileKind::Directory)) || raw.i_blocks_lo.get() != 0 {
        Walk { volume, ino, left: MAX_NODES }.indirect(&raw.i_block, place, sink);
    }
    Ok(())
}

fn fields_of(raw: &RawInode, rest: &[u8], start: u64) -> obento_driver::Record {
    let mut builder = Builder::new("inode", 0, start);
    fields!(
        builder,
        raw,
        RawInode {
            i_mode: Hex,
            i_uid: Number,
            i_size_lo: Number,
            i_atime: Number,
            i_ctime: Number,
            i_mtime: Number,
            i_dtime: Number,
            i_gid: Number,
            i_links_count: Number,
            i_blocks_lo: Number,
            i_flags: Hex,
            l_i_version: Number,
            i_block: Bytes,
            i_generation: Number,
            i_file_acl_lo: Number,
            i_size_high: Number,
            i_obso_faddr: Number,
            l_i_blocks_high: Number,
            l_i_file_acl_high: Number,
            l_i_uid_high: Number,
            l_i_gid_high: Number,
            l_i_checksum_lo: Hex,
            l_i_reserved: Hex,
        }
    );
    let mut record = builder.finish();
    if let Ok((extra, _)) = RawInodeExtra::ref_from_prefix(rest) {
        let mut builder = Builder::new("", 0, start.saturating_add(to_u64(size_of::<RawInode>())));
        fields!(
            builder,
            extra,
            RawInodeExtra {
                i_extra_isize: Number,
                i_checksum_hi: Hex,
                i_ctime_extra: Number,
                i_mtime_extra: Number,
                i_atime_extra: Number,
                i_crtime: Number,
                i_crtime_extra: Number,
                i_version_hi: Number,
                i_projid: Number,
            }
        );
        record.fields.extend(builder.finish().fields);
    }
    record
}

/// A walk over the blocks that map a file.
struct Walk<'v> {
    volume: &'v Volume,
    ino: Ino,
    left: usize,
}

/// A node that will be shown: its block, and its level according to its parent.
type Pending = (VolBlock, u16);

impl Walk<'_> {
    fn extents(&mut self, root: &[u8], start: u64, sink: Sink<'_>) {
        let structure = Structure::ExtentTree(self.ino);
        let mut pending = Vec::new();
        self.extent_node(root, 0, start, None, &mut pending, sink);
        while let Some((at, depth)) = pending.pop() {
            match self.volume.data_block(at, structure) {
                Ok(block) => {
                    let start = at.0.saturating_mul(self.volume.block_size().into());
                    self.extent_node(&block, at.0, start, Some(depth), &mut pending, sink);
                }
                Err(error) => sink(Err(error)),
            }
        }
    }

    /// Shows a node and its entries, and adds its children, the first of which is shown next.
    fn extent_node(
        &mut self,
        bytes: &[u8],
        block: u64,
        start: u64,
        expected: Option<u16>,
        pending: &mut Vec<Pending>,
        sink: Sink<'_>,
    ) {
        let structure = Structure::ExtentTree(self.ino);
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let Ok((header, rest)) = RawExtentHeader::ref_from_prefix(bytes) else { return };
        let depth = header.eh_depth.get();
        let mut builder = Builder::new("extent header", 1, start);
        fields!(
            builder,
            header,
            RawExtentHeader {
                eh_magic: Hex,
                eh_entries: Number,
                eh_max: Number,
                eh_depth: Number,
                eh_generation: Number
            }
        );
        sink(Ok(builder.finish()));
        if header.eh_magic.get() != MAGIC {
            let (found, expected) = (header.eh_magic.get().into(), MAGIC.into());
            return sink(Err(Corrupt::Magic { structure, block, found, expected }.into()));
        }
        if let Some(expected) = expected.filter(|&expected| expected != depth) {
            return sink(Err(Corrupt::Depth { structure, block, found: depth, expected }.into()));
        }
        let entries = rest.chunks_exact(size_of::<RawExtent>()).take(header.eh_entries.get().into());
        let mut at = start.saturating_add(to_u64(size_of::<RawExtentHeader>()));
        let first_child = pending.len();
        for entry in entries {
            match depth.checked_sub(1) {
                None => show_extent(entry, at, sink),
                Some(below) => pending.extend(show_index(entry, at, sink).map(|child| (child, below))),
            }
            at = at.saturating_add(to_u64(size_of::<RawExtent>()));
        }
        // The last one is shown first.
        pending.get_mut(first_child..).unwrap_or_default().reverse();
        pending.truncate(self.left);
    }

    fn indirect(&mut self, i_block: &[u8], start: u64, sink: Sink<'_>) {
        let structure = Structure::IndirectBlock(self.ino);
        let (direct, roots) = i_block.split_at_checked(48).unwrap_or_default();
        show_numbers(direct, start, sink);
        let roots = numbers(roots).zip(1_u16..);
        let mut pending: Vec<Pending> = roots.filter(|&(block, _)| block.0 != 0).collect();
        show_numbers(i_block.get(48..).unwrap_or_default(), start.saturating_add(48), sink);
        pending.reverse();
        while let (Some((at, level)), Some(left)) = (pending.pop(), self.left.checked_sub(1)) {
            self.left = left;
            match self.volume.data_block(at, structure) {
                Ok(block) => {
                    show_numbers(&block, at.0.saturating_mul(self.volume.block_size().into()), sink);
                    if let Some(below) = level.checked_sub(1).filter(|&below| below > 0) {
                        let children: Vec<_> = numbers(&block).filter(|block| block.0 != 0).collect();
                        pending.extend(children.into_iter().rev().map(|child| (child, below)));
                        pending.truncate(self.left);
                    }
                }
                Err(error) => sink(Err(error)),
            }
        }
    }
}

fn show_extent(bytes: &[u8], start: u64, sink: Sink<'_>) {
    let Ok(raw) = RawExtent::ref_from_bytes(bytes) else { return };
    let mut builder = Builder::new("extent", 2, start);
    fields!(
        builder,
        raw,
        RawExtent { ee_block: Number, ee_len: Number, ee_start_hi: Number, ee_start_lo: Number }
    );
    sink(Ok(builder.finish()));
}

fn show_index(bytes: &[u8], start: u64, sink: Sink<'_>) -> Option<VolBlock> {
    let raw = RawExtentIndex::ref_from_bytes(bytes).ok()?;
    let mut builder = Builder::new("extent index", 2, start);
    fields!(builder, raw, RawExtentIndex { ei_block: Number, ei_leaf_lo: Number, ei_leaf_hi: Number });
    sink(Ok(builder.finish()));
    Some(VolBlock(join(raw.ei_leaf_lo.get(), raw.ei_leaf_hi.get().into())))
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = VolBlock> {
    bytes
        .chunks_exact(size_of::<U32>())
        .map(|number| VolBlock(U32::ref_from_bytes(number).map_or(0, |number| number.get().into())))
}

/// Shows block numbers, contiguous ones as one field; holes are omitted.
fn show_numbers(bytes: &[u8], start: u64, sink: Sink<'_>) {
    let mut builder = Builder::new("block numbers", 1, start);
    let mut run: Option<(usize, u64, usize)> = None;
    let width = size_of::<U32>();
    for (n, block) in (0_usize..).zip(numbers(bytes)) {
        let at = n.saturating_mul(width);
        run = match run {
            Some((first, base, count)) if block.0 != 0 && base.saturating_add(to_u64(count)) == block.0 => {
                Some((first, base, count.saturating_add(1)))
            }
            other => {
                if let Some((first, base, count)) = other {
                    builder.number("blocks", first, count.saturating_mul(width), base);
                }
                (block.0 != 0).then_some((at, block.0, 1))
            }
        };
    }
    if let Some((first, base, count)) = run {
        builder.number("blocks", first, count.saturating_mul(width), base);
    }
    let record = builder.finish();
    if !record.fields.is_empty() {
        sink(Ok(record));
    }
}
