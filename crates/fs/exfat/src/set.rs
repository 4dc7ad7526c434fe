//! Entry sets: the attributes of a file in its directory.
//!
//! Layout: a file entry, a stream extension, the parts of the name, and then vendor entries, which may be skipped.
//! Invariant: a set has 3 to 19 entries, its checksum is right, and its lengths fit the volume, since `decode`
//! refuses other sets.
//! Source: specification, 6.3 and 7.4 to 7.7.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, FromZeros as _, IntoBytes as _, le};
use obento_clusters::Cluster;

use crate::name::MAX_UNITS;
use crate::raw::{RawEntry, RawFile, RawName, RawSecondary, RawStream, kind};
use crate::super_block::SuperBlock;

/// Number of units in a part of a name.
pub const PART: usize = 15;
/// Minimum and maximum number of entries after the first one (7.4.1).
pub const SECONDARIES: core::ops::RangeInclusive<u8> = 2..=18;
/// Maximum number of entries of a set.
pub const SET_MAX: u32 = 19;

/// `GeneralSecondaryFlags`: `FirstCluster` and `DataLength` are valid.
pub const ALLOCATION: u8 = 1;
/// `GeneralSecondaryFlags`: the clusters are contiguous, and the FAT has no entries for them.
pub const NO_FAT_CHAIN: u8 = 2;

/// Why entries do not form a valid set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// The directory ends, or another set begins, within the set.
    Cut,
    /// It has too few or too many entries.
    Count(u8),
    /// The checksum is wrong.
    Checksum {
        /// The stored checksum.
        found: u16,
        /// The checksum of the bytes.
        expected: u16,
    },
    /// The second entry is not a stream extension.
    NoStream,
    /// The name is missing or shorter than its length.
    Name,
    /// It contains an unknown entry that cannot be skipped.
    Unknown(u8),
    /// The valid length exceeds the length.
    ValidLength(u64),
    /// The length exceeds the volume.
    Length(u64),
    /// The first cluster is not on the volume.
    First(u32),
}

impl Flaw {
    /// Returns the wrong field: its name in the specification, its offset in the set, and its value.
    pub fn field(self) -> (&'static str, u32, u64) {
        match self {
            Self::Cut => ("EntryType", 32, 0),
            Self::Count(found) => ("SecondaryCount", 1, found.into()),
            Self::Checksum { found, .. } => ("SetChecksum", 2, found.into()),
            Self::NoStream => ("EntryType", 32, 0),
            Self::Name => ("NameLength", 35, 0),
            Self::Unknown(found) => ("EntryType", 64, found.into()),
            Self::ValidLength(found) => ("ValidDataLength", 40, found),
            Self::Length(found) => ("DataLength", 56, found),
            Self::First(found) => ("FirstCluster", 52, found.into()),
        }
    }
}

/// A complete set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntrySet {
    /// The first entry.
    pub file: RawFile,
    /// The second.
    pub stream: RawStream,
    /// The parts of the name, and vendor entries after them.
    pub rest: Vec<RawEntry>,
}

/// Returns the checksum of a set (6.3.3).
pub fn checksum<'e>(entries: impl Iterator<Item = &'e RawEntry>) -> u16 {
    let bytes = entries.flat_map(|entry| entry.as_bytes()).enumerate();
    bytes
        .filter(|(at, _)| !matches!(at, 2 | 3))
        .fold(0, |sum: u16, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()))
}

fn as_kind<T: obento_base::wire::FromBytes + obento_base::wire::FromZeros>(entry: &RawEntry) -> T {
    T::read_from_bytes(entry.as_bytes()).unwrap_or_else(|_| T::new_zeroed())
}

fn as_entry(bytes: &[u8]) -> RawEntry {
    RawEntry::read_from_bytes(bytes).unwrap_or_else(|_| RawEntry::new_zeroed())
}

impl EntrySet {
    /// Decodes a set: as many entries as the first one counts, or fewer if the directory ends before.
    pub fn decode(entries: &[RawEntry], sb: &SuperBlock) -> Result<Self, Flaw> {
        let this = Self::parse(entries)?;
        let stream = &this.stream;
        let (valid, len) = (stream.ValidDataLength.get(), stream.DataLength.get());
        match this.first() {
            _ if len > sb.heap_len() => Err(Flaw::Length(len)),
            _ if valid > len => Err(Flaw::ValidLength(valid)),
            Some(first) if !sb.has(first) => Err(Flaw::First(first.0)),
            None if len > 0 => Err(Flaw::First(0)),
            _ => Ok(this),
        }
    }

