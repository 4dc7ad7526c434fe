//! Long writes of many blocks.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_block::BlockDevice;

/// The longest write in bytes: one large request of a disk.
const MAX_WRITE: usize = 1 << 20;

/// Gathers blocks that follow each other into long writes.
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

    /// Writes `bytes`, one block, to block `number`; maybe not before [`Gather::finish`].
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

    /// The block put last, of `len` bytes, starts with four zeros instead.
    pub(crate) fn clear_start_of_last(&mut self, len: usize) {
        let start = self.bytes.len().saturating_sub(len);
        if let Some(first) = self.bytes.get_mut(start..start.saturating_add(size_of::<u32>())) {
            first.fill(0);
        }
    }

    /// Writes what is left.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.device.write_at(self.start.saturating_mul(self.block_size.into()), &self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}
