//! Iterating over the entry sets of a directory.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{FromBytes as _, to_usize};
use obento_block::{Block, Cache};
use obento_clusters::skip_zeros;
use obento_clusters::unit::{ENTRY, ENTRY_LEN, Slot};

use super::Directory;
use crate::raw::{RawEntry, kind};
use crate::set::EntrySet;
use crate::super_block::SuperBlock;

/// Number of entries of a page, in which a file of the host has holes: 4 KiB.
const PAGE: u64 = 128;

/// A file or directory.
pub struct Found {
    /// Number of its first entry in the directory.
    pub index: u32,
    /// The slot of the first entry.
    pub slot: Slot,
    /// The entry set.
    pub set: EntrySet,
}

/// An iteration over a directory.
pub struct Scan<'v> {
    dir: &'v Directory,
    sb: &'v SuperBlock,
    cache: &'v Cache,
    /// The next entry.
    pub next: u32,
    held: Option<Block>,
}

impl<'v> Scan<'v> {
    /// Creates an iteration from entry `from` on.
    pub fn new(dir: &'v Directory, sb: &'v SuperBlock, cache: &'v Cache, from: u32) -> Self {
        Self { dir, sb, cache, next: from, held: None }
    }

    /// Returns the next file or directory. `Err` is a part that cannot be read; the iteration continues after it.
    pub fn next(&mut self) -> Option<Result<Found>> {
        loop {
            let index = self.next;
            let slot = self.dir.slot(index)?;
            self.next = index.saturating_add(1);
            let raw = match self.entry(slot) {
                Ok(raw) => raw,
                Err(error) => {
                    self.skip_sector(slot);
                    return Some(Err(error));
                }
            };
            match raw.EntryType {
                kind::END => {
                    self.next = u32::MAX;
                    return None;
                }
                kind::FILE => return Some(self.set(index, slot, raw)),
                _ => {}
            }
        }
    }

    /// Returns the next entry of any type, and its index.
    pub fn next_entry(&mut self) -> Option<Result<(u32, RawEntry)>> {
        let index = self.next;
        let slot = self.dir.slot(index)?;
        self.next = index.saturating_add(1);
        Some(self.entry(slot).map(|raw| (index, raw)))
    }

    /// Returns whether a page begins with the next entry.
    pub fn is_at_page(&self) -> bool {
        self.dir.slot(self.next).is_some_and(|slot| slot.0.is_multiple_of(PAGE))
    }

    /// Skips entries in a hole of the image, which are zeros.
    pub fn skip_hole(&mut self) {
        let Some(slot) = self.dir.slot(self.next) else { return };
        let places = slot.offset()..self.dir.run_end(self.next).max(slot.offset());
        let skipped = skip_zeros(&**self.cache.device(), places, ENTRY_LEN).saturating_sub(slot.offset());
        let count = u32::try_from(skipped / ENTRY_LEN).unwrap_or(u32::MAX);
        self.next = self.next.saturating_add(count);
    }

    /// Decodes the set that begins with `raw` at `index`.
    fn set(&mut self, index: u32, slot: Slot, raw: RawEntry) -> Result<Found> {
        let set = self.gather(index, raw)?;
        match EntrySet::decode(&set, self.sb) {
            Ok(set) => {
                self.next = index.saturating_add(set.count());
                Ok(Found { index, slot, set })
            }
            Err(flaw) => Err(self.dir.corrupt(slot, flaw, self.sb.sector_size)),
        }
    }

    /// Returns the entries of the set that begins with `raw` at `index`, or as many of them as exist.
    pub fn gather(&mut self, index: u32, raw: RawEntry) -> Result<Vec<RawEntry>> {
        let [count, ..] = raw.rest;
        let last = index.saturating_add(count.min(*crate::set::SECONDARIES.end()).into());
        let mut set = Vec::from([raw]);
        for index in index.saturating_add(1)..=last {
            let Some(slot) = self.dir.slot(index) else { break };
            set.push(self.entry(slot)?);
        }
        Ok(set)
    }

    /// Returns the bytes of an entry.
    fn entry(&mut self, slot: Slot) -> Result<RawEntry> {
        let size = u64::from(self.cache.block_size());
        let number = slot.offset().checked_div(size).unwrap_or(0);
        if self.held.as_ref().is_none_or(|held| held.number() != number) {
            self.held = Some(self.cache.get(number)?);
        }
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        let bytes = self.held.as_deref().and_then(|held| held.get(within..)).unwrap_or_default();
        RawEntry::read_from_prefix(bytes).map(|(raw, _)| raw).map_err(|_| obento_base::Error::Invalid)
    }

    /// Skips the sector of `slot`, which cannot be read.
    fn skip_sector(&mut self, slot: Slot) {
        let per_sector = u64::from(self.cache.block_size() / ENTRY);
        let left = per_sector.saturating_sub(slot.0.checked_rem(per_sector).unwrap_or(0)).saturating_sub(1);
        self.next = self.next.saturating_add(u32::try_from(left).unwrap_or(0));
    }
}
