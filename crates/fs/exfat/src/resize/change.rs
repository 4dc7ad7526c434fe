//! Carrying out a plan.
//!
//! Invariant: until the boot region is replaced, everything that the old boot region leads to stays as it was, with two
//! exceptions. Links of the FAT may lead to copies with the same contents, which the old bitmap then marks as used.
//! Afterwards the new structures are complete.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Error;
use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64, to_usize};
use obento_block::BlockDevice;
use obento_clusters::undelete::append;
use obento_clusters::{Bits, Cluster, Entry, Piece, clusters_of, sectors};
use obento_driver::{ResizeObserver, ResizeResult};

use super::entries::{self, Allocation, Contents};
use super::fat::{Fat, zeros};
use super::plan::Plan;
use super::structures::Structures;
use crate::boot::{BootRegion, Region, UNSUMMED};
use crate::raw::RawBoot;
use crate::super_block::DIRTY;
use crate::table::{BAD, LAST};

/// Maximum number of bytes that are copied at once, unless a cluster is larger.
const PORTION: u64 = 1 << 20;

/// Maximum number of bytes of a bitmap that are written at once.
const BITMAP: u64 = 64 << 10;

/// A change that is carried out.
pub struct Change<'d> {
    device: &'d dyn BlockDevice,
    old: Structures,
    plan: Plan,
    /// The FAT after the change.
    fat: Fat,
}

impl<'d> Change<'d> {
    /// Prepares the change. Fails with `NoMemory`.
    pub fn new(device: &'d dyn BlockDevice, old: Structures, plan: Plan) -> ResizeResult<Self> {
        let fat = match plan.shift {
            0 => old.fat.copy()?,
            _ => renumbered(&old, &plan)?,
        };
        Ok(Self { device, old, plan, fat })
    }

    /// Writes everything.
    pub fn run(mut self, observer: ResizeObserver<'_>) -> ResizeResult<()> {
        self.mark_in_use()?;
        self.copy(observer)?;
        self.link_copies()?;
        self.link_tables()?;
        self.write_folders()?;
        self.write_bitmap()?;
        self.reserve_copies()?;
        self.fat.write(self.device)?;
        self.link_to_copies()?;
        self.fat.write(self.device)?;
        self.write_boot(Region::Backup)?;
        self.write_boot(Region::Main)
    }

    /// Returns the byte offset of a place.
    fn offset(&self, place: Cluster) -> u64 {
        let before = u64::from(place.0.saturating_sub(2)).saturating_mul(self.old.sb.cluster_size.into());
        self.old.sb.data_start.saturating_add(before)
    }

    fn mark_in_use(&self) -> ResizeResult<()> {
        let [at, ..] = UNSUMMED;
        self.device.write_at(to_u64(at), &(self.old.sb.flags | DIRTY).to_le_bytes())?;
        Ok(self.device.flush()?)
    }

    /// Copies the contents of files and of the up-case table that move.
    fn copy(&self, observer: ResizeObserver<'_>) -> ResizeResult<()> {
        let up_case = self.plan.up_case.iter().flatten();
        let up_case = self.old.up_case.iter().copied().zip(up_case.copied());
        let pairs: Vec<(Cluster, Cluster)> = self.plan.moves.iter().copied().chain(up_case).collect();
        let size = u64::from(self.old.sb.cluster_size);
        let most = to_usize(PORTION.checked_div(size).unwrap_or(0).max(1));
        let (mut rest, mut done) = (pairs.as_slice(), 0_u64);
        while let Some(&(from, to)) = rest.first() {
            let is_next = |(at, pair): &(u32, &(Cluster, Cluster))| {
                pair.0.0 == from.0.saturating_add(*at) && pair.1.0 == to.0.saturating_add(*at)
            };
            let count = (0_u32..).zip(rest).take(most).take_while(is_next).count();
            let mut bytes = zeros(size.saturating_mul(to_u64(count)))?;
            self.device.read_at(self.offset(from), &mut bytes)?;
            self.device.write_at(self.offset(to), &bytes)?;
            rest = rest.get(count..).unwrap_or_default();
            done = done.saturating_add(to_u64(count));
            observer(done, to_u64(pairs.len()));
        }
        Ok(())
    }

    /// Clears the entries of new clusters, and links the copies, which no link leads to yet, as the originals are
    /// linked.
    fn link_copies(&mut self) -> ResizeResult<()> {
        if self.plan.shift > 0 {
            return Ok(());
        }
        self.fat.clear_new()?;
        for &(from, to) in &self.plan.moves {
            let value = match self.fat.entry(from) {
                Entry::Next(next) => self.plan.place(next).0,
                _ => LAST,
            };
            self.fat.set(to, value)?;
        }
        Ok(())
    }

