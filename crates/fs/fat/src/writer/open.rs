//! Opening a volume for changes.

use alloc::sync::Arc;

use obento_base::wire::FromBytes as _;
use obento_base::{Error, Result};
use obento_clusters::{Allocator, Volume as _, Waiting};
use obento_env::Clock;

use super::Writer;
use crate::info;
use crate::raw::RawFsInfo;
use crate::unit::Cluster;
use crate::volume::Volume;

impl Writer {
    /// Opens the volume for changes and reads which clusters are free. Fails with `ReadOnly` if the device is
    /// read-only, or if the device fails.
    pub fn open(volume: &Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        if volume.cache().device().is_read_only() {
            return Err(Error::ReadOnly);
        }
        let sb = volume.super_block();
        let allocator = Allocator::new(sb.clusters, hint(volume), volume.used()?);
        let was_in_use = sb.state & info::DIRTY != 0;
        Ok(Self { waiting: Waiting::new(clock, allocator, was_in_use) })
    }
}

/// Returns the place where free clusters are, according to FSInfo.
fn hint(volume: &Volume) -> Option<Cluster> {
    let sb = volume.super_block();
    let block = volume.cache().get(sb.fs_info?.checked_div(sb.sector_size.into())?).ok()?;
    let (raw, _) = RawFsInfo::ref_from_prefix(&block).ok()?;
    raw.is_valid().then(|| Cluster(raw.FSI_Nxt_Free.get()))
}
