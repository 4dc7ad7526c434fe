//! Clusters that must not be used: the listed ones, and those that cannot be read.

use alloc::collections::BTreeSet;
use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_block::BlockDevice;
use obento_driver::{Allowed, FormatError};

use super::geometry::Geometry;
use super::{Cluster, ROOT_CLUSTER};
use crate::super_block::Width;

/// Size of a block in a list, as in badblocks(8) and mkfs.fat.
const BLOCK: u64 = 1024;
/// Number of bytes of one read. The clusters of a read that fails are read one by one.
const STRIDE: u64 = 1 << 20;

/// The area after the metadata, which contains the root directory of FAT32.
struct FreeSpace {
    start: u64,
    first: Cluster,
    cluster: u64,
    clusters: u64,
}

impl FreeSpace {
    fn of(geometry: &Geometry) -> Self {
        let start = geometry.root().saturating_add(geometry.root_len());
        let roots = u32::from(geometry.width == Width::Fat32);
        let first = Cluster(ROOT_CLUSTER.0.saturating_add(roots));
        let clusters = geometry.clusters.saturating_sub(roots).into();
        Self { start, first, cluster: geometry.cluster_size().into(), clusters }
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.clusters.saturating_mul(self.cluster))
    }

    /// Returns the cluster that contains the byte at `offset`, which is in this area.
    fn at(&self, offset: u64) -> Option<Cluster> {
        let number = offset.checked_sub(self.start)?.checked_div(self.cluster)?;
        let number = u32::try_from(number).ok().filter(|&number| u64::from(number) < self.clusters)?;
        Some(Cluster(self.first.0.saturating_add(number)))
    }
}

/// Returns the clusters that overlap `blocks`. Fails with `BadValue` for a block that is not completely in this area.
pub fn listed(geometry: &Geometry, blocks: &[u64]) -> Result<BTreeSet<Cluster>, FormatError> {
    let room = FreeSpace::of(geometry);
    let mut clusters = BTreeSet::new();
    for &block in blocks {
        let offset = block.saturating_mul(BLOCK);
        let both = [Some(offset), offset.checked_add(BLOCK - 1)];
        for cluster in both.map(|offset| offset.and_then(|offset| room.at(offset))) {
            let allowed = Allowed::Range(room.start.div_ceil(BLOCK), (room.end() / BLOCK).saturating_sub(1));
            clusters
                .insert(cluster.ok_or_else(|| FormatError::bad("bad_blocks", &block.to_string(), allowed))?);
        }
    }
    Ok(clusters)
}

/// Returns the clusters of `device` that cannot be read. Fails if the device fails in the metadata.
pub fn found(device: &dyn BlockDevice, geometry: &Geometry) -> Result<Vec<Cluster>, FormatError> {
    let room = FreeSpace::of(geometry);
    let (mut found, mut buf) = (Vec::new(), vec![0; to_usize(STRIDE.max(room.cluster))]);
    let mut read = |from: u64, to: u64| {
        let len = to_usize(to.saturating_sub(from));
        buf.get_mut(..len).map_or(Ok(()), |buf| device.read_at(from, buf))
    };
    for from in (0..room.start).step_by(to_usize(STRIDE)) {
        read(from, room.start.min(from.saturating_add(STRIDE)))?;
    }
    let stride = STRIDE.max(room.cluster);
    for from in (room.start..room.end()).step_by(to_usize(stride)) {
        let to = room.end().min(from.saturating_add(stride));
        if read(from, to).is_ok() {
            continue;
        }
        for from in (from..to).step_by(to_usize(room.cluster)) {
            if read(from, from.saturating_add(room.cluster)).is_err() {
                found.extend(room.at(from));
            }
        }
    }
    Ok(found)
}
