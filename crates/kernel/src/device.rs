//! A block device of the kernel.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};
use obento_block::{BlockDevice, check_range};

use crate::abi::{Bytes, lend};

unsafe extern "C" {
    fn ob_dev_rw(bdev: *mut c_void, write: bool, offset: u64, buf: *mut u8, len: usize) -> i32;
    fn ob_dev_write_parts(bdev: *mut c_void, offset: u64, parts: *const Bytes, count: usize) -> i32;
    fn ob_dev_write_in_order(bdev: *mut c_void, offset: u64, buf: *const u8, len: usize) -> i32;
    fn ob_dev_flush(bdev: *mut c_void) -> i32;
    fn ob_dev_discard(bdev: *mut c_void, offset: u64, len: u64) -> i32;
    fn ob_dev_sector(bdev: *mut c_void) -> u32;
}

/// A block device of the kernel. The super block keeps it open while the volume exists.
pub(crate) struct KernelDevice {
    bdev: *mut c_void,
    len: u64,
    read_only: bool,
    /// The number of changes, which shows whether a driver wrote after it left.
    changes: AtomicU64,
    /// Another driver uses the device now.
    is_left: AtomicBool,
}

// SAFETY: any thread may use a block device of the kernel.
unsafe impl Send for KernelDevice {}
// SAFETY: the kernel orders requests to a block device itself.
unsafe impl Sync for KernelDevice {}

impl KernelDevice {
    pub(crate) fn new(bdev: *mut c_void, len: u64, read_only: bool) -> Self {
        Self { bdev, len, read_only, changes: AtomicU64::new(0), is_left: AtomicBool::new(false) }
    }

    /// Returns the number of writes and discards so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Makes all later changes fail, or permits them again.
    ///
    /// The caller sets the flag here, and then reads the number of changes. A change increases the number,
    /// and then reads the flag. At least one of the two threads must see the store of the other thread. All
    /// four operations therefore need a total order (`SeqCst`).
    pub(crate) fn set_left(&self, is_left: bool) {
        self.is_left.store(is_left, Ordering::SeqCst);
    }

    /// Counts a change before it is made. Fails with `ReadOnly` if the device cannot be changed.
    fn change(&self) -> Result<()> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if self.read_only || self.is_left.load(Ordering::SeqCst) {
            return Err(DeviceError::ReadOnly.into());
        }
        Ok(())
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
        self.change()?;
        let len = to_u64(buf.len());
        check_range(self.len, offset, len)?;
        // SAFETY: the device is open, the buffer has this length, and a write does not change it.
        match unsafe { ob_dev_rw(self.bdev, true, offset, buf.as_ptr().cast_mut(), buf.len()) } {
            0 => Ok(()),
            error => Err(DeviceError::Write { offset, len, errno: error.saturating_neg() }.into()),
        }
    }

    fn write_parts(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.change()?;
        let mut list: Vec<Bytes> = Vec::new();
        list.try_reserve_exact(parts.len())?;
        list.extend(parts.iter().map(|part| lend(part)));
        let len = parts.iter().fold(0, |len: u64, part| len.saturating_add(to_u64(part.len())));
        check_range(self.len, offset, len)?;
        // SAFETY: the device is open, and the list and its buffers have these lengths.
        match unsafe { ob_dev_write_parts(self.bdev, offset, list.as_ptr(), list.len()) } {
            0 => Ok(()),
            error => Err(DeviceError::Write { offset, len, errno: error.saturating_neg() }.into()),
        }
    }

    fn write_in_order(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.change()?;
        let len = to_u64(buf.len());
        check_range(self.len, offset, len)?;
        // SAFETY: the device is open, and the buffer has this length.
        match unsafe { ob_dev_write_in_order(self.bdev, offset, buf.as_ptr(), buf.len()) } {
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
        if self.change().is_ok() {
            let len = range.end.saturating_sub(range.start);
            // A device may ignore a discard, so an error changes nothing.
            // SAFETY: the device is open.
            let _ = unsafe { ob_dev_discard(self.bdev, range.start, len) };
        }
        Ok(())
    }
}
