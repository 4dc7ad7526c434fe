//! A device that reads some of its blocks from other locations: see [`Remap`].

use alloc::collections::BTreeMap;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Result};

use crate::device::{Backing, BlockDevice, check_buf};

/// The location from which a block is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Block number on the source device.
    pub block: u64,
    /// The first four bytes of the block, if the source contains other bytes there (jbd2 escapes its magic
    /// number).
    pub first: Option<[u8; 4]>,
}

/// A read-only view of a device that reads some blocks from other locations, on the same device or on one
/// other device. If these locations are the blocks of a journal, the view presents a volume as if the journal
/// had been replayed. The view stores an index in memory, and no copies of blocks.
///
/// Invariant: the underlying device is never written, and the index never changes.
#[derive(Debug)]
pub struct Remap<D> {
    below: D,
    /// Source device, if it differs from the underlying device: an external journal.
    sources: Option<D>,
    block_size: u32,
    index: BTreeMap<u64, Source>,
}

impl<D: BlockDevice> Remap<D> {
    /// Creates a view that reads each block of `index` from its source on the same device. Block numbers are
    /// in units of `block_size` bytes, a power of two.
    pub fn new(below: D, block_size: u32, index: BTreeMap<u64, Source>) -> Self {
        Self { below, sources: None, block_size, index }
    }

    /// Creates a view as [`Remap::new`] does, with the sources on another device.
    pub fn from_other(below: D, sources: D, block_size: u32, index: BTreeMap<u64, Source>) -> Self {
        Self { below, sources: Some(sources), block_size, index }
    }

    fn start_of(&self, block: u64) -> u64 {
        block.saturating_mul(u64::from(self.block_size))
    }

    fn block_at(&self, offset: u64) -> u64 {
        offset.checked_div(u64::from(self.block_size)).unwrap_or(0)
    }

    /// Copies the part of block `block` that overlaps the range at `offset` into `buf`.
    fn patch(&self, block: u64, source: Source, offset: u64, buf: &mut [u8]) -> Result<()> {
        let start = self.start_of(block);
        let from = start.max(offset);
        let end =
            start.saturating_add(u64::from(self.block_size)).min(offset.saturating_add(to_u64(buf.len())));
        let (Some(skip), Some(at)) = (from.checked_sub(start), from.checked_sub(offset)) else {
            return Ok(());
        };
        let range = to_usize(at)..to_usize(end.saturating_sub(offset));
        let Some(target) = buf.get_mut(range) else { return Ok(()) };
        let device = self.sources.as_ref().unwrap_or(&self.below);
        device.read_at(self.start_of(source.block).saturating_add(skip), target)?;
        if let Some(first) = source.first {
            let escaped = first.iter().skip(to_usize(skip));
            target.iter_mut().zip(escaped).for_each(|(byte, &right)| *byte = right);
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Remap<D> {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn sector_size(&self) -> u32 {
        self.below.sector_size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_buf(self.len(), offset, buf)?;
        self.below.read_at(offset, buf)?;
        let end = offset.saturating_add(to_u64(buf.len()));
        if end == offset {
            return Ok(());
        }
        let blocks = self.block_at(offset)..=self.block_at(end.saturating_sub(1));
        self.index.range(blocks).try_for_each(|(&block, &source)| self.patch(block, source, offset, buf))
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        Err(DeviceError::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        let displaced = self.index.range(self.block_at(range.start)..).next();
        let end = range.end.min(displaced.map_or(u64::MAX, |(&block, _)| self.start_of(block)));
        if end <= range.start { None } else { self.below.backing(range.start..end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;
    use std::vec::Vec;

    #[test]
    fn displaced_blocks_are_read_from_their_source_with_the_escaped_bytes_restored() {
        let bytes: Vec<u8> = (0..64).collect();
        let index = BTreeMap::from([
            (1, Source { block: 3, first: None }),
            (2, Source { block: 0, first: Some([9, 9, 9, 9]) }),
        ]);
        let remap = Remap::new(MemDevice::read_only(bytes), 16, index);
        let mut seen = [0; 40];
        remap.read_at(10, &mut seen).unwrap();
        assert_eq!(seen[..6], [10, 11, 12, 13, 14, 15]);
        assert_eq!(seen[6..22], (48..64).collect::<Vec<u8>>());
        assert_eq!(seen[22..28], [9, 9, 9, 9, 4, 5]);
        assert_eq!(seen[38..], [48, 49]);
        let mut inside = [0; 2];
        remap.read_at(34, &mut inside).unwrap();
        assert_eq!(inside, [9, 9]);
    }

    #[test]
    fn sources_can_be_on_another_device() {
        let (volume, journal) =
            (MemDevice::read_only(Vec::from([1; 32])), MemDevice::read_only(Vec::from([2; 64])));
        let index = BTreeMap::from([(1, Source { block: 3, first: None })]);
        let remap = Remap::from_other(volume, journal, 16, index);
        let mut seen = [0; 32];
        remap.read_at(0, &mut seen).unwrap();
        assert_eq!((seen[15], seen[16], seen[31]), (1, 2, 2));
    }
}
