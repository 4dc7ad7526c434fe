//! The index of a segment: the blocks with records of a file, a name, a process, a program or a user.
//!
//! ```text
//! block 0  header: magic, version, stamp of the segment, summary, number and checksum of the entries
//! then     entries of 8 bytes in ascending order
//!
//! entry   bits  0 to 7   kinds of the records
//!         bits  8 to 31  number of the block in the segment
//!         bits 32 to 63  hash of the key
//! ```
//!
//! The header starts with the checksum of its other bytes. All integers are little-endian.
//!
//! Invariant: an index is derived from its segment. A segment with another stamp is newer than its index, which is then
//! ignored. A reader decodes the blocks that an index names, and compares the keys of the records: a wrong index hides
//! records and adds none.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use obento_base::Ino;
use obento_base::crc::crc32c;
use obento_base::wire::{to_u64, to_usize};
use obento_vfs::Node;

use crate::actor::ActorId;
use crate::block::{BLOCK, seal, verify};
use crate::index_builder::IndexBuilder;
use crate::record::FileId;
use crate::segment::{Damage, Entries, number_of};

const MAGIC: &[u8; 8] = b"OBENPIDX";
const VERSION: u32 = 1;
/// Longest index that is read: each record of a segment has fewer than eight entries.
pub(crate) const INDEX_MAX: u64 = 1 << 28;

/// A property by which records are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key<'a> {
    /// The file of a record. The generation distinguishes the many files that had an inode number.
    File(FileId),
    /// The inode number of a directory, or of any file that was renamed.
    Directory(Ino),
    /// A name that a file gets.
    Name(&'a [u8]),
    /// The process ID of the actor.
    Process(u32),
    /// The name of the program of the actor.
    Program(&'a [u8]),
    /// The user ID of the actor.
    User(u32),
    /// The number that an actor gets.
    Number(ActorId),
}

impl Key<'_> {
    /// Returns the hash: FNV-1a with 64 bits, folded.
    pub(crate) fn hash(self) -> u32 {
        let add = |sum: u64, bytes: &[u8]| {
            bytes.iter().fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        };
        let sum = |tag: u8, bytes: &[u8]| add(add(0xcbf2_9ce4_8422_2325, &[tag]), bytes);
        let sum = match self {
            Self::File(file) => add(sum(1, &file.ino.0.to_le_bytes()), &file.generation.0.to_le_bytes()),
            Self::Directory(ino) => sum(7, &ino.0.to_le_bytes()),
            Self::Name(name) => sum(2, name),
            Self::Process(pid) => sum(3, &pid.to_le_bytes()),
            Self::Program(comm) => sum(4, comm),
            Self::User(uid) => sum(5, &uid.to_le_bytes()),
            Self::Number(id) => sum(6, &id.0.to_le_bytes()),
        };
        high(sum) ^ low(sum)
    }
}

fn high(entry: u64) -> u32 {
    low(entry >> 32)
}

fn low(entry: u64) -> u32 {
    let [a, b, c, d, ..] = entry.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Identifies the contents of a segment, which only grows: its length and the checksums of its first and last block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    len: u64,
    first: [u8; 4],
    last: [u8; 4],
}

impl Stamp {
    pub(crate) fn of(segment: &[u8]) -> Option<Self> {
        let len = to_u64(segment.len());
        let last = segment.get(to_usize(Self::last_block(len))..)?;
        Some(Self { len, first: *segment.first_chunk()?, last: *last.first_chunk()? })
    }

    /// Returns the stamp of a segment in a file.
    pub(crate) fn of_file(segment: &Node) -> obento_base::Result<Option<Self>> {
        let len = segment.attr()?.size;
        let (mut first, mut last) = ([0; 4], [0; 4]);
        let is_whole = segment.read_at(0, &mut first)? == first.len()
            && segment.read_at(Self::last_block(len), &mut last)? == last.len();
        Ok(is_whole.then_some(Self { len, first, last }))
    }

    /// Returns the offset of the last block of a segment of `len` bytes.
    fn last_block(len: u64) -> u64 {
        let block = to_u64(BLOCK);
        len.saturating_sub(1).checked_div(block).unwrap_or(0).saturating_mul(block)
    }
}

/// The reason why an index is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexDefect {
    /// The index is incomplete, or one of its checksums is wrong.
    Damaged,
    /// The index has another version of the format.
    Version(u32),
    /// The index was derived from other contents of the segment.
    Stale,
    /// The entries differ from those of the segment.
    Wrong,
    /// The log has no such segment, or the segment needs no index.
    Orphan,
}

