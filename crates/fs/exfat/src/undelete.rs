//! Finding deleted files.
//!
//! The entries of a deleted file lose the bit of use and keep everything else, so that the checksum of the set still
//! proves them. The bitmap shows which clusters are free. The places of a contiguous file are known; the chain of
//! another one is still in the FAT.
//!
//! Invariant: a directory is read once, and at most [`DIRECTORY`] bytes of it, so that the search ends.
//! Source: exFAT specification, 6.2.1 and 7.1.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::{FromBytes as _, IntoBytes as _, to_usize};
use obento_base::{Name, Result};
use obento_block::BlockDevice;
use obento_clusters::undelete::{FreeClusters, KnownClusters, append, join};
use obento_clusters::utf16::to_bytes;
use obento_clusters::{Bits, Cluster, Piece, Portions, Zone, last_of};
use obento_driver::{DeletedFile, Undelete, Unsearched, UnsearchedReason};

use crate::open::{ExFatDriver, locate};
use crate::raw::{RawBitmap, RawEntry, kind};
use crate::set::{EntrySet, SECONDARIES};
use crate::super_block::SuperBlock;
use crate::{table, time};

/// The most bytes of a directory (6.2, 256 MiB).
const DIRECTORY: u64 = 256 << 20;
/// `FileAttributes`: a directory (7.4.4).
const IS_DIRECTORY: u16 = 0x10;
/// The bytes of the FAT that are read at once.
const PORTION: u64 = 4 << 10;
/// The bytes of entries that replace unreadable ones: a benign primary entry that is not in use (6.2).
const UNREADABLE: u8 = 0x7f;
/// The bytes of a directory that are read at once.
const DIRECTORY_PORTION: u64 = 16 << 10;

impl Undelete for ExFatDriver {
    fn deleted(
        &self,
        device: &Arc<dyn BlockDevice>,
        found: &mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
    ) -> Result<Vec<Unsearched>> {
        let device = &**device;
        let sb = locate(device, None)?.region.sb;
        let space = FreeClusters::new(Bits::default(), sb.clusters, sb.data_start, sb.cluster_size);
        let (entered, unsearched) = (Bits::default(), Vec::new());
        let mut search =
            Search { device, sb: &sb, fat: Vec::new(), fat_at: 0, space, entered, unsearched, found };
        search.run()?;
        Ok(search.unsearched)
    }
}

/// A directory to read.
struct Pending {
    path: Vec<u8>,
    clusters: Vec<Piece>,
    is_deleted: bool,
}

struct Search<'d> {
    device: &'d dyn BlockDevice,
    sb: &'d SuperBlock,
    /// Bytes of the FAT from `fat_at` on.
    fat: Vec<u8>,
    fat_at: u64,
    space: FreeClusters,
    /// The clusters of directories that are read.
    entered: Bits,
    unsearched: Vec<Unsearched>,
    found: &'d mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
}

