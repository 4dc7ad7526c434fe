//! Showing the descriptor of a block group.

use obento_base::wire::{FromBytes, to_u64};
use obento_base::{Error, Result};
use obento_driver::fields;
use obento_driver::record::Builder;

use super::Sink;
use crate::group::{GroupDescriptor, verify_descriptor};
use crate::raw::{RawGroup32, RawGroupHigh};
use crate::volume::Volume;

/// Passes the descriptor of `group` to `sink`.
pub(super) fn inspect(volume: &Volume, group: u64, sink: Sink<'_>) -> Result<()> {
    let sb = volume.super_block();
    let group = u32::try_from(group).ok().filter(|&group| group < sb.groups).ok_or(Error::NotFound)?;
    let (index, offset) = sb.desc_place(group);
    let at = sb.desc_block(index, 0);
    let block = volume.cache().get(at.0)?;
    let bytes = block.get(offset..offset.saturating_add(sb.desc_size.into())).unwrap_or_default();
    let start = at.0.saturating_mul(sb.block_size.into()).saturating_add(to_u64(offset));
    let mut builder = Builder::new("group descriptor", 0, start);
    let Ok((low, rest)) = RawGroup32::ref_from_prefix(bytes) else { return Ok(()) };
    fields!(
        builder,
        low,
        RawGroup32 {
            bg_block_bitmap_lo: Number,
            bg_inode_bitmap_lo: Number,
            bg_inode_table_lo: Number,
            bg_free_blocks_count_lo: Number,
            bg_free_inodes_count_lo: Number,
            bg_used_dirs_count_lo: Number,
            bg_flags: Hex,
            bg_exclude_bitmap_lo: Number,
            bg_block_bitmap_csum_lo: Hex,
            bg_inode_bitmap_csum_lo: Hex,
            bg_itable_unused_lo: Number,
            bg_checksum: Hex,
        }
    );
    let mut record = builder.finish();
    if let Ok((high, _)) = RawGroupHigh::ref_from_prefix(rest) {
        let mut builder = Builder::new("", 0, start.saturating_add(to_u64(size_of::<RawGroup32>())));
        fields!(
            builder,
            high,
            RawGroupHigh {
                bg_block_bitmap_hi: Number,
                bg_inode_bitmap_hi: Number,
                bg_inode_table_hi: Number,
                bg_free_blocks_count_hi: Number,
                bg_free_inodes_count_hi: Number,
                bg_used_dirs_count_hi: Number,
                bg_itable_unused_hi: Number,
                bg_exclude_bitmap_hi: Number,
                bg_block_bitmap_csum_hi: Hex,
                bg_inode_bitmap_csum_hi: Hex,
                bg_reserved: Hex,
            }
        );
        record.fields.extend(builder.finish().fields);
    }
    sink(Ok(record));
    let checked = verify_descriptor(sb, group, bytes, at)
        .and_then(|()| GroupDescriptor::decode(bytes, group, at)?.check_places(sb, group));
    if let Err(error) = checked {
        sink(Err(error));
    }
    Ok(())
}
