//! Writing adjacent blocks together.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits the size of the volume")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;

/// Maximum size of a write.
const BUFFER: usize = 1 << 20;

/// A device that is written mostly from front to back.
pub(crate) struct Output<'a> {
    device: &'a dyn BlockDevice,
    /// The offset of `pending`.
    at: u64,
    pending: Vec<u8>,
    written: u64,
}

impl<'a> Output<'a> {
    /// Creates the buffer. Fails with `NoMemory`.
    pub fn new(device: &'a dyn BlockDevice) -> Result<Self> {
        let mut pending = Vec::new();
        pending.try_reserve_exact(BUFFER)?;
        Ok(Self { device, at: 0, pending, written: 0 })
    }

    /// Returns the number of bytes of the volume written so far, including pending ones, but not the zeros over
    /// previous contents.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes `bytes` at `offset`, now or later.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.written += to_u64(bytes.len());
        self.put(offset, bytes)
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = self.at + to_u64(self.pending.len());
        if offset != end || self.pending.len() + bytes.len() > BUFFER {
            self.send()?;
            self.at = offset;
        }
        if bytes.len() > BUFFER {
            return self.device.write_at(offset, bytes);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes zeros.
    pub fn zero(&mut self, range: Range<u64>) -> Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut at = range.start;
        while at < range.end {
            let len = to_usize(range.end - at).min(ZEROS.len());
            self.put(at, ZEROS.get(..len).unwrap_or_default())?;
            at += to_u64(len);
        }
        Ok(())
    }

    /// [`BlockDevice::punch`].
    pub fn punch(&mut self, range: Range<u64>) -> Result<bool> {
        self.send()?;
        self.device.punch(range)
    }

    fn send(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.device.write_at(self.at, &self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Writes everything and waits until it is on stable storage.
    pub fn flush(&mut self) -> Result<()> {
        self.send()?;
        self.device.flush()
    }
}
