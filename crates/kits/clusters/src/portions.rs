//! Reading areas of a device that contain mostly zeros: bitmaps and file allocation tables.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::BlockDevice;

/// Maximum length of a portion.
const LEN: u64 = 64 << 10;
/// Zeros are skipped in units of this length, so that a portion begins with a whole number of words.
const UNIT: u64 = 4 << 10;

/// An iteration over the portions of a range of a device. Skips zeros that the device reports without reading
/// them, such as the holes of a sparse image ([`BlockDevice::known_zeros`]).
pub struct Portions<'d> {
    device: &'d dyn BlockDevice,
    range: Range<u64>,
    at: u64,
    bytes: Vec<u8>,
}

impl<'d> Portions<'d> {
    /// Creates an iteration over `range`.
    pub fn new(device: &'d dyn BlockDevice, range: Range<u64>) -> Self {
        Self { device, at: range.start, range, bytes: Vec::new() }
    }

    /// Returns the next portion: its range, which starts at a multiple of 4 KiB after the start of the
    /// iteration, and its bytes or the error of reading them.
    pub fn next_portion(&mut self) -> Option<(Range<u64>, Result<&[u8]>)> {
        self.at = skip_zeros(self.device, self.at..self.range.end, UNIT);
        let len = self.range.end.checked_sub(self.at).filter(|&len| len > 0)?.min(LEN);
        let range = self.at..self.at.saturating_add(len);
        self.at = range.end;
        let read = self.read(range.start, to_usize(len));
        Some((range, read.map(|()| self.bytes.as_slice())))
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<()> {
        self.bytes.clear();
        self.bytes.try_reserve_exact(len).map_err(|_| Error::NoMemory)?;
        self.bytes.resize(len, 0);
        self.device.read_at(offset, &mut self.bytes)
    }
}

/// Returns the offset of the first byte of `range` that the device does not report as zero, rounded down to a
/// multiple of `unit` after the start. Returns the end of `range` if all bytes are known to be zero.
pub fn skip_zeros(device: &dyn BlockDevice, range: Range<u64>, unit: u64) -> u64 {
    if range.is_empty() || range.end > device.len() {
        return range.start;
    }
    let len = range.end.saturating_sub(range.start);
    match device.known_zeros(range.clone()).min(len) {
        zeros if zeros == len => range.end,
        zeros => range.start.saturating_add(zeros.saturating_sub(zeros.checked_rem(unit).unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::DeviceError;
    use std::vec;

    /// A device with data in `0..10` and in `500_000..500_001`, which cannot read the latter.
    struct Sparse;

    impl BlockDevice for Sparse {
        fn len(&self) -> u64 {
            1 << 40
        }
        fn is_read_only(&self) -> bool {
            true
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            assert!(buf.len() <= 64 << 10, "{} bytes are read", buf.len());
            if offset > 0 {
                return Err(DeviceError::ReadOnly.into());
            }
            buf.fill(0);
            buf[..10].fill(7);
            Ok(())
        }
        fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
            Err(DeviceError::ReadOnly.into())
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
        fn known_zeros(&self, range: Range<u64>) -> u64 {
            let data = [0..10, 500_000..500_001].into_iter().find(|data| data.end > range.start);
            let start = data.map_or(self.len(), |data| data.start);
            start.clamp(range.start, range.end) - range.start
        }
    }

    #[test]
    fn holes_are_skipped_and_other_errors_end_nothing() {
        let mut portions = Portions::new(&Sparse, 0..1 << 40);
        let mut found = vec![];
        while let Some((range, bytes)) = portions.next_portion() {
            found.push((range.start, range.end, bytes.map(|bytes| bytes[9])));
        }
        let unread = 500_000 - 500_000 % 4096;
        let error = Err(DeviceError::ReadOnly.into());
        assert_eq!(found, [(0, 65_536, Ok(7)), (unread, unread + 65_536, error)]);
        assert_eq!(Portions::new(&Sparse, 20..20).next_portion().map(|(range, _)| range), None);
    }
}
