//! Finding deleted files.
//!
//! A deleted entry keeps everything except the first byte of its short name. The parts of its long name keep everything
//! except their number. The chain of the file is freed. The checksum in the parts gives the lost byte. The places of
//! the file are guessed: the free clusters from the first one on.
//!
//! [`clusters`] finds the clusters of a deleted directory. [`upper_half`] finds the first cluster of entries that Windows deleted.
//!
//! Invariant: a directory is read once, and at most [`DIRECTORY`] bytes of it, so that the search ends.
//! Source: fatgen103, "FAT Directory Structure", `DIR_Name[0]`.

mod clusters;
mod contents;
mod upper_half;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64, to_usize};
use obento_base::{Name, Result};
use obento_block::BlockDevice;
use obento_clusters::undelete::{FreeClusters, KnownClusters, join};
use obento_clusters::{Bits, Entry, Zone, time};
use obento_driver::{Certainty, DeletedFile, Undelete, Unsearched, UnsearchedReason};

use self::clusters::{Trail, Trails};
use crate::inode::Attributes;
use crate::name::{CodePage, MAX_PARTS, ShortName, checksum, to_bytes};
use crate::open::{FatDriver, locate};
use crate::raw::{RawEntry, RawLongEntry};
use crate::super_block::{Root, SuperBlock, Width};
use crate::table;
use crate::unit::{Cluster, ENTRY_LEN};

/// The first byte of a free entry.
const FREE: u8 = 0xe5;
/// The attributes of a part of a long name, and the bits that a file has.
const LONG: u8 = 0x0f;
const KNOWN: u8 = 0x3f;
/// Length of an entry.
const ENTRY_BYTES: u32 = 32;
/// An entry that replaces an unreadable one: free, with the attribute of a label, so that it is no deleted file.
const UNREADABLE: [u8; 32] = {
    let mut entry = [0; 32];
    entry[0] = FREE;
    entry[11] = 0x08;
    entry
};
/// The most bytes of a directory (fatgen103: 65,536 entries).
const DIRECTORY: u64 = 65_536 * ENTRY_LEN;
/// The bytes of a directory that are read at once.
const DIRECTORY_PORTION: u64 = 16 << 10;
/// The bytes of the FAT that are read at once: whole entries of each width.
const PORTION: u64 = 6 << 10;

impl Undelete for FatDriver {
    fn deleted(
        &self,
        device: &Arc<dyn BlockDevice>,
        found: &mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
    ) -> Result<Vec<Unsearched>> {
        let device = &**device;
        let sb = locate(device, None)?.sb;
        let (copy, _) = table::best_copy(device, &sb);
        let (used, failed) = table::used(device, &sb, copy)?;
        let mut unsearched = Vec::new();
        if let Some(error) = failed {
            Unsearched::note(&mut unsearched, b"", UnsearchedReason::Device(error));
        }
        let space = FreeClusters::new(used, sb.clusters, sb.data_start, sb.cluster_size);
        let fat = FatReader { device, sb: &sb, copy, bytes: Vec::new(), start: 0 };
        let (entered, page) = (Bits::default(), self.options.code_page);
        let tries = upper_half::TRIES;
        let mut search =
            Search { device, sb: &sb, fat, space, entered, page, tries, trails: None, unsearched, found };
        search.run();
        Ok(search.unsearched)
    }
}

/// A FAT.
struct FatReader<'d> {
    device: &'d dyn BlockDevice,
    sb: &'d SuperBlock,
    /// The number of the FAT.
    copy: u8,
    /// Bytes of the FAT from `start` on.
    bytes: Vec<u8>,
    start: u64,
}