impl core::fmt::Display for IndexDefect {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Damaged => f.write_str("the index is damaged"),
            Self::Version(version) => write!(f, "version {version} of the index format is not supported"),
            Self::Stale => f.write_str("the index is older than the segment"),
            Self::Wrong => f.write_str("the index differs from the records of the segment"),
            Self::Orphan => f.write_str("the index belongs to no segment"),
        }
    }
}

/// The ranges of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Sequence number of the first record.
    pub first: u64,
    /// Sequence number after the last record.
    pub next: u64,
    /// Earliest time of a record in microseconds since 1970.
    pub earliest: i64,
    /// Latest time of a record in microseconds since 1970.
    pub latest: i64,
}

/// The index of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Index {
    pub(crate) summary: Summary,
    entries: Vec<u64>,
}

impl Index {
    /// Derives the index of `segment`, and passes its damage to `damaged`.
    pub(crate) fn of(segment: &[u8], damaged: &mut dyn FnMut(Damage)) -> Self {
        let mut builder = IndexBuilder::default();
        let mut entries = Entries::new(segment);
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => {
                    builder.begin(entries.block());
                    builder.note(entry.sequence, entry.time);
                    builder.add(&entry.record);
                }
                Err(damage) => damaged(damage),
            }
        }
        builder.finish()
    }

    /// Returns an index with these entries.
    pub(crate) fn new(summary: Summary, entries: Vec<u64>) -> Self {
        Self { summary, entries }
    }

    /// Returns the size of the index in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len().saturating_mul(size_of::<u64>())
    }

    /// Returns the hashes of all keys, in ascending order. A hash is repeated for each block.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|&entry| high(entry))
    }

    /// Returns the numbers of the blocks with records of these kinds of a key with this hash, in ascending order, and all kinds
    /// of these records.
    pub(crate) fn blocks(&self, hash: u32, kinds: u8) -> impl Iterator<Item = (u32, u8)> + '_ {
        let from = self.entries.get(self.lower_bound(hash)..).unwrap_or_default();
        let len = from.iter().take_while(|&&entry| high(entry) == hash).count();
        let found = from.get(..len).unwrap_or_default().iter();
        let found = found.map(|&entry| {
            let [kinds, ..] = entry.to_le_bytes();
            (low(entry) >> 8, kinds)
        });
        found.filter(move |(_, own)| own & kinds != 0)
    }

    /// Returns the number of entries whose hash is less than `hash`. Hashes are distributed evenly, so the search starts
    /// where `hash` is expected, and doubles its distance until it has passed the place.
    fn lower_bound(&self, hash: u32) -> usize {
        let len = self.entries.len();
        let is_less = |at: usize| self.entries.get(at).is_some_and(|&entry| high(entry) < hash);
        let expected = to_usize(u64::from(hash).saturating_mul(to_u64(len)) >> u32::BITS);
        let (mut low, mut high_end, mut step) = (expected, expected, 8);
        while low > 0 && !is_less(low.saturating_sub(1)) {
            (high_end, low) = (low, low.saturating_sub(step));
            step = step.saturating_mul(2);
        }
        while high_end < len && is_less(high_end) {
            (low, high_end) = (high_end, high_end.saturating_add(step).min(len));
            step = step.saturating_mul(2);
        }
        let range = self.entries.get(low..high_end).unwrap_or_default();
        low.saturating_add(range.partition_point(|&entry| high(entry) < hash))
    }

    /// Returns the index as a file; `None` if the segment has no whole block.
    pub(crate) fn encode(&self, segment: &[u8]) -> Option<Vec<u8>> {
        let stamp = Stamp::of(segment)?;
        let Summary { first, next, earliest, latest } = self.summary;
        let mut body = Vec::with_capacity(BLOCK);
        body.extend_from_slice(MAGIC);
        body.extend_from_slice(&VERSION.to_le_bytes());
        body.extend_from_slice(&stamp.len.to_le_bytes());
        body.extend_from_slice(&stamp.first);
        body.extend_from_slice(&stamp.last);
        body.extend_from_slice(&first.to_le_bytes());
        body.extend_from_slice(&next.to_le_bytes());
        body.extend_from_slice(&earliest.to_le_bytes());
        body.extend_from_slice(&latest.to_le_bytes());
        body.extend_from_slice(&to_u64(self.entries.len()).to_le_bytes());
        let mut entries: Vec<u8> = Vec::with_capacity(self.entries.len().saturating_mul(8));
        self.entries.iter().for_each(|entry| entries.extend_from_slice(&entry.to_le_bytes()));
        body.extend_from_slice(&crc32c(!0, &entries).to_le_bytes());
        let mut out = Vec::with_capacity(BLOCK.saturating_add(entries.len()));
        seal(&body, &mut out);
        out.append(&mut entries);
        Some(out)
    }

    /// Decodes the index of the segment with this stamp.
    ///
    /// # Errors
    ///
    /// 1. `Damaged`: the header is damaged, or the file is not an index.
    /// 2. `Version`: the index has another version of the format.
    /// 3. `Stale`: the segment has another stamp.
    /// 4. `Damaged`: the entries are damaged.
    pub(crate) fn decode(bytes: &[u8], stamp: Stamp) -> Result<Self, IndexDefect> {
        let (header, entries) = bytes.split_at_checked(BLOCK).ok_or(IndexDefect::Damaged)?;
        let header = RawHeader::decode(header).ok_or(IndexDefect::Damaged)?;
        if header.version != VERSION {
            return Err(IndexDefect::Version(header.version));
        }
        if header.stamp != stamp {
            return Err(IndexDefect::Stale);
        }
        let entries = header.entries(entries).ok_or(IndexDefect::Damaged)?;
        // One entry for each key and block that exists, so that no key has more blocks than the segment.
        let blocks = stamp.len.div_ceil(to_u64(BLOCK));
        let is_valid = entries.is_sorted_by(|one, next| one >> 8 < next >> 8)
            && entries.iter().all(|&entry| u64::from(low(entry) >> 8) < blocks);
        is_valid.then_some(Self { summary: header.summary, entries }).ok_or(IndexDefect::Damaged)
    }
}

