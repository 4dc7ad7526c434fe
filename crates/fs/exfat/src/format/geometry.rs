//! The layout of a new volume.
//!
//! Source: mkfs.exfat of exfatprogs 1.2.0: clusters of 4 KiB up to 256 MiB, of 32 KiB up to 32 GiB, and otherwise of
//! 128 KiB. The FAT and the clusters begin at multiples of 1 MiB. The FAT has an entry for each cluster that would
//! fit if there were no FAT, rounded up to whole clusters.

use obento_clusters::Cluster;
use obento_driver::FormatError;

use super::settings::Settings;
use crate::super_block::CLUSTERS_MAX;

/// Default alignment of the FAT and the clusters.
pub const ALIGN: u64 = 1 << 20;
/// Number of sectors of both boot regions.
const BOOT_SECTORS: u64 = 24;
/// Size of the up-case table in bytes (specification, Table 24).
pub const UP_CASE_LEN: u64 = 5836;

/// The layout of a volume, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub sector_size: u32,
    pub cluster_size: u32,
    /// Size of the volume.
    pub len: u64,
    pub fat_start: u64,
    pub fat_len: u64,
    pub data_start: u64,
    pub clusters: u32,
}

/// Returns the default cluster size for a volume of `len` bytes.
fn usual_cluster(len: u64) -> u32 {
    const MIB_256: u64 = 256 << 20;
    const GIB_32: u64 = 32 << 30;
    match len {
        _ if len <= MIB_256 => 4 << 10,
        _ if len <= GIB_32 => 32 << 10,
        _ => 128 << 10,
    }
}

impl Geometry {
    /// Computes the layout of a volume of `len` bytes.
    pub fn plan(len: u64, settings: &Settings) -> Result<Self, FormatError> {
        let too_small = FormatError::TooSmall { what: "an exFAT volume", len };
        let sector = u64::from(settings.sector_size);
        let len = len.saturating_sub(len.checked_rem(sector).unwrap_or(0));
        let cluster_size =
            settings.cluster_size.unwrap_or_else(|| usual_cluster(len)).max(settings.sector_size);
        let cluster = u64::from(cluster_size);
        let align = settings.align.max(sector);
        let fat_start = BOOT_SECTORS.saturating_mul(sector).next_multiple_of(align);
        let most = len.checked_div(cluster).unwrap_or(0);
        // Space for all clusters, before the FAT itself reduces their number.
        let fat_len = most.saturating_mul(4).next_multiple_of(cluster);
        let data_start = fat_start.saturating_add(fat_len).next_multiple_of(align);
        let clusters = len.checked_sub(data_start).and_then(|data| data.checked_div(cluster));
        let clusters = clusters.ok_or(too_small.clone())?;
        let max = u64::from(CLUSTERS_MAX).saturating_mul(cluster).saturating_add(data_start);
        let clusters = u32::try_from(clusters).ok().filter(|&clusters| clusters <= CLUSTERS_MAX);
        let clusters = clusters.ok_or(FormatError::TooLarge { len, max })?;
        let mut this = Self {
            sector_size: settings.sector_size,
            cluster_size,
            len,
            fat_start,
            fat_len,
            data_start,
            clusters,
        };
        if settings.pack_bitmap {
            this.pack_bitmap();
        }
        let fits = u64::from(this.clusters).saturating_add(2).saturating_mul(4) <= this.fat_len;
        if !fits || this.clusters <= this.used() {
            return Err(too_small);
        }
        Ok(this)
    }

    /// Moves the bitmap before the aligned start of the clusters, if it fits, so that it shares an erase block with
    /// the FAT.
    fn pack_bitmap(&mut self) {
        let fat_end = self.fat_start.saturating_add(self.fat_len);
        let cluster = u64::from(self.cluster_size);
        let mut more = self.bitmap_clusters();
        loop {
            let start = self.data_start.saturating_sub(u64::from(more).saturating_mul(cluster));
            let clusters = self.clusters.saturating_add(more);
            if start < fat_end || clusters > CLUSTERS_MAX {
                return;
            }
            let packed = Self { data_start: start, clusters, ..*self };
            if packed.bitmap_clusters() == more {
                *self = packed;
                return;
            }
            more = packed.bitmap_clusters();
        }
    }

    /// Returns the number of clusters for `bytes` bytes.
    fn clusters_for(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(self.cluster_size.max(1).into())).unwrap_or(u32::MAX)
    }

    /// Returns the size of the bitmap in bytes.
    pub fn bitmap_len(&self) -> u64 {
        u64::from(self.clusters).div_ceil(8)
    }

    /// Returns the number of clusters of the bitmap, which begins with the first cluster.
    pub fn bitmap_clusters(&self) -> u32 {
        self.clusters_for(self.bitmap_len())
    }

    /// Returns the first cluster of the up-case table.
    pub fn up_case(&self) -> Cluster {
        Cluster(self.bitmap_clusters().saturating_add(2))
    }

    /// Returns the cluster of the root directory.
    pub fn root(&self) -> Cluster {
        Cluster(self.up_case().0.saturating_add(self.clusters_for(UP_CASE_LEN)))
    }

    /// Returns the number of clusters in use on a new volume.
    pub fn used(&self) -> u32 {
        self.root().0.saturating_sub(1)
    }

    /// Returns the byte offset of a cluster.
    pub fn offset_of(&self, cluster: Cluster) -> u64 {
        let before = u64::from(cluster.0.saturating_sub(2)).saturating_mul(self.cluster_size.into());
        self.data_start.saturating_add(before)
    }
}
