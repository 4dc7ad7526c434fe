//! Free blocks: the bitmap, and the freed blocks that are held.
//!
//! Invariant: a freed block is allocated again only once the free is durable, since a crash before that restores the
//! old owner.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Bitmap, Error, Result};

use crate::{Geometry, Inodes, Op};

impl<F: Inodes> Op<'_, F> {
    /// Returns the number of blocks that can be allocated.
    pub fn room(&self) -> u32 {
        let held = self.volume.held.lock().len().saturating_add(self.freed.len());
        self.counters.free_blocks.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX))
    }

    /// Allocates a free block, the next one if possible. Fails with `NoSpace`, or if the device fails.
    pub(crate) fn take_block(&mut self) -> Result<u32> {
        let (first, size) = (self.geometry().data_start, self.geometry().size);
        let next = self.counters.next_block.clamp(first, size);
        let found = if self.room() == 0 { None } else { self.find_free(next, size)? };
        let found = match found {
            None if self.room() > 0 => self.find_free(first, next)?,
            found => found,
        };
        let found = found.ok_or(Error::NoSpace)?;
        self.set_bit(found, true)?;
        self.counters.free_blocks = self.counters.free_blocks.saturating_sub(1);
        self.counters.next_block = found.saturating_add(1);
        Ok(found)
    }

    /// Returns the first block of `from..end` that can be allocated.
    fn find_free(&self, from: u32, end: u32) -> Result<Option<u32>> {
        let (held, last) = (self.volume.held.lock(), self.geometry().bits_per_block().saturating_sub(1));
        let mut from = from;
        while from < end {
            let bytes = self.get(self.geometry().bit_place(from).0)?;
            let bits = Bitmap::new(&bytes);
            let stop = end.min((from | last).saturating_add(1));
            let can_be_had = |number: &u32| {
                let is_free = bits.get(number & last) == Some(false);
                is_free && !held.contains(*number) && !self.freed.contains(number)
            };
            if let Some(found) = (from..stop).find(can_be_had) {
                return Ok(Some(found));
            }
            from = stop;
        }
        Ok(None)
    }

    /// Frees a block. A block that is already free, or cannot belong to a file, is ignored: only a damaged volume
    /// refers to it. Fails if the device fails.
    pub(crate) fn free_block(&mut self, number: u32) -> Result<()> {
        if !self.geometry().is_data(number) || !self.is_used(number)? {
            return Ok(());
        }
        self.set_bit(number, false)?;
        self.edits.remove(number);
        self.freed.push(number);
        self.counters.free_blocks = self.counters.free_blocks.saturating_add(1);
        Ok(())
    }

    /// Returns whether the bitmap marks a block as used. Fails if the device fails.
    pub(crate) fn is_used(&self, number: u32) -> Result<bool> {
        let (block, bit) = self.geometry().bit_place(number);
        Ok(Bitmap::new(&self.get(block)?).get(bit) == Some(true))
    }

    fn set_bit(&mut self, number: u32, used: bool) -> Result<()> {
        let (block, bit) = self.geometry().bit_place(number);
        if let Some(byte) = self.edit(block)?.get_mut(to_usize((bit >> 3).into())) {
            let mask = 1_u8 << (bit & 7);
            *byte = if used { *byte | mask } else { *byte & !mask };
        }
        Ok(())
    }

    /// Returns the number of blocks that the bitmap marks as free. Fails if the device fails.
    pub(crate) fn count_free(&self) -> Result<u32> {
        let (mut at, mut free, size) = (0_u32, 0_u32, self.geometry().size);
        while at < size {
            let len = size.saturating_sub(at).min(self.geometry().bits_per_block());
            let used = Bitmap::new(&self.get(self.geometry().bit_place(at).0)?).count_ones(len);
            free = free.saturating_add(len.saturating_sub(used));
            at = at.saturating_add(len);
        }
        Ok(free)
    }
}

/// Returns block `at` of the bitmap of a volume without files.
pub(crate) fn of_new_volume(geometry: &Geometry, at: u32) -> Vec<u8> {
    let bits_per_block = geometry.bits_per_block();
    let first = at.saturating_mul(bits_per_block);
    let used = to_usize(geometry.data_start.saturating_sub(first).min(bits_per_block).into());
    let mut bytes = alloc::vec![0_u8; geometry.block_size()];
    bytes.iter_mut().take(used >> 3).for_each(|byte| *byte = 0xff);
    bytes.iter_mut().skip(used >> 3).take(1).for_each(|byte| *byte = !(u8::MAX << (used & 7)));
    bytes
}
