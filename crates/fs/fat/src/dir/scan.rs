//! Iterating over the entries of a directory, with their long names.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, to_usize};
use obento_base::{Corrupt, Error, Result};
use obento_block::{Block, Cache};

use super::Directory;
use crate::inode::Kind;
use crate::name::{CodePage, Folded, LongName, MAX_PARTS, checksum, to_bytes};
use crate::raw::{RawEntry, RawLongEntry};
use crate::unit::Slot;

/// A file or directory.
pub struct Found<'s> {
    /// Number of its short entry in the directory.
    pub index: u32,
    /// The first entry of the file: the first part of its long name, if it has a long name.
    pub start: u32,
    /// The slot of the short entry.
    pub slot: Slot,
    /// The short entry.
    pub raw: RawEntry,
    /// Its long name, if it has one.
    pub long: Option<&'s [u16]>,
}

impl Found<'_> {
    /// Returns the name as bytes: the long name, or else the short one. Returns `None` for bytes that are not a name.
    pub fn name(&self, page: CodePage) -> Option<Vec<u8>> {
        let is_name = |bytes: &Vec<u8>| obento_base::Name::new(bytes).is_ok();
        let long = self.long.map(|units| to_bytes(units.iter().copied())).filter(is_name);
        long.or_else(|| Some(to_bytes(self.short(page))).filter(is_name))
    }

    /// Returns the short name in UTF-16.
    pub fn short(&self, page: CodePage) -> Vec<u16> {
        self.raw.name().to_units(page, self.raw.DIR_NTRes)
    }

    /// Returns whether its long or short name is this name.
    pub fn is(&self, name: &Folded, page: CodePage) -> bool {
        self.long.is_some_and(|units| name.is(units)) || name.is(&self.short(page))
    }
}

/// An iteration over a directory.
pub struct Scan<'v> {
    dir: &'v Directory,
    cache: &'v Cache,
    next: u32,
    /// Entries before this one are not returned.
    from: u32,
    held: Option<Block>,
    long: LongName,
    /// The first part of the current long name.
    start: u32,
    /// Whether the current long name was returned.
    handed_out: bool,
}

impl<'v> Scan<'v> {
    /// Creates an iteration from entry `from` on.
    pub fn new(dir: &'v Directory, cache: &'v Cache, from: u32) -> Self {
        // A name whose parts are on both sides of `from` is read from its first part on.
        let next = from.saturating_sub(MAX_PARTS.into());
        Self { dir, cache, next, from, held: None, long: LongName::default(), start: next, handed_out: false }
    }

    /// Returns the next file or directory. `Err` is a part that cannot be read; the iteration continues after it.
    pub fn next(&mut self) -> Option<Result<Found<'_>>> {
        if core::mem::take(&mut self.handed_out) {
            self.long.clear();
        }
        loop {
            let index = self.next;
            let slot = self.dir.slot(index)?;
            self.next = index.saturating_add(1);
            let raw = match self.entry(slot) {
                Ok(raw) => raw,
                Err(error) => {
                    self.skip_sector(slot);
                    if self.next <= self.from {
                        continue;
                    }
                    return Some(Err(error));
                }
            };
            match raw.kind() {
                Kind::End => {
                    self.next = u32::MAX;
                    return None;
                }
                Kind::LongName => {
                    self.gather(&raw, index);
                    continue;
                }
                Kind::File if index >= self.from => {
                    self.handed_out = true;
                    let long = self.long.name(checksum(raw.name()));
                    let start = if long.is_some() { self.start } else { index };
                    return Some(Ok(Found { index, start, slot, raw, long }));
                }
                _ => {}
            }
            self.long.clear();
        }
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
        RawEntry::read_from_prefix(bytes).map(|(raw, _)| raw).map_err(|_| Error::Invalid)
    }

    fn gather(&mut self, raw: &RawEntry, index: u32) {
        let Ok(part) = RawLongEntry::read_from_bytes(obento_base::wire::IntoBytes::as_bytes(raw)) else {
            return;
        };
        if part.LDIR_Ord & 0x40 != 0 {
            self.start = index;
        }
        self.long.push(&part);
    }

    /// Skips the sector of `slot`, which cannot be read.
    fn skip_sector(&mut self, slot: Slot) {
        let per_sector = u64::from(self.cache.block_size() / crate::unit::ENTRY);
        let left = per_sector.saturating_sub(slot.0.checked_rem(per_sector).unwrap_or(0)).saturating_sub(1);
        self.next = self.next.saturating_add(u32::try_from(left).unwrap_or(0));
        self.long.clear();
    }
}

/// Returns the error for an entry without a valid name.
pub fn no_name(dir: &Directory, found: &Found<'_>, sector_size: u32) -> Error {
    let size = u64::from(sector_size);
    let block = found.slot.offset().checked_div(size).unwrap_or(0);
    let offset = found.slot.offset().checked_rem(size).and_then(|offset| u32::try_from(offset).ok());
    Corrupt::EntryName { dir: dir.ino, block, offset: offset.unwrap_or(0) }.into()
}
