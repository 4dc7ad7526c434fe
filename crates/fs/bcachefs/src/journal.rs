//! The journal: the roots of the trees and the changes that their nodes do not contain.
//!
//! On disk: buckets with entries (`struct jset`), each with a sequence number and the oldest number that is still
//! needed. An entry contains records: keys of a tree, a root, and counters.
//! Invariant: the keys in memory have a budget, and each bucket is read once.
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`struct jset`, `struct jset_entry`), `journal_io.c`
//! (`journal_read_bucket`, `bch2_journal_read`), `recovery.c`.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{split, to_u64, to_usize};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::BlockDevice;

use crate::btree::key::{OwnedKey, kind};
use crate::btree::tree::{Ignored, Overlay};
use crate::checksum::Method;
use crate::layout::bytes::{bits, u32_at, u64_at};
use crate::layout::record::{Entry, entries, kind as record_kind};
use crate::layout::super_block::{SECTOR, SuperBlock};

/// `JSET_MAGIC`, which is combined with the identifier of the volume.
const MAGIC: u64 = 0x2452_35c1_a362_5032;
/// Bytes of `struct jset` before its records.
const HEADER: usize = 56;
/// Most bytes of keys that are kept.
const BUDGET: usize = 256 << 20;
/// Most buckets of a journal that is read. Linux creates at most 8,192 (`bch2_dev_journal_alloc`).
const BUCKETS_MAX: u64 = 1 << 20;
/// Bytes that a key costs besides its value.
const KEY_COST: usize = 128;

/// The roots of the trees: the level and the pointer of each.
pub type Roots = BTreeMap<u8, (u8, OwnedKey)>;

/// Adds the roots among the records.
pub fn collect_roots(entries: impl Iterator<Item = Entry>, roots: &mut Roots) {
    for entry in entries.filter(Entry::is_root) {
        if let Some(key) = entry.keys.into_iter().next() {
            roots.insert(entry.tree, (entry.level, key));
        }
    }
}

/// An entry of the journal on disk.
#[derive(Clone, Copy, Debug)]
struct Place {
    seq: u64,
    last_seq: u64,
    is_flush: bool,
    offset: u64,
    len: usize,
}

/// What the journal contains.
#[derive(Debug, Default)]
pub struct Journal {
    /// The roots.
    pub roots: Roots,
    /// The keys.
    pub overlay: Overlay,
    /// Number of entries that were applied.
    pub applied: u64,
}

fn damaged(field: &'static str, found: u64) -> Error {
    Corrupt::Field { structure: Structure::Journal, field, block: 0, offset: 0, found }.into()
}

/// Whether the keys of the journal are applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// They are.
    Apply,
    /// Only the roots are used.
    Skip,
}

/// Reads the journal of a volume that was not unmounted.
///
/// # Errors
///
/// - `Corrupt`: no entry can be used, or the journal has impossibly many buckets.
/// - `NoMemory`: the keys exceed the budget.
pub fn read(device: &dyn BlockDevice, super_block: &SuperBlock, keys: Keys) -> Result<Journal> {
    let mut places = find(device, super_block)?;
    places.sort_by_key(|place| place.seq);
    // The latest copy of an entry is as good as any.
    places.dedup_by_key(|place| place.seq);
    let mut journal = Journal::default();
    let mut ignored = super_block.blacklist.clone();
    journal.overlay.ignored = Ignored::new(ignored.clone());
    places.retain(|place| !journal.overlay.is_ignored(place.seq));
    // Entries after the last flush were not complete.
    let last = places.iter().rev().find(|place| place.is_flush).copied();
    let last = last.ok_or_else(|| damaged("entries", 0))?;
    places.retain(|place| (last.last_seq..=last.seq).contains(&place.seq));
    let mut spent = 0_usize;
    for place in &places {
        let (bytes, is_big_endian) = load(device, super_block, place)?;
        let records = bytes.get(HEADER..).unwrap_or_default();
        collect_roots(entries(records, is_big_endian), &mut journal.roots);
        for entry in entries(records, is_big_endian) {
            ignored.extend(entry.skipped);
            let is_change = matches!(entry.kind, record_kind::BTREE_KEYS | record_kind::WRITE_BUFFER_KEYS);
            if keys == Keys::Apply && is_change {
                apply(&mut journal.overlay, entry, &mut spent)?;
            }
        }
    }
    journal.overlay.ignored = Ignored::new(ignored);
    if keys == Keys::Apply {
        journal.overlay.newest = Some(last.seq);
        journal.applied = to_u64(places.len());
    }
    Ok(journal)
}