    /// Decodes a set without checking its lengths and clusters.
    pub fn parse(entries: &[RawEntry]) -> Result<Self, Flaw> {
        let [file, rest @ ..] = entries else { return Err(Flaw::Cut) };
        let file: RawFile = as_kind(file);
        if !SECONDARIES.contains(&file.SecondaryCount) {
            return Err(Flaw::Count(file.SecondaryCount));
        }
        if rest.len() != usize::from(file.SecondaryCount) {
            return Err(Flaw::Cut);
        }
        if rest.iter().any(|entry| entry.EntryType & (kind::IN_USE | kind::SECONDARY) != 0xc0) {
            return Err(Flaw::Cut);
        }
        let (found, expected) = (file.SetChecksum.get(), checksum(entries.iter()));
        if found != expected {
            return Err(Flaw::Checksum { found, expected });
        }
        let [stream, rest @ ..] = rest else { return Err(Flaw::Cut) };
        if stream.EntryType != kind::STREAM {
            return Err(Flaw::NoStream);
        }
        let this = Self { file, stream: as_kind(stream), rest: rest.to_vec() };
        let (names, others) = this.rest.split_at(this.parts().min(this.rest.len()));
        if this.stream.NameLength == 0
            || names.len() < this.parts()
            || names.iter().any(|entry| entry.EntryType != kind::NAME)
        {
            return Err(Flaw::Name);
        }
        match others.iter().find(|entry| entry.EntryType & kind::BENIGN == 0) {
            Some(entry) => Err(Flaw::Unknown(entry.EntryType)),
            None => Ok(this),
        }
    }

    /// Creates a set with this name and no other contents.
    pub fn named(units: &[u16], hash: u16) -> Self {
        let mut file = RawFile::new_zeroed();
        file.EntryType = kind::FILE;
        let mut stream = RawStream::new_zeroed();
        (stream.EntryType, stream.GeneralSecondaryFlags) = (kind::STREAM, ALLOCATION);
        let mut this = Self { file, stream, rest: Vec::new() };
        this.rename(units, hash);
        this
    }

    /// Changes the name. Vendor entries after the name are preserved.
    pub fn rename(&mut self, units: &[u16], hash: u16) {
        let others = self.others().to_vec();
        self.stream.NameLength = u8::try_from(units.len()).unwrap_or(u8::MAX);
        self.stream.NameHash = le::U16::new(hash);
        self.rest = units
            .chunks(PART)
            .map(|chunk| {
                let mut part = RawName::new_zeroed();
                part.EntryType = kind::NAME;
                part.FileName.iter_mut().zip(chunk).for_each(|(slot, &unit)| slot.set(unit));
                as_entry(part.as_bytes())
            })
            .chain(others)
            .collect();
        self.file.SecondaryCount = u8::try_from(self.rest.len()).unwrap_or(u8::MAX).saturating_add(1);
    }

    /// Returns the number of entries of the name.
    pub fn parts(&self) -> usize {
        usize::from(self.stream.NameLength).div_ceil(PART)
    }

    /// Returns the vendor entries after the name.
    pub fn others(&self) -> &[RawEntry] {
        self.rest.get(self.parts()..).unwrap_or_default()
    }

