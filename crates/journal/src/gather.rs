//! Combination of consecutive blocks into long writes.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_block::{Block, BlockDevice};

/// Maximum length of a write in bytes: one large request of a disk.
const MAX_WRITE: usize = 1 << 20;

/// A writer that combines consecutive blocks.
pub(crate) struct Gather<'d> {
    device: &'d dyn BlockDevice,
    block_size: u32,
    start: u64,
    parts: Vec<Part>,
    len: usize,
}

/// The contents of one block.
enum Part {
    /// A version of a cached block, which does not change.
    Cached(Block),
    Copied(Vec<u8>),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Cached(block) => block,
            Self::Copied(bytes) => bytes,
        }
    }
}

impl<'d> Gather<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, block_size: u32) -> Self {
        Self { device, block_size, start: 0, parts: Vec::new(), len: 0 }
    }

    /// Writes `block` to block `number`. The write may be deferred until [`Gather::finish`].
    pub(crate) fn put(&mut self, number: u64, block: &Block) -> Result<()> {
        self.add(number, Part::Cached(block.clone()))
    }

    /// Writes a copy of `bytes`, the contents of one block, to block `number`, as [`Gather::put`] does.
    pub(crate) fn put_copy(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len())?;
        copy.extend_from_slice(bytes);
        self.add(number, Part::Copied(copy))
    }

    /// Writes `block` like [`Gather::put`], with zeros in place of its first four bytes.
    pub(crate) fn put_escaped(&mut self, number: u64, block: &Block) -> Result<()> {
        self.put_copy(number, block)?;
        if let Some(Part::Copied(bytes)) = self.parts.last_mut()
            && let Some(first) = bytes.get_mut(..size_of::<u32>())
        {
            first.fill(0);
        }
        Ok(())
    }

    fn add(&mut self, number: u64, part: Part) -> Result<()> {
        let gathered = to_u64(self.len).checked_div(self.block_size.into()).unwrap_or(0);
        let follows = self.start.checked_add(gathered) == Some(number);
        if !follows || self.len.saturating_add(part.bytes().len()) > MAX_WRITE {
            self.finish()?;
            self.start = number;
        }
        self.parts.try_reserve(1)?;
        self.len = self.len.saturating_add(part.bytes().len());
        self.parts.push(part);
        Ok(())
    }

    /// Writes the deferred blocks.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let mut parts = Vec::new();
        parts.try_reserve_exact(self.parts.len())?;
        parts.extend(self.parts.iter().map(Part::bytes));
        self.device.write_parts(self.start.saturating_mul(self.block_size.into()), &parts)?;
        drop(parts);
        self.parts.clear();
        self.len = 0;
        Ok(())
    }
}