fn apply(overlay: &mut Overlay, entry: Entry, spent: &mut usize) -> Result<()> {
    for key in entry.keys {
        // Counters are sums of differences, and no file depends on them.
        if key.kind != kind::ACCOUNTING {
            *spent = spent.saturating_add(key.value.len()).saturating_add(KEY_COST);
            if *spent > BUDGET {
                return Err(Error::NoMemory);
            }
            overlay.keys.insert((entry.tree, entry.level, key.pos), key);
        }
    }
    Ok(())
}

/// Reads all bytes of an entry.
fn load(device: &dyn BlockDevice, super_block: &SuperBlock, place: &Place) -> Result<(Vec<u8>, bool)> {
    let mut bytes = vec![0; place.len];
    device.read_at(place.offset, &mut bytes)?;
    let flags = u64::from(u32_at(&bytes, 36).unwrap_or(0));
    let (found, expected) = (u64_at(&bytes, 0).unwrap_or(0), sum_of(&bytes, flags)?);
    if found != expected {
        let ((found, _), (expected, _)) = (split(found), split(expected));
        let block = place.offset.checked_div(super_block.block_size().into()).unwrap_or(0);
        return Err(Corrupt::Checksum { structure: Structure::Journal, block, found, expected }.into());
    }
    Ok((bytes, bits(flags, 4, 5) == 1))
}

fn sum_of(bytes: &[u8], flags: u64) -> Result<u64> {
    let method = Method::decode(bits(flags, 0, 4))?;
    Ok(if method == Method::None {
        u64_at(bytes, 0).unwrap_or(0)
    } else {
        method.of(bytes.get(16..).unwrap_or_default())
    })
}

/// Finds the entries in all buckets.
fn find(device: &dyn BlockDevice, super_block: &SuperBlock) -> Result<Vec<Place>> {
    let bucket = u64::from(super_block.member.bucket_sectors).saturating_mul(SECTOR);
    let mut places = Vec::new();
    let total = super_block.journal.iter().fold(0_u64, |sum, &(_, count)| sum.saturating_add(count));
    if total > device.len().checked_div(bucket).unwrap_or(0).min(BUCKETS_MAX) {
        return Err(damaged("buckets", total));
    }
    for &(first, count) in &super_block.journal {
        for number in first..first.saturating_add(count) {
            let start = number.saturating_mul(bucket);
            if start.saturating_add(bucket) <= device.len() {
                find_in(device, super_block, start..start.saturating_add(bucket), &mut places)?;
            }
        }
    }
    Ok(places)
}

/// Finds the entries in a bucket. They follow each other, and an older one is a rest of former use.
fn find_in(
    device: &dyn BlockDevice,
    super_block: &SuperBlock,
    bucket: core::ops::Range<u64>,
    places: &mut Vec<Place>,
) -> Result<()> {
    let magic = super_block.magic_of(MAGIC);
    let (mut at, mut newest) = (bucket.start, 0);
    while at < bucket.end {
        let mut header = [0; HEADER];
        device.read_at(at, &mut header)?;
        if u64_at(&header, 16) != Some(magic) {
            break;
        }
        let seq = u64_at(&header, 24).unwrap_or(0);
        let len =
            u64::from(u32_at(&header, 40).unwrap_or(0)).saturating_mul(8).saturating_add(to_u64(HEADER));
        if seq < newest || len > bucket.end.saturating_sub(at) {
            break;
        }
        newest = seq;
        let flags = u64::from(u32_at(&header, 36).unwrap_or(0));
        let place = Place {
            seq,
            last_seq: u64_at(&header, 48).unwrap_or(0),
            is_flush: bits(flags, 5, 6) == 0,
            offset: at,
            len: to_usize(len),
        };
        // An entry with a wrong checksum was not written completely.
        match load(device, super_block, &place) {
            Ok(_) => places.push(place),
            Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        at = at.saturating_add(len.checked_next_multiple_of(super_block.block_size().into()).unwrap_or(len));
    }
    Ok(())
}