impl FatReader<'_> {
    /// Returns the entry of a cluster, or `None` if it cannot be read.
    fn value(&mut self, cluster: Cluster) -> Option<u32> {
        let (within, shift) = table::place(self.sb.width, cluster);
        let bytes = self.at(within)?;
        let value = u32::from_le_bytes(bytes) >> shift;
        Some(match self.sb.width {
            Width::Fat12 => value & 0xfff,
            Width::Fat16 => value & 0xffff,
            Width::Fat32 => value & table::COUNTED_32,
        })
    }

    /// Returns four bytes of the FAT; those past its end are zero.
    fn at(&mut self, within: u64) -> Option<[u8; 4]> {
        let start = within.saturating_sub(within % PORTION);
        if self.bytes.is_empty() || self.start != start {
            let len = self.sb.fat_len.saturating_sub(start).min(PORTION.saturating_add(4));
            self.bytes = vec![0; to_usize(len)];
            self.start = start;
            let offset = self.sb.fat_offset(self.copy).saturating_add(start);
            if self.device.read_at(offset, &mut self.bytes).is_err() {
                self.bytes.clear();
                return None;
            }
        }
        let rest = self.bytes.get(to_usize(within.saturating_sub(start))..)?;
        let mut bytes = [0; 4];
        bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Some(bytes)
    }

    /// Returns the clusters of a directory in use, and why the chain does not end regularly after them. Fails with
    /// `NoMemory`.
    fn chain(
        &mut self,
        first: Cluster,
        entered: &mut Bits,
    ) -> Result<(Vec<Cluster>, Option<UnsearchedReason>)> {
        let most = DIRECTORY.div_ceil(self.sb.cluster_size.max(1).into());
        let (mut chain, mut next) = (Vec::new(), first);
        loop {
            let reason = match () {
                () if !self.sb.has(next) => Some(UnsearchedReason::Chain),
                () if to_u64(chain.len()) >= most => Some(UnsearchedReason::TooLong),
                () if entered.set(next)? => Some(UnsearchedReason::Shared),
                () => None,
            };
            if reason.is_some() {
                return Ok((chain, reason));
            }
            chain.push(next);
            let value = self.value(next);
            match value.map(|value| table::decode(value, self.sb)) {
                Some(Entry::Next(cluster)) => next = cluster,
                Some(Entry::Last) => return Ok((chain, None)),
                _ => return Ok((chain, Some(UnsearchedReason::Chain))),
            }
        }
    }
}

/// Returns the clusters of the directory that begins at `first`.
pub(crate) fn chain_of(device: &dyn BlockDevice, sb: &SuperBlock, first: Cluster) -> Result<Vec<Cluster>> {
    let mut reader = FatReader { device, sb, copy: sb.read_fat(), bytes: Vec::new(), start: 0 };
    reader.chain(first, &mut Bits::default()).map(|(chain, _)| chain)
}

/// A directory to read.
struct Pending {
    path: Vec<u8>,
    /// The first cluster, or `None` for the root.
    first: Option<Cluster>,
    pieces: Vec<DirectoryPiece>,
    is_deleted: bool,
}

/// Bytes of a directory.
struct DirectoryPiece {
    bytes: Range<u64>,
    /// Whether the bytes may belong to another directory.
    is_doubtful: bool,
}

impl From<Range<u64>> for DirectoryPiece {
    fn from(bytes: Range<u64>) -> Self {
        Self { bytes, is_doubtful: false }
    }
}

struct Search<'d> {
    device: &'d dyn BlockDevice,
    sb: &'d SuperBlock,
    fat: FatReader<'d>,
    space: FreeClusters,
    /// The clusters of directories that are read.
    entered: Bits,
    page: CodePage,
    /// Number of candidates for cleared numbers that may still be examined.
    tries: u32,
    /// The clusters of all deleted directories, if they were searched.
    trails: Option<Trails>,
    unsearched: Vec<Unsearched>,
    found: &'d mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
}

