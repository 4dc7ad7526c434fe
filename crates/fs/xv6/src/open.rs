//! The driver, which recognises and opens volumes. [`obento_inodes::Volume::open`] does everything that all
//! formats with a log share.

use alloc::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Access, Decoded, Driver, FileSystem, OpenOptions, Probe};
use obento_inodes::Volume;

use crate::raw::RawSuperBlock;
use crate::super_block::{BLOCK_BITS, SuperBlock, label};

/// Recognises, opens, creates and checks xv6 volumes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xv6Driver;

impl Driver for Xv6Driver {
    fn names(&self) -> &'static [&'static str] {
        &["xv6"]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        Ok(SuperBlock::read(device)?.as_ref().map(probe))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let super_block = SuperBlock::of(&*device, options.probe.as_ref())?;
        Ok(Arc::new(Volume::open(super_block, device, options)?))
    }

    obento_driver::capabilities!(format: Format, check: Check);
}

/// Returns the properties in a super block, even if it is damaged.
pub(crate) fn probe(raw: &RawSuperBlock) -> Probe {
    Probe {
        fs_type: "xv6",
        label: label(raw).to_vec(),
        uuid: Some(raw.uuid),
        len: u64::from(raw.size.get()) << BLOCK_BITS,
        decoded: Decoded::new(*raw),
        ..Probe::default()
    }
}
