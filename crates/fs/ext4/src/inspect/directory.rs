//! Showing the blocks of a directory, record by record, with the nodes of its index.

use obento_base::wire::{FromBytes, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result};
use obento_driver::FieldValue;
use obento_driver::fields;
use obento_driver::record::Builder;

use super::Sink;
use crate::dir::record_len;
use crate::inode::{Inode, InodeFlags};
use crate::map::Blocks;
use crate::raw::{RawDirEntry, RawDirTail, RawDxCountLimit, RawDxEntry, RawDxRootInfo};
use crate::unit::FileBlock;
use crate::volume::Volume;

/// Minimum size of a record.
const MIN_LEN: usize = 12;
/// `EXT4_FT_DIR_CSUM`: the file type of the record that contains a checksum.
const CHECKSUM_KIND: u8 = 0xde;
/// Offset of `dx_root_info` after `.` and `..` in block 0 of an indexed directory. The table follows it.
const INFO: usize = 24;
/// Offset of the table of other nodes, after one unused record.
const NODE_TABLE: usize = 8;
/// Size of the parent's number in `i_block` of an inline directory, before the records.
const INLINE_PARENT: usize = 4;

/// Passes the records of directory `ino` to `sink`.
pub(super) fn inspect(volume: &Volume, ino: Ino, sink: Sink<'_>) -> Result<()> {
    let inode = volume
        .stored_inode(ino)
        .map_err(|error| if error == Error::Stale { Error::NotFound } else { error })?;
    if !inode.is_dir() {
        return Err(Error::Invalid);
    }
    let mut show = Show { volume, dir: ino, indexed: inode.has(InodeFlags::INDEX), sink };
    if inode.has(InodeFlags::INLINE_DATA) {
        show.inline(&inode);
        return Ok(());
    }
    let sb = volume.super_block();
    let blocks = inode.size().div_ceil(sb.block_size.into()).min(sb.blocks_count);
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let mut at = 0_u32;
    while at < blocks {
        at = at.saturating_add(show.run(&inode, at, blocks));
    }
    Ok(())
}

struct Show<'a> {
    volume: &'a Volume,
    dir: Ino,
    indexed: bool,
    sink: Sink<'a>,
}

