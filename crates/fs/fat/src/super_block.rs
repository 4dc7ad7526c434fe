//! The checked boot sector: the places of all structures of the volume.
//!
//! Layout: reserved sectors (the first is the boot sector), the FATs, on FAT12 and FAT16 the root directory, the
//! clusters.
//! Invariant: the regions follow each other, and the FAT has an entry for each cluster, since `decode` refuses other
//! boot sectors.
//! Source: fatgen103; deviations from it are tolerated if Linux tolerates them (fs/fat/inode.c, `fat_read_bpb`).

use obento_base::wire::{FromBytes as _, IntoBytes as _, to_usize};
use obento_base::{Corrupt, DeviceError, Result, Structure};
use obento_block::BlockDevice;
use obento_driver::Probe;

use crate::raw::{RawBoot, RawBpb16, RawBpb32};
use crate::unit::{Cluster, ENTRY};

/// Maximum number of clusters of a FAT12 volume (fatgen103, "FAT Type Determination").
pub const FAT12_MAX: u32 = 4_084;
/// Maximum number of clusters of a FAT16 volume.
pub const FAT16_MAX: u32 = 65_524;
/// Maximum number of clusters of a FAT32 volume: its entries have 28 bits, and the last eight values have other
/// meanings.
pub const FAT32_MAX: u32 = 0x0fff_fff5;

/// The FAT type, which is the width of a FAT entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Width {
    /// 12 bits.
    Fat12,
    /// 16 bits.
    Fat16,
    /// 32 bits, of which 28 are used.
    Fat32,
}

impl Width {
    /// Returns the number of bits of an entry.
    pub fn bits(self) -> u8 {
        match self {
            Self::Fat12 => 12,
            Self::Fat16 => 16,
            Self::Fat32 => 32,
        }
    }

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fat12 => "fat12",
            Self::Fat16 => "fat16",
            Self::Fat32 => "fat32",
        }
    }

    /// Returns the size in bytes of a FAT for `clusters` clusters.
    pub fn table_len(self, clusters: u32) -> u64 {
        let entries = u64::from(clusters).saturating_add(2);
        entries.saturating_mul(self.bits().into()).div_ceil(8)
    }
}

/// The place of the root directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// Between the FATs and the clusters: byte offset and length.
    Region {
        /// Byte offset on the volume.
        start: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A cluster chain, like that of any directory.
    Chain(Cluster),
}

/// The checked boot sector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperBlock {
    /// Size of a sector in bytes: 512 to 4096.
    pub sector_size: u32,
    /// Size of a cluster in bytes: at most 512 KiB.
    pub cluster_size: u32,
    /// FAT type.
    pub width: Width,
    /// Byte offset of the first FAT.
    pub fat_start: u64,
    /// Size of a FAT in bytes.
    pub fat_len: u64,
    /// Number of FATs.
    pub fats: u8,
    /// The active FAT, if the others are not maintained.
    pub active_fat: Option<u8>,
    /// Number of entries of the root directory, as stored in the boot sector; 0 on FAT32.
    pub root_entries: u16,
    /// The place of the root directory.
    pub root: Root,
    /// Byte offset of the first cluster.
    pub data_start: u64,
    /// Number of clusters. The last one has this number plus 1.
    pub clusters: u32,
    /// Byte offset of the FSInfo sector, if there is one.
    pub fs_info: Option<u64>,
    /// Sector of the backup boot sector, if there is one.
    pub backup: Option<u16>,
    /// Length of the volume in bytes.
    pub len: u64,
    /// The serial number, if the volume has one.
    pub serial: Option<u32>,
    /// The label in the boot sector, in a code page, without trailing spaces. The label of the root directory may be
    /// newer.
    pub label: [u8; 11],
    /// The program that created the volume.
    pub oem: [u8; 8],
    /// Media type.
    pub media: u8,
    /// Bit 0: in use, or not unmounted; bit 1: an error of the medium occurred.
    pub state: u8,
}

/// Byte offset of the state on FAT12 and FAT16.
const STATE_16: u32 = 0x25;
/// Byte offset of the state on FAT32.
const STATE_32: u32 = 0x41;
/// Byte offset of `BS_FilSysType` on FAT12 and FAT16.
const TYPE_16: usize = 0x36;
const TYPE_32: usize = 0x52;
/// `BS_BootSig`, if serial number and label are valid; 0x28: only the serial number.
const EXTENDED: u8 = 0x29;
const SERIAL_ONLY: u8 = 0x28;

fn bad(field: &'static str, offset: u32, found: impl Into<u64>) -> obento_base::Error {
    Corrupt::Field { structure: Structure::BootSector, field, block: 0, offset, found: found.into() }.into()
}

