//! The layout of a new volume: FAT type, cluster size, reserved sectors.
//!
//! The choices are those of mkfs.fat 4.2. They follow Windows where Windows defines them (fatgen103, "FAT Volume
//! Initialization"; SD Card Association, "Part 2 File System Specification", C.1, for heads and tracks).
//! Invariant: a geometry has no more clusters than its FAT type and its FAT allow, and fits the volume.

use obento_driver::FormatError;

use crate::super_block::{FAT12_MAX, FAT16_MAX, FAT32_MAX, Width};

/// Minimum number of clusters of a new FAT16 volume. The specification allows two fewer, which some systems take for
/// FAT12.
const FAT16_LEAST: u64 = 4_087;
/// Minimum number of clusters of a new FAT32 volume, unless FAT32 is requested.
pub(super) const FAT32_LEAST: u64 = 65_525;
/// From this size on, the default is FAT32.
const LARGE: u64 = 512 << 20;
/// Structures of volumes up to this number of sectors are not aligned, since such a volume is a floppy disk.
const TINY: u64 = 8192;
/// Maximum number of sectors per cluster.
const PER_CLUSTER_MAX: u64 = 128;
/// Minimum size of the area for files, as in mkfs.fat.
const LEAST_ROOM: u64 = 32 << 10;

/// The requested layout; `None` leaves the choice to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestedGeometry {
    /// FAT type.
    pub width: Option<Width>,
    /// Size of a sector in bytes.
    pub sector_size: u32,
    /// Sectors per cluster.
    pub per_cluster: Option<u8>,
    /// Minimum number of sectors before the first FAT.
    pub reserved: Option<u16>,
    /// Number of FATs.
    pub fats: u8,
    /// Minimum number of entries of the root directory.
    pub root_entries: Option<u16>,
    /// Whether structures start at multiples of a cluster.
    pub aligned: bool,
    /// Number of heads, and of sectors per track.
    pub disk: Option<(u16, u16)>,
    /// Media type.
    pub media: Option<u8>,
    /// Sector of the backup boot sector; 0 for none.
    pub backup: Option<u16>,
}

impl Default for RequestedGeometry {
    fn default() -> Self {
        Self {
            width: None,
            sector_size: 512,
            per_cluster: None,
            reserved: None,
            fats: 2,
            root_entries: None,
            aligned: true,
            disk: None,
            media: None,
            backup: None,
        }
    }
}

/// The layout of a new volume, in sectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// FAT type.
    pub width: Width,
    /// Size of a sector in bytes.
    pub sector_size: u32,
    /// Number of sectors of the volume.
    pub sectors: u32,
    /// Sectors per cluster.
    pub per_cluster: u8,
    /// Number of sectors before the first FAT.
    pub reserved: u16,
    /// Number of FATs.
    pub fats: u8,
    /// Sectors per FAT.
    pub fat_sectors: u32,
    /// Number of entries of the root directory; 0 on FAT32.
    pub root_entries: u16,
    /// Number of clusters.
    pub clusters: u32,
    /// Number of heads, and of sectors per track.
    pub disk: (u16, u16),
    /// Media type.
    pub media: u8,
    /// Sector of the backup boot sector; 0 for none.
    pub backup: u16,
    /// Number of sectors of the device past the end of the largest possible volume.
    pub unused: u64,
}

/// The sector of FSInfo.
pub const INFO: u16 = 1;
/// Default sector of the backup boot sector.
const BACKUP: u16 = 6;

/// Properties of a disk of a given size.
struct Disk {
    heads: u16,
    track: u16,
    media: u8,
    per_cluster: u8,
    root_entries: u16,
}