impl Search<'_> {
    fn run(&mut self) {
        let pieces = match self.sb.root {
            Root::Region { start, len } => vec![(start..start.saturating_add(len)).into()],
            Root::Chain(first) => self.chain(first, b""),
        };
        let mut pending =
            VecDeque::from([Pending { path: Vec::new(), first: None, pieces, is_deleted: false }]);
        while let Some(directory) = pending.pop_front() {
            if self.directory(&directory, &mut pending).is_break() {
                return;
            }
        }
    }

    /// Returns the bytes of the directory in use at `path`.
    fn chain(&mut self, first: Cluster, path: &[u8]) -> Vec<DirectoryPiece> {
        let (chain, reason) = self.fat.chain(first, &mut self.entered).unwrap_or_default();
        if let Some(reason) = reason {
            Unsearched::note(&mut self.unsearched, path, reason);
        }
        chain.into_iter().map(|cluster| self.space.bytes_of((cluster, 1)).into()).collect()
    }

    fn directory(&mut self, directory: &Pending, pending: &mut VecDeque<Pending>) -> ControlFlow<()> {
        let mut parts: Vec<RawLongEntry> = Vec::new();
        let ranges = directory
            .pieces
            .iter()
            .flat_map(|piece| portions(piece.bytes.clone()).map(|range| (range, piece.is_doubtful)));
        for (range, is_doubtful) in ranges {
            let bytes = self.portion(&range, directory);
            for entry in bytes.chunks_exact(to_usize(ENTRY_LEN)) {
                let Ok(raw) = RawEntry::read_from_bytes(entry) else { continue };
                let first = raw.DIR_Name.first().copied().unwrap_or(0);
                let is_deleted = directory.is_deleted || first == FREE;
                match (first, raw.DIR_Attr & KNOWN) {
                    (0, _) => return ControlFlow::Continue(()),
                    (_, LONG) => {
                        parts.extend(RawLongEntry::read_from_bytes(entry).ok());
                        let excess = parts.len().saturating_sub(MAX_PARTS.into());
                        parts.drain(..excess);
                        continue;
                    }
                    (_, attributes) if attributes & Attributes::VOLUME_ID.bits() != 0 => {}
                    _ if is_deleted => self.deleted(&raw, &parts, (directory, is_doubtful), pending)?,
                    _ => self.in_use(&raw, &parts, &directory.path, pending),
                }
                parts.clear();
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the bytes of `range`. An unreadable sector has no entries, and does not end the directory.
    fn portion(&mut self, range: &Range<u64>, directory: &Pending) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(range.end.saturating_sub(range.start))];
        if self.device.read_at(range.start, &mut bytes).is_ok() {
            return bytes;
        }
        let size = to_usize(self.sb.sector_size.max(ENTRY_BYTES).into());
        let mut at = range.start;
        for sector in bytes.chunks_mut(size) {
            if let Err(error) = self.device.read_at(at, sector) {
                sector.chunks_mut(UNREADABLE.len()).for_each(|entry| entry.copy_from_slice(&UNREADABLE));
                Unsearched::note(&mut self.unsearched, &directory.path, UnsearchedReason::Device(error));
            }
            at = at.saturating_add(to_u64(size));
        }
        bytes
    }

    /// Adds a directory in use to those that are read.
    fn in_use(
        &mut self,
        raw: &RawEntry,
        parts: &[RawLongEntry],
        path: &[u8],
        pending: &mut VecDeque<Pending>,
    ) {
        let is_dots = raw.DIR_Name.first() == Some(&b'.');
        if raw.DIR_Attr & Attributes::DIRECTORY.bits() == 0 || is_dots {
            return;
        }
        let Some(first) = raw.first(self.sb.width) else { return };
        let Some(path) = join(path, &self.name(raw, parts)) else { return };
        let pieces = self.chain(first, &path);
        pending.push_back(Pending { path, first: Some(first), pieces, is_deleted: false });
    }

    /// Handles a deleted entry, or an entry of a deleted directory. An entry is doubtful if it may belong to another
    /// directory than `parent`.
    fn deleted(
        &mut self,
        raw: &RawEntry,
        parts: &[RawLongEntry],
        (parent, is_doubtful): (&Pending, bool),
        pending: &mut VecDeque<Pending>,
    ) -> ControlFlow<()> {
        if !is_plausible(raw) {
            return ControlFlow::Continue(());
        }
        let Some(path) = join(&parent.path, &self.name(raw, parts)) else { return ControlFlow::Continue(()) };
        if raw.DIR_Attr & Attributes::DIRECTORY.bits() != 0 {
            pending.extend(self.deleted_directory(raw, path, parent, is_doubtful));
            return ControlFlow::Continue(());
        }
        let size = raw.size();
        let (first, most) = self.first_of_file(raw, &path, parent);
        let (extents, certainty) = self.space.place(first, size, KnownClusters::First);
        let certainty = certainty.min(if is_doubtful { Certainty::Doubtful.min(most) } else { most });
        let modified = time::decode(raw.DIR_WrtDate.get(), raw.DIR_WrtTime.get(), 0, Zone::default());
        (self.found)(DeletedFile {
            path,
            size,
            modified: Some(modified),
            extents,
            holes: Vec::new(),
            certainty,
        })
    }

    /// Returns the name of a deleted entry: the long one, if its parts belong to the entry.
    fn name(&self, raw: &RawEntry, parts: &[RawLongEntry]) -> Vec<u8> {
        if let Some(long) = long_name(raw, parts) {
            return long;
        }
        let mut short = raw.name();
        if let Some(first) = short.0.first_mut().filter(|first| **first == FREE) {
            *first = b'_';
        }
        let name = to_bytes(short.to_units(self.page, raw.DIR_NTRes));
        if Name::new(&name).is_ok() { name } else { b"_".to_vec() }
    }

    /// Returns the deleted directory of an entry, unless its first cluster was overwritten or belongs to another directory.
    fn deleted_directory(
        &mut self,
        raw: &RawEntry,
        path: Vec<u8>,
        parent: &Pending,
        is_doubtful: bool,
    ) -> Option<Pending> {
        let first = self.first_of_directory(raw, parent)?;
        let own = self.first_entry(first);
        let is_own =
            own.is_some_and(|own| own.name() == ShortName::DOT && own.first(self.sb.width) == Some(first));
        if !is_own {
            Unsearched::note(&mut self.unsearched, &path, UnsearchedReason::Overwritten);
            return None;
        }
        // A directory in use at this place has another name now.
        if !self.space.is_free(first) || self.entered.has(first) {
            return None;
        }
        // The entry `..` names the directory.
        let is_doubtful = is_doubtful && !self.is_child(first, parent);
        let pieces = self.clusters_of(first, &path);
        let pieces = pieces.into_iter().map(|(cluster, may_be_foreign)| DirectoryPiece {
            bytes: self.space.bytes_of((cluster, 1)),
            is_doubtful: is_doubtful || may_be_foreign,
        });
        Some(Pending { path, first: Some(first), pieces: pieces.collect(), is_deleted: true })
    }

    /// Returns the clusters of a deleted directory, and whether each one may belong to another directory.
    fn clusters_of(&mut self, first: Cluster, path: &[u8]) -> Vec<(Cluster, bool)> {
        if self.recognise(first).is_some_and(|cluster| cluster.has_end) {
            let is_new = self.entered.set(first) == Ok(false);
            return Vec::from_iter(is_new.then_some((first, false)));
        }
        let trails = self.trails.take().unwrap_or_else(|| self.trails());
        let lone = Trail { clusters: vec![(first, false)], has_end: false };
        let trail = trails.get(&first).cloned().unwrap_or(lone);
        self.trails = Some(trails);
        let most = to_usize(DIRECTORY.div_ceil(self.sb.cluster_size.max(1).into()));
        let clusters = trail.clusters.into_iter().take(most);
        let clusters: Vec<_> =
            clusters.take_while(|(cluster, _)| self.entered.set(*cluster) == Ok(false)).collect();
        if !trail.has_end {
            Unsearched::note(&mut self.unsearched, path, UnsearchedReason::NoEnd);
        }
        clusters
    }

    fn first_entry(&self, cluster: Cluster) -> Option<RawEntry> {
        self.entry_at(self.sb.offset_of(cluster)?)
    }

    fn entry_at(&self, offset: u64) -> Option<RawEntry> {
        let mut entry = [0; 32];
        self.device.read_at(offset, &mut entry).ok()?;
        RawEntry::read_from_bytes(&entry).ok()
    }
}

