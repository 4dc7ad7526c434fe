//! The boot sector, and the geometry of the volume.
//!
//! A copy of the boot sector is in the sector after the last one that the volume counts.
//! Sources: linux-ntfs documentation, "$Boot"; Microsoft, "NTFS" (boot sector, BPB); libfsntfs documentation,
//! "The volume header".

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::BlockDevice;

/// The first 512 bytes of a volume.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct RawBoot {
    /// 0
    pub jump: [u8; 3],
    /// 3: `NTFS` and four spaces.
    pub oem_id: [u8; 8],
    /// 11
    pub bytes_per_sector: le::U16,
    /// 13: from 244 on the logarithm, counted back from 256.
    pub sectors_per_cluster: u8,
    /// 14
    pub zeros: [u8; 7],
    /// 21
    pub media: u8,
    /// 22
    pub zero: le::U16,
    /// 24
    pub sectors_per_track: le::U16,
    /// 26
    pub heads: le::U16,
    /// 28: sectors before the partition. Not trusted: images lie at other places than their partitions did.
    pub hidden_sectors: le::U32,
    /// 32
    pub unused: [u8; 8],
    /// 40
    pub sectors: le::U64,
    /// 48
    pub mft: le::U64,
    /// 56
    pub mirror: le::U64,
    /// 64: clusters, or the negative logarithm of the bytes.
    pub record_size: u8,
    /// 65
    pub padding: [u8; 3],
    /// 68: clusters, or the negative logarithm of the bytes.
    pub index_size: u8,
    /// 69
    pub padding_too: [u8; 3],
    /// 72
    pub serial: le::U64,
    /// 80
    pub checksum: le::U32,
    /// 84
    pub code: [u8; 426],
    /// 510: `55 aa`
    pub signature: [u8; 2],
}
const _: () = assert!(size_of::<RawBoot>() == 512);

/// The signature of the format.
pub const OEM_ID: [u8; 8] = *b"NTFS    ";
/// Largest cluster that Windows formats.
const CLUSTER_MAX: u32 = 2 << 20;
/// Largest record and largest block of an index.
const RECORD_MAX: u32 = 64 << 10;

/// The geometry of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of a cluster.
    pub cluster_size: u32,
    /// Number of clusters.
    pub clusters: u64,
    /// Bytes of the volume, without the copy of the boot sector.
    pub len: u64,
    /// Byte offset of the master file table.
    pub mft: u64,
    /// Byte offset of the copy of its first records.
    pub mirror: u64,
    /// Bytes of a record.
    pub record_size: u32,
    /// Bytes of an index block of a new directory.
    pub index_size: u32,
    /// Serial number.
    pub serial: u64,
}

fn field(field: &'static str, offset: u32, found: u64) -> Error {
    Corrupt::Field { structure: Structure::BootSector, field, block: 0, offset, found }.into()
}

/// Returns the error for a boot sector that leads to no table.
pub fn no_table(geometry: &Geometry) -> Error {
    field("MftStartLcn", 48, geometry.mft.checked_div(geometry.cluster_size.into()).unwrap_or(0))
}

/// Returns the bytes that a size field of the boot sector means.
fn size_of_record(stored: u8, cluster_size: u32) -> Option<u32> {
    let bytes = match i8::from_le_bytes([stored]) {
        clusters @ 1.. => cluster_size.checked_mul(u32::from(clusters.unsigned_abs()))?,
        log => 1_u32.checked_shl(u32::from(log.unsigned_abs()))?,
    };
    (bytes.is_power_of_two() && (512..=RECORD_MAX).contains(&bytes)).then_some(bytes)
}

