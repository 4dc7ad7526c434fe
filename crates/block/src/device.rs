//! The contract of a device.
//!
//! Invariant: only `flush` orders writes. What was written since the last flush may be applied, lost or torn at the
//! grain of a sector, in any order; what was written before it is on stable storage.

use alloc::sync::Arc;
use core::any::Any;
use core::ops::Range;

use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};

/// A range of bytes on some medium. All methods take `&self`: devices lock inside themselves or need not.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there is not a single byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The grain in bytes at which a write may tear when the power fails: 512 or 4096 on real disks.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Whether every write will be refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buf` from byte `offset` on. Errors, the first that holds: `OutOfBounds` if any byte lies past the end
    /// (`buf` is then unspecified); `Read` from the medium.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Does many reads, in any order or at once. Stops at the first error; the other buffers are then unspecified.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|request| self.read_at(request.offset, request.buf))
    }

    /// Writes `buf` at byte `offset`. Errors, the first that holds: `DeviceError::ReadOnly`; `OutOfBounds`; `Write`
    /// from the medium, after which any part of the range may have been written.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;

    /// Returns once everything written before the call is on stable storage.
    fn flush(&self) -> Result<()>;

    /// Says that the bytes of `range` are not needed. What they read as afterwards is unspecified; a device that
    /// cannot forget does nothing.
    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_range(self.len(), range.start, range.end.saturating_sub(range.start))
    }

    /// Makes the bytes of `range` read as zeros, if the medium can do that without writing them; answers whether it
    /// did. Errors, the first that holds: `DeviceError::ReadOnly`; `OutOfBounds`; `Write`.
    fn punch(&self, range: Range<u64>) -> Result<bool> {
        if self.is_read_only() {
            return Err(DeviceError::ReadOnly.into());
        }
        check_range(self.len(), range.start, range.end.saturating_sub(range.start))?;
        Ok(false)
    }

    /// The host's object that holds the bytes of `range`, as far as one object holds them from its start on, so that
    /// a host can copy without passing them through memory. `None`: read them.
    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        let _ = range;
        None
    }
}

/// One read of [`BlockDevice::read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Byte offset on the device.
    pub offset: u64,
    /// Where the bytes go; its length is how many are read.
    pub buf: &'a mut [u8],
}

/// Where a range of a device lies in the host.
#[derive(Clone)]
pub struct Backing {
    /// The host's object; `obento-host` knows its type.
    pub object: Arc<dyn Any + Send + Sync>,
    /// Byte offset in it.
    pub offset: u64,
    /// How many bytes are contiguous there, at least 1 and at most the length asked for.
    pub len: u64,
}

/// `OutOfBounds` unless the `len` bytes at `offset` lie on a device of `device_len` bytes.
pub fn check_range(device_len: u64, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(DeviceError::OutOfBounds { offset, len, device_len }.into()),
    }
}

/// [`check_range`] for a buffer.
pub(crate) fn check_buf(device_len: u64, offset: u64, buf: &[u8]) -> Result<()> {
    check_range(device_len, offset, to_u64(buf.len()))
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn sector_size(&self) -> u32 {
        (**self).sector_size()
    }
    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buf)
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        (**self).read_many(requests)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        (**self).write_at(offset, buf)
    }
    fn flush(&self) -> Result<()> {
        (**self).flush()
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        (**self).discard(range)
    }
    fn punch(&self, range: Range<u64>) -> Result<bool> {
        (**self).punch(range)
    }
    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        (**self).backing(range)
    }
}
