//! Showing a block of the volume: its use, and its bytes.

use alloc::string::ToString;

use obento_base::{Error, Result};
use obento_driver::FieldValue;
use obento_driver::record::Builder;

use super::Sink;
use super::locate::BlockUse;
use crate::unit::VolBlock;
use crate::volume::Volume;

/// Passes block `number` to `sink`.
pub(super) fn inspect(volume: &Volume, number: u64, sink: Sink<'_>) -> Result<()> {
    let sb = volume.super_block();
    if number >= sb.blocks_count {
        return Err(Error::NotFound);
    }
    let block = volume.cache().get(number)?;
    let mut builder = Builder::new("block", 0, number.saturating_mul(sb.block_size.into()));
    let place = match BlockUse::of(volume, VolBlock(number)) {
        Ok(used) => builder
            .text("use", 0, block.len(), used.to_string())
            .add("bytes", 0, block.len(), bytes(&block))
            .finish(),
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
