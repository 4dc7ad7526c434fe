//! The places of all contents after a change.
//!
//! A *place* is a cluster with its number on the old volume, also after the end of the old volume. If the clusters get
//! other numbers, `shift` is the difference.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Error;
use obento_base::wire::to_u64;
use obento_clusters::{Bits, Cluster, Entry, clusters_of};
use obento_driver::{ResizeRefusal, ResizeResult};

use super::fat::collected;
use super::structures::Structures;
use crate::super_block::SuperBlock;

/// A planned change.
pub struct Plan {
    /// The boot sector after the change.
    pub new: SuperBlock,
    /// The places that nothing uses after the change.
    pub vacated: Range<u32>,
    /// The difference between the old and the new number of a cluster.
    pub shift: u32,
    /// The clusters of files that move, in order, with their new places.
    pub moves: Vec<(Cluster, Cluster)>,
    /// The places of the new bitmap.
    pub bitmap: Vec<Cluster>,
    /// The new places of the up-case table, if it moves.
    pub up_case: Option<Vec<Cluster>>,
    /// The places of the new version of each directory, or `None` if the directory stays the same.
    pub copies: Vec<Option<Vec<Cluster>>>,
    /// The places that are in use after the change.
    pub after: Bits,
}

impl Plan {
    /// Finds places for everything in the `vacated` places, for directories that change, and for the new bitmap. The
    /// new version of a structure is never in the place of the old one. Fails with `NoRoom` or `NoMemory`.
    pub fn new(from: &Structures, new: &SuperBlock, vacated: Range<u32>, shift: u32) -> ResizeResult<Self> {
        let end = new.clusters.saturating_add(shift).saturating_add(2);
        let mut space = Space::new(from, shift.saturating_add(2)..end, vacated.clone())?;
        let bitmap = space.run(from.sb.clusters_for(new.bitmap_len()))?;
        let moves_up_case = from.up_case.iter().any(|cluster| vacated.contains(&cluster.0));
        let up_case = Some(from.up_case.len()).filter(|_| moves_up_case);
        let up_case = up_case.map(|count| space.run(u32::try_from(count).unwrap_or(u32::MAX))).transpose()?;
        let mut this = Self {
            new: new.clone(),
            vacated,
            shift,
            moves: Vec::new(),
            bitmap,
            up_case,
            copies: Vec::new(),
            after: Bits::default(),
        };
        let structures = structure_clusters(from)?;
        for cluster in from.used.runs_without(&structures, this.vacated.clone()).flat_map(clusters_of) {
            if from.fat.entry(cluster) != Entry::Bad {
                this.moves.try_reserve(1).map_err(|_| Error::NoMemory)?;
                this.moves.push((cluster, space.next()?));
            }
        }
        for (folder, is_copied) in from.folders.iter().zip(copied(from, &this.vacated, shift)) {
            let places = || space.take(folder.clusters.len());
            this.copies.push(is_copied.then(places).transpose()?);
        }
        this.mark(from, end)?;
        Ok(this)
    }

    /// Returns the new place of a cluster of a file.
    pub fn place(&self, cluster: Cluster) -> Cluster {
        let moved = self.moves.binary_search_by_key(&cluster, |&(from, _)| from);
        moved.ok().and_then(|at| self.moves.get(at)).map_or(cluster, |&(_, to)| to)
    }

    /// Returns the new number of a place.
    pub fn number(&self, place: Cluster) -> Cluster {
        Cluster(place.0.saturating_sub(self.shift))
    }

    /// Returns the number of clusters in use after the change.
    pub fn count_used(&self) -> u32 {
        let numbers = self.new.numbers();
        self.after.count(numbers.start.saturating_add(self.shift)..numbers.end.saturating_add(self.shift))
    }

