//! Moving the contents of clusters to other clusters.
//!
//! Invariant: a cluster that moves stays as it was, with its entry in the FAT, until no link and no directory entry
//! refers to it. Therefore each mixture of old and new links leads to the same contents. After a power failure, the
//! clusters without an owner are copies.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Error;
use obento_base::wire::{IntoBytes as _, to_u64, to_usize};
use obento_block::BlockDevice;
use obento_clusters::{Entry, clusters_of};
use obento_driver::{ResizeObserver, ResizeRefusal, ResizeResult};

use super::boot::BootSector;
use super::directories;
use super::table::AllocationTable;
use crate::raw::RawEntry;
use crate::super_block::SuperBlock;
use crate::super_block::{Root, Width};
use crate::table::last;
use crate::unit::Cluster;

/// Maximum number of bytes that are copied at once, unless a cluster is larger.
const PORTION: u64 = 1 << 20;
/// The bit of the state of a volume that is in use.
const IN_USE: u8 = 1;

/// The clusters that move, in order, with their new places.
pub struct Moves(Vec<(Cluster, Cluster)>);

impl Moves {
    /// Returns moves whose first clusters are in ascending order.
    pub fn new(pairs: Vec<(Cluster, Cluster)>) -> Self {
        Self(pairs)
    }

    /// Finds a free cluster in `to` for each used cluster in `from`. Fails with `NoRoom` if there are too few.
    pub fn plan(table: &AllocationTable, from: Range<u32>, to: Range<u32>) -> ResizeResult<Self> {
        let mut moves = Vec::new();
        let used = table.used()?;
        let mut free = used.gaps(to).flat_map(clusters_of);
        for from in used.runs(from).flat_map(clusters_of) {
            if table.entry(from) == Entry::Bad {
                continue;
            }
            let to = free.next().ok_or(ResizeRefusal::NoRoom)?;
            moves.try_reserve(1).map_err(|_| Error::NoMemory)?;
            moves.push((from, to));
        }
        Ok(Self(moves))
    }

    /// Returns the new place of a cluster that moves.
    pub fn target(&self, cluster: Cluster) -> Option<Cluster> {
        let at = self.0.binary_search_by_key(&cluster.0, |(from, _)| from.0).ok()?;
        self.0.get(at).map(|&(_, to)| to)
    }
}

/// A directory entry with the new number of its first cluster.
struct Reference {
    /// The byte offset of the entry on the volume, in the new place of the directory.
    at: u64,
    raw: RawEntry,
    /// Whether the entry is in a cluster that moves.
    is_moved: bool,
}

/// The move of the contents of a range of clusters.
pub struct Relocation<'d> {
    device: &'d dyn BlockDevice,
    sb: &'d SuperBlock,
    /// The FAT, which has the new links after [`run`](Self::run).
    pub table: AllocationTable,
    /// The place of the root directory after the move.
    pub root: Root,
    moves: Moves,
    references: Vec<Reference>,
}

impl<'d> Relocation<'d> {
    /// Plans the move of all used clusters in `from` to free clusters in `to` of a sound volume. Writes nothing.
    pub fn plan(
        device: &'d Arc<dyn BlockDevice>,
        sb: &'d SuperBlock,
        from: Range<u32>,
        to: Range<u32>,
    ) -> ResizeResult<Self> {
        let device = &**device;
        let table = AllocationTable::read(device, sb, sb.clusters)?;
        let moves = Moves::plan(&table, from, to)?;
        let is_single = sb.fats == 1 || sb.active_fat.is_some();
        if is_single && sb.width == Width::Fat12 && !moves.0.is_empty() {
            // An entry may be in two sectors, and no second FAT has the entry if only one sector is written.
            return Err(ResizeRefusal::Feature("a single FAT with entries of 12 bits").into());
        }
        let root = match sb.root {
            Root::Chain(root) => Root::Chain(moves.target(root).unwrap_or(root)),
            region @ Root::Region { .. } => region,
        };
        let references = Vec::new();
        let mut relocation = Self { device, sb, table, root, moves, references };
        relocation.references = relocation.find_references()?;
        Ok(relocation)
    }