impl Geometry {
    /// Decodes a boot sector.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the signature or a field is wrong.
    pub fn decode(raw: &RawBoot) -> Result<Self> {
        if raw.oem_id != OEM_ID {
            let found = u64::from_le_bytes(raw.oem_id);
            return Err(field("OemId", 3, found));
        }
        let sector_size = u32::from(raw.bytes_per_sector.get());
        if !sector_size.is_power_of_two() || !(256..=4096).contains(&sector_size) {
            return Err(field("BytesPerSector", 11, sector_size.into()));
        }
        let stored = raw.sectors_per_cluster;
        let sectors = match stored {
            0..=128 => u32::from(stored),
            _ => 1_u32.checked_shl(256_u32.saturating_sub(stored.into())).unwrap_or(0),
        };
        let cluster_size = sector_size.checked_mul(sectors).unwrap_or(0);
        if !cluster_size.is_power_of_two() || cluster_size > CLUSTER_MAX {
            return Err(field("SectorsPerCluster", 13, stored.into()));
        }
        let record_size = size_of_record(raw.record_size, cluster_size)
            .ok_or_else(|| field("ClustersPerFileRecordSegment", 64, raw.record_size.into()))?;
        let index_size = size_of_record(raw.index_size, cluster_size)
            .ok_or_else(|| field("ClustersPerIndexBuffer", 68, raw.index_size.into()))?;
        let len = raw.sectors.get().checked_mul(sector_size.into()).filter(|len| *len < 1 << 62);
        let len = len.ok_or_else(|| field("NumberSectors", 40, raw.sectors.get()))?;
        let clusters = len.checked_div(cluster_size.into()).unwrap_or(0);
        let place = |lcn: u64| lcn.checked_mul(cluster_size.into()).filter(|_| lcn < clusters && lcn > 0);
        let mft = place(raw.mft.get()).ok_or_else(|| field("MftStartLcn", 48, raw.mft.get()))?;
        // A copy that is out of reach costs nothing until it is needed.
        let mirror = place(raw.mirror.get()).unwrap_or(0);
        let serial = raw.serial.get();
        Ok(Self { sector_size, cluster_size, clusters, len, mft, mirror, record_size, index_size, serial })
    }

    /// Returns the byte offset of a cluster that the volume has.
    pub fn offset_of(&self, lcn: u64) -> Option<u64> {
        lcn.checked_mul(self.cluster_size.into()).filter(|_| lcn < self.clusters)
    }
}

/// Reads the 512 bytes at `offset`.
pub fn read(device: &dyn BlockDevice, offset: u64) -> Result<RawBoot> {
    let mut bytes = [0; 512];
    device.read_at(offset, &mut bytes)?;
    RawBoot::read_from_bytes(&bytes).map_err(|_| Error::Invalid)
}

/// Returns the copy of the boot sector: in the last sector of the device, or where the volume ends.
pub fn backup(device: &dyn BlockDevice) -> Option<(u64, Geometry)> {
    [512_u64, 4096, 1024, 2048].iter().find_map(|&sector| {
        let offset = device.len().checked_sub(sector)? & !sector.wrapping_sub(1);
        let geometry = Geometry::decode(&read(device, offset).ok()?).ok()?;
        // The copy of a volume whose length fits this place, or it is a file that looks like one.
        (geometry.len <= offset).then_some((offset, geometry))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::FromZeros as _;

    fn boot() -> RawBoot {
        let mut raw = RawBoot::new_zeroed();
        raw.oem_id = OEM_ID;
        raw.bytes_per_sector = 512.into();
        raw.sectors_per_cluster = 8;
        raw.sectors = 8000.into();
        raw.mft = 4.into();
        raw.mirror = 400.into();
        raw.record_size = 0xf6;
        raw.index_size = 1;
        raw
    }

    #[test]
    fn sizes_are_clusters_or_logarithms() {
        let geometry = Geometry::decode(&boot()).unwrap();
        assert_eq!((geometry.cluster_size, geometry.record_size, geometry.index_size), (4096, 1024, 4096));
        assert_eq!((geometry.clusters, geometry.mft), (1000, 16384));
        let mut raw = boot();
        raw.sectors_per_cluster = 0xf4;
        raw.sectors = (1 << 20).into();
        raw.index_size = 0xf4;
        assert_eq!(Geometry::decode(&raw).unwrap().cluster_size, 2 << 20);
    }

    #[test]
    fn each_wrong_field_is_named() {
        type Change = fn(&mut RawBoot);
        let cases: [(Change, &str); 6] = [
            (|raw| raw.bytes_per_sector = 513.into(), "BytesPerSector"),
            (|raw| raw.sectors_per_cluster = 3, "SectorsPerCluster"),
            (|raw| raw.sectors_per_cluster = 0xf0, "SectorsPerCluster"),
            (|raw| raw.record_size = 0, "ClustersPerFileRecordSegment"),
            (|raw| raw.mft = 1000.into(), "MftStartLcn"),
            (|raw| raw.sectors = u64::MAX.into(), "NumberSectors"),
        ];
        for (change, name) in cases {
            let mut raw = boot();
            change(&mut raw);
            match Geometry::decode(&raw) {
                Err(Error::Corrupt(Corrupt::Field { field, .. })) => assert_eq!(field, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