/// Returns the bytes of the boot sector from offset `at` on.
fn type_at(raw: &RawBoot, at: usize) -> &[u8] {
    raw.as_bytes().get(at..).unwrap_or_default()
}

/// Returns `error` unless `holds`.
fn demand(holds: bool, error: obento_base::Error) -> Result<()> {
    if holds { Ok(()) } else { Err(error) }
}

impl SuperBlock {
    /// Checks that `device` contains the whole volume, which a change requires: free clusters may be anywhere. Fails with
    /// `OutOfBounds`.
    pub(crate) fn expect_whole(&self, device: &dyn BlockDevice) -> Result<()> {
        let device_len = device.len();
        if self.len <= device_len {
            return Ok(());
        }
        Err(DeviceError::OutOfBounds { offset: 0, len: self.len, device_len }.into())
    }

    /// Returns whether a [possible](Self::is_possible) sector has a jump instruction, a signature or the name of the
    /// type.
    pub fn is_likely(raw: &RawBoot) -> bool {
        let jump = matches!(raw.BS_jmpBoot, [0xeb, _, _] | [0xe9, _, _]) || raw.signature == [0x55, 0xaa];
        jump || Self::names_type(raw)
    }

    /// Returns whether a sector that [can be decoded](Self::decode) is that of FAT and of no similar format. As for
    /// Linux, this requires neither a jump nor a signature (fs/fat/inode.c, `fat_read_bpb`). Disks of the Atari ST
    /// begin with 0x60.
    pub fn is_possible(raw: &RawBoot) -> bool {
        let other = [b"NTFS    ", b"EXFAT   ", b"-FVE-FS-"].contains(&&raw.BS_OEMName);
        // OS/2 writes a boot sector like that of FAT at the start of volumes of these types (libblkid,
        // superblocks/vfat.c).
        let of_os2 =
            [&b"JFS     "[..], b"HPFS    "].iter().any(|name| type_at(raw, TYPE_16).starts_with(name));
        !other && !of_os2
    }

    /// Returns whether `BS_FilSysType` is a name of FAT. Source: libblkid, superblocks/vfat.c `vfat_idinfo`.
    fn names_type(raw: &RawBoot) -> bool {
        let starts = |at: usize, names: &[&[u8]]| names.iter().any(|name| type_at(raw, at).starts_with(name));
        starts(TYPE_32, &[b"MSWIN", b"FAT32   "])
            || starts(TYPE_16, &[b"MSDOS", b"FAT16   ", b"FAT12   ", b"FAT     "])
    }

