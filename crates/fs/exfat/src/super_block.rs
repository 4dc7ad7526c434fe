//! The checked boot sector: the places of all structures of the volume.
//!
//! Layout: the main boot region of 12 sectors, its backup, alignment, the FATs, the clusters.
//! Invariant: the regions follow each other, and the FAT has an entry for each cluster, since `decode` refuses other
//! boot sectors.
//! Source: specification, 3.1. Rules are enforced if Linux enforces them (fs/exfat/super.c,
//! `exfat_read_boot_sector`), and also the bounds of the regions.

use core::ops::Range;

use obento_base::wire::{FromBytes as _, to_usize};
use obento_base::{Corrupt, DeviceError, Error, Feature, Result, Structure};
use obento_block::BlockDevice;
use obento_clusters::Cluster;

use crate::raw::RawBoot;

/// Maximum number of clusters (3.1.9).
pub const CLUSTERS_MAX: u32 = 0xffff_fff5;
/// Maximum size of a cluster: 32 MiB (3.1.15).
const CLUSTER_SHIFT_MAX: u8 = 25;
/// Number of sectors of the two boot regions, which precede the FAT (3.1.6).
const BOOT_SECTORS: u32 = 24;

/// The checked boot sector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperBlock {
    /// Size of a sector in bytes: 512 to 4096.
    pub sector_size: u32,
    /// Size of a cluster in bytes: at most 32 MiB.
    pub cluster_size: u32,
    /// Byte offset of the active FAT.
    pub fat_start: u64,
    /// Size of a FAT in bytes.
    pub fat_len: u64,
    /// 1, or 2 with TexFAT.
    pub fats: u8,
    /// Number of the active FAT and bitmap: 0 or 1.
    pub active: u8,
    /// The first cluster of the root directory.
    pub root: Cluster,
    /// Byte offset of the first cluster.
    pub data_start: u64,
    /// Number of clusters. The last one has this number plus 1.
    pub clusters: u32,
    /// Length of the volume in bytes.
    pub len: u64,
    /// The serial number.
    pub serial: u32,
    /// `FileSystemRevision`.
    pub revision: u16,
    /// `VolumeFlags`.
    pub flags: u16,
    /// `PercentInUse`.
    pub percent: u8,
}

/// `VolumeFlags`: the second FAT and bitmap are active.
pub const ACTIVE_FAT: u16 = 1;
/// `VolumeFlags`: in use, or not unmounted.
pub const DIRTY: u16 = 2;
/// `VolumeFlags`: the medium failed.
pub const MEDIA_FAILURE: u16 = 4;

fn bad(field: &'static str, offset: u32, found: impl Into<u64>) -> Error {
    Corrupt::Field { structure: Structure::BootSector, field, block: 0, offset, found: found.into() }.into()
}

/// Returns `error` unless `holds`.
fn demand(holds: bool, error: Error) -> Result<()> {
    if holds { Ok(()) } else { Err(error) }
}

impl SuperBlock {
    /// Checks that the volume on `device` can be changed. Fails with `OutOfBounds` if the device does not contain the
    /// whole volume, and with `Unsupported` for a volume with two FATs.
    pub(crate) fn expect_changeable(&self, device: &dyn BlockDevice) -> Result<()> {
        self.expect_one_fat()?;
        let device_len = device.len();
        if self.len <= device_len {
            return Ok(());
        }
        Err(DeviceError::OutOfBounds { offset: 0, len: self.len, device_len }.into())
    }

    /// Fails with `Unsupported` for a volume with two FATs, which can only be read.
    pub(crate) fn expect_one_fat(&self) -> Result<()> {
        match self.fats {
            0..=1 => Ok(()),
            _ => Err(Error::Unsupported(Feature::Named("changing a volume with two FATs (TexFAT)"))),
        }
    }

    /// Returns whether the sector has the name of exFAT.
    pub fn is_likely(raw: &RawBoot) -> bool {
        raw.FileSystemName == *b"EXFAT   " && raw.MustBeZero.iter().all(|&byte| byte == 0)
    }

