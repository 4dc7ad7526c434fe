//! Recognising and opening a volume.

use alloc::sync::Arc;

use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Check, Driver, FileSystem, OpenOptions, Probe};

use crate::super_block::{self, FIRST, LEN, SuperBlock};
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
        let len = SuperBlock::decode(&bytes, FIRST).map_or(0, |found| found.len);
        Ok(Some(Probe { fs_type: "lfs", len, ..Probe::default() }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let found = super_block::locate(&*device)?;
        if options.access == Access::ReadWrite {
            return Err(Error::Unsupported(Feature::Writing));
        }
        let mut volume = Volume::open(device, found, options.cache)?;
        volume.roll_forward(options.replay)?;
        Ok(Arc::new(volume))
    }

    fn check(&self) -> Option<&dyn Check> {
        Some(self)
    }
}
