//! One look at the volume, or one change of it.
//!
//! Invariant: what is edited is another version of the block, which only this change sees; dropped, it never was.
//! Invariant: a block that was freed is handed out again only once that is durable: before it, a crash brings the old
//! owner back.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::ops::Deref;

use obento_base::wire::to_usize;
use obento_base::{Bitmap, Corrupt, Error, Ino, Result, Structure};
use obento_block::{Block, Edit};

use crate::super_block::{BITS_PER_BLOCK, SuperBlock};
use crate::volume::{Counters, Volume};

/// A look or a change.
pub(crate) struct Op<'v> {
    pub(crate) volume: &'v Volume,
    pub(crate) counters: Counters,
    pub(crate) edits: BTreeMap<u32, Edit<'v>>,
    pub(crate) freed: Vec<u32>,
}

/// The bytes of a block as the change sees them.
pub(crate) enum Bytes<'a> {
    Edited(&'a [u8]),
    Cached(Block),
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Edited(bytes) => bytes,
            Self::Cached(block) => block,
        }
    }
}

impl<'v> Op<'v> {
    pub(crate) fn new(volume: &'v Volume, counters: Counters) -> Self {
        Self { volume, counters, edits: BTreeMap::new(), freed: Vec::new() }
    }

    pub(crate) fn sb(&self) -> &'v SuperBlock {
        &self.volume.sb
    }

    /// Block `number` of the metadata. Errors: those of the device.
    pub(crate) fn get(&self, number: u32) -> Result<Bytes<'_>> {
        match self.edits.get(&number) {
            Some(edit) => Ok(Bytes::Edited(edit)),
            None => self.volume.cache.get(number.into()).map(Bytes::Cached),
        }
    }

    /// Block `number`, to be changed. Errors: those of the device.
    pub(crate) fn edit(&mut self, number: u32) -> Result<&mut [u8]> {
        let cache = &self.volume.cache;
        match self.edits.entry(number) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(cache.edit(&cache.get(number.into())?))),
        }
    }

    /// A new block of metadata, zeros. Errors: NoSpace; those of the device.
    pub(crate) fn new_block(&mut self) -> Result<u32> {
        let number = self.take_block()?;
        // What the cache may know of it is of a former life.
        let base = self.volume.cache.renew(number.into())?;
        self.edits.insert(number, self.volume.cache.edit(&base));
        Ok(number)
    }

    /// How many blocks can be had.
    pub(crate) fn room(&self) -> u32 {
        let held = self.volume.held.lock().len().saturating_add(self.freed.len());
        self.counters.free_blocks.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX))
    }

    /// Takes a free block, the next one if that can be. Errors: NoSpace; those of the device.
    pub(crate) fn take_block(&mut self) -> Result<u32> {
        let (first, size) = (self.sb().data_start, self.sb().size);
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

    /// The first block of `from..end` that can be had.
    fn find_free(&self, from: u32, end: u32) -> Result<Option<u32>> {
        let held = self.volume.held.lock();
        let mut from = from;
        while from < end {
            let bytes = self.get(self.bitmap_block(from))?;
            let bits = Bitmap::new(&bytes);
            let stop = end.min((from | (BITS_PER_BLOCK - 1)).saturating_add(1));
            let can_be_had = |number: &u32| {
                let is_free = bits.get(number % BITS_PER_BLOCK) == Some(false);
                is_free && !held.contains(number) && !self.freed.contains(number)
            };
            if let Some(found) = (from..stop).find(can_be_had) {
                return Ok(Some(found));
            }
            from = stop;
        }
        Ok(None)
    }

    /// Gives a block back. One that is free already, or is no file's, only a damaged volume names: it stays as it is.
    /// Errors: those of the device.
    pub(crate) fn free_block(&mut self, number: u32) -> Result<()> {
        if !self.sb().is_data(number) || !self.is_used(number)? {
            return Ok(());
        }
        self.set_bit(number, false)?;
        self.edits.remove(&number);
        self.freed.push(number);
        self.counters.free_blocks = self.counters.free_blocks.saturating_add(1);
        Ok(())
    }

    fn bitmap_block(&self, number: u32) -> u32 {
        self.sb().bitmap_start.saturating_add(number / BITS_PER_BLOCK)
    }

    /// Whether the bitmap says that a block is in use. Errors: those of the device.
    pub(crate) fn is_used(&self, number: u32) -> Result<bool> {
        let bytes = self.get(self.bitmap_block(number))?;
        Ok(Bitmap::new(&bytes).get(number % BITS_PER_BLOCK) == Some(true))
    }

    fn set_bit(&mut self, number: u32, used: bool) -> Result<()> {
        let (bit, bytes) = (number % BITS_PER_BLOCK, self.edit(self.bitmap_block(number))?);
        if let Some(byte) = bytes.get_mut(to_usize((bit >> 3).into())) {
            let mask = 1_u8 << (bit & 7);
            *byte = if used { *byte | mask } else { *byte & !mask };
        }
        Ok(())
    }

    /// Errors: Corrupt for a block that can belong to no file.
    pub(crate) fn expect_data(&self, ino: Ino, at: u64, block: u32) -> Result<()> {
        if self.sb().is_data(block) {
            return Ok(());
        }
        let structure = Structure::Inode(ino);
        Err(Corrupt::BlockRange { structure, at, start: block.into(), len: 1 }.into())
    }
}
