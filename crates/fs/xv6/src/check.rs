//! Checks a volume with the shared census, which asks [`crate::map`] for the blocks of each inode and
//! [`crate::dir`] whether an entry is in its bucket. Repairs nothing.

use alloc::sync::Arc;

use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{Check, CheckObserver, CheckOptions, CheckReport, OpenOptions, RepairMode};
use obento_inodes::{Volume, census};

use crate::open::Xv6Driver;
use crate::super_block::SuperBlock;

impl Check for Xv6Driver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        if options.repair_mode != RepairMode::Nothing {
            return Err(Error::Unsupported(Feature::Repairing));
        }
        let super_block = SuperBlock::of(&*device, options.probe.as_ref())?;
        let options = OpenOptions::new(Arc::clone(&options.clock));
        census(&Volume::open(super_block, device, &options)?, observer)
    }
}
