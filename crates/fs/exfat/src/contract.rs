//! The traits of `obento-clusters` for exFAT.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Ino, Name, Result};
use obento_clusters::{Cluster, Grain, Listed, MountState, Mounted, Owner};
use obento_driver::{Cookie, Extent, Inspect, VolumeInfo, inspectable};

use crate::dir::{Directory, Location};
use crate::inode::Inode;
use crate::set::EntrySet;
use crate::super_block::CLUSTERS_MAX;
use crate::volume::Volume;
use crate::writer::Writer;

/// An open volume that implements the contract.
pub type ExFat = Mounted<Volume>;

impl obento_clusters::Location for Location {
    fn slot(&self) -> obento_clusters::Slot {
        self.slot
    }
}

impl obento_clusters::Volume for Volume {
    type Entry = EntrySet;
    type Directory = Directory;
    type Location = Location;
    type Writer = Writer;

    const TIME_GRANULARITY: u32 = 10_000_000;

    /// As many clusters as the format can number, as for the kernel (`s_maxbytes`).
    fn file_size_max(&self) -> u64 {
        u64::from(CLUSTERS_MAX).saturating_mul(self.super_block().cluster_size.into())
    }

    fn grain(&self) -> Grain {
        let sb = self.super_block();
        Grain { cluster_size: sb.cluster_size, clusters: sb.clusters, block_size: sb.block_size() }
    }

    fn offset_of(&self, cluster: Cluster) -> Option<u64> {
        self.super_block().offset_of(cluster)
    }

    fn owner(&self) -> &Owner {
        &self.options().owner
    }

    obento_base::forward! { self;
        fn mount_state(&self) -> &MountState<EntrySet>;
        fn describe(&self) -> VolumeInfo;
        fn count_free(&self) -> Result<u32>;
        fn inode_and_parent(&self, ino: Ino) -> Result<(Inode, Ino)>;
        fn directory(&self, ino: Ino) -> Result<Arc<Directory>>;
        fn directories(&self) -> Vec<(Ino, Ino)>;
        fn find(&self, dir: &Directory, name: &Name) -> Result<Option<Location>>;
        fn list(&self, dir: &Directory, from: Cookie, max: usize) -> Result<(Vec<Result<Listed>>, bool)>;
        fn map(&self, inode: &Inode, range: Range<u64>) -> Result<Extent>;
    }

    fn size_of(&self, inode: &Inode) -> u64 {
        inode.entry.size()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        inspectable(self)
    }
}
