//! Finding deleted files.
//!
//! The entries of a deleted file lose the bit of use and keep everything else, so that the checksum of the set still
//! proves them. The bitmap shows which clusters are free. The places of a contiguous file are known; the chain of
//! another one is still in the FAT.
//!
//! Invariant: a directory is read once, and at most [`DIRECTORY`] bytes of it, so that the search ends.
//! Source: exFAT specification, 6.2.1 and 7.1.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64, to_usize};
use obento_base::{Name, Result};
use obento_block::BlockDevice;
use obento_clusters::undelete::{FreeClusters, KnownClusters, join};
use obento_clusters::utf16::to_bytes;
use obento_clusters::{Bits, Cluster, Zone};
use obento_driver::{DeletedFile, Undelete};

use crate::open::{ExFatDriver, locate};
use crate::raw::{RawBitmap, RawEntry, kind};
use crate::set::{EntrySet, SECONDARIES};
use crate::super_block::SuperBlock;
use crate::time;

/// The most bytes of a directory (6.2, 256 MiB).
const DIRECTORY: u64 = 256 << 20;
/// `FileAttributes`: a directory (7.4.4).
const IS_DIRECTORY: u16 = 0x10;
/// The bytes of the FAT that are read at once.
const PORTION: u64 = 64 << 10;

impl Undelete for ExFatDriver {
    fn deleted(
        &self,
        device: &dyn BlockDevice,
        found: &mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
    ) -> Result<()> {
        let sb = locate(device)?.sb;
        let space = FreeClusters::new(sb.clusters, sb.data_start, sb.cluster_size)?;
        let entered = Bits::new(sb.clusters)?;
        let mut search = Search { device, sb: &sb, fat: Vec::new(), fat_at: 0, space, entered, found };
        search.run();
        Ok(())
    }
}

/// A directory to read.
struct Pending {
    path: Vec<u8>,
    clusters: Vec<Cluster>,
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
    found: &'d mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
}

