//! Combination of consecutive blocks into long writes.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_block::BlockDevice;

/// Maximum length of a write in bytes: one large request of a disk.
const MAX_WRITE: usize = 1 << 20;

/// A writer that combines consecutive blocks.
pub(crate) struct Gather<'d> {
    device: &'d dyn BlockDevice,
    block_size: u32,
    start: u64,
    bytes: Vec<u8>,
}

impl<'d> Gather<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, block_size: u32) -> Self {
        Self { device, block_size, start: 0, bytes: Vec::new() }
    }

    /// Writes `bytes`, the contents of one block, to block `number`. The write may be deferred until
    /// [`Gather::finish`].
    pub(crate) fn put(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        let gathered = to_u64(self.bytes.len()).checked_div(self.block_size.into()).unwrap_or(0);
        let follows = self.start.checked_add(gathered) == Some(number);
        if !follows || self.bytes.len().saturating_add(bytes.len()) > MAX_WRITE {
            self.finish()?;
            self.start = number;
        }
        self.bytes.try_reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Replaces the first four bytes of the last block, which has `len` bytes, with zeros.
    pub(crate) fn clear_start_of_last(&mut self, len: usize) {
        let start = self.bytes.len().saturating_sub(len);
        if let Some(first) = self.bytes.get_mut(start..start.saturating_add(size_of::<u32>())) {
            first.fill(0);
        }
    }

    /// Writes the deferred blocks.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.device.write_at(self.start.saturating_mul(self.block_size.into()), &self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}