/// Splits the bytes of a cluster into portions, since a directory may end after a few entries.
fn portions(bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let starts = bytes.clone().step_by(to_usize(DIRECTORY_PORTION));
    starts.map(move |start| start..start.saturating_add(DIRECTORY_PORTION).min(bytes.end))
}

/// Returns the long name whose parts precede `raw`. A part has the checksum of the short name, which gives its first
/// byte: exactly one value fits.
fn long_name(raw: &RawEntry, parts: &[RawLongEntry]) -> Option<Vec<u8>> {
    let sum = parts.last()?.LDIR_Chksum;
    let short = raw.name();
    let byte = fits(short, sum)?;
    // A byte that no short name has belongs to another entry.
    if short.0.first() == Some(&FREE) && !is_short(byte) && byte != 5 {
        return None;
    }
    // The last part precedes the others on disk.
    let own: Vec<_> = parts.iter().rev().take_while(|part| part.LDIR_Chksum == sum).collect();
    let units: Vec<u16> = own.iter().flat_map(|part| part.units()).collect();
    let end = units.iter().position(|&unit| unit == 0 || unit == 0xffff).unwrap_or(units.len());
    let name = to_bytes(units.into_iter().take(end));
    Name::new(&name).is_ok().then_some(name)
}

/// Returns the first byte of the short name if its checksum is `sum`. The first byte of a deleted name is lost.
fn fits(mut short: ShortName, sum: u8) -> Option<u8> {
    let first = *short.0.first()?;
    let bytes = if first == FREE { 0..=u8::MAX } else { first..=first };
    let mut bytes = bytes.into_iter();
    bytes.find(|&byte| {
        short.0.first_mut().into_iter().for_each(|first| *first = byte);
        checksum(short) == sum
    })
}

/// Returns whether the byte may be in a short name (fatgen103, "Limits on Names").
fn is_short(byte: u8) -> bool {
    byte >= b' ' && !br#""*+,./:;<=>?[\]|"#.contains(&byte)
}

/// Returns whether the bytes may be a file or directory.
fn is_plausible(raw: &RawEntry) -> bool {
    let date = raw.DIR_WrtDate.get();
    let is_date = date == 0 || (1..=12).contains(&(date >> 5 & 15)) && date & 31 != 0;
    let rest = raw.as_bytes().get(1..11).unwrap_or_default();
    raw.DIR_Attr & !KNOWN == 0 && is_date && rest.iter().all(|&byte| is_short(byte))
}