impl Disk {
    /// Returns the properties of a disk of `len` bytes. Floppy disks are recognised by their size.
    fn of(len: u64, sector_size: u32) -> Self {
        let total = len.checked_div(sector_size.into()).unwrap_or(0);
        let floppy = |track, media, per_cluster, root_entries| Self {
            heads: 2,
            track,
            media,
            per_cluster,
            root_entries,
        };
        match len >> 10 {
            360 => return floppy(9, 0xfd, 2, 112),
            720 => return floppy(9, 0xf9, 2, 112),
            1200 => return floppy(15, 0xf9, 1, 224),
            1440 => return floppy(18, 0xf0, 1, 224),
            2880 => return floppy(36, 0xf0, 2, 224),
            _ => {}
        }
        const CYLINDERS: u64 = 63 << 10;
        let (heads, track) = match total {
            0..=4_096 => (2, 16),
            4_097..=32_768 => (2, 32),
            32_769..=65_536 => (4, 32),
            65_537..=262_144 => (8, 32),
            262_145..=524_288 => (16, 32),
            _ if total <= 16 * CYLINDERS => (16, 63),
            _ if total <= 32 * CYLINDERS => (32, 63),
            _ if total <= 64 * CYLINDERS => (64, 63),
            _ if total <= 128 * CYLINDERS => (128, 63),
            _ => (255, 63),
        };
        Self { heads, track, media: 0xf8, per_cluster: 4, root_entries: 512 }
    }
}

/// Returns the sectors per cluster of a FAT32 volume (fatgen103, `DskTableFAT32`).
fn fat32_per_cluster(sectors: u64) -> u8 {
    match sectors {
        0..=532_480 => 1,
        532_481..=16_777_216 => 8,
        16_777_217..=33_554_432 => 16,
        33_554_433..=67_108_864 => 32,
        _ => 64,
    }
}

/// The number of clusters and the size of the FAT for one cluster size.
#[derive(Clone, Copy)]
struct Fit {
    clusters: u64,
    fat_sectors: u64,
}

/// The area to divide.
struct Space<'w> {
    wanted: &'w RequestedGeometry,
    sectors: u64,
    aligned: bool,
    reserved: u64,
    root_sectors: u64,
}

impl Space<'_> {
    fn align(&self, sectors: u64, per_cluster: u64) -> u64 {
        if self.aligned { sectors.checked_next_multiple_of(per_cluster).unwrap_or(sectors) } else { sectors }
    }

    /// Returns the clusters for a FAT type. `Err` contains whether the clusters are too many.
    fn fit(&self, width: Width, per_cluster: u64) -> Result<Fit, bool> {
        let size = u64::from(self.wanted.sector_size);
        let fats = u64::from(self.wanted.fats);
        let root = if width == Width::Fat32 { 0 } else { self.align(self.root_sectors, per_cluster) };
        let before = self.align(self.reserved, per_cluster).saturating_add(root);
        let room = self.sectors.checked_sub(before).ok_or(false)?;
        // In units of 4 bits: an entry of FAT12 has three. Each FAT has two entries that belong to no cluster.
        let nibbles = u64::from(width.bits() >> 2);
        let cluster = size.saturating_mul(per_cluster).saturating_mul(2);
        let entry = fats.saturating_mul(nibbles);
        let bytes = room.saturating_mul(size).saturating_mul(2).saturating_add(entry.saturating_mul(2));
        let guess = bytes.checked_div(cluster.saturating_add(entry)).unwrap_or(0);
        let fat_bytes = width.table_len(u32::try_from(guess).unwrap_or(u32::MAX));
        let fat_sectors = self.align(fat_bytes.div_ceil(size), per_cluster);
        // The space that the FATs leave may suffice for one more cluster.
        let data = room.checked_sub(fats.saturating_mul(fat_sectors)).ok_or(false)?;
        let clusters = data.checked_div(per_cluster).unwrap_or(0);
        let entries = fat_sectors.saturating_mul(size).saturating_mul(2).checked_div(nibbles).unwrap_or(0);
        let most: u64 = match width {
            Width::Fat12 => FAT12_MAX.into(),
            Width::Fat16 => FAT16_MAX.into(),
            Width::Fat32 => FAT32_MAX.into(),
        };
        let least = match width {
            Width::Fat12 => 1,
            Width::Fat16 => FAT16_LEAST,
            Width::Fat32 if self.wanted.width == Some(Width::Fat32) => 1,
            Width::Fat32 => FAT32_LEAST,
        };
        match clusters {
            _ if clusters > most.min(entries) => Err(true),
            _ if clusters < least => Err(false),
            _ => Ok(Fit { clusters, fat_sectors }),
        }
    }

    /// Returns the wider of FAT12 and FAT16 that fits, or the requested type.
    fn choose(&self, width: Option<Width>, per_cluster: u64) -> Result<(Width, Fit), bool> {
        if let Some(width) = width {
            return self.fit(width, per_cluster).map(|fit| (width, fit));
        }
        let (small, large) = (self.fit(Width::Fat12, per_cluster), self.fit(Width::Fat16, per_cluster));
        match (small, large) {
            (Ok(small), Ok(large)) if large.clusters <= small.clusters => Ok((Width::Fat12, small)),
            (_, Ok(large)) => Ok((Width::Fat16, large)),
            (Ok(small), Err(_)) => Ok((Width::Fat12, small)),
            (Err(_), Err(is_too_many)) => Err(is_too_many),
        }
    }
}

