//! Recognising and opening a volume.

use alloc::sync::Arc;

use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Decoded, Driver, FileSystem, Notice, OpenOptions, Probe};

use super::info::probe_of;
use super::volume::Volume;
use crate::layout::super_block;

/// The driver of bcachefs. It reads volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BcachefsDriver;

impl Driver for BcachefsDriver {
    fn names(&self) -> &'static [&'static str] {
        &["bcachefs"]
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        if !super_block::has_magic(device)? {
            return Ok(None);
        }
        Ok(Some(match super_block::locate(device) {
            Ok(found) => Probe { decoded: Decoded::new(found.clone()), ..probe_of(&found.0) },
            Err(_) => Probe { fs_type: "bcachefs", ..Probe::default() },
        }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let (found, damage) = Decoded::of(options.probe.as_ref(), || super_block::locate(&*device))?;
        found.expect_supported()?;
        if options.access == Access::ReadWrite {
            return Err(Error::Unsupported(Feature::Writing));
        }
        let block = found.sector.checked_div(found.block_sectors.into()).unwrap_or(0);
        let mut volume = Volume::open(device, found, options)?;
        if let Some(error) = damage {
            volume.notices.push(Notice::Damaged(error));
            volume.notices.push(Notice::BackupSuperBlock { block });
        }
        let missing = volume.missing();
        volume.notices.extend(missing);
        Ok(Arc::new(volume))
    }
}
