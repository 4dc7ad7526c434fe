//! The log of a VHDX: changes of metadata that were not written to their location yet.
//!
//! Layout: a ring of sectors of 4 KiB. An entry is a header ([`RawEntry`]), descriptors, and one data sector per
//! data descriptor. A checksum covers the whole entry. The active sequence is the run of entries with
//! consecutive numbers that ends with the highest number.
//!
//! The log is replayed onto an overlay in memory. The file is not changed.
//! Invariant: validating entries reads at most [`EFFORT`] times the length of the log.
//! Source: \[MS-VHDX\] 2.3.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, KnownLayout, Unaligned, le, to_u64, to_usize};
use obento_block::{BlockDevice, Overlay};

use super::{Guid, RawHeader, has_checksum};
use crate::error::Opening;
use crate::read_bytes;

const LOG: &str = "log";
const SECTOR: usize = 4096;
/// The part of a data sector between its signature and its sequence numbers.
const DATA: core::ops::Range<usize> = 8..4092;
const ENTRY_LEN: usize = 64;
const DESCRIPTOR_LEN: usize = 32;
/// The most bytes that zero descriptors may name, since the overlay keeps them in memory.
const ZEROS_MAX: u64 = 64 << 20;
/// Stale entries overlap newer ones, but not many times.
const EFFORT: usize = 16;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawEntry {
    signature: [u8; 4],
    checksum: le::U32,
    length: le::U32,
    tail: le::U32,
    sequence: le::U64,
    descriptors: le::U32,
    reserved: le::U32,
    log_guid: Guid,
    flushed_length: le::U64,
    last_length: le::U64,
}
const _: () = assert!(size_of::<RawEntry>() == ENTRY_LEN);

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawDescriptor {
    signature: [u8; 4],
    /// The last 4 bytes of a data sector.
    trailing: [u8; 4],
    /// The first 8 bytes of a data sector, or the length of zeros.
    leading: [u8; 8],
    offset: le::U64,
    sequence: le::U64,
}
const _: () = assert!(size_of::<RawDescriptor>() == DESCRIPTOR_LEN);

/// A valid entry of the log.
#[derive(Clone)]
struct Entry {
    at: usize,
    header: RawEntry,
    bytes: Vec<u8>,
}

/// Returns `file` with the changes of its log.
///
/// # Errors
///
/// Damaged if the log has no valid sequence; Unsupported if replaying needs much memory or extends the file.
pub(super) fn replay(
    file: Arc<dyn BlockDevice>,
    header: &RawHeader,
) -> Result<Arc<dyn BlockDevice>, Opening> {
    let ring = read_bytes(&*file, header.log_offset.get(), header.log_length.get().into(), LOG)?;
    if ring.is_empty() || !ring.len().is_multiple_of(SECTOR) {
        return Err(Opening::damaged(LOG, "the length is impossible"));
    }
    let entries = active(&Ring { bytes: &ring, guid: header.log_guid })?;
    let last = entries.last().ok_or(Opening::damaged(LOG, "no valid entry"))?;
    if last.header.flushed_length.get() > file.len() {
        return Err(Opening::damaged(LOG, "the file is truncated"));
    }
    if last.header.last_length.get() > file.len() {
        return Err(Opening::Unsupported("a log that extends the file"));
    }
    let (overlay, mut zeros) = (Overlay::new(file), ZEROS_MAX);
    for entry in &entries {
        apply(entry, &overlay, &mut zeros)?;
    }
    Ok(Arc::new(overlay))
}

struct Ring<'a> {
    bytes: &'a [u8],
    guid: Guid,
}