    /// Checks the boot sector. Fails with `Corrupt`, which contains the field.
    pub fn decode(raw: &RawBoot) -> Result<Self> {
        let sector_size = u32::from(raw.BPB_BytsPerSec.get());
        let per_cluster = u32::from(raw.BPB_SecPerClus);
        demand(
            sector_size.is_power_of_two() && (512..=4096).contains(&sector_size),
            bad("BPB_BytsPerSec", 0xb, sector_size),
        )?;
        demand(per_cluster.is_power_of_two(), bad("BPB_SecPerClus", 0xd, per_cluster))?;
        demand(raw.BPB_RsvdSecCnt.get() > 0, bad("BPB_RsvdSecCnt", 0xe, 0_u32))?;
        demand(raw.BPB_NumFATs > 0, bad("BPB_NumFATs", 0x10, 0_u32))?;
        demand(matches!(raw.BPB_Media, 0xf0 | 0xf8..), bad("BPB_Media", 0x15, raw.BPB_Media))?;
        let bpb32 = if raw.BPB_FATSz16.get() == 0 { RawBpb32::ref_from_prefix(&raw.rest).ok() } else { None };
        let bpb32 = bpb32.map(|(bpb, _)| bpb);
        let fat_sectors = bpb32.map_or(raw.BPB_FATSz16.get().into(), |bpb| bpb.BPB_FATSz32.get());
        demand(fat_sectors > 0, bad("BPB_FATSz32", 0x24, 0_u32))?;
        let sectors = match raw.BPB_TotSec16.get() {
            0 => raw.BPB_TotSec32.get(),
            few => few.into(),
        };
        let bytes = |count: u32| u64::from(count).saturating_mul(u64::from(sector_size));
        let fat_start = bytes(raw.BPB_RsvdSecCnt.get().into());
        let fat_len = bytes(fat_sectors);
        let fats = raw.BPB_NumFATs;
        let root_start = fat_start.saturating_add(fat_len.saturating_mul(fats.into()));
        // The size of a root directory is rounded up to sectors, as the specification requires.
        let root_len = u64::from(raw.BPB_RootEntCnt.get()).saturating_mul(ENTRY.into());
        // Linux skips these sectors also on FAT32, where there should be none.
        let root_len = root_len.next_multiple_of(sector_size.into());
        let data_start = root_start.saturating_add(root_len);
        let cluster_size = sector_size.saturating_mul(per_cluster);
        let data =
            bytes(sectors).checked_sub(data_start).ok_or_else(|| bad("BPB_TotSec32", 0x20, sectors))?;
        let clusters = data.checked_div(cluster_size.into()).and_then(|count| u32::try_from(count).ok());
        let clusters =
            clusters.filter(|&count| count > 0).ok_or_else(|| bad("BPB_TotSec32", 0x20, sectors))?;
        let width = match clusters {
            _ if bpb32.is_some() => Width::Fat32,
            ..=FAT12_MAX => Width::Fat12,
            _ => Width::Fat16,
        };
        let entries = fat_len.saturating_mul(8).checked_div(width.bits().into()).unwrap_or(0);
        let fitting = u32::try_from(entries).unwrap_or(u32::MAX).saturating_sub(2);
        let clusters = clusters.min(fitting);
        let most = if width == Width::Fat32 { FAT32_MAX } else { FAT16_MAX };
        demand((1..=most).contains(&clusters), bad("BPB_FATSz16", 0x16, fat_sectors))?;
        let root = match bpb32 {
            Some(bpb) => Root::Chain(Cluster(bpb.BPB_RootClus.get())),
            None => Root::Region { start: root_start, len: root_len },
        };
        let tail = bpb32
            .map(|bpb| bpb.tail)
            .or_else(|| RawBpb16::ref_from_prefix(&raw.rest).ok().map(|(bpb, _)| *bpb));
        let sector_of = |sector: u16| (sector > 0 && sector != u16::MAX).then_some(sector);
        let single = bpb32.map(|bpb| bpb.BPB_ExtFlags.get()).filter(|flags| flags & 0x80 != 0);
        let active_fat = single.and_then(|flags| u8::try_from(flags & 0xf).ok());
        Ok(Self {
            sector_size,
            cluster_size,
            width,
            fat_start,
            fat_len,
            fats,
            active_fat: active_fat.filter(|&active| active < fats),
            root_entries: raw.BPB_RootEntCnt.get(),
            root,
            data_start,
            clusters,
            fs_info: bpb32
                .and_then(|bpb| sector_of(bpb.BPB_FSInfo.get()))
                .filter(|&sector| sector < raw.BPB_RsvdSecCnt.get())
                .map(|sector| bytes(sector.into())),
            backup: bpb32
                .and_then(|bpb| sector_of(bpb.BPB_BkBootSec.get()))
                .filter(|&sector| sector < raw.BPB_RsvdSecCnt.get()),
            len: bytes(sectors),
            serial: tail
                .filter(|tail| matches!(tail.BS_BootSig, EXTENDED | SERIAL_ONLY))
                .map(|tail| tail.BS_VolID.get()),
            label: tail.filter(|tail| tail.BS_BootSig == EXTENDED).map_or([b' '; 11], |tail| tail.BS_VolLab),
            oem: raw.BS_OEMName,
            media: raw.BPB_Media,
            state: tail.map_or(0, |tail| tail.BS_Reserved1),
        })
    }

    /// Returns the boot sector at the start of `bytes`. Fails in the same cases as [`SuperBlock::decode`].
    pub fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let (raw, _) = RawBoot::ref_from_prefix(bytes).map_err(|_| bad("BS_jmpBoot", 0, 0_u32))?;
        Self::decode(raw)
    }

    /// Returns the offset of the byte with the state of the volume.
    pub fn state_offset(&self) -> u64 {
        u64::from(if self.width == Width::Fat32 { STATE_32 } else { STATE_16 })
    }

    /// Returns whether the volume has `cluster`.
    pub fn has(&self, cluster: Cluster) -> bool {
        cluster.0 >= 2 && cluster.0.saturating_sub(2) < self.clusters
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

    /// Returns the number of the FAT that is read.
    pub fn read_fat(&self) -> u8 {
        self.active_fat.unwrap_or(0)
    }

    /// Returns the byte offset of a FAT.
    pub fn fat_offset(&self, copy: u8) -> u64 {
        self.fat_start.saturating_add(self.fat_len.saturating_mul(copy.into()))
    }

    /// Returns the number of clusters for `bytes` bytes.
    pub fn clusters_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.cluster_size.max(1).into())
    }

    /// Returns the name of the type.
    pub fn type_name(&self) -> &'static str {
        "vfat"
    }

    /// Returns the result of a probe. `label` is the label of the root directory, if it has one.
    pub fn probe(&self, label: Option<[u8; 11]>) -> Probe {
        let label = label.unwrap_or(self.label);
        let label = if label == *b"NO NAME    " { &[] } else { crate::name::trim(&label) };
        Probe {
            fs_type: self.type_name(),
            label: label.to_vec(),
            serial: self.serial,
            len: self.len,
            ..Probe::default()
        }
    }
}