    /// Checks the boot sector. Fails with `Corrupt`, which contains the field, or with `Unsupported` for another
    /// version.
    pub fn decode(raw: &RawBoot) -> Result<Self> {
        demand(raw.FileSystemName == *b"EXFAT   ", bad("FileSystemName", 3, raw.FileSystemName[0]))?;
        demand(raw.MustBeZero.iter().all(|&byte| byte == 0), bad("MustBeZero", 11, 1_u8))?;
        demand(raw.BootSignature == [0x55, 0xaa], bad("BootSignature", 510, raw.BootSignature[0]))?;
        let revision = raw.FileSystemRevision.get();
        demand(
            revision >> 8 == 1,
            Error::Unsupported(Feature::Named("a major version of exFAT other than 1")),
        )?;
        let (shift, cluster_shift) = (raw.BytesPerSectorShift, raw.SectorsPerClusterShift);
        demand((9..=12).contains(&shift), bad("BytesPerSectorShift", 108, shift))?;
        demand(
            cluster_shift <= CLUSTER_SHIFT_MAX.saturating_sub(shift),
            bad("SectorsPerClusterShift", 109, cluster_shift),
        )?;
        demand(matches!(raw.NumberOfFats, 1 | 2), bad("NumberOfFats", 110, raw.NumberOfFats))?;
        let sectors = raw.VolumeLength.get();
        let len = sectors.checked_mul(1 << shift).ok_or_else(|| bad("VolumeLength", 72, sectors))?;
        let (fat_offset, fat_sectors) = (raw.FatOffset.get(), raw.FatLength.get());
        demand(fat_offset >= BOOT_SECTORS, bad("FatOffset", 80, fat_offset))?;
        let clusters = raw.ClusterCount.get();
        let entries = u64::from(fat_sectors) << shift >> 2;
        demand(
            (1..=CLUSTERS_MAX).contains(&clusters) && u64::from(clusters).saturating_add(2) <= entries,
            bad("ClusterCount", 92, clusters),
        )?;
        let fats_len = u64::from(fat_sectors).saturating_mul(raw.NumberOfFats.into());
        let heap = u64::from(raw.ClusterHeapOffset.get());
        let fats_end = u64::from(fat_offset).saturating_add(fats_len);
        demand(fats_end <= heap, bad("ClusterHeapOffset", 88, heap))?;
        let room = sectors.checked_sub(heap).ok_or_else(|| bad("VolumeLength", 72, sectors))?;
        demand(u64::from(clusters) <= room >> cluster_shift, bad("ClusterCount", 92, clusters))?;
        let root = Cluster(raw.FirstClusterOfRootDirectory.get());
        demand(root.is_one_of(clusters), bad("FirstClusterOfRootDirectory", 96, root.0))?;
        let flags = raw.VolumeFlags.get();
        let active = if raw.NumberOfFats == 2 && flags & ACTIVE_FAT != 0 { 1 } else { 0 };
        let fat_len = u64::from(fat_sectors) << shift;
        Ok(Self {
            sector_size: 1 << shift,
            cluster_size: 1 << shift << cluster_shift,
            fat_start: (u64::from(fat_offset) << shift).saturating_add(fat_len.saturating_mul(active.into())),
            fat_len,
            fats: raw.NumberOfFats,
            active,
            root,
            data_start: heap << shift,
            clusters,
            len,
            serial: raw.VolumeSerialNumber.get(),
            revision,
            flags,
            percent: raw.PercentInUse,
        })
    }

    /// Returns whether the volume has `cluster`.
    pub fn has(&self, cluster: Cluster) -> bool {
        cluster.is_one_of(self.clusters)
    }

    /// Returns whether the volume has all of the `len` clusters from `start` on.
    pub fn has_run(&self, start: Cluster, len: u32) -> bool {
        let last = start.0.checked_add(len.saturating_sub(1));
        self.has(start) && last.is_some_and(|last| self.has(Cluster(last)))
    }

    /// Returns the numbers of all clusters.
    pub fn numbers(&self) -> Range<u32> {
        2..self.clusters.saturating_add(2)
    }

    /// Returns the byte offset of `cluster`, if the volume has it.
    pub fn offset_of(&self, cluster: Cluster) -> Option<u64> {
        let at = u64::from(cluster.0.checked_sub(2)?);
        self.has(cluster).then(|| self.data_start.saturating_add(at.saturating_mul(self.cluster_size.into())))
    }

