//! A device in memory.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{DeviceError, Result};
use obento_env::sync::RwLock;

use crate::device::{BlockDevice, check_buf};
use obento_base::wire::to_u64;

/// A device in memory, for tests, small images, and images that another program provides.
#[derive(Debug)]
pub struct MemDevice {
    bytes: RwLock<Vec<u8>>,
    read_only: bool,
}

impl MemDevice {
    /// Creates a writable device with the contents `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes), read_only: false }
    }

    /// Creates a read-only device with the contents `bytes`.
    pub fn read_only(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes), read_only: true }
    }

    /// Returns a copy of all bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl BlockDevice for MemDevice {
    fn len(&self) -> u64 {
        to_u64(self.bytes.read().len())
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.read();
        check_buf(to_u64(bytes.len()), offset, buf)?;
        let range = to_usize(offset)..to_usize(offset).saturating_add(buf.len());
        if let Some(source) = bytes.get(range) {
            buf.copy_from_slice(source);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.read_only {
            return Err(DeviceError::ReadOnly.into());
        }
        let mut bytes = self.bytes.write();
        check_buf(to_u64(bytes.len()), offset, buf)?;
        let range = to_usize(offset)..to_usize(offset).saturating_add(buf.len());
        if let Some(target) = bytes.get_mut(range) {
            target.copy_from_slice(buf);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::Error;
    use std::vec;

    #[test]
    fn a_read_past_the_end_is_refused_completely() {
        let device = MemDevice::new(vec![7; 10]);
        let mut buf = [0; 4];
        device.read_at(6, &mut buf).unwrap();
        assert_eq!(buf, [7; 4]);
        let refused = DeviceError::OutOfBounds { offset: 7, len: 4, device_len: 10 };
        assert_eq!(device.read_at(7, &mut buf), Err(Error::Device(refused)));
        assert!(device.read_at(u64::MAX, &mut buf).is_err());
    }

    #[test]
    fn a_read_only_device_refuses_writes() {
        assert!(MemDevice::read_only(vec![0; 8]).write_at(0, &[1]).is_err());
        let device = MemDevice::new(vec![0; 4]);
        device.write_at(1, &[5, 6]).unwrap();
        assert_eq!(device.snapshot(), [0, 5, 6, 0]);
    }
}
