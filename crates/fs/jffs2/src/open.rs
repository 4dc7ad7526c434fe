//! Recognising and opening a volume.

use alloc::sync::Arc;

use obento_base::{Corrupt, Error, Feature, Result, Structure};
use obento_block::BlockDevice;
use obento_driver::{Access, Decoded, Driver, Evidence, FileSystem, OpenOptions, Probe};

use crate::order::Order;
use crate::scan::{IMAGE_MAX, order_at};
use crate::volume::Volume;

/// The driver of JFFS2. It reads, checks and builds images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Jffs2Driver;

/// The smallest and the largest erase block at whose end a node is looked for.
const ERASE_BLOCKS: core::ops::RangeInclusive<u32> = 12..=20;

/// Returns the byte order of the first node, and whether it is at the start.
///
/// # Errors
///
/// Those of the device.
pub(crate) fn locate(device: &dyn BlockDevice) -> Result<Option<(Order, Evidence)>> {
    if let Some(order) = order_at(device, 0)? {
        return Ok(Some((order, Evidence::Signature)));
    }
    let mut start = [0; 4];
    if device.len() < 4 {
        return Ok(None);
    }
    device.read_at(0, &mut start)?;
    // The first erase block of a flash chip may be erased. Any other start is that of another format.
    if start != [0xff; 4] {
        return Ok(None);
    }
    for bits in ERASE_BLOCKS {
        if let Some(order) = order_at(device, 1_u64.checked_shl(bits).unwrap_or(IMAGE_MAX))? {
            return Ok(Some((order, Evidence::Traces)));
        }
    }
    Ok(None)
}

/// Returns the byte order of a volume, which `probe` may contain.
///
/// # Errors
///
/// - `Corrupt`: there is no node where the first one is expected.
pub(crate) fn order_of(device: &dyn BlockDevice, probe: Option<&Probe>) -> Result<Order> {
    let (structure, expected) = (Structure::Node, crate::raw::MAGIC.into());
    let missing = Corrupt::Magic { structure, block: 0, found: 0, expected };
    Decoded::of(probe, || Ok(locate(device)?.ok_or(missing)?.0))
}

impl Driver for Jffs2Driver {
    fn names(&self) -> &'static [&'static str] {
        &["jffs2"]
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        let found = locate(device)?;
        Ok(found.map(|(order, evidence)| Probe {
            fs_type: "jffs2",
            len: device.len().min(IMAGE_MAX),
            evidence,
            decoded: Decoded::new(order),
            ..Probe::default()
        }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let order = order_of(&*device, options.probe.as_ref())?;
        if options.access == Access::ReadWrite {
            return Err(Error::Unsupported(Feature::Writing));
        }
        Ok(Arc::new(Volume::open(device, order, options.cache)?))
    }

    obento_driver::capabilities!(format: Format, build: Build, check: Check);
}