    /// Returns the name.
    pub fn units(&self) -> impl Iterator<Item = u16> + '_ {
        let parts = self.rest.iter().take(self.parts()).map(as_kind::<RawName>);
        parts.flat_map(|part| part.FileName.map(|unit| unit.get())).take(usize::from(self.stream.NameLength))
    }

    /// Returns all units in the entries of the name, up to the first 0.
    pub fn stored_units(&self) -> Vec<u16> {
        let parts = self.rest.iter().take(self.parts()).map(as_kind::<RawName>);
        parts.flat_map(|part| part.FileName.map(|unit| unit.get())).take_while(|&unit| unit != 0).collect()
    }

    /// Returns the set that these entries formed, with any count, if the file entry, the stream and a part of the name
    /// are present. Unknown entries that cannot be skipped are omitted.
    pub fn rescue(entries: &[RawEntry]) -> Option<Self> {
        let [file, stream, rest @ ..] = entries else { return None };
        let mut this = Self { file: as_kind(file), stream: as_kind(stream), rest: rest.to_vec() };
        let names = rest.iter().take_while(|entry| entry.EntryType == kind::NAME).count();
        if stream.EntryType != kind::STREAM || names == 0 {
            return None;
        }
        if this.parts() != names {
            let all = names.saturating_mul(PART).min(MAX_UNITS);
            this.stream.NameLength = u8::try_from(all).unwrap_or(u8::MAX);
            let stored = this.stored_units().len();
            this.stream.NameLength = u8::try_from(stored).ok().filter(|&len| len > 0)?;
        }
        let parts = this.parts();
        let (names, others) = this.rest.split_at_checked(parts)?;
        let is_known = |entry: &&RawEntry| entry.EntryType & kind::BENIGN != 0;
        this.rest = names.iter().chain(others.iter().filter(is_known)).copied().collect();
        this.file.SecondaryCount = u8::try_from(this.rest.len().saturating_add(1)).ok()?;
        SECONDARIES.contains(&this.file.SecondaryCount).then_some(this)
    }

    /// Returns the set of these entries, if each entry is plausible for its position. Ignores the type bytes. Entries
    /// after the name that may be skipped are preserved.
    pub fn by_place(entries: &[RawEntry]) -> Option<Self> {
        let [file, stream, rest @ ..] = entries else { return None };
        let stream = RawEntry { EntryType: kind::STREAM, ..*stream };
        let mut this = Self { file: as_kind(file), stream: as_kind(&stream), rest: Vec::new() };
        let (names, others) = rest.split_at_checked(this.parts())?;
        let names = names.iter().map(|entry| RawEntry { EntryType: kind::NAME, ..*entry });
        let is_known = |entry: &&RawEntry| {
            let is_secondary = entry.EntryType & (kind::IN_USE | kind::SECONDARY) == 0xc0;
            is_secondary && entry.EntryType & kind::BENIGN != 0
        };
        this.rest = names.chain(others.iter().filter(is_known).copied()).collect();
        this.file.SecondaryCount = u8::try_from(this.rest.len().saturating_add(1)).ok()?;
        (this.parts() > 0 && SECONDARIES.contains(&this.file.SecondaryCount)).then_some(this)
    }

    /// Returns the number of entries.
    pub fn count(&self) -> u32 {
        u32::from(self.file.SecondaryCount).saturating_add(1)
    }

    /// Returns the first cluster, if there is one.
    pub fn first(&self) -> Option<Cluster> {
        let first = self.stream.FirstCluster.get();
        (first != 0 && self.stream.GeneralSecondaryFlags & ALLOCATION != 0).then_some(Cluster(first))
    }

    /// Returns whether the clusters are contiguous and have no FAT entries.
    pub fn is_contiguous(&self) -> bool {
        self.stream.GeneralSecondaryFlags & NO_FAT_CHAIN != 0
    }

    /// Returns the allocations of vendor entries: first cluster, whether they are contiguous, length.
    pub fn other_allocations(&self) -> impl Iterator<Item = (Cluster, bool, u64)> + '_ {
        let others = self.others().iter().map(as_kind::<RawSecondary>);
        others.filter(|raw| raw.GeneralSecondaryFlags & ALLOCATION != 0 && raw.FirstCluster.get() != 0).map(
            |raw| {
                let is_contiguous = raw.GeneralSecondaryFlags & NO_FAT_CHAIN != 0;
                (Cluster(raw.FirstCluster.get()), is_contiguous, raw.DataLength.get())
            },
        )
    }

    /// Returns the entries as they are stored, with the right checksum.
    pub fn entries(&self) -> Vec<RawEntry> {
        let mut entries = Vec::new();
        entries.push(as_entry(self.file.as_bytes()));
        entries.push(as_entry(self.stream.as_bytes()));
        entries.extend_from_slice(&self.rest);
        let sum = checksum(entries.iter());
        let file = RawFile { SetChecksum: le::U16::new(sum), ..self.file };
        if let Some(first) = entries.first_mut() {
            *first = as_entry(file.as_bytes());
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> EntrySet {
        let units: Vec<u16> = name.encode_utf16().collect();
        EntrySet::named(&units, 7)
    }

    #[test]
    fn a_set_that_was_made_is_one() {
        for len in [1, 15, 16, 30, 31, 255] {
            let name = "n".repeat(len);
            let set = EntrySet::parse(&named(&name).entries()).unwrap();
            let units: Vec<u16> = set.units().collect();
            assert_eq!(std::string::String::from_utf16(&units).unwrap(), name);
            assert_eq!(set.count() as usize, 2 + len.div_ceil(15));
        }
    }

    #[test]
    fn an_invalid_set_is_refused_with_its_flaw() {
        let flaw = |change: fn(&mut Vec<RawEntry>)| {
            let mut entries = named("a name of two parts").entries();
            change(&mut entries);
            let sum = checksum(entries.iter());
            entries[0].rest[1..3].copy_from_slice(&sum.to_le_bytes());
            EntrySet::parse(&entries).unwrap_err()
        };
        assert_eq!(flaw(|entries| entries[0].rest[0] = 1), Flaw::Count(1));
        assert_eq!(flaw(|entries| entries.truncate(3)), Flaw::Cut);
        assert_eq!(flaw(|entries| entries[3].EntryType = kind::FILE), Flaw::Cut);
        assert_eq!(flaw(|entries| entries[1].EntryType = kind::NAME), Flaw::NoStream);
        assert_eq!(flaw(|entries| entries[1].rest[2] = 0), Flaw::Name);
        assert_eq!(flaw(|entries| entries[1].rest[2] = 31), Flaw::Name);
        assert_eq!(flaw(|entries| entries[3].EntryType = 0xc2), Flaw::Name);
        assert_eq!(
            flaw(|entries| {
                entries[1].rest[2] = 15;
                entries[3].EntryType = 0xc2;
            }),
            Flaw::Unknown(0xc2)
        );
        let mut entries = named("x").entries();
        entries[1].rest[30] ^= 1;
        assert!(matches!(EntrySet::parse(&entries), Err(Flaw::Checksum { .. })));
    }

    #[test]
    fn entries_after_a_name_from_other_systems_survive_a_rename() {
        let mut set = named("short");
        let vendor = RawEntry { EntryType: kind::VENDOR, rest: [9; 31] };
        set.rest.push(vendor);
        set.file.SecondaryCount += 1;
        set.rename(&[0x61; 40], 1);
        let set = EntrySet::parse(&set.entries()).unwrap();
        assert_eq!((set.others(), set.count()), (&[vendor][..], 6));
    }
}
