//! A device that a check looks at, and remembers that it failed to read.
//!
//! What cannot be read is told like what is wrong, so that the rest is looked at, too. But the medium's failure may pass, or be that of a
//! cable: nothing is mended by what was not read, and the check answers with the failure in the end.
//! Invariant: behind a read that failed nothing is written. What lies past the end of the device is damage of the volume, and no failure.

use core::ops::Range;

use alloc::sync::Arc;
use obento_base::{DeviceError, Error, Result};
use obento_block::{Backing, BlockDevice, ReadRequest};
use obento_env::sync::Mutex;

/// Passes everything on, until a read fails.
pub(super) struct Watched {
    below: Arc<dyn BlockDevice>,
    failure: Mutex<Option<Error>>,
}

impl Watched {
    pub(super) fn new(below: Arc<dyn BlockDevice>) -> Self {
        Self { below, failure: Mutex::new(None) }
    }

    /// Errors: of the first read that failed.
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

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn sector_size(&self) -> u32 {
        self.below.sector_size()
    }
    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
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
    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.expect_read()?;
        self.below.discard(range)
    }
    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.expect_read()?;
        self.below.punch(range)
    }
    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        self.below.backing(range)
    }
}
