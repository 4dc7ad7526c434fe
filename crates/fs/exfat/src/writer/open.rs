//! Opening a volume for changes.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use obento_base::{Error, Result};
use obento_block::BlockDevice as _;
use obento_clusters::{Allocator, Volume as _, Waiting};
use obento_env::Clock;

use super::Writer;
use crate::super_block::DIRTY;
use crate::volume::Volume;

impl Writer {
    /// Opens the volume for changes and reads which clusters are free. Fails with `ReadOnly` if the device is
    /// read-only, with `OutOfBounds` if the device is shorter than the volume, or if the device fails.
    pub fn open(volume: &Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        let (device, sb) = (volume.cache().device(), volume.super_block());
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        sb.expect_changeable(&**device)?;
        let was_in_use = sb.flags & DIRTY != 0;
        let waiting = Waiting::new(clock, read_bitmap(volume)?, was_in_use);
        Ok(Self { waiting, bitmap_sectors: BTreeSet::new() })
    }
}

fn read_bitmap(volume: &Volume) -> Result<Allocator> {
    let mut bytes = alloc::vec::Vec::new();
    bytes.try_reserve_exact(obento_base::wire::to_usize(volume.super_block().bitmap_len()))?;
    volume.each_bitmap_byte(|byte| bytes.push(byte))?;
    let mut words = bytes.chunks(8).map(|chunk| {
        let bytes = chunk.iter().rev();
        bytes.fold(u64::MAX, |word, &byte| word << 8 | u64::from(byte))
    });
    // Clusters past the end of the bitmap are not free.
    Allocator::new(volume.super_block().clusters, None, |_| Ok(!words.next().unwrap_or(u64::MAX)))
}
