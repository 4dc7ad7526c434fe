//! The contract of a block device: see [`BlockDevice`].

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::ops::Range;

use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};

/// A range of bytes on a medium. All offsets and lengths are in bytes. All methods take `&self`, and any
/// thread may call any method at any time: a device locks internally if necessary.
///
/// `OutOfBounds`, `Read`, `Write` and `Flush` are the variants of [`DeviceError`]. If several errors of a
/// numbered list apply, the method fails with the first one. A device that stores data in memory can also
/// fail with `NoMemory`.
///
/// Invariant: only [`flush`](Self::flush) and [`write_in_order`](Self::write_in_order) order writes. After a
/// successful call of either method, all data that was written before the call is on stable storage. After a power
/// failure, each sector that was written since the last such call has its old or its new contents, independently of
/// other sectors. A sector of [`sector_size`](Self::sector_size) bytes never has a mixture of both.
///
/// A read that runs at the same time as a write of the same bytes may return a mixture of old and new bytes.
pub trait BlockDevice: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sector size in bytes: 512 or 4096 on real disks. A sector starts at a multiple of its
    /// size. A power failure never leaves a sector partially written. Reads and writes need not be aligned to
    /// sectors.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Returns whether the device rejects all writes with [`DeviceError::ReadOnly`].
    fn is_read_only(&self) -> bool;

    /// Fills `buf` with the bytes of the device from byte `offset` on.
    ///
    /// # Errors
    ///
    /// 1. `OutOfBounds`: a byte is past the end. The contents of `buf` are unspecified.
    /// 2. `Read`: the medium failed.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Performs several reads, in any order or in parallel. Fails with the first error of
    /// [`read_at`](Self::read_at) that occurs. After an error, the contents of all buffers are unspecified.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|request| self.read_at(request.offset, request.buf))
    }

    /// Writes all of `buf` at byte `offset`.
    ///
    /// # Errors
    ///
    /// 1. `DeviceError::ReadOnly`: the device is read-only.
    /// 2. `OutOfBounds`: a byte is past the end.
    /// 3. `Write`: the medium failed. Any part of the range may have been written.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;

    /// Returns once all data written before the call is on stable storage.
    ///
    /// # Errors
    ///
    /// - `Flush`: the medium failed. Data written since the last successful flush may be lost.
    fn flush(&self) -> Result<()>;

    /// Writes `parts`, one after the other, from byte `offset` on. A device may write the parts without a copy. The
    /// default implementation copies the parts to one buffer.
    ///
    /// # Errors
    ///
    /// As for [`write_at`](Self::write_at), or `NoMemory` if memory for the buffer is exhausted.
    fn write_parts(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if let [only] = parts {
            return self.write_at(offset, only);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(parts.iter().fold(0, |len: usize, part| len.saturating_add(part.len())))?;
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.write_at(offset, &bytes)
    }

    /// Makes all data that was written before the call durable, and then writes all of `buf` at byte `offset`. Returns
    /// once `buf` is on stable storage, too. A device may do so in one request. The default implementation flushes
    /// before and after the write.
    ///
    /// # Errors
    ///
    /// As for [`write_at`](Self::write_at) and [`flush`](Self::flush).
    fn write_in_order(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.flush()?;
        self.write_at(offset, buf)?;
        self.flush()
    }

    /// Informs the device that the bytes of `range` are no longer needed. Their contents are unspecified
    /// afterwards. A device that does not support discarding only checks `range`, and then succeeds, even if
    /// the device is read-only.
    ///
    /// # Errors
    ///
    /// - `OutOfBounds`: a byte is past the end.
    /// - `DeviceError::ReadOnly` or `Write`: the device supports discarding, and is read-only or fails.
    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_range(self.len(), range.start, range.end.saturating_sub(range.start))
    }

    /// Makes the bytes of `range` read as zeros, if the device can do so without writing the bytes. Returns
    /// whether all bytes of `range` read as zeros now. If the result is `false`, the caller must write zeros.
    ///
    /// # Errors
    ///
    /// 1. `DeviceError::ReadOnly`: the device is read-only.
    /// 2. `OutOfBounds`: a byte is past the end.
    /// 3. `Write`: the medium failed.
    fn punch(&self, range: Range<u64>) -> Result<bool> {
        if self.is_read_only() {
            return Err(DeviceError::ReadOnly.into());
        }
        check_range(self.len(), range.start, range.end.saturating_sub(range.start))?;
        Ok(false)
    }

    /// Returns the number of bytes at the start of `range` that certainly read as zeros. The device
    /// determines the number without reading the bytes. Returns 0 if the first byte may differ from zero, or
    /// if the device has no information. `range` must be on the device.
    fn known_zeros(&self, range: Range<u64>) -> u64 {
        let _ = range;
        0
    }

    /// Returns the object of the host that contains the bytes at the start of `range`. A host can copy the bytes from
    /// that object without passing them through the memory of the process. Returns `None` if the host must call
    /// [`read_at`](Self::read_at) instead.
    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        let _ = range;
        None
    }
}

/// A request of [`BlockDevice::read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Byte offset on the device.
    pub offset: u64,
    /// Destination; its length is the number of bytes to read.
    pub buf: &'a mut [u8],
}

/// The location of a range of a device in the host.
#[derive(Clone)]
pub struct Backing {
    /// Object of the host. Only `obento-host` interprets it.
    pub object: Arc<dyn Any + Send + Sync>,
    /// Byte offset in the object.
    pub offset: u64,
    /// Number of contiguous bytes: at least 1, at most the requested length.
    pub len: u64,
}

/// Checks that `len` bytes at `offset` are on a device of `device_len` bytes. Fails with `OutOfBounds` otherwise.
pub fn check_range(device_len: u64, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(DeviceError::OutOfBounds { offset, len, device_len }.into()),
    }
}

/// Calls [`check_range`] for a buffer.
pub(crate) fn check_buf(device_len: u64, offset: u64, buf: &[u8]) -> Result<()> {
    check_range(device_len, offset, to_u64(buf.len()))
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    obento_base::forward! { (**self);
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
        fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()>;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
        fn flush(&self) -> Result<()>;
        fn write_parts(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;
        fn write_in_order(&self, offset: u64, buf: &[u8]) -> Result<()>;
        fn discard(&self, range: Range<u64>) -> Result<()>;
        fn punch(&self, range: Range<u64>) -> Result<bool>;
        fn known_zeros(&self, range: Range<u64>) -> u64;
        fn backing(&self, range: Range<u64>) -> Option<Backing>;
    }
}