    /// Returns the cluster that contains the byte at `offset`, and the offset in that cluster.
    pub fn cluster_at(&self, offset: u64) -> Option<(Cluster, u32)> {
        let size = u64::from(self.cluster_size);
        let at = offset.checked_sub(self.data_start)?;
        let number = u32::try_from(at.checked_div(size)?.checked_add(2)?).ok()?;
        let within = u32::try_from(at.checked_rem(size)?).ok()?;
        self.has(Cluster(number)).then_some((Cluster(number), within))
    }

    /// Returns the number of clusters for `bytes` bytes.
    pub fn clusters_for(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(self.cluster_size.max(1).into())).unwrap_or(u32::MAX)
    }

    /// Returns the size of all clusters in bytes.
    pub fn heap_len(&self) -> u64 {
        u64::from(self.clusters).saturating_mul(self.cluster_size.into())
    }

    /// Returns the size of an allocation bitmap in bytes.
    pub fn bitmap_len(&self) -> u64 {
        u64::from(self.clusters).div_ceil(8)
    }
}

/// Returns the raw boot sector from the first bytes of a region, if there are enough bytes.
pub fn raw_of(bytes: &[u8]) -> Option<RawBoot> {
    RawBoot::read_from_bytes(bytes.get(..to_usize(512))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::FromZeros as _;

    fn boot() -> RawBoot {
        let mut raw = RawBoot::new_zeroed();
        raw.FileSystemName = *b"EXFAT   ";
        raw.BootSignature = [0x55, 0xaa];
        raw.FileSystemRevision.set(0x100);
        (raw.BytesPerSectorShift, raw.SectorsPerClusterShift, raw.NumberOfFats) = (9, 3, 1);
        raw.VolumeLength.set(131_072);
        raw.FatOffset.set(2048);
        raw.FatLength.set(128);
        raw.ClusterHeapOffset.set(4096);
        raw.ClusterCount.set(15_872);
        raw.FirstClusterOfRootDirectory.set(5);
        raw
    }

    #[test]
    fn fields_that_cannot_be_are_refused_by_name() {
        assert!(SuperBlock::decode(&boot()).is_ok());
        let refused = |change: fn(&mut RawBoot)| {
            let mut raw = boot();
            change(&mut raw);
            match SuperBlock::decode(&raw) {
                Err(Error::Corrupt(Corrupt::Field { field, .. })) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(|raw| raw.MustBeZero[52] = 1), "MustBeZero");
        assert_eq!(refused(|raw| raw.BootSignature[0] = 1), "BootSignature");
        assert_eq!(refused(|raw| raw.BytesPerSectorShift = 13), "BytesPerSectorShift");
        assert_eq!(refused(|raw| raw.SectorsPerClusterShift = 17), "SectorsPerClusterShift");
        assert_eq!(refused(|raw| raw.NumberOfFats = 3), "NumberOfFats");
        assert_eq!(refused(|raw| raw.VolumeLength.set(u64::MAX)), "VolumeLength");
        assert_eq!(refused(|raw| raw.VolumeLength.set(4000)), "VolumeLength");
        assert_eq!(refused(|raw| raw.FatOffset.set(23)), "FatOffset");
        assert_eq!(refused(|raw| raw.FatLength.set(100)), "ClusterCount");
        assert_eq!(refused(|raw| raw.ClusterHeapOffset.set(2100)), "ClusterHeapOffset");
        assert_eq!(refused(|raw| raw.ClusterCount.set(15_873)), "ClusterCount");
        assert_eq!(refused(|raw| raw.FirstClusterOfRootDirectory.set(1)), "FirstClusterOfRootDirectory");
        let mut raw = boot();
        raw.FileSystemRevision.set(0x200);
        assert!(matches!(SuperBlock::decode(&raw), Err(Error::Unsupported(_))));
    }

    #[test]
    fn a_cluster_and_its_offset_lead_to_each_other() {
        let sb = SuperBlock::decode(&boot()).unwrap();
        let last = Cluster(15_873);
        let offset = sb.offset_of(last).unwrap();
        assert_eq!(sb.cluster_at(offset + 4095), Some((last, 4095)));
        assert_eq!(sb.cluster_at(offset + 4096), None);
        assert!(sb.has_run(Cluster(2), 15_872) && !sb.has_run(Cluster(3), 15_872));
    }
}
