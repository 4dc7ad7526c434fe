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
        let allocator = Allocator::new(sb.clusters, None, volume.used()?);
        let waiting = Waiting::new(clock, allocator, was_in_use);
        Ok(Self { waiting, bitmap_sectors: BTreeSet::new() })
    }
}
