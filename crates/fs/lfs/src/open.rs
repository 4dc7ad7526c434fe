//! Recognising and opening a volume.

use alloc::sync::Arc;

use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Check, Decoded, Driver, FileSystem, OpenOptions, Probe};

use crate::super_block::{self, FIRST, LEN, SuperBlocks};
use crate::volume::Volume;

/// The driver of LFS. It reads and checks volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LfsDriver;

impl Driver for LfsDriver {
    fn names(&self) -> &'static [&'static str] {
        &["lfs"]
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        if device.len() < FIRST.saturating_add(obento_base::wire::to_u64(LEN)) {
            return Ok(None);
        }
        let bytes = super_block::read(device, FIRST)?;
        if super_block::encoding_of(&bytes).is_none() {
            return Ok(None);
        }
        let found = SuperBlocks::find(device, &bytes).ok();
        let first = found.iter().flat_map(|found| &found.intact).find(|found| found.at == FIRST);
        let len = first.map_or(0, |first| first.super_block.len);
        let decoded = found.map_or_else(Decoded::default, Decoded::new);
        Ok(Some(Probe { fs_type: "lfs", len, decoded, ..Probe::default() }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let found = SuperBlocks::of(&*device, options.probe.as_ref())?;
        if options.access == Access::ReadWrite {
            return Err(Error::Unsupported(Feature::Writing));
        }
        let mut volume = Volume::open(device, found.intact, options.cache)?;
        volume.roll_forward(options.replay)?;
        Ok(Arc::new(volume))
    }

    fn check(&self) -> Option<&dyn Check> {
        Some(self)
    }
}