    /// Returns all entries that refer to clusters that move, including `.` and `..`.
    fn find_references(&self) -> ResizeResult<Vec<Reference>> {
        let mut found: Vec<Reference> = Vec::new();
        directories::each(self.device, self.sb, &self.table, &mut |mut part| {
            let target = part.cluster.and_then(|cluster| self.moves.target(cluster));
            let start = target.and_then(|target| self.sb.offset_of(target)).unwrap_or(part.start);
            part.change(self.sb.width, &mut |at, raw, first| {
                let new = self.moves.target(first)?;
                let mut raw = *raw;
                raw.set_first(Some(new));
                found.push(Reference { at: start.saturating_add(at), raw, is_moved: target.is_some() });
                None
            })?;
            Ok(())
        })?;
        Ok(found)
    }

    /// Moves the contents. The volume stays marked as being in use if something moves.
    pub fn run(&mut self, observer: ResizeObserver<'_>) -> ResizeResult<()> {
        if self.moves.0.is_empty() {
            return Ok(());
        }
        let state = self.sb.state | IN_USE;
        self.device.write_at(self.sb.state_offset(), &[state])?;
        self.device.flush()?;
        self.copy(observer)?;
        self.write_references(true)?;
        self.device.flush()?;
        self.link_copies()?;
        self.table.write(self.device)?;
        self.link_to_copies()?;
        self.table.write(self.device)?;
        self.write_references(false)?;
        if self.root != self.sb.root {
            BootSector::read(self.device)?.write_root(self.device, self.root)?;
        }
        self.device.flush()?;
        self.free_originals()?;
        self.table.write(self.device)
    }

    /// Copies the contents of all clusters that move.
    fn copy(&self, observer: ResizeObserver<'_>) -> ResizeResult<()> {
        let size = u64::from(self.sb.cluster_size);
        let most = to_usize(PORTION.checked_div(size).unwrap_or(0).max(1));
        let total = to_u64(self.moves.0.len());
        let (mut rest, mut done) = (self.moves.0.as_slice(), 0_u64);
        while let Some(&(from, to)) = rest.first() {
            let is_next = |(at, pair): &(u32, &(Cluster, Cluster))| {
                pair.0.0 == from.0.saturating_add(*at) && pair.1.0 == to.0.saturating_add(*at)
            };
            let count = (0_u32..).zip(rest).take(most).take_while(is_next).count();
            let mut bytes = vec![0; to_usize(size.saturating_mul(to_u64(count)))];
            let place = |cluster| self.sb.offset_of(cluster).ok_or(Error::Invalid);
            self.device.read_at(place(from)?, &mut bytes)?;
            self.device.write_at(place(to)?, &bytes)?;
            rest = rest.get(count..).unwrap_or_default();
            done = done.saturating_add(to_u64(count));
            observer(done, total);
        }
        Ok(())
    }

    /// Writes the entries that refer to copies: those in copies of directories, or those in place.
    fn write_references(&self, is_moved: bool) -> ResizeResult<()> {
        for reference in self.references.iter().filter(|reference| reference.is_moved == is_moved) {
            self.device.write_at(reference.at, reference.raw.as_bytes())?;
        }
        Ok(())
    }

    /// Links the copies, which no link leads to yet, as the originals are linked.
    fn link_copies(&mut self) -> ResizeResult<()> {
        for &(from, to) in &self.moves.0 {
            let value = match self.table.entry(from) {
                Entry::Next(next) => self.moves.target(next).unwrap_or(next).0,
                _ => last(self.sb.width),
            };
            self.table.set(to, value)?;
        }
        Ok(())
    }

    /// Changes the links from clusters that stay to clusters that move.
    fn link_to_copies(&mut self) -> ResizeResult<()> {
        let used = self.table.used()?;
        for cluster in used.runs(2..self.sb.clusters.saturating_add(2)).flat_map(clusters_of) {
            if let Entry::Next(next) = self.table.entry(cluster)
                && let Some(target) = self.moves.target(next)
                && self.moves.target(cluster).is_none()
            {
                self.table.set(cluster, target.0)?;
            }
        }
        Ok(())
    }

    /// Frees the clusters that moved.
    fn free_originals(&mut self) -> ResizeResult<()> {
        self.moves.0.iter().try_for_each(|&(from, _)| self.table.set(from, 0))
    }
}
