//! A device that records whether a read by the check failed.
//!
//! An unreadable block is reported like damage, so that the rest is checked, too. But the failure of the medium may
//! be temporary, or that of a cable: no repair is based on missing data, and the check finally fails with the error.
//! Invariant: after a failed read, nothing is written. A read past the end of the device is damage of the volume, and
//! not a failure.

use core::ops::Range;

use alloc::sync::Arc;
use obento_base::{DeviceError, Error, Result};
use obento_block::{Backing, BlockDevice, ReadRequest};
use obento_env::sync::Mutex;

/// Passes all requests on until a read fails.
pub(super) struct WatchedDevice {
    below: Arc<dyn BlockDevice>,
    failure: Mutex<Option<Error>>,
}

impl WatchedDevice {
    pub(super) fn new(below: Arc<dyn BlockDevice>) -> Self {
        Self { below, failure: Mutex::new(None) }
    }

    /// Fails with the error of the first read that failed.
    pub(super) fn expect_read(&self) -> Result<()> {
        self.failure.lock().map_or(Ok(()), Err)
    }

    fn noted(&self, read: Result<()>) -> Result<()> {
        if let Err(error @ Error::Device(DeviceError::Read { .. })) = read {
            self.failure.lock().get_or_insert(error);
        }
        read
    }
}

impl BlockDevice for WatchedDevice {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn flush(&self) -> Result<()>;
        fn backing(&self, range: Range<u64>) -> Option<Backing>;
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.noted(self.below.read_at(offset, buf))
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.noted(self.below.read_many(requests))
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.expect_read()?;
        self.below.write_at(offset, buf)
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.expect_read()?;
        self.below.discard(range)
    }
    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.expect_read()?;
        self.below.punch(range)
    }
}
