//! A disk that is read through a layout.
//!
//! Locking: the cache of decompressed units has a leaf lock, which is not held during decompression.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Result};
use obento_block::{Backing, BlockDevice, check_range};
use obento_env::sync::Mutex;

use crate::layout::{Extent, Layout, Place, Unit};
use crate::{Inflate, zeros};

/// The number of decompressed units to keep. A driver reads one block at a time.
const UNITS: usize = 16;

/// An open disk image.
pub(crate) struct Disk {
    file: Arc<dyn BlockDevice>,
    layout: Box<dyn Layout>,
    inflate: Inflate,
    /// The units that were decompressed last, the newest last.
    units: Mutex<Vec<(Unit, Arc<[u8]>)>>,
}

impl Disk {
    /// Creates the disk of a format without compression.
    pub fn plain(file: Arc<dyn BlockDevice>, layout: impl Layout + 'static) -> Arc<dyn BlockDevice> {
        Self::packed(file, layout, |_, _| None)
    }

    /// Creates the disk of a format with compressed units.
    pub fn packed(
        file: Arc<dyn BlockDevice>,
        layout: impl Layout + 'static,
        inflate: Inflate,
    ) -> Arc<dyn BlockDevice> {
        Arc::new(Self { file, layout: Box::new(layout), inflate, units: Mutex::new(Vec::new()) })
    }

    /// Reads the part of `buf` that one extent contains, and returns its length.
    fn read_extent(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let extent = self.layout.locate(&self.file, offset, to_u64(buf.len()))?;
        let len = to_usize(extent.len).min(buf.len()).max(1);
        let part = buf.get_mut(..len).unwrap_or_default();
        match extent.place {
            Place::Zeros => part.fill(0),
            Place::Fill(pattern) => {
                let pattern = pattern.iter().cycle().skip(to_usize(offset & 3));
                part.iter_mut().zip(pattern).for_each(|(to, from)| *to = *from);
            }
            Place::Data(at) => self.file.read_at(at, part)?,
            Place::Packed(unit) => {
                let bytes = self.unit(unit)?;
                let from = bytes.get(to_usize(offset.saturating_sub(unit.start))..).unwrap_or_default();
                let failed = DeviceError::Read { offset, len: to_u64(len), errno: 0 };
                part.copy_from_slice(from.get(..len).ok_or(failed)?);
            }
        }
        Ok(len)
    }

    /// Returns the decompressed bytes of `unit`.
    fn unit(&self, unit: Unit) -> Result<Arc<[u8]>> {
        let known = |units: &Vec<(Unit, Arc<[u8]>)>| {
            units.iter().find(|(known, _)| *known == unit).map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = known(&self.units.lock()) {
            return Ok(bytes);
        }
        let bytes = self.decompress(unit)?;
        let mut units = self.units.lock();
        if units.len() >= UNITS {
            units.remove(0);
        }
        units.push((unit, bytes.clone()));
        Ok(bytes)
    }

    fn decompress(&self, unit: Unit) -> Result<Arc<[u8]>> {
        let failed = DeviceError::Read { offset: unit.start, len: unit.len, errno: 0 };
        let mut packed = zeros(to_usize(unit.packed)).ok_or(failed)?;
        let mut bytes = zeros(to_usize(unit.len)).ok_or(failed)?;
        self.file.read_at(unit.at, &mut packed)?;
        let len = (self.inflate)(&packed, &mut bytes).ok_or(failed)?;
        // The last unit may end with the disk.
        let needed = unit.len.min(self.layout.len().saturating_sub(unit.start));
        if to_u64(len) < needed {
            return Err(failed.into());
        }
        Ok(bytes.into())
    }
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.layout.len()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self.len(), offset, to_u64(buf.len()))?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let done = self.read_extent(offset, rest)?;
            offset = offset.saturating_add(to_u64(done));
            rest = rest.get_mut(done..).unwrap_or_default();
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        Err(DeviceError::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        let (mut at, end) = (range.start, range.end.min(self.len()));
        while at < end {
            match self.layout.locate(&self.file, at, end.saturating_sub(at)) {
                Ok(Extent { place: Place::Zeros, len }) => at = at.saturating_add(len),
                _ => break,
            }
        }
        at.min(end).saturating_sub(range.start)
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        let want = range.end.checked_sub(range.start).filter(|&want| want > 0)?;
        check_range(self.len(), range.start, want).ok()?;
        let extent = self.layout.locate(&self.file, range.start, want).ok()?;
        let Place::Data(at) = extent.place else { return None };
        self.file.backing(at..at.checked_add(extent.len.min(want))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    struct One(Place);

    impl Layout for One {
        fn len(&self) -> u64 {
            16
        }
        fn locate(&self, _: &Arc<dyn BlockDevice>, offset: u64, _: u64) -> Result<Extent> {
            Ok(Extent { len: 16 - offset, place: self.0 })
        }
    }

    fn disk(place: Place, inflate: Inflate) -> Arc<dyn BlockDevice> {
        Disk::packed(Arc::new(MemDevice::read_only((0..32).collect())), One(place), inflate)
    }

    #[test]
    fn a_pattern_begins_at_a_multiple_of_its_length() {
        let mut buf = [0; 5];
        disk(Place::Fill(*b"abcd"), |_, _| None).read_at(6, &mut buf).unwrap();
        assert_eq!(&buf, b"cdabc");
    }

    #[test]
    fn a_short_or_damaged_unit_is_a_failed_read() {
        let unit = Place::Packed(Unit { start: 0, len: 16, at: 3, packed: 9 });
        let read = |inflate| {
            let mut buf = [0; 2];
            disk(unit, inflate).read_at(7, &mut buf).map(|()| buf)
        };
        let good: Inflate = |stream, buf| {
            assert_eq!(stream, [3, 4, 5, 6, 7, 8, 9, 10, 11]);
            buf.fill(9);
            Some(16)
        };
        assert_eq!(read(good), Ok([9; 2]));
        assert!(read(|_, _| Some(15)).is_err());
        assert!(read(|_, _| None).is_err());
        assert!(disk(unit, good).write_at(0, &[0]).is_err());
    }
}