impl Search<'_> {
    fn run(&mut self) {
        let clusters = self.chain(self.sb.root, self.most());
        let clusters = self.enter(clusters);
        let root = Pending { path: Vec::new(), clusters, is_deleted: false };
        self.read_bitmap(&self.entries(&root.clusters));
        let mut pending = VecDeque::from([root]);
        while let Some(directory) = pending.pop_front() {
            if self.directory(&directory, &mut pending).is_break() {
                return;
            }
        }
    }

    /// Returns the most clusters of a directory.
    fn most(&self) -> u64 {
        DIRECTORY.div_ceil(self.sb.cluster_size.max(1).into())
    }

    /// Returns the next cluster in the FAT.
    fn next(&mut self, cluster: Cluster) -> Option<Cluster> {
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
        let next = Cluster(u32::from_le_bytes(*rest.first_chunk()?));
        self.sb.has(next).then_some(next)
    }

    /// Returns at most `most` clusters of a chain. A chain that returns to itself ends with `most`.
    fn chain(&mut self, first: Cluster, most: u64) -> Vec<Cluster> {
        let (mut chain, mut next) = (Vec::new(), Some(first).filter(|first| self.sb.has(*first)));
        while let Some(cluster) = next.filter(|_| to_u64(chain.len()) < most) {
            chain.push(cluster);
            next = self.next(cluster);
        }
        chain
    }

    /// Returns the clusters up to the first one that a directory has that is read already.
    fn enter(&mut self, clusters: Vec<Cluster>) -> Vec<Cluster> {
        let entered = &mut self.entered;
        clusters.into_iter().take_while(|cluster| !entered.set(*cluster)).collect()
    }

    /// Returns the entries in `clusters`. An unreadable part has no entries.
    fn entries(&self, clusters: &[Cluster]) -> Vec<RawEntry> {
        let mut entries = Vec::new();
        for &cluster in clusters {
            let mut bytes = vec![0; to_usize(self.sb.cluster_size.into())];
            let start = self.space.bytes_of(cluster).start;
            if self.device.read_at(start, &mut bytes).is_err() {
                bytes.fill(0);
            }
            entries.extend(bytes.chunks_exact(32).filter_map(|entry| RawEntry::read_from_bytes(entry).ok()));
        }
        entries
    }

    /// Reads which clusters are free. Without a bitmap, no cluster counts as free.
    fn read_bitmap(&mut self, root: &[RawEntry]) {
        let bitmaps = root.iter().filter(|entry| entry.EntryType == kind::BITMAP);
        let mut bitmaps = bitmaps.filter_map(|entry| RawBitmap::read_from_bytes(entry.as_bytes()).ok());
        let Some(bitmap) = bitmaps.find(|bitmap| bitmap.BitmapFlags & 1 == self.sb.active) else { return };
        let most = self.sb.bitmap_len().div_ceil(self.sb.cluster_size.max(1).into());
        let mut number = 2_u32;
        for cluster in self.chain(Cluster(bitmap.FirstCluster.get()), most) {
            let mut bytes = vec![0xff; to_usize(self.sb.cluster_size.into())];
            if self.device.read_at(self.space.bytes_of(cluster).start, &mut bytes).is_err() {
                bytes.fill(0xff);
            }
            for bit in bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
                if !self.sb.has(Cluster(number)) {
                    return;
                }
                if bit == 0 {
                    self.space.set_free(Cluster(number));
                }
                number = number.saturating_add(1);
            }
        }
    }

    fn directory(&mut self, directory: &Pending, pending: &mut VecDeque<Pending>) -> ControlFlow<()> {
        let entries = self.entries(&directory.clusters);
        let mut rest = entries.as_slice();
        while let Some((first, after)) = rest.split_first() {
            let in_use = first.EntryType & kind::IN_USE != 0;
            if first.EntryType == kind::END {
                break;
            }
            let set = if first.EntryType | kind::IN_USE == kind::FILE { self.set(rest) } else { None };
            let Some((set, len)) = set else {
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
        let clusters = self.enter(clusters);
        pending.push_back(Pending { path, clusters, is_deleted: false });
    }

    /// Returns the clusters that a set names.
    fn clusters_of(&mut self, set: &EntrySet) -> Vec<Cluster> {
        let most = set.stream.DataLength.get().div_ceil(self.sb.cluster_size.max(1).into()).min(self.most());
        let Some(first) = set.first() else { return Vec::new() };
        if !set.is_contiguous() {
            return self.chain(first, most);
        }
        (first.0..).map(Cluster).take(to_usize(most)).take_while(|next| self.sb.has(*next)).collect()
    }

    /// Handles a deleted set, or a set of a deleted directory.
    fn deleted(&mut self, set: &EntrySet, path: &[u8], pending: &mut VecDeque<Pending>) -> ControlFlow<()> {
        let Some(path) = join(path, &name_of(set)) else { return ControlFlow::Continue(()) };
        if set.file.FileAttributes.get() & IS_DIRECTORY != 0 {
            let clusters = self.clusters_of(set);
            let space = &self.space;
            let free: Vec<_> = clusters.into_iter().take_while(|cluster| space.is_free(*cluster)).collect();
            let clusters = self.enter(free);
            pending.push_back(Pending { path, clusters, is_deleted: true });
            return ControlFlow::Continue(());
        }
        let size = set.stream.DataLength.get();
        let needed = size.div_ceil(self.sb.cluster_size.max(1).into());
        let known = match (set.is_contiguous(), set.first()) {
            (false, Some(first)) => match self.chain(first, needed) {
                chain if to_u64(chain.len()) == needed => KnownClusters::Chain(chain),
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
        (self.found)(DeletedFile { path, size, modified: Some(modified), extents, certainty })
    }
}

/// Returns the name of a set.
fn name_of(set: &EntrySet) -> Vec<u8> {
    let name = to_bytes(set.units());
    if Name::new(&name).is_ok() { name } else { b"_".to_vec() }
}