impl Search<'_> {
    fn run(&mut self) -> Result<()> {
        let clusters = self.chain(self.sb.root, self.most());
        self.note_end(&clusters, b"");
        let clusters = self.enter(clusters, b"");
        let root = Pending { path: Vec::new(), clusters, is_deleted: false };
        let entries = self.entries(&root);
        let used = self.used(&entries)?;
        self.space = FreeClusters::new(used, self.sb.clusters, self.sb.data_start, self.sb.cluster_size);
        let mut pending = VecDeque::from([root]);
        while let Some(directory) = pending.pop_front() {
            if self.directory(&directory, &mut pending).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the most clusters of a directory.
    fn most(&self) -> u64 {
        DIRECTORY.div_ceil(self.sb.cluster_size.max(1).into())
    }

    /// Returns the next cluster in the FAT.
    fn next(&mut self, cluster: Cluster) -> Option<Cluster> {
        self.value(cluster).map(Cluster).filter(|&next| self.sb.has(next))
    }

    /// Returns the entry of a cluster in the FAT, if it can be read.
    fn value(&mut self, cluster: Cluster) -> Option<u32> {
        let within = u64::from(cluster.0).saturating_mul(4);
        let start = within.saturating_sub(within % PORTION);
        if self.fat.is_empty() || self.fat_at != start {
            self.fat = vec![0; to_usize(self.sb.fat_len.saturating_sub(start).min(PORTION))];
            self.fat_at = start;
            if self.device.read_at(self.sb.fat_start.saturating_add(start), &mut self.fat).is_err() {
                self.fat.clear();
                return None;
            }
        }
        let rest = self.fat.get(to_usize(within.saturating_sub(start))..)?;
        Some(u32::from_le_bytes(*rest.first_chunk()?))
    }

    /// Returns at most `most` clusters of a chain. A chain that returns to itself ends after a few rounds.
    fn chain(&mut self, first: Cluster, most: u64) -> Vec<Piece> {
        let (mut chain, mut count, mut before) = (Vec::new(), 0_u64, None);
        let mut next = Some(first).filter(|first| self.sb.has(*first));
        while let Some(cluster) = next.filter(|_| count < most && self.space.follows_link(chain.len())) {
            if before == Some(cluster) {
                break;
            }
            append(&mut chain, cluster);
            count = count.saturating_add(1);
            before = if count.is_power_of_two() { next } else { before };
            next = self.next(cluster);
        }
        chain
    }

    /// Notes that the chain of the root directory does not end regularly after `clusters`.
    fn note_end(&mut self, clusters: &[Piece], path: &[u8]) {
        let Some(last) = clusters.last().map(last_of) else {
            return Unsearched::note(&mut self.unsearched, path, UnsearchedReason::Chain);
        };
        let reason = match self.value(last) {
            Some(table::LAST) => return,
            _ if count(clusters) >= self.most() => UnsearchedReason::TooLong,
            _ => UnsearchedReason::Chain,
        };
        Unsearched::note(&mut self.unsearched, path, reason);
    }

    /// Returns the clusters up to the first one that a directory has that is read already.
    fn enter(&mut self, clusters: Vec<Piece>, path: &[u8]) -> Vec<Piece> {
        let wanted = count(&clusters);
        let entered = self.new_clusters(clusters);
        if count(&entered) < wanted {
            Unsearched::note(&mut self.unsearched, path, UnsearchedReason::Shared);
        }
        entered
    }

    fn new_clusters(&mut self, clusters: Vec<Piece>) -> Vec<Piece> {
        let mut entered = Vec::new();
        for (start, count) in clusters {
            let new = self.entered.gaps(start.0..start.0.saturating_add(count)).next();
            let Some((_, len)) = new.filter(|&(first, _)| first == start) else { break };
            if self.entered.set_run(start, len).is_err() {
                break;
            }
            entered.push((start, len));
            if len < count {
                break;
            }
        }
        entered
    }

    /// Returns `len` bytes of a directory. An unreadable sector has no entries, and does not end the directory.
    fn portion(&mut self, start: u64, len: u64, path: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(len)];
        if self.device.read_at(start, &mut bytes).is_ok() {
            return bytes;
        }
        let mut at = start;
        for sector in bytes.chunks_mut(to_usize(self.sb.sector_size.into())) {
            if let Err(error) = self.device.read_at(at, sector) {
                sector.fill(UNREADABLE);
                Unsearched::note(&mut self.unsearched, path, UnsearchedReason::Device(error));
            }
            at = at.saturating_add(self.sb.sector_size.into());
        }
        bytes
    }

    /// Returns the entries of a directory up to its end, and perhaps some behind it.
    fn entries(&mut self, directory: &Pending) -> Vec<RawEntry> {
        let mut entries = Vec::new();
        for &clusters in &directory.clusters {
            let place = self.space.bytes_of(clusters);
            for start in place.clone().step_by(to_usize(DIRECTORY_PORTION)) {
                let len = place.end.saturating_sub(start).min(DIRECTORY_PORTION);
                let bytes = self.portion(start, len, &directory.path);
                let read = bytes.chunks_exact(32).filter_map(|entry| RawEntry::read_from_bytes(entry).ok());
                let first = entries.len();
                entries.extend(read);
                let mut new = entries.iter().skip(first);
                if new.any(|entry| entry.EntryType == kind::END) {
                    return entries;
                }
            }
        }
        entries
    }

    /// Returns the clusters that are not free. Without a bitmap, no cluster counts as free, nor one whose part of the
    /// bitmap cannot be read. Fails with `NoMemory`.
    fn used(&mut self, root: &[RawEntry]) -> Result<Bits> {
        let mut used = Bits::default();
        let bitmaps = root.iter().filter(|entry| entry.EntryType == kind::BITMAP);
        let mut bitmaps = bitmaps.filter_map(|entry| RawBitmap::read_from_bytes(entry.as_bytes()).ok());
        let bitmap = bitmaps.find(|bitmap| bitmap.BitmapFlags & 1 == self.sb.active);
        let most = self.sb.bitmap_len().div_ceil(self.sb.cluster_size.max(1).into());
        let chain = bitmap.map(|bitmap| self.chain(Cluster(bitmap.FirstCluster.get()), most));
        let mut next = self.sb.numbers().start;
        for place in chain.unwrap_or_default().into_iter().map(|piece| self.space.bytes_of(piece)) {
            let bits = |bytes: u64| u32::try_from(bytes.saturating_mul(8)).unwrap_or(u32::MAX);
            let mut portions = Portions::new(self.device, place.clone());
            while let Some((range, bytes)) = portions.next_portion() {
                let first = Cluster(next.saturating_add(bits(range.start.saturating_sub(place.start))));
                match bytes {
                    Ok(bytes) => used.load(first, bytes)?,
                    Err(_) => used.set_run(first, bits(range.end.saturating_sub(range.start)))?,
                }
            }
            next = next.saturating_add(bits(place.end.saturating_sub(place.start)));
        }
        used.set_run(Cluster(next), self.sb.numbers().end.saturating_sub(next))?;
        Ok(used)
    }

    fn directory(&mut self, directory: &Pending, pending: &mut VecDeque<Pending>) -> ControlFlow<()> {
        let entries = self.entries(directory);
        let mut rest = entries.as_slice();
        while let Some((first, after)) = rest.split_first() {
            let in_use = first.EntryType & kind::IN_USE != 0;
            if first.EntryType == kind::END {
                break;
            }
            let set = if first.EntryType | kind::IN_USE == kind::FILE { self.set(rest) } else { None };
            let Some((set, len)) = set else {
                if first.EntryType == kind::FILE && !directory.is_deleted {
                    Unsearched::note(&mut self.unsearched, &directory.path, UnsearchedReason::Entry);
                }
                rest = after;
                continue;
            };
            rest = rest.get(len..).unwrap_or_default();
            match in_use && !directory.is_deleted {
                true => self.in_use(&set, &directory.path, pending),
                false => self.deleted(&set, &directory.path, pending)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the set at the start of `entries` as it was in use, and its number of entries. The checksum proves that
    /// the entries belong together.
    fn set(&self, entries: &[RawEntry]) -> Option<(EntrySet, usize)> {
        let [_, count, ..] = entries.first()?.as_bytes() else { return None };
        if !SECONDARIES.contains(count) {
            return None;
        }
        let len = usize::from(*count).saturating_add(1);
        let in_use = |entry: &RawEntry| RawEntry { EntryType: entry.EntryType | kind::IN_USE, ..*entry };
        let entries: Vec<_> = entries.get(..len)?.iter().map(in_use).collect();
        EntrySet::decode(&entries, self.sb).ok().map(|set| (set, len))
    }

    /// Adds a directory in use to those that are read.
    fn in_use(&mut self, set: &EntrySet, path: &[u8], pending: &mut VecDeque<Pending>) {
        if set.file.FileAttributes.get() & IS_DIRECTORY == 0 {
            return;
        }
        let Some(path) = join(path, &name_of(set)) else { return };
        let clusters = self.clusters_of(set);
        let stated = set.stream.DataLength.get().div_ceil(self.sb.cluster_size.max(1).into());
        if count(&clusters) < stated {
            let is_long = stated > self.most();
            let reason = if is_long { UnsearchedReason::TooLong } else { UnsearchedReason::Chain };
            Unsearched::note(&mut self.unsearched, &path, reason);
        }
        let clusters = self.enter(clusters, &path);
        pending.push_back(Pending { path, clusters, is_deleted: false });
    }

    /// Returns the clusters that a set names.
    fn clusters_of(&mut self, set: &EntrySet) -> Vec<Piece> {
        let most = set.stream.DataLength.get().div_ceil(self.sb.cluster_size.max(1).into()).min(self.most());
        let Some(first) = set.first() else { return Vec::new() };
        if !set.is_contiguous() {
            return self.chain(first, most);
        }
        let room = if self.sb.has(first) { self.sb.numbers().end.saturating_sub(first.0) } else { 0 };
        Vec::from([(first, u32::try_from(most).unwrap_or(u32::MAX).min(room))])
    }

    /// Returns the runs of free clusters in `piece`.
    fn free_parts(&self, (start, count): Piece) -> Vec<Piece> {
        let (mut parts, mut at) = (Vec::new(), start.0);
        let end = start.0.saturating_add(count);
        while at < end {
            let len = self.space.free_from(Cluster(at), end.saturating_sub(at));
            parts.extend(Some((Cluster(at), len)).filter(|_| len > 0));
            at = at.saturating_add(len.max(1));
        }
        parts
    }

    /// Notes that a deleted directory of `stated` clusters may have others than `free`.
    fn note_missing(&mut self, free: &[Piece], clusters: &[Piece], stated: u64, path: &[u8]) {
        if count(free) >= stated {
            return;
        }
        // A directory whose clusters are all in use may have another name now.
        let is_moved =
            free.is_empty() && clusters.first().is_some_and(|&(first, _)| self.is_directory(first));
        let reason = match free.is_empty() {
            true => UnsearchedReason::Overwritten,
            false if count(clusters) < stated => UnsearchedReason::NoEnd,
            false => UnsearchedReason::PartlyOverwritten,
        };
        if !is_moved {
            Unsearched::note(&mut self.unsearched, path, reason);
        }
    }

    /// Returns whether a cluster begins with the entry of a file.
    fn is_directory(&self, cluster: Cluster) -> bool {
        let mut entry = [0; 32];
        let is_read = self.device.read_at(self.space.bytes_of((cluster, 1)).start, &mut entry).is_ok();
        let [kind, count, ..] = entry;
        is_read && kind | kind::IN_USE == kind::FILE && SECONDARIES.contains(&count) || kind == kind::END
    }

    /// Handles a deleted set, or a set of a deleted directory.
    fn deleted(&mut self, set: &EntrySet, path: &[u8], pending: &mut VecDeque<Pending>) -> ControlFlow<()> {
        let Some(path) = join(path, &name_of(set)) else { return ControlFlow::Continue(()) };
        if set.file.FileAttributes.get() & IS_DIRECTORY != 0 {
            let clusters = self.clusters_of(set);
            let stated = set.stream.DataLength.get().div_ceil(self.sb.cluster_size.max(1).into());
            // The checksums of the sets prove the entries of each cluster.
            let free: Vec<_> = clusters.iter().flat_map(|&piece| self.free_parts(piece)).collect();
            self.note_missing(&free, &clusters, stated, &path);
            let clusters = self.new_clusters(free);
            pending.push_back(Pending { path, clusters, is_deleted: true });
            return ControlFlow::Continue(());
        }
        let size = set.stream.DataLength.get();
        let needed = size.div_ceil(self.sb.cluster_size.max(1).into());
        let known = match (set.is_contiguous(), set.first()) {
            (false, Some(first)) => match self.chain(first, needed) {
                chain if count(&chain) == needed => KnownClusters::Chain(chain),
                _ => KnownClusters::First,
            },
            _ => KnownClusters::Contiguous,
        };
        let (extents, certainty) = self.space.place(set.first(), size, known);
        let file = &set.file;
        let modified = time::decode(
            file.LastModifiedTimestamp.get(),
            file.LastModified10msIncrement,
            file.LastModifiedUtcOffset,
            Zone::default(),
        );
        (self.found)(DeletedFile {
            path,
            size,
            modified: Some(modified),
            extents,
            holes: Vec::new(),
            certainty,
        })
    }
}

/// Returns the number of clusters.
fn count(pieces: &[Piece]) -> u64 {
    pieces.iter().fold(0, |count, &(_, len)| count.saturating_add(len.into()))
}

/// Returns the name of a set.
fn name_of(set: &EntrySet) -> Vec<u8> {
    let name = to_bytes(set.units());
    if Name::new(&name).is_ok() { name } else { b"_".to_vec() }
}
