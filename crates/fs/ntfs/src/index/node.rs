//! A node of an index.

use alloc::sync::Arc;

use obento_base::wire::{FromBytes as _, to_u64};

use crate::layout::bytes::{index, slice, u64_at};
use crate::layout::raw::{RawIndexEntry, RawIndexHeader};

/// The name of the index of a directory, in UTF-16.
pub const NAMES: &[u8] = b"$\0I\x003\x000\0";

/// An entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Header.
    pub raw: RawIndexEntry,
    /// Key; empty for the last entry.
    pub key: &'a [u8],
    /// Whole entry.
    pub bytes: &'a [u8],
    /// Number of the node with the keys before this one.
    pub child: Option<u64>,
    /// Byte offset in the node.
    pub offset: usize,
}

impl Entry<'_> {
    /// Returns whether this is the entry that ends its node.
    pub fn is_last(&self) -> bool {
        self.raw.flags.get() & 2 != 0
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    bytes: Arc<[u8]>,
    /// Byte offset on the volume; 0 for the root.
    pub offset: u64,
    start: usize,
    end: usize,
}

impl Node {
    /// Decodes the header of entries at `at`. Returns the wrong field otherwise.
    pub fn decode(bytes: Arc<[u8]>, at: usize, offset: u64) -> Result<Self, (&'static str, u64)> {
        let raw = bytes.get(at..).and_then(|rest| RawIndexHeader::read_from_prefix(rest).ok());
        let (raw, _) = raw.ok_or(("IndexHeader", to_u64(bytes.len())))?;
        let start = at.saturating_add(index(raw.entries_offset.get()));
        let end = at.saturating_add(index(raw.entries_end.get()));
        if !start.is_multiple_of(8) || start < at.saturating_add(size_of::<RawIndexHeader>()) || start > end {
            return Err(("EntriesOffset", raw.entries_offset.get().into()));
        }
        if end > bytes.len() {
            return Err(("EntriesEnd", raw.entries_end.get().into()));
        }
        Ok(Self { bytes, offset, start, end })
    }

    /// Returns the entries up to the one that ends the node. An `Err` names a place that is no entry, and is the last.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry<'_>, usize>> {
        let mut at = Some(self.start);
        core::iter::from_fn(move || {
            let start = at.filter(|&start| start < self.end)?;
            let Some(entry) = self.entry(start) else {
                at = None;
                return Some(Err(start));
            };
            at = start.checked_add(entry.raw.length.get().into()).filter(|_| !entry.is_last());
            Some(Ok(entry))
        })
    }

    fn entry(&self, offset: usize) -> Option<Entry<'_>> {
        let (raw, _) = RawIndexEntry::read_from_prefix(self.bytes.get(offset..self.end)?).ok()?;
        let length = usize::from(raw.length.get());
        let bytes = slice(&self.bytes, offset, length).filter(|_| length % 8 == 0)?;
        let has_child = raw.flags.get() & 1 != 0;
        let child = if has_child { Some(u64_at(bytes, length.checked_sub(8)?)?) } else { None };
        let end = length.checked_sub(if has_child { 8 } else { 0 })?;
        let is_last = raw.flags.get() & 2 != 0;
        let len = if is_last { 0 } else { usize::from(raw.key_length.get()) };
        let start = size_of::<RawIndexEntry>();
        let key = bytes.get(start..start.checked_add(len)?).filter(|_| end >= start.saturating_add(len))?;
        Some(Entry { raw, key, bytes, child, offset })
    }
}