impl Geometry {
    /// Computes the layout of a volume of `len` bytes. Fails with `TooSmall`, `TooLarge`, `Needs` or `Excludes`.
    pub fn plan(len: u64, wanted: &RequestedGeometry) -> Result<Self, FormatError> {
        let size = u64::from(wanted.sector_size);
        let disk = Disk::of(len, wanted.sector_size);
        let width = wanted.width.or((len >= LARGE).then_some(Width::Fat32));
        let is_32 = width == Some(Width::Fat32);
        let total = len.checked_div(size).unwrap_or(0);
        let (heads, track) = wanted.disk.unwrap_or((disk.heads, disk.track));
        let sectors = total.min(u32::MAX.into());
        // DOS and mtools require whole tracks.
        let whole = sectors.checked_div(track.into()).unwrap_or(0).saturating_mul(track.into());
        let sectors = if wanted.aligned { whole } else { sectors };
        let reserved = wanted.reserved.unwrap_or(if is_32 { 32 } else { 1 });
        if is_32 && reserved < 2 {
            return Err(FormatError::Needs { what: "FAT32", needs: "2 reserved sectors" });
        }
        let root_entries = if is_32 { 0 } else { wanted.root_entries.unwrap_or(disk.root_entries) };
        let space = Space {
            wanted,
            sectors,
            aligned: wanted.aligned && sectors > TINY,
            reserved: reserved.into(),
            root_sectors: u64::from(root_entries).saturating_mul(32).div_ceil(size),
        };
        let guess = if is_32 { fat32_per_cluster(total) } else { disk.per_cluster };
        let mut per_cluster = u64::from(wanted.per_cluster.unwrap_or(guess));
        let most = wanted.per_cluster.map_or(PER_CLUSTER_MAX, u64::from);
        let (width, fit) = loop {
            match space.choose(width, per_cluster) {
                Ok(found) => break found,
                Err(_) if per_cluster < most => per_cluster = per_cluster.saturating_mul(2),
                Err(true) => return Err(too_large(width, most, size, len)),
                Err(false) => {
                    return Err(FormatError::TooSmall { what: "a FAT volume with this cluster size", len });
                }
            }
        };
        let reserved = space.align(reserved.into(), per_cluster);
        let root_sectors = space.align(space.root_sectors, per_cluster);
        let root_entries =
            if space.aligned { root_sectors.saturating_mul(size) / 32 } else { root_entries.into() };
        let too_small = || FormatError::TooSmall { what: "a FAT volume", len };
        let narrow = |number: u64| u16::try_from(number).map_err(|_| too_small());
        let reserved = narrow(reserved)?;
        let before = fit.fat_sectors.saturating_mul(wanted.fats.into()).saturating_add(reserved.into());
        let before = before.saturating_add(root_sectors).saturating_mul(size).next_multiple_of(1024);
        if before.saturating_add(LEAST_ROOM) > len {
            return Err(too_small());
        }
        Ok(Self {
            width,
            sector_size: wanted.sector_size,
            sectors: u32::try_from(sectors).map_err(|_| too_small())?,
            per_cluster: u8::try_from(per_cluster).map_err(|_| too_small())?,
            reserved,
            fats: wanted.fats,
            fat_sectors: u32::try_from(fit.fat_sectors).map_err(|_| too_small())?,
            root_entries: narrow(root_entries)?,
            clusters: u32::try_from(fit.clusters).map_err(|_| too_small())?,
            disk: (heads, track),
            media: wanted.media.unwrap_or(disk.media),
            backup: if width == Width::Fat32 { backup(wanted.backup, reserved)? } else { 0 },
            unused: total.saturating_sub(u32::MAX.into()),
        })
    }