/// The header of an index.
struct RawHeader {
    version: u32,
    stamp: Stamp,
    summary: Summary,
    count: u64,
    /// The checksum of the entries.
    sum: u32,
}

impl RawHeader {
    /// Decodes the header of any version. Returns `None` if it is damaged.
    fn decode(block: &[u8]) -> Option<Self> {
        let rest = verify(block)?.strip_prefix(MAGIC)?;
        let (version, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (first_sum, rest) = rest.split_first_chunk()?;
        let (last_sum, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (next, rest) = rest.split_first_chunk()?;
        let (earliest, rest) = rest.split_first_chunk()?;
        let (latest, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (first, next) = (u64::from_le_bytes(*first), u64::from_le_bytes(*next));
        let (earliest, latest) = (i64::from_le_bytes(*earliest), i64::from_le_bytes(*latest));
        Some(Self {
            version: u32::from_le_bytes(*version),
            stamp: Stamp { len: u64::from_le_bytes(*len), first: *first_sum, last: *last_sum },
            summary: Summary { first, next, earliest, latest },
            count: u64::from_le_bytes(*count),
            sum: u32::from_le_bytes(*rest.first_chunk()?),
        })
    }

    /// Decodes the entries after the header. Returns `None` if they are damaged.
    fn entries(&self, bytes: &[u8]) -> Option<Vec<u64>> {
        let len = to_usize(self.count).checked_mul(8)?;
        let bytes = bytes.get(..len).filter(|bytes| crc32c(!0, bytes) == self.sum)?;
        let fields = bytes.chunks_exact(8).filter_map(|field| field.first_chunk());
        Some(fields.map(|field| u64::from_le_bytes(*field)).collect())
    }
}

/// Returns the name of the index of a segment.
pub(crate) fn index_name(number: u32) -> String {
    format!("{number:08x}.idx")
}

/// Returns the number of the segment whose index has this name.
pub(crate) fn index_number(name: &[u8]) -> Option<u32> {
    number_of(name, b".idx", index_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The search finds the same place as a search of all entries, however the hashes are distributed.
    #[test]
    fn an_index_is_searched_from_the_expected_place() {
        let even = |count: u64| (0..count).map(move |number| number * (u64::from(u32::MAX) / count.max(1)));
        let low = (0..500).chain([u64::from(u32::MAX)]);
        let repeated = (0..900).map(|number| number / 300 * 0x4000_0000 + 7);
        let all: [Vec<u64>; 6] = [
            Vec::new(),
            even(1).collect(),
            even(1000).collect(),
            low.collect(),
            repeated.collect(),
            (0..500).map(|number| u64::from(u32::MAX) - 500 + number).collect(),
        ];
        let summary = Summary { first: 0, next: 0, earliest: 0, latest: 0 };
        for hashes in all {
            let entries: Vec<u64> =
                (0..).zip(&hashes).map(|(number, hash)| hash << 32 | number << 8 | 1).collect();
            let index = Index::new(summary, entries);
            let near = hashes.iter().flat_map(|&hash| [hash.saturating_sub(1), hash, hash + 1]);
            for hash in near.chain([0, 1 << 31]).filter_map(|hash| u32::try_from(hash).ok()) {
                let expected = hashes.partition_point(|&own| own < u64::from(hash));
                assert_eq!(index.lower_bound(hash), expected, "{hash:#x} in {} entries", hashes.len());
            }
        }
    }
}