impl Show<'_> {
    /// Shows the run of blocks that starts at `at`. Returns the number of its blocks.
    fn run(&mut self, inode: &Inode, at: u32, end: u32) -> u32 {
        let run = match self.volume.map_run(inode, FileBlock(at)) {
            Ok(run) => run,
            Err(error) => {
                (self.sink)(Err(error));
                return 1;
            }
        };
        let len = run.len.min(end.saturating_sub(at)).max(1);
        match run.place {
            Blocks::Mapped(start) => {
                for into in 0..len {
                    self.block(inode, at.saturating_add(into), start.0.saturating_add(into.into()));
                }
            }
            Blocks::Unwritten(_) | Blocks::Hole => {
                (self.sink)(Err(Corrupt::DirectoryHole { dir: self.dir, at: at.into() }.into()));
            }
        }
        len
    }

    /// Shows block `at`, which is block `number` of the volume, and then its errors.
    fn block(&mut self, inode: &Inode, at: u32, number: u64) {
        let block = match self.volume.cache().get(number) {
            Ok(block) => block,
            Err(error) => return (self.sink)(Err(error)),
        };
        let start = number.saturating_mul(self.volume.block_size().into());
        let mut builder = Builder::new("directory block", 0, start);
        (self.sink)(Ok(builder.number("block", 0, block.len(), at.into()).finish()));
        self.records(&block, number, 0, start);
        if self.indexed {
            self.node(at, &block, start);
        }
        if let Err(error) = self.volume.with_directory(inode, |directory| directory.check_block(at, &block)) {
            (self.sink)(Err(error));
        }
    }

    /// Shows the table of the index in block `at`, if it has one.
    fn node(&mut self, at: u32, block: &[u8], start: u64) {
        if at == 0 {
            let info = block.get(INFO..).and_then(|bytes| RawDxRootInfo::ref_from_prefix(bytes).ok());
            let Some((info, _)) = info else { return };
            let mut builder = Builder::new("index root", 1, start.saturating_add(to_u64(INFO)));
            fields!(
                builder,
                info,
                RawDxRootInfo {
                    reserved_zero: Number,
                    hash_version: Number,
                    info_length: Number,
                    indirect_levels: Number,
                    unused_flags: Hex,
                }
            );
            (self.sink)(Ok(builder.finish()));
            self.table(block, INFO.saturating_add(info.info_length.into()), start);
        } else if is_node(block) {
            self.table(block, NODE_TABLE, start);
        }
    }

    /// Shows the records of `bytes`, which start at byte `base` of block `block` and byte `start` of the volume.
    fn records(&mut self, bytes: &[u8], block: u64, base: usize, start: u64) {
        let mut offset = 0_usize;
        while let Some((raw, rest)) =
            bytes.get(offset..).and_then(|bytes| RawDirEntry::ref_from_prefix(bytes).ok())
        {
            let len = to_usize(record_len(raw.rec_len.get(), self.volume.block_size().bytes()).into());
            let name = rest.get(..usize::from(raw.name_len).min(len)).unwrap_or_default();
            let place = start.saturating_add(to_u64(offset));
            (self.sink)(Ok(record(raw, name, bytes.get(offset..).unwrap_or_default(), place)));
            let end = offset.saturating_add(len);
            if len < MIN_LEN || !len.is_multiple_of(4) || end > bytes.len() {
                let at = u32::try_from(base.saturating_add(offset)).unwrap_or(u32::MAX);
                let rec_len = u32::try_from(len).unwrap_or(u32::MAX);
                let dir = self.dir;
                return (self.sink)(Err(Corrupt::RecordLength { dir, block, offset: at, rec_len }.into()));
            }
            offset = end;
        }
    }

    /// Shows the table of an index node, which starts at `offset` of its block.
    fn table(&mut self, block: &[u8], offset: usize, start: u64) {
        let table = block.get(offset..).unwrap_or_default();
        let Ok((head, _)) = RawDxCountLimit::ref_from_prefix(table) else { return };
        let place = start.saturating_add(to_u64(offset));
        let mut builder = Builder::new("index node", 1, place);
        fields!(builder, head, RawDxCountLimit { limit: Number, count: Number });
        (self.sink)(Ok(builder.finish()));
        let width = size_of::<RawDxEntry>();
        for (n, bytes) in (0_usize..).zip(table.chunks_exact(width)).take(head.count.get().into()) {
            let Ok(entry) = RawDxEntry::ref_from_bytes(bytes) else { break };
            let at = place.saturating_add(to_u64(n.saturating_mul(width)));
            let mut builder = Builder::new("index entry", 2, at);
            // The limit and the count are in place of the first entry's hash.
            if n > 0 {
                builder.hex("hash", 0, 4, entry.hash.get().into());
            }
            (self.sink)(Ok(builder.number("block", 4, 4, entry.block.get().into()).finish()));
        }
    }

    /// Shows an inline directory: the part in `i_block`, then the value of the attribute `system.data`.
    fn inline(&mut self, inode: &Inode) {
        let (place, size) = (inode.place(), u64::from(self.volume.block_size()));
        let start = place.block.0.saturating_mul(size).saturating_add(place.offset.into()).saturating_add(40);
        let Some((parent, records)) = inode.i_block().split_at_checked(INLINE_PARENT) else { return };
        let mut builder = Builder::new("inline directory", 0, start);
        builder.number(
            "parent",
            0,
            INLINE_PARENT,
            parent.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)),
        );
        (self.sink)(Ok(builder.finish()));
        let base = to_usize(place.offset.into());
        let first = start.saturating_add(to_u64(INLINE_PARENT));
        self.records(records, place.block.0, base.saturating_add(44), first);
        match self.volume.inline_rest_at(inode) {
            Ok((offset, rest)) => {
                let start = start.saturating_sub(40).saturating_add(to_u64(offset));
                self.records(rest, place.block.0, base.saturating_add(offset), start);
            }
            Err(error) => (self.sink)(Err(error)),
        }
    }
}

/// Returns whether a block is one unused record, as an index node appears.
fn is_node(block: &[u8]) -> bool {
    RawDirEntry::ref_from_prefix(block).is_ok_and(|(raw, _)| {
        let whole =
            usize::from(raw.rec_len.get()) == block.len() || matches!(raw.rec_len.get(), 0 | u16::MAX);
        raw.inode.get() == 0 && raw.name_len == 0 && whole
    })
}

fn record(raw: &RawDirEntry, name: &[u8], bytes: &[u8], place: u64) -> obento_driver::Record {
    let tail = RawDirTail::ref_from_prefix(bytes)
        .ok()
        .filter(|(tail, _)| tail.det_reserved_ft == CHECKSUM_KIND && tail.det_reserved_zero1.get() == 0);
    if let Some((tail, _)) = tail {
        let mut builder = Builder::new("directory checksum", 1, place);
        fields!(builder, tail, RawDirTail { det_rec_len: Number, det_reserved_ft: Hex, det_checksum: Hex });
        return builder.finish();
    }
    let mut builder = Builder::new("directory entry", 1, place);
    fields!(
        builder,
        raw,
        RawDirEntry { inode: Number, rec_len: Number, name_len: Number, file_type: Number }
    );
    builder.add("name", size_of::<RawDirEntry>(), name.len(), FieldValue::Bytes(name.to_vec()));
    builder.finish()
}
