//! A block of the volume: what it is used for, and its bytes.

use alloc::format;
use alloc::string::String;

use obento_base::{Bitmap, Error, Result};
use obento_driver::FieldValue;

use super::Sink;
use super::fields::Builder;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::unit::VolBlock;
use crate::volume::Volume;

/// Hands block `number` to `sink`.
pub(super) fn inspect(volume: &Volume, number: u64, sink: Sink<'_>) -> Result<()> {
    let sb = volume.super_block();
    if number >= sb.blocks_count {
        return Err(Error::NotFound);
    }
    let block = volume.cache().get(number)?;
    let mut builder = Builder::new("block", 0, number.saturating_mul(sb.block_size.into()));
    let place = match purpose(volume, VolBlock(number)) {
        Ok(purpose) => {
            builder.text("use", 0, block.len(), purpose).add("bytes", 0, block.len(), bytes(&block)).finish()
        }
        Err(error) => {
            sink(Ok(builder.add("bytes", 0, block.len(), bytes(&block)).finish()));
            sink(Err(error));
            return Ok(());
        }
    };
    sink(Ok(place));
    Ok(())
}

fn bytes(block: &[u8]) -> FieldValue {
    FieldValue::Bytes(block.to_vec())
}

fn purpose(volume: &Volume, block: VolBlock) -> Result<String> {
    let sb = volume.super_block();
    let Some(group) = sb.group_of(block) else { return Ok(String::from("boot block")) };
    let (copies, len) = sb.copy_blocks(group);
    if (copies.0..copies.0.saturating_add(len)).contains(&block.0) {
        let what = if block == sb.group_start(group) && sb.has_copy(group) {
            "super block"
        } else {
            "group descriptors"
        };
        return Ok(format!("{what}, copy in group {group}"));
    }
    for owner in sb.flex_groups(group) {
        // A descriptor that cannot be read names no block.
        let Ok(descriptor) = volume.group(owner) else { continue };
        if let Some(what) = in_group(volume, &descriptor, block) {
            return Ok(format!("{what} of group {owner}"));
        }
    }
    if sb.raw.s_journal_inum.get() != 0
        && let Ok(Some(journal)) = volume.journal()
        && let Some(at) = journal.runs().position(block.0)
    {
        return Ok(format!("block {at} of the journal"));
    }
    let used = is_allocated(volume, group, block)?;
    Ok(String::from(if used { "file data or metadata of files" } else { "free" }))
}

fn in_group(volume: &Volume, descriptor: &GroupDescriptor, block: VolBlock) -> Option<&'static str> {
    let table = descriptor.inode_table.0;
    let end = table.saturating_add(volume.super_block().inode_table_blocks().into());
    match block {
        _ if block == descriptor.block_bitmap => Some("block bitmap"),
        _ if block == descriptor.inode_bitmap => Some("inode bitmap"),
        _ if (table..end).contains(&block.0) => Some("inode table"),
        _ => None,
    }
}

fn is_allocated(volume: &Volume, group: u32, block: VolBlock) -> Result<bool> {
    let sb = volume.super_block();
    let descriptor = volume.group(group)?;
    if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
        return Ok(false);
    }
    let inside = block.0.saturating_sub(sb.group_start(group).0);
    let cluster = inside.checked_div(sb.cluster_blocks().into()).unwrap_or(0);
    let bitmap = volume.cache().get(descriptor.block_bitmap.0)?;
    let bit = u32::try_from(cluster).ok().and_then(|bit| Bitmap::new(&bitmap).get(bit));
    Ok(bit.unwrap_or(false))
}
