//! Showing the extended attributes of an inode: those after its fields, and those in a block of their own.

use obento_base::wire::le::U32;
use obento_base::wire::{FromBytes, to_u64, to_usize};
use obento_base::{Corrupt, Structure};
use obento_driver::FieldValue;
use obento_driver::fields;
use obento_driver::record::Builder;

use super::Sink;
use crate::inode::Inode;
use crate::raw::{RawXattrEntry, RawXattrHeader};
use crate::volume::Volume;

/// `EXT4_XATTR_MAGIC`
const MAGIC: u32 = 0xea02_0000;

/// Passes the attributes of `inode` to `sink`.
pub(super) fn inspect(volume: &Volume, inode: &Inode, sink: Sink<'_>) {
    let size = u64::from(volume.block_size());
    if let Some(offset) = inode.xattr_offset() {
        let place = inode.place();
        let start = place.block.0.saturating_mul(size).saturating_add(place.offset.into());
        in_inode(inode, start.saturating_add(offset.into()), sink);
    }
    let Some(number) = inode.xattr_block() else { return };
    let structure = Structure::Xattr(inode.ino());
    match volume.data_block(number, structure) {
        Ok(block) => in_block(&block, inode, number.0, number.0.saturating_mul(size), sink),
        Err(error) => sink(Err(error)),
    }
}

/// Shows the attributes in an inode. Offsets of values count from the first entry, which follows the magic number.
fn in_inode(inode: &Inode, start: u64, sink: Sink<'_>) {
    let bytes = inode.xattr_bytes();
    let Ok((magic, entries)) = U32::ref_from_prefix(bytes) else { return };
    // Without it there are no attributes here.
    if magic.get() != MAGIC {
        return;
    }
    let mut builder = Builder::new("attribute header", 1, start);
    sink(Ok(builder.hex("h_magic", 0, 4, magic.get().into()).finish()));
    let first = start.saturating_add(4);
    Entries { inode, block: inode.place().block.0, values: entries, values_at: first }
        .show(entries, first, sink);
}

/// Shows the attributes in a block. Offsets of values count from the start of the block.
fn in_block(bytes: &[u8], inode: &Inode, block: u64, start: u64, sink: Sink<'_>) {
    let Ok((header, entries)) = RawXattrHeader::ref_from_prefix(bytes) else { return };
    let mut builder = Builder::new("attribute header", 1, start);
    fields!(
        builder,
        header,
        RawXattrHeader { h_magic: Hex, h_refcount: Number, h_blocks: Number, h_hash: Hex, h_checksum: Hex }
    );
    sink(Ok(builder.finish()));
    if header.h_magic.get() != MAGIC {
        let (structure, found) = (Structure::Xattr(inode.ino()), header.h_magic.get().into());
        return sink(Err(Corrupt::Magic { structure, block, found, expected: MAGIC.into() }.into()));
    }
    let first = start.saturating_add(to_u64(size_of::<RawXattrHeader>()));
    Entries { inode, block, values: bytes, values_at: start }.show(entries, first, sink);
}

/// Entries, and the origin of the offsets of their values.
struct Entries<'a> {
    inode: &'a Inode,
    block: u64,
    values: &'a [u8],
    values_at: u64,
}

impl Entries<'_> {
    /// Shows entries up to the four zeros that end them.
    fn show(&self, mut bytes: &[u8], mut start: u64, sink: Sink<'_>) {
        while bytes.get(..4).is_some_and(|head| head != [0; 4]) {
            let Ok((raw, rest)) = RawXattrEntry::ref_from_prefix(bytes) else { break };
            let padded = usize::from(raw.e_name_len).next_multiple_of(4);
            let (Some(name), Some(next)) = (rest.get(..raw.e_name_len.into()), rest.get(padded..)) else {
                let structure = Structure::Xattr(self.inode.ino());
                let offset = u32::try_from(start.checked_rem(65536).unwrap_or(0)).unwrap_or(0);
                let len = raw.e_name_len.into();
                return sink(Err(Corrupt::Truncated { structure, block: self.block, offset, len }.into()));
            };
            sink(Ok(self.entry(raw, name, start)));
            start = start.saturating_add(to_u64(bytes.len().saturating_sub(next.len())));
            bytes = next;
        }
    }

    fn entry(&self, raw: &RawXattrEntry, name: &[u8], start: u64) -> obento_driver::Record {
        let mut builder = Builder::new("attribute", 2, start);
        fields!(
            builder,
            raw,
            RawXattrEntry {
                e_name_len: Number,
                e_name_index: Number,
                e_value_offs: Number,
                e_value_inum: Number,
                e_value_size: Number,
                e_hash: Hex,
            }
        );
        builder.add("e_name", size_of::<RawXattrEntry>(), name.len(), FieldValue::Bytes(name.to_vec()));
        let mut record = builder.finish();
        let offset = usize::from(raw.e_value_offs.get());
        let end = offset.saturating_add(to_usize(raw.e_value_size.get().into()));
        // A value in an inode of its own is elsewhere, and an empty value has no place.
        let is_here = offset < end && raw.e_value_inum.get() == 0;
        if let Some(value) = self.values.get(offset..end).filter(|_| is_here) {
            let mut builder = Builder::new("", 2, self.values_at);
            builder.add("value", offset, value.len(), FieldValue::Bytes(value.to_vec()));
            record.fields.extend(builder.finish().fields);
        }
        record
    }
}