    /// Changes the links from clusters that stay to clusters that move.
    fn link_to_copies(&mut self) -> ResizeResult<()> {
        for cluster in self.old.used.runs(self.old.sb.numbers()).flat_map(clusters_of) {
            if let Entry::Next(next) = self.fat.entry(cluster)
                && self.plan.vacated.contains(&next.0)
                && !self.plan.vacated.contains(&cluster.0)
            {
                self.fat.set(cluster, self.plan.place(next).0)?;
            }
        }
        Ok(())
    }

    /// Links the new bitmap and the up-case table.
    fn link_tables(&mut self) -> ResizeResult<()> {
        let tables = core::iter::once(&self.plan.bitmap).chain(&self.plan.up_case);
        let chains: Vec<Vec<Cluster>> = tables.map(|places| self.numbers(places)).collect();
        chains.iter().try_for_each(|chain| self.fat.link(chain))
    }

    fn numbers(&self, places: &[Cluster]) -> Vec<Cluster> {
        places.iter().map(|&place| self.plan.number(place)).collect()
    }

    /// Writes the new versions of directories.
    fn write_folders(&mut self) -> ResizeResult<()> {
        let firsts = self.old.folders.iter().enumerate();
        let firsts = firsts.filter_map(|(at, folder)| Some((*folder.clusters.first()?, at)));
        let by_first: BTreeMap<Cluster, usize> = firsts.collect();
        let size = to_usize(self.old.sb.cluster_size.into());
        for at in 0..self.old.folders.len() {
            let Some(places) = self.plan.copies.get(at).and_then(Option::as_ref).cloned() else { continue };
            let clusters = self.old.folders.get(at).map(|folder| folder.clusters.clone()).unwrap_or_default();
            let mut raw = self.old.entries(self.device, &clusters)?;
            entries::change(&mut raw, &mut |found| self.changed(found, &by_first))?;
            for (&place, bytes) in places.iter().zip(raw.as_slice().as_bytes().chunks(size)) {
                self.device.write_at(self.offset(place), bytes)?;
            }
            if at == 0 {
                let numbers = self.numbers(&places);
                self.fat.link(&numbers)?;
                self.plan.new.root = *numbers.first().ok_or(Error::Invalid)?;
            }
        }
        Ok(())
    }

    /// Returns the new value of a reference. Links the clusters of contents that are no longer contiguous.
    fn changed(
        &mut self,
        found: Allocation,
        by_first: &BTreeMap<Cluster, usize>,
    ) -> ResizeResult<Option<Allocation>> {
        let places = match found.contents {
            Contents::Bitmap => {
                let first = self.plan.number(*self.plan.bitmap.first().ok_or(Error::Invalid)?);
                return Ok(Some(Allocation { first, len: self.plan.new.bitmap_len(), ..found }));
            }
            Contents::UpCase => self.plan.up_case.clone(),
            Contents::Directory => {
                let copy = by_first.get(&found.first).and_then(|&at| self.plan.copies.get(at));
                copy.and_then(Option::as_ref).cloned()
            }
            Contents::File => self.moved(&found),
        };
        let Some(places) = places else {
            let first = self.plan.number(self.plan.place(found.first));
            return Ok(Some(Allocation { first, ..found }).filter(|new| *new != found));
        };
        let numbers = self.numbers(&places);
        let mut pairs = numbers.iter().zip(numbers.iter().skip(1));
        let is_run = pairs.all(|(one, next)| one.0.saturating_add(1) == next.0);
        let is_contiguous = found.is_contiguous && is_run;
        if !is_contiguous && found.contents != Contents::UpCase {
            self.fat.link(&numbers)?;
        }
        let first = *numbers.first().ok_or(Error::Invalid)?;
        Ok(Some(Allocation { first, is_contiguous, ..found }))
    }

    /// Returns the new places of a contiguous file, if clusters of it move. The FAT has the links of other files.
    fn moved(&self, found: &Allocation) -> Option<Vec<Cluster>> {
        if !found.is_contiguous {
            return None;
        }
        let clusters = self.old.clusters_of(found);
        let is_moved = clusters.iter().any(|cluster| self.plan.vacated.contains(&cluster.0));
        is_moved.then(|| clusters.into_iter().map(|cluster| self.plan.place(cluster)).collect())
    }

