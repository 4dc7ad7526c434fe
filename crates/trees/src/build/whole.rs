//! The bytes of an unnamed file as a device.

use std::sync::Arc;

use obento_base::DeviceError;
use obento_block::BlockDevice;
use obento_host::build::FreshFile;

/// The bytes of an unnamed file, shared.
pub(super) struct Whole(pub(super) Arc<FreshFile>);

impl BlockDevice for Whole {
    fn len(&self) -> u64 {
        self.0.device().len()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        self.0.device().read_at(offset, buf)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> obento_base::Result<()> {
        Err(DeviceError::ReadOnly.into())
    }
    fn flush(&self) -> obento_base::Result<()> {
        Ok(())
    }
}
