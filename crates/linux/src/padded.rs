//! Extends an image to whole sectors.
//!
//! A disk has whole sectors, and Linux rejects a volume whose last bytes are past the end of the disk. Examples are a
//! SquashFS volume without padding, and a Btrfs volume in a file of an odd length. Such an image is extended by zeros
//! up to the end of a page.

use std::ops::Range;
use std::sync::Arc;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Result};
use obento_block::{Backing, BlockDevice};

use crate::disk::SECTOR;

/// Linux reads the end of a volume in blocks of up to this many bytes.
const PAGE: u64 = 4096;

/// A device that is followed by zeros.
struct Padded {
    below: Arc<dyn BlockDevice>,
    len: u64,
}

/// Returns `device` itself if it consists of whole sectors, and otherwise the device followed by zeros up to the end of a page.
pub fn to_sectors(device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    match device.len().checked_next_multiple_of(PAGE) {
        Some(len) if !device.len().is_multiple_of(SECTOR) => Arc::new(Padded { below: device, len }),
        _ => device,
    }
}

impl Padded {
    /// Returns how many of `len` bytes at `offset` are on the device below. Fails with `OutOfBounds`.
    fn stored(&self, offset: u64, len: usize) -> Result<usize> {
        let wanted = to_u64(len);
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(DeviceError::OutOfBounds { offset, len: wanted, device_len: self.len }.into());
        }
        Ok(to_usize(self.below.len().saturating_sub(offset).min(wanted)))
    }

    fn clip(&self, range: &Range<u64>) -> Range<u64> {
        let end = self.below.len();
        range.start.min(end)..range.end.min(end)
    }
}

impl BlockDevice for Padded {
    fn len(&self) -> u64 {
        self.len
    }

    obento_base::forward! { self.below;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn flush(&self) -> Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (stored, padding) = buf.split_at_mut(self.stored(offset, buf.len())?);
        padding.fill(0);
        if stored.is_empty() { Ok(()) } else { self.below.read_at(offset, stored) }
    }

    /// A write of zeros after the image succeeds. For other bytes there, also fails with `OutOfBounds`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.is_read_only() {
            return Err(DeviceError::ReadOnly.into());
        }
        let (stored, padding) = buf.split_at(self.stored(offset, buf.len())?);
        if padding.iter().any(|byte| *byte != 0) {
            let device_len = self.below.len();
            return Err(DeviceError::OutOfBounds { offset, len: to_u64(buf.len()), device_len }.into());
        }
        if stored.is_empty() { Ok(()) } else { self.below.write_at(offset, stored) }
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.below.discard(self.clip(&range))
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.below.punch(self.clip(&range))
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        self.below.backing(self.clip(&range)).filter(|_| range.start < self.below.len())
    }
}

#[cfg(test)]
mod tests {
    use obento_base::Error;
    use obento_block::MemDevice;

    use super::*;

    #[test]
    fn whole_sectors_are_unchanged_and_partial_sectors_are_padded_with_zeros() {
        let lens = [0, 1, 511, 512, 513, 4096, 4097].map(|len| {
            let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(vec![7; len]));
            to_sectors(device).len()
        });
        assert_eq!(lens, [0, 4096, 4096, 512, 4096, 4096, 8192]);
    }

    #[test]
    fn bytes_behind_an_image_are_zeros_and_stay_zeros() {
        let below = Arc::new(MemDevice::new(vec![7; 700]));
        let padded = to_sectors(below.clone());
        let mut seen = [1; 512];
        padded.read_at(512, &mut seen).unwrap();
        assert!(seen[..188].iter().all(|byte| *byte == 7) && seen[188..].iter().all(|byte| *byte == 0));
        padded.read_at(1024, &mut seen).unwrap();
        assert_eq!(seen, [0; 512]);
        seen[..188].fill(9);
        padded.write_at(512, &seen).unwrap();
        assert_eq!(below.snapshot()[512..], [9; 188]);
        seen[188] = 1;
        let refused = padded.write_at(512, &seen);
        assert!(matches!(refused, Err(Error::Device(DeviceError::OutOfBounds { device_len: 700, .. }))));
        assert_eq!(below.snapshot()[512..], [9; 188], "no byte is written");
        padded.discard(512..4096).unwrap();
        assert!(padded.read_at(4000, &mut seen).is_err());
        let shut = to_sectors(Arc::new(MemDevice::read_only(vec![7; 700])));
        assert_eq!(shut.write_at(4000, &seen), Err(Error::Device(DeviceError::ReadOnly)));
    }
}
