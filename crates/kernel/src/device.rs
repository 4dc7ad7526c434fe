//! A block device of the kernel.

use core::ffi::c_void;
use core::ops::Range;

use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};
use obento_block::{BlockDevice, check_range};

unsafe extern "C" {
    fn ob_dev_rw(bdev: *mut c_void, write: bool, offset: u64, buf: *mut u8, len: usize) -> i32;
    fn ob_dev_flush(bdev: *mut c_void) -> i32;
    fn ob_dev_discard(bdev: *mut c_void, offset: u64, len: u64) -> i32;
    fn ob_dev_sector(bdev: *mut c_void) -> u32;
}

/// A block device of the kernel. The super block keeps it open while the volume exists.
pub(crate) struct KernelDevice {
    bdev: *mut c_void,
    len: u64,
    read_only: bool,
}

// SAFETY: any thread may use a block device of the kernel.
unsafe impl Send for KernelDevice {}
// SAFETY: the kernel orders requests to a block device itself.
unsafe impl Sync for KernelDevice {}

impl KernelDevice {
    pub(crate) fn new(bdev: *mut c_void, len: u64, read_only: bool) -> Self {
        Self { bdev, len, read_only }
    }
}

impl BlockDevice for KernelDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn sector_size(&self) -> u32 {
        // SAFETY: the device is open.
        unsafe { ob_dev_sector(self.bdev) }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = to_u64(buf.len());
        check_range(self.len, offset, len)?;
        // SAFETY: the device is open, and the buffer has this length.
        match unsafe { ob_dev_rw(self.bdev, false, offset, buf.as_mut_ptr(), buf.len()) } {
            0 => Ok(()),
            error => Err(DeviceError::Read { offset, len, errno: error.saturating_neg() }.into()),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.read_only {
            return Err(DeviceError::ReadOnly.into());
        }
        let len = to_u64(buf.len());
        check_range(self.len, offset, len)?;
        // SAFETY: the device is open, the buffer has this length, and a write does not change it.
        match unsafe { ob_dev_rw(self.bdev, true, offset, buf.as_ptr().cast_mut(), buf.len()) } {
            0 => Ok(()),
            error => Err(DeviceError::Write { offset, len, errno: error.saturating_neg() }.into()),
        }
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        // SAFETY: the device is open.
        match unsafe { ob_dev_flush(self.bdev) } {
            0 => Ok(()),
            error => Err(DeviceError::Flush { errno: error.saturating_neg() }.into()),
        }
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        if !self.read_only {
            let len = range.end.saturating_sub(range.start);
            // A device may ignore a discard, so an error changes nothing.
            // SAFETY: the device is open.
            let _ = unsafe { ob_dev_discard(self.bdev, range.start, len) };
        }
        Ok(())
    }
}
