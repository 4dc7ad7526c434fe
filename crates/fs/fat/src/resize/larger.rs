//! Growing a volume beyond the room of its FATs.
//!
//! The larger FATs follow the old ones, in place of the first clusters, so that the other clusters keep their places
//! and get smaller numbers. The old FATs become reserved sectors. The numbers are in all directories, so that
//! directories are copied too. The new structures are complete before one write of the boot sector replaces the old ones.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Error;
use obento_block::BlockDevice;
use obento_clusters::{Entry, clusters_of};
use obento_driver::{ResizeObserver, ResizeRefusal, ResizeResult};

use super::boot::{self, BootSector};
use super::directories;
use super::relocate::{Moves, Relocation};
use super::table::AllocationTable;
use crate::super_block::Root;
use crate::super_block::SuperBlock;
use crate::unit::Cluster;

/// Returns the number of clusters in whose place the larger FATs are.
fn replaced(old: &SuperBlock, new: &SuperBlock) -> u32 {
    let bytes = new.data_start.saturating_sub(old.data_start);
    let clusters = bytes.checked_div(old.cluster_size.into()).unwrap_or(0);
    u32::try_from(clusters).unwrap_or(u32::MAX)
}

/// Returns whether the first clusters can be replaced: none is bad, and the others have room for their contents.
pub fn has_room(table: &AllocationTable, old: &SuperBlock, new: &SuperBlock) -> ResizeResult<bool> {
    let (end, last) = (replaced(old, new).saturating_add(2), old.clusters.saturating_add(2));
    if end >= last {
        return Ok(false);
    }
    let used = table.used()?;
    let mut replaced = used.runs(2..end).flat_map(clusters_of);
    Ok(!replaced.any(|cluster| table.entry(cluster) == Entry::Bad)
        && Moves::plan(table, 2..end, end..last).is_ok())
}

/// A volume that gets larger FATs.
pub struct Growing<'d> {
    device: &'d dyn BlockDevice,
    old: SuperBlock,
    new: SuperBlock,
    table: AllocationTable,
    shift: u32,
}

impl<'d> Growing<'d> {
    /// Moves the contents of the first clusters of a sound volume.
    pub fn vacate(
        device: &'d Arc<dyn BlockDevice>,
        old: &SuperBlock,
        new: &SuperBlock,
        observer: ResizeObserver<'_>,
    ) -> ResizeResult<Self> {
        let shift = replaced(old, new);
        let end = shift.saturating_add(2);
        let mut relocation = Relocation::plan(device, old, 2..end, end..old.clusters.saturating_add(2))?;
        relocation.run(observer)?;
        let (table, root) = (relocation.table, relocation.root);
        Ok(Self { device, old: SuperBlock { root, ..old.clone() }, new: new.clone(), table, shift })
    }

    /// Writes the new structures, and then the boot sectors.
    pub fn run(mut self) -> ResizeResult<()> {
        let copies = self.copies()?;
        self.write_directories(&copies)?;
        let mut table = self.renumbered(&copies)?;
        table.write(self.device)?;
        if let Root::Chain(root) = self.old.root {
            self.new.root = Root::Chain(self.number(&copies, root));
        }
        BootSector::read(self.device)?.write_resized(self.device, &self.new)?;
        boot::write_free_count(self.device, &self.new, table.count_free(self.new.clusters)?)?;
        Ok(self.device.flush()?)
    }

    /// Finds a free cluster for a copy of each cluster of a directory.
    fn copies(&self) -> ResizeResult<Moves> {
        let mut clusters = Vec::new();
        directories::each(self.device, &self.old, &self.table, &mut |part| {
            clusters.try_reserve(1).map_err(|_| Error::NoMemory)?;
            clusters.extend(part.cluster);
            Ok(())
        })?;
        clusters.sort_unstable_by_key(|cluster| cluster.0);
        let end = self.new.clusters.saturating_add(self.shift).saturating_add(2);
        let used = self.table.used()?;
        let mut free = used.gaps(self.shift.saturating_add(2)..end).flat_map(clusters_of);
        let pairs = clusters.into_iter().map(|from| Some((from, free.next()?)));
        Ok(Moves::new(pairs.collect::<Option<Vec<_>>>().ok_or(ResizeRefusal::NoRoom)?))
    }

    /// Returns the new number of a cluster of the old volume.
    fn number(&self, copies: &Moves, cluster: Cluster) -> Cluster {
        let place = copies.target(cluster).unwrap_or(cluster);
        Cluster(place.0.saturating_sub(self.shift))
    }

    /// Writes all directories with the new numbers.
    fn write_directories(&self, copies: &Moves) -> ResizeResult<()> {
        directories::each(self.device, &self.old, &self.table, &mut |mut part| {
            part.change(self.old.width, &mut |_, _, first| Some(self.number(copies, first)))?;
            let start = match (part.cluster, self.new.root) {
                (Some(cluster), _) => self.new.offset_of(self.number(copies, cluster)),
                (None, Root::Region { start, .. }) => Some(start),
                (None, Root::Chain(_)) => None,
            };
            Ok(self.device.write_at(start.ok_or(Error::Invalid)?, &part.bytes)?)
        })
    }

    /// Returns the new FAT.
    fn renumbered(&self, copies: &Moves) -> ResizeResult<AllocationTable> {
        let mut table = self.table.empty(&self.new)?;
        let used = self.table.used()?;
        for cluster in used.runs(2..self.old.clusters.saturating_add(2)).flat_map(clusters_of) {
            let value = match self.table.entry(cluster) {
                Entry::Next(next) => self.number(copies, next).0,
                _ => self.table.value(cluster),
            };
            table.set(self.number(copies, cluster), value)?;
        }
        Ok(table)
    }
}