    /// Returns the byte offset of sector `number`.
    pub fn offset(&self, number: u64) -> u64 {
        number.saturating_mul(self.sector_size.into())
    }

    /// Returns the byte offset of a FAT.
    pub fn fat(&self, copy: u8) -> u64 {
        let before = u64::from(self.fat_sectors).saturating_mul(copy.into());
        self.offset(before.saturating_add(self.reserved.into()))
    }

    /// Returns the byte offset of the root directory, which on FAT32 is the first cluster.
    pub fn root(&self) -> u64 {
        self.fat(self.fats)
    }

    /// Returns the size of the root directory in bytes.
    pub fn root_len(&self) -> u64 {
        match self.width {
            Width::Fat32 => self.cluster_size().into(),
            _ => u64::from(self.root_entries).saturating_mul(32),
        }
    }

    /// Returns the size of a cluster in bytes.
    pub fn cluster_size(&self) -> u32 {
        self.sector_size.saturating_mul(self.per_cluster.into())
    }
}

fn too_large(width: Option<Width>, per_cluster: u64, sector_size: u64, len: u64) -> FormatError {
    let clusters = match width {
        Some(Width::Fat12) => FAT12_MAX.into(),
        Some(Width::Fat32) => FAT32_MAX.into(),
        _ => u64::from(FAT16_MAX),
    };
    let max = clusters.saturating_mul(per_cluster).saturating_mul(sector_size);
    FormatError::TooLarge { len, max }
}

/// Returns the sector of the backup boot sector. Fails with `Excludes` for a sector that is not reserved or that
/// contains FSInfo.
pub fn backup(wanted: Option<u16>, reserved: u16) -> Result<u16, FormatError> {
    let is_free = |sector: u16| sector == 0 || sector != INFO && sector < reserved;
    match wanted {
        Some(sector) if !is_free(sector) => Err(FormatError::Excludes {
            what: "backup_boot_sector",
            other: "FSInfo, and sectors that are not reserved",
        }),
        Some(sector) => Ok(sector),
        None if reserved > BACKUP => Ok(BACKUP),
        // Not the last reserved sector, so that a copy of FSInfo follows it.
        None if reserved >= 4 => Ok(reserved.saturating_sub(2)),
        None if reserved == 3 => Ok(2),
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters_of(clusters: u64, width: Width) -> Result<Geometry, FormatError> {
        // One sector per cluster, nothing aligned: the reserved sectors, one FAT, a root directory of one sector.
        let fat = width.table_len(u32::try_from(clusters).unwrap()).div_ceil(512);
        let root = if width == Width::Fat32 { 0 } else { 1 };
        let wanted = RequestedGeometry {
            width: Some(width),
            per_cluster: Some(1),
            reserved: Some(2),
            fats: 1,
            root_entries: Some(16),
            aligned: false,
            ..RequestedGeometry::default()
        };
        Geometry::plan((2 + fat + root + clusters) * 512, &wanted)
    }

    #[test]
    fn the_limits_of_the_widths_are_those_of_the_specification() {
        let count = |clusters, width| clusters_of(clusters, width).map(|geometry| geometry.clusters);
        assert_eq!(count(4_084, Width::Fat12), Ok(4_084));
        assert!(matches!(count(4_085, Width::Fat12), Err(FormatError::TooLarge { .. })));
        assert!(matches!(count(4_086, Width::Fat16), Err(FormatError::TooSmall { .. })));
        assert_eq!(count(4_087, Width::Fat16), Ok(4_087));
        assert_eq!(count(65_524, Width::Fat16), Ok(65_524));
        assert!(matches!(count(65_525, Width::Fat16), Err(FormatError::TooLarge { .. })));
        assert_eq!(count(65_525, Width::Fat32), Ok(65_525));
        assert_eq!(count(100, Width::Fat32), Ok(100), "asked for by name");
    }

    #[test]
    fn the_copy_of_the_boot_sector_is_placed_where_space_exists() {
        let at = [2, 3, 4, 5, 6, 7, 32].map(|reserved| backup(None, reserved));
        assert_eq!(at, [0, 2, 2, 3, 4, 6, 6].map(Ok));
        assert!(backup(Some(1), 32).is_err() && backup(Some(32), 32).is_err());
        assert_eq!(backup(Some(0), 32), Ok(0));
    }
}