    /// Writes the new bitmap.
    fn write_bitmap(&self) -> ResizeResult<()> {
        let mut first = self.plan.new.numbers().start.saturating_add(self.plan.shift);
        let mut pieces = Vec::new();
        self.plan.bitmap.iter().for_each(|&place| append(&mut pieces, place));
        for place in self.places(&pieces) {
            let end = first.saturating_add(bits(&place));
            match self.plan.after.runs(first..end).next() {
                Some(_) => self.write_bits(&self.plan.after, first, place)?,
                None => sectors::clear(self.device, place)?,
            }
            first = end;
        }
        Ok(())
    }

    /// Returns the bytes of clusters on the device, in portions.
    fn places(&self, pieces: &[Piece]) -> impl Iterator<Item = Range<u64>> {
        pieces.iter().flat_map(|&(first, count)| {
            let start = self.offset(first);
            let len = u64::from(count).saturating_mul(self.old.sb.cluster_size.into());
            let end = start.saturating_add(len);
            let starts = (start..end).step_by(to_usize(BITMAP));
            starts.map(move |start| start..start.saturating_add(BITMAP).min(end))
        })
    }

    /// Writes bits from cluster `first` on to `place`.
    fn write_bits(&self, of: &Bits, first: u32, place: Range<u64>) -> ResizeResult<()> {
        let mut bytes = zeros(place.end.saturating_sub(place.start))?;
        of.store(Cluster(first), &mut bytes);
        Ok(self.device.write_at(place.start, &bytes)?)
    }

    /// Marks the copies as used in the old bitmap too, because links of old files lead to them from the next write of the
    /// FAT on. A driver that opens the volume after a power failure then does not allocate them.
    fn reserve_copies(&self) -> ResizeResult<()> {
        if self.plan.shift > 0 || self.plan.moves.is_empty() {
            return Ok(());
        }
        let numbers = self.old.sb.numbers();
        let mut used = self.old.used.copy()?;
        for (start, count) in self.plan.after.runs(numbers.clone()) {
            used.set_run(start, count)?;
        }
        let (mut first, mut pieces) = (numbers.start, Vec::new());
        self.old.bitmap.iter().for_each(|&place| append(&mut pieces, place));
        for place in self.places(&pieces) {
            let end = first.saturating_add(bits(&place));
            if used.runs_without(&self.old.used, first..end).next().is_some() {
                self.write_bits(&used, first, place)?;
            }
            first = end;
        }
        Ok(())
    }

    /// Writes a boot region with the new geometry. The region has twelve sectors. If a power failure damages the main
    /// region, the backup is complete.
    fn write_boot(&self, region: Region) -> ResizeResult<()> {
        let new = &self.plan.new;
        let mut found = BootRegion::read(self.device, Region::Main, new.sector_size)?;
        let sectors = |bytes: u64| bytes.checked_div(new.sector_size.into()).unwrap_or(0);
        let narrow = |bytes: u64| u32::try_from(sectors(bytes)).map_err(|_| Error::Invalid);
        let (raw, _) = RawBoot::mut_from_prefix(&mut found.bytes).map_err(|_| Error::Invalid)?;
        raw.VolumeLength.set(sectors(new.len));
        raw.FatOffset.set(narrow(new.fat_start)?);
        raw.FatLength.set(narrow(new.fat_len)?);
        raw.ClusterHeapOffset.set(narrow(new.data_start)?);
        raw.ClusterCount.set(new.clusters);
        raw.FirstClusterOfRootDirectory.set(new.root.0);
        raw.VolumeFlags.set(new.flags);
        let share = u64::from(self.plan.count_used()).saturating_mul(100).checked_div(new.clusters.into());
        raw.PercentInUse = u8::try_from(share.unwrap_or(100)).unwrap_or(100);
        Ok(found.write(self.device, region)?)
    }
}

/// Returns the number of bits in a range of bytes.
fn bits(place: &Range<u64>) -> u32 {
    let bytes = place.end.saturating_sub(place.start);
    u32::try_from(bytes.saturating_mul(8)).unwrap_or(u32::MAX)
}

/// Returns the FAT of a volume whose clusters get other numbers.
fn renumbered(old: &Structures, plan: &Plan) -> ResizeResult<Fat> {
    let mut fat = old.fat.empty(&plan.new)?;
    for cluster in plan.after.runs(old.sb.numbers()).flat_map(clusters_of) {
        let value = match old.fat.entry(cluster) {
            Entry::Next(next) => plan.number(next).0,
            // A contiguous file has no entries.
            Entry::Free => continue,
            _ => LAST,
        };
        fat.set(plan.number(cluster), value)?;
    }
    old.fat.bad().try_for_each(|cluster| fat.set(plan.number(cluster), BAD))?;
    Ok(fat)
}