/// Returns the raw boot sector from the first bytes of a device, if there are enough bytes.
pub fn raw_of(bytes: &[u8]) -> Option<RawBoot> {
    let mut raw = RawBoot::read_from_bytes(&[0; 512]).ok()?;
    let len = to_usize(512);
    raw.as_mut_bytes().copy_from_slice(bytes.get(..len)?);
    Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::le::{U16, U32};

    /// Returns the boot sector of a volume with this number of clusters, of 512 bytes each.
    fn boot(clusters: u32, is_32: bool) -> RawBoot {
        let mut raw = raw_of(&[0; 512]).unwrap();
        raw.BS_jmpBoot = [0xeb, 0x3c, 0x90];
        raw.BPB_BytsPerSec = U16::new(512);
        raw.BPB_SecPerClus = 1;
        raw.BPB_RsvdSecCnt = U16::new(32);
        raw.BPB_NumFATs = 2;
        raw.BPB_Media = 0xf8;
        let fat = 1024;
        raw.BPB_TotSec32 = U32::new(32 + 2 * fat + clusters);
        if is_32 {
            let (bpb, _) = RawBpb32::mut_from_prefix(&mut raw.rest).unwrap();
            bpb.BPB_FATSz32 = U32::new(fat);
            bpb.BPB_RootClus = U32::new(2);
        } else {
            raw.BPB_FATSz16 = U16::new(1024);
        }
        raw
    }

    #[test]
    fn the_count_of_clusters_decides_how_wide_the_entries_are() {
        let width = |clusters, is_32| SuperBlock::decode(&boot(clusters, is_32)).map(|sb| sb.width);
        assert_eq!(width(1, false), Ok(Width::Fat12));
        assert_eq!(width(4_084, false), Ok(Width::Fat12));
        assert_eq!(width(4_085, false), Ok(Width::Fat16));
        assert_eq!(width(65_524, false), Ok(Width::Fat16));
        assert!(width(65_525, false).is_err(), "no FAT16 has as many");
        assert_eq!(width(65_525, true), Ok(Width::Fat32));
        assert_eq!(
            width(100, true),
            Ok(Width::Fat32),
            "mkfs.fat -F 32 makes such volumes, and Linux reads them"
        );
    }

    #[test]
    fn a_fat_that_is_too_short_bounds_the_clusters() {
        let mut raw = boot(100_000, true);
        let (bpb, _) = RawBpb32::mut_from_prefix(&mut raw.rest).unwrap();
        bpb.BPB_FATSz32 = U32::new(10);
        assert_eq!(SuperBlock::decode(&raw).unwrap().clusters, 10 * 128 - 2);
    }

    #[test]
    fn fields_that_cannot_be_are_refused_by_name() {
        let refused = |change: fn(&mut RawBoot)| {
            let mut raw = boot(5_000, false);
            change(&mut raw);
            match SuperBlock::decode(&raw) {
                Err(obento_base::Error::Corrupt(Corrupt::Field { field, .. })) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(|raw| raw.BPB_BytsPerSec = U16::new(513)), "BPB_BytsPerSec");
        assert_eq!(refused(|raw| raw.BPB_BytsPerSec = U16::new(8192)), "BPB_BytsPerSec");
        assert_eq!(refused(|raw| raw.BPB_SecPerClus = 3), "BPB_SecPerClus");
        assert_eq!(refused(|raw| raw.BPB_RsvdSecCnt = U16::new(0)), "BPB_RsvdSecCnt");
        assert_eq!(refused(|raw| raw.BPB_NumFATs = 0), "BPB_NumFATs");
        assert_eq!(refused(|raw| raw.BPB_Media = 0xf7), "BPB_Media");
        assert_eq!(refused(|raw| raw.BPB_TotSec32 = U32::new(40)), "BPB_TotSec32");
    }

    #[test]
    fn a_cluster_and_its_offset_lead_to_each_other() {
        let sb = SuperBlock::decode(&boot(5_000, false)).unwrap();
        let last = Cluster(5_001);
        let offset = sb.offset_of(last).unwrap();
        assert_eq!(sb.cluster_at(offset + 511), Some((last, 511)));
        assert_eq!(sb.cluster_at(offset + 512), None);
        assert_eq!((sb.offset_of(Cluster(1)), sb.offset_of(Cluster(5_002))), (None, None));
    }
}
