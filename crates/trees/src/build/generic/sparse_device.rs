//! A device in memory that stores only the bytes that are not zeros.
//!
//! A volume is laid out on this device without the bytes of its files. These bytes stay zeros and take no memory.

use std::collections::BTreeMap;
use std::ops::Range;

use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_env::sync::RwLock;

/// Bytes that are stored together.
const GRAIN: usize = 4096;
/// The smallest unit in which a file system separates its structures from other data.
const SECTOR: usize = 512;

type Grain = Box<[u8; GRAIN]>;

/// A device of zeros that stores all other bytes that were written.
pub struct SparseDevice {
    len: u64,
    grains: RwLock<BTreeMap<u64, Grain>>,
}

/// Splits `offset..offset + len` at the boundaries of pages: the page, the position in it, the position in
/// the range, the length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let inside = (at % GRAIN as u64) as usize;
        let part = (len - done).min(GRAIN - inside);
        let piece = (at / GRAIN as u64, inside, done, part);
        done += part;
        (part > 0).then_some(piece)
    })
}

impl SparseDevice {
    /// Creates a device of `len` zeros.
    pub fn new(len: u64) -> Self {
        Self { len, grains: RwLock::new(BTreeMap::new()) }
    }

    fn check(&self, offset: u64, len: usize) -> Result<()> {
        match offset.checked_add(len as u64).filter(|&end| end <= self.len) {
            Some(_) => Ok(()),
            None => {
                let (len, device_len) = (len as u64, self.len);
                Err(Error::Device(obento_base::DeviceError::OutOfBounds { offset, len, device_len }))
            }
        }
    }

    /// Writes the bytes that are not zeros to `device`, which contains zeros or the bytes of files. The start
    /// is written last.
    pub fn copy_to(&self, device: &dyn BlockDevice) -> Result<()> {
        for (index, grain) in self.grains.read().iter().rev() {
            let start = index * GRAIN as u64;
            for (at, sector) in grain.chunks(SECTOR).enumerate().rev() {
                let offset = start + (at * SECTOR) as u64;
                let len = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(SECTOR).min(SECTOR);
                if sector.iter().any(|&byte| byte != 0) {
                    device.write_at(offset, &sector[..len])?;
                }
            }
        }
        Ok(())
    }
}

impl BlockDevice for SparseDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        let grains = self.grains.read();
        for (index, inside, at, len) in pieces(offset, buf.len()) {
            match grains.get(&index) {
                Some(grain) => buf[at..at + len].copy_from_slice(&grain[inside..inside + len]),
                None => buf[at..at + len].fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        let mut grains = self.grains.write();
        for (index, inside, at, len) in pieces(offset, buf.len()) {
            let bytes = &buf[at..at + len];
            if let Some(grain) = grains.get_mut(&index) {
                grain[inside..inside + len].copy_from_slice(bytes);
            } else if bytes != &[0; GRAIN][..len] {
                let mut grain = Box::new([0; GRAIN]);
                grain[inside..inside + len].copy_from_slice(bytes);
                grains.insert(index, grain);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.check(
            range.start,
            usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX),
        )?;
        let mut grains = self.grains.write();
        grains.retain(|index, grain| {
            let start = index * GRAIN as u64;
            let place = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(GRAIN).min(GRAIN);
            grain[place(range.start)..place(range.end).max(place(range.start))].fill(0);
            grain.iter().any(|&byte| byte != 0)
        });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    #[test]
    fn a_sparse_device_reads_as_written_and_stores_only_nonzero_bytes() {
        let (sparse, model) = (SparseDevice::new(20_000), MemDevice::new(vec![0; 20_000]));
        for (offset, byte, len) in
            [(100, 1, 5000), (4096, 0, 4096), (12_288, 0, 4096), (19_999, 7, 1), (600, 0, 100)]
        {
            sparse.write_at(offset, &vec![byte; len]).unwrap();
            model.write_at(offset, &vec![byte; len]).unwrap();
        }
        let read = |device: &dyn BlockDevice| {
            let mut bytes = vec![9; 20_000];
            device.read_at(0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(&sparse), read(&model));
        // The page of zeros takes no memory.
        assert_eq!(sparse.grains.read().keys().copied().collect::<Vec<_>>(), [0, 1, 4]);
        let copy = MemDevice::new(vec![0; 20_000]);
        sparse.copy_to(&copy).unwrap();
        assert_eq!(copy.snapshot(), model.snapshot());
        assert!(sparse.punch(50..4100).unwrap());
        assert_eq!(read(&sparse)[..4100], [0; 4100]);
        assert!(sparse.write_at(19_999, &[1, 2]).is_err() && sparse.read_at(u64::MAX, &mut [0]).is_err());
    }
}
