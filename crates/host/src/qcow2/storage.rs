//! Adapts a device to the storage interface of `imago`.

use std::fmt;
use std::io;
use std::sync::Arc;

use imago::Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::drivers::CommonStorageHelper;
use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Error};
use obento_block::{Backing, BlockDevice};

use super::header::{FEATURES_LOW_BYTE, HIDDEN};

/// The file that contains an image, or its data file or raw backing file.
pub(super) struct DeviceStorage {
    device: Arc<dyn BlockDevice>,
    /// The cluster size of the qcow2 image, or 0 for a raw image.
    cluster: u64,
    helper: CommonStorageHelper,
}

impl DeviceStorage {
    pub fn new(device: Arc<dyn BlockDevice>, cluster: u64) -> Self {
        Self { device, cluster, helper: CommonStorageHelper::default() }
    }

    /// Fills `buf` from `offset` on. The last cluster of an image may be incomplete, and its missing bytes
    /// read as zeros. A read further past the end fails.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let there = self.device.len().saturating_sub(offset).min(to_u64(buf.len()));
        let missing = to_u64(buf.len()) - there;
        if missing > 0 && (missing >= self.cluster.max(1) || there == 0) {
            let (len, device_len) = (to_u64(buf.len()), self.device.len());
            return Err(io::Error::other(Error::from(DeviceError::OutOfBounds { offset, len, device_len })));
        }
        let (part, rest) = buf.split_at_mut(to_usize(there));
        rest.fill(0);
        self.device.read_at(offset, part).map_err(io::Error::other)
    }

    /// Returns the host file and the position of the `len` bytes at `offset`.
    pub fn backing(&self, offset: u64, len: u64) -> Option<Backing> {
        let end = offset.checked_add(len)?.min(self.device.len());
        if offset < end { self.device.backing(offset..end) } else { None }
    }

    /// Clears the bits of the header that do not affect reading.
    fn patch(&self, offset: u64, buf: &mut [u8]) {
        let place = FEATURES_LOW_BYTE.checked_sub(offset).and_then(|at| buf.get_mut(to_usize(at)));
        if let Some(byte) = place.filter(|_| self.cluster > 0) {
            *byte &= !HIDDEN;
        }
    }
}

impl fmt::Debug for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceStorage({} bytes)", self.device.len())
    }
}

impl fmt::Display for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Storage for DeviceStorage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.device.len())
    }

    // The trait makes these functions `unsafe` for storages that require aligned buffers. This one has no
    // requirement. On success it has filled the whole buffer, which may be uninitialised before.
    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, mut offset: u64) -> io::Result<()> {
        for mut slice in bufv.into_inner() {
            self.read(offset, &mut slice)?;
            self.patch(offset, &mut slice);
            offset = offset.checked_add(to_u64(slice.len())).ok_or(io::ErrorKind::InvalidInput)?;
        }
        Ok(())
    }

    // As above. Nothing is written.
    unsafe fn pure_writev(&self, _bufv: IoVector<'_>, _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    // This storage has no cache.
    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }
}