impl Ring<'_> {
    /// Returns the entry at `at`, if it is valid, and subtracts its length from `effort`.
    fn entry(&self, at: usize, effort: &mut usize) -> Option<Entry> {
        let start = self.bytes.get(at..at.checked_add(ENTRY_LEN)?)?;
        let header = RawEntry::read_from_bytes(start).ok()?;
        let len = to_usize(header.length.get().into());
        let is_plausible = header.signature == *b"loge"
            && header.log_guid == self.guid
            && (SECTOR..=self.bytes.len()).contains(&len)
            && len.is_multiple_of(SECTOR)
            && header.sequence.get() > 0;
        if !is_plausible {
            return None;
        }
        *effort = effort.checked_sub(len)?;
        let (before, from) = self.bytes.split_at_checked(at)?;
        let bytes: Vec<u8> = from.iter().chain(before).copied().take(len).collect();
        has_checksum(&bytes).then_some(Entry { at, header, bytes })
    }

    /// Returns the valid entries from `at` on whose sequence numbers are consecutive.
    fn sequence(&self, at: usize, effort: &mut usize) -> Vec<Entry> {
        let (mut entries, mut at, mut used) = (Vec::new(), at, 0_usize);
        let mut expected: Option<u64> = None;
        while let Some(entry) = self.entry(at, effort) {
            used = used.saturating_add(entry.bytes.len());
            if expected.is_some_and(|expected| expected != entry.header.sequence.get())
                || used > self.bytes.len()
            {
                break;
            }
            expected = entry.header.sequence.get().checked_add(1);
            at = self.after(&entry);
            entries.push(entry);
        }
        entries
    }

    fn after(&self, entry: &Entry) -> usize {
        entry.at.saturating_add(entry.bytes.len()).checked_rem(self.bytes.len()).unwrap_or(0)
    }
}

/// Returns the entries to replay, the oldest first: those from the tail of the newest entry on.
fn active(ring: &Ring<'_>) -> Result<Vec<Entry>, Opening> {
    let mut effort = ring.bytes.len().saturating_mul(EFFORT);
    let mut best: Option<(u64, Vec<Entry>)> = None;
    let mut at = 0;
    while at < ring.bytes.len() {
        let entries = ring.sequence(at, &mut effort);
        let next = at.saturating_add(SECTOR);
        at = next;
        let Some(newest) = entries.last().map(|entry| entry.header.clone()) else { continue };
        // A sequence is complete if it contains the tail of its newest entry.
        let tail = to_usize(newest.tail.get().into());
        let Some(first) = entries.iter().position(|entry| entry.at == tail) else { continue };
        let number = newest.sequence.get();
        // The search continues after the sequence, unless the sequence wraps around the end.
        let end: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        at = next.max(entries.first().map_or(next, |entry| entry.at.saturating_add(end)));
        if best.as_ref().is_none_or(|(known, _)| number > *known) {
            best = Some((number, entries.into_iter().skip(first).collect()));
        }
    }
    best.map(|(_, entries)| entries).ok_or(Opening::damaged(LOG, "no valid sequence of entries"))
}

/// Writes the changes of `entry` to `target`. `zeros` is the number of zero bytes that may still be written.
fn apply(entry: &Entry, target: &dyn BlockDevice, zeros: &mut u64) -> Result<(), Opening> {
    let damaged = || Opening::damaged(LOG, "a descriptor is damaged");
    let count = to_usize(entry.header.descriptors.get().into());
    let end =
        count.checked_mul(DESCRIPTOR_LEN).and_then(|len| len.checked_add(ENTRY_LEN)).ok_or_else(damaged)?;
    let descriptors = entry.bytes.get(ENTRY_LEN..end).ok_or_else(damaged)?;
    let data = entry.bytes.get(end.next_multiple_of(SECTOR)..).unwrap_or_default();
    let mut sectors = data.chunks_exact(SECTOR);
    for bytes in descriptors.chunks_exact(DESCRIPTOR_LEN) {
        let descriptor = RawDescriptor::read_from_bytes(bytes).map_err(|_| damaged())?;
        if descriptor.sequence.get() != entry.header.sequence.get() {
            return Err(damaged());
        }
        let offset = descriptor.offset.get();
        match &descriptor.signature {
            b"zero" => {
                let len = u64::from_le_bytes(descriptor.leading);
                *zeros = zeros.checked_sub(len).ok_or(Opening::Unsupported("a log with many zeros"))?;
                let buf = crate::zeros(to_usize(len)).ok_or(Opening::Unsupported("a log with many zeros"))?;
                target.write_at(offset, &buf)?;
            }
            b"desc" => {
                let sector = sectors.next().ok_or_else(damaged)?;
                let middle = sector.get(DATA).unwrap_or_default();
                let block = [&descriptor.leading[..], middle, &descriptor.trailing[..]].concat();
                debug_assert_eq!(to_u64(block.len()), to_u64(SECTOR));
                target.write_at(offset, &block)?;
            }
            _ => return Err(damaged()),
        }
    }
    Ok(())
}