    /// Marks the places before `end` that are in use after the change. Fails with `NoMemory`.
    fn mark(&mut self, from: &Structures, end: u32) -> ResizeResult<()> {
        self.after = from.used.copy()?;
        let old_up_case = from.up_case.iter().filter(|_| self.up_case.is_some());
        let folders = from.folders.iter().zip(&self.copies).filter(|(_, copy)| copy.is_some());
        let old_folders = folders.flat_map(|(folder, _)| &folder.clusters);
        let old_files = self.moves.iter().map(|(from, _)| from);
        let old = from.bitmap.iter().chain(old_up_case).chain(old_folders).chain(old_files);
        for &cluster in old {
            self.after.unset(cluster)?;
        }
        let new_files = self.moves.iter().map(|(_, to)| to);
        let new = self.bitmap.iter().chain(self.up_case.iter().flatten());
        let new = new.chain(self.copies.iter().flatten().flatten()).chain(new_files);
        for &place in new {
            self.after.set(place)?;
        }
        Ok(self.after.unset_run(Cluster(end), u32::MAX)?)
    }
}

/// Returns the clusters that are not part of files.
fn structure_clusters(from: &Structures) -> ResizeResult<Bits> {
    let mut found = Bits::default();
    let folders = from.folders.iter().flat_map(|folder| &folder.clusters);
    for &cluster in from.bitmap.iter().chain(&from.up_case).chain(folders) {
        found.set(cluster)?;
    }
    Ok(found)
}

/// Returns for each directory whether it changes. A directory that contains a changed one changes too.
fn copied(from: &Structures, vacated: &Range<u32>, shift: u32) -> Vec<bool> {
    let mut copied = vec![shift > 0; from.folders.len()];
    for (at, folder) in from.folders.iter().enumerate().rev() {
        let is_moved = folder.clusters.iter().any(|cluster| vacated.contains(&cluster.0));
        let is_changed = is_moved || folder.refers_to(vacated) || folder.parent.is_none();
        let is_copied = copied.get_mut(at).is_some_and(|copied| {
            *copied |= is_changed;
            *copied
        });
        if let Some(parent) = folder.parent.and_then(|parent| copied.get_mut(parent)) {
            *parent |= is_copied;
        }
    }
    copied
}

/// The places that are free.
struct Space {
    /// The places that are in use, bad or vacated.
    taken: Bits,
    range: Range<u32>,
    /// The first free places. No place before them is free.
    next: Range<u32>,
}

impl Space {
    fn new(from: &Structures, range: Range<u32>, vacated: Range<u32>) -> ResizeResult<Self> {
        let mut taken = from.used.copy()?;
        for bad in from.fat.bad() {
            taken.set(bad)?;
        }
        taken.set_run(Cluster(vacated.start), vacated.end.saturating_sub(vacated.start))?;
        Ok(Self { taken, next: range.start..range.start, range })
    }

    /// Takes the first free place.
    fn next(&mut self) -> ResizeResult<Cluster> {
        if self.next.is_empty() {
            let mut free = self.taken.gaps(self.next.end..self.range.end);
            let (start, len) = free.next().ok_or(ResizeRefusal::NoRoom)?;
            self.next = start.0..start.0.saturating_add(len);
        }
        let found = self.next.next().ok_or(ResizeRefusal::NoRoom)?;
        Ok(Cluster(found))
    }

    /// Takes the first `count` free places.
    fn take(&mut self, count: usize) -> ResizeResult<Vec<Cluster>> {
        let mut places = Vec::new();
        places.try_reserve_exact(count).map_err(|_| Error::NoMemory)?;
        while places.len() < count {
            places.push(self.next()?);
        }
        Ok(places)
    }

    /// Takes the first `count` free places in a row. Linux and exfatprogs read the bitmap and the up-case table as
    /// contiguous clusters (`exfat_allocate_bitmap` and `exfat_create_upcase_table` of Linux). Must be called before
    /// [`next`](Self::next).
    fn run(&mut self, count: u32) -> ResizeResult<Vec<Cluster>> {
        let mut free = self.taken.gaps(self.range.clone());
        let (start, _) = free.find(|&(_, len)| len >= count).ok_or(ResizeRefusal::NoRoom)?;
        self.taken.set_run(start, count)?;
        collected(clusters_of((start, count)))
    }
}

/// Returns the number of clusters of all directories.
pub fn folder_clusters(from: &Structures) -> u64 {
    from.folders.iter().map(|folder| to_u64(folder.clusters.len())).fold(0, u64::saturating_add)
}
