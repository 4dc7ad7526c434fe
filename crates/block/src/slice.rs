//! A part of another device: a partition.

use core::ops::Range;

use obento_base::{DeviceError, Result};

use crate::device::{Backing, BlockDevice, check_buf, check_range};

/// The bytes `start..start + len` of another device.
#[derive(Debug)]
pub struct Slice<D> {
    inner: D,
    start: u64,
    len: u64,
}

impl<D: BlockDevice> Slice<D> {
    /// Creates a slice of `range`. If `range` extends past the end of `inner`, the slice ends at the end of `inner`.
    /// The rest of a truncated image therefore stays readable.
    ///
    /// # Errors
    ///
    /// - `OutOfBounds`: no part of `range` is on `inner`.
    pub fn new(inner: D, range: Range<u64>) -> Result<Self> {
        let device_len = inner.len();
        let len = range.end.min(device_len).checked_sub(range.start).filter(|&len| len > 0);
        let Some(len) = len else {
            let len = range.end.saturating_sub(range.start);
            return Err(DeviceError::OutOfBounds { offset: range.start, len, device_len }.into());
        };
        Ok(Self { inner, start: range.start, len })
    }

    /// Converts byte `offset` of the slice to an offset of the underlying device. Saturates, so that the
    /// underlying device rejects an offset that is too large.
    fn below(&self, offset: u64) -> u64 {
        self.start.saturating_add(offset)
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(DeviceError::ReadOnly.into()) } else { Ok(()) }
    }
}

impl<D: BlockDevice> BlockDevice for Slice<D> {
    fn len(&self) -> u64 {
        self.len
    }

    obento_base::forward! { self.inner;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn flush(&self) -> Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_buf(self.len, offset, buf)?;
        self.inner.read_at(self.below(offset), buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_writable()?;
        check_buf(self.len, offset, buf)?;
        self.inner.write_at(self.below(offset), buf)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_range(self.len, range.start, range.end.saturating_sub(range.start))?;
        self.inner.discard(self.below(range.start)..self.below(range.end))
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.check_writable()?;
        check_range(self.len, range.start, range.end.saturating_sub(range.start))?;
        self.inner.punch(self.below(range.start)..self.below(range.end))
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        let end = range.end.min(self.len);
        self.inner.known_zeros(self.below(range.start)..self.below(end))
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        check_range(self.len, range.start, range.end.checked_sub(range.start)?).ok()?;
        self.inner.backing(self.below(range.start)..self.below(range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;
    use std::vec::Vec;

    #[test]
    fn a_slice_sees_its_own_bytes_and_no_others() {
        let slice = Slice::new(MemDevice::new((0..10).collect::<Vec<u8>>()), 3..6).unwrap();
        let mut buf = [0; 3];
        slice.read_at(0, &mut buf).unwrap();
        assert_eq!((slice.len(), buf), (3, [3, 4, 5]));
        assert!(slice.read_at(1, &mut buf).is_err());
        assert!(slice.write_at(3, &[1]).is_err());
    }

    #[test]
    fn a_slice_past_the_end_is_shortened_to_the_device() {
        assert_eq!(Slice::new(MemDevice::new(Vec::from([0; 10])), 8..100).unwrap().len(), 2);
        assert!(Slice::new(MemDevice::new(Vec::from([0; 10])), 10..100).is_err());
    }
}
