//! Creating volumes as mkfs.exfat does. Order on the volume: boot region and backup, FAT, bitmap, up-case table, root
//! directory. The boot regions are written last, since they make the volume valid.

mod geometry;
mod settings;

use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{FromZeros as _, IntoBytes, le, to_u64, to_usize};
use obento_block::BlockDevice;
use obento_clusters::Cluster;
use obento_clusters::format::clear;
use obento_driver::{Fact, Format, FormatError, FormatOptions, Formatted, Setting};

use self::geometry::Geometry;
use self::settings::{SETTINGS, Settings};
use crate::boot::{SECTORS, checksum};
use crate::open::ExFatDriver;
use crate::raw::{RawBitmap, RawBoot, RawEntry, RawGuid, RawLabel, RawUpCase, kind};
use crate::set;
use crate::table::LAST;
use crate::tables::swap_guid;
use crate::up_case::{self, UpCase};

/// The first entry of the FAT (specification, 4.1.1).
const MEDIA: u32 = 0xffff_fff8;
/// Number of FAT entries that are written at a time.
const STEP: u32 = 1 << 14;

impl Format for ExFatDriver {
    fn types(&self) -> &'static [&'static str] {
        &["exfat"]
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError> {
        Plan::new(device_len, options).map(|plan| plan.describe())
    }

    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let plan = Plan::new(device.len(), options)?;
        plan.write(device, options)?;
        Ok(plan.describe())
    }
}

/// A volume to create.
struct Plan {
    geometry: Geometry,
    settings: Settings,
}

impl Plan {
    fn new(device_len: u64, options: &FormatOptions) -> Result<Self, FormatError> {
        let settings = Settings::parse(options)?;
        let len = options.length_on(device_len)?;
        Ok(Self { geometry: Geometry::plan(len, &settings)?, settings })
    }

    fn describe(&self) -> Formatted {
        let geometry = &self.geometry;
        let fact = |name, value: u64| Fact { name, value: value.to_string() };
        Formatted {
            fs_type: "exfat",
            label: self.settings.shown_label(),
            uuid: self.settings.guid.unwrap_or_default(),
            serial: Some(self.settings.serial),
            block_size: geometry.cluster_size,
            blocks: geometry.clusters.into(),
            backups: Vec::from([SECTORS]),
            notices: Vec::new(),
            facts: Vec::from([
                fact("sector size", geometry.sector_size.into()),
                fact("FAT offset", geometry.fat_start),
                fact("FAT length", geometry.fat_len),
                fact("cluster heap offset", geometry.data_start),
                fact("root directory cluster", geometry.root().0.into()),
            ]),
            ..Formatted::default()
        }
    }

    fn write(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<(), FormatError> {
        let geometry = &self.geometry;
        let used = geometry.offset_of(Cluster(geometry.root().0.saturating_add(1)));
        let end = if self.settings.is_full { geometry.len } else { used };
        // The backup boot region is in this range.
        clear(device, (geometry.fat_start, end), geometry.len, options)?;
        self.write_table(device)?;
        self.write_bitmap(device)?;
        let table = UpCase::standard()?.encode();
        device.write_at(geometry.offset_of(geometry.up_case()), &table)?;
        device.write_at(geometry.offset_of(geometry.root()), self.root(&table).as_bytes())?;
        device.flush()?;
        let region = self.boot_region();
        let both: Vec<u8> = region.iter().chain(&region).copied().collect();
        device.write_at(0, &both)?;
        device.flush()?;
        Ok(())
    }

    /// Writes the chains of the bitmap, the up-case table and the root directory.
    fn write_table(&self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        let geometry = &self.geometry;
        let ends = [geometry.up_case().0, geometry.root().0, geometry.root().0.saturating_add(1)];
        let entry = |cluster: u32| match cluster {
            0 => MEDIA,
            1 => LAST,
            _ if ends.contains(&cluster.saturating_add(1)) => LAST,
            _ => cluster.saturating_add(1),
        };
        let end = geometry.root().0.saturating_add(1);
        for start in (0..end).step_by(to_usize(STEP.into())) {
            let stop = start.saturating_add(STEP).min(end);
            let bytes: Vec<u8> = (start..stop).flat_map(|cluster| entry(cluster).to_le_bytes()).collect();
            let at = geometry.fat_start.saturating_add(u64::from(start).saturating_mul(4));
            device.write_at(at, &bytes)?;
        }
        Ok(())
    }

    fn write_bitmap(&self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        let used = self.geometry.used();
        let mut bytes = vec![0xff; to_usize(u64::from(used >> 3))];
        bytes.push(!(u8::MAX << (used & 7)));
        device.write_at(self.geometry.data_start, &bytes)?;
        Ok(())
    }

    /// Returns the entries of the root directory.
    fn root(&self, table: &[u8]) -> Vec<RawEntry> {
        let mut label = RawLabel::new_zeroed();
        label.EntryType = kind::LABEL;
        label.CharacterCount = u8::try_from(self.settings.label.len()).unwrap_or(0);
        let units = label.VolumeLabel.iter_mut().zip(&self.settings.label);
        units.for_each(|(slot, &unit)| slot.set(unit));
        let mut bitmap = RawBitmap::new_zeroed();
        bitmap.EntryType = kind::BITMAP;
        (bitmap.FirstCluster, bitmap.DataLength) =
            (le::U32::new(2), le::U64::new(self.geometry.bitmap_len()));
        let mut up_case = RawUpCase::new_zeroed();
        (up_case.EntryType, up_case.TableChecksum) = (kind::UP_CASE, le::U32::new(up_case::checksum(table)));
        (up_case.FirstCluster, up_case.DataLength) =
            (le::U32::new(self.geometry.up_case().0), le::U64::new(to_u64(table.len())));
        let guid = self.settings.guid.map(guid_entry);
        let mut entries = Vec::from([entry(&label)]);
        entries.extend(guid);
        entries.extend([entry(&bitmap), entry(&up_case)]);
        entries
    }

    fn boot_region(&self) -> Vec<u8> {
        let geometry = &self.geometry;
        let size = to_usize(geometry.sector_size.into());
        let mut bytes = vec![0; size.saturating_mul(to_usize(SECTORS))];
        for (number, sector) in bytes.chunks_exact_mut(size).enumerate() {
            match (number, sector) {
                (0, sector) => {
                    sector.iter_mut().zip(self.boot().as_bytes()).for_each(|(to, from)| *to = *from)
                }
                (1..=8, [.., low, high]) => [*low, *high] = [0x55, 0xaa],
                // OEM parameters are absent.
                (9, sector) => sector.fill(0xff),
                _ => {}
            }
        }
        let sum = checksum(&bytes, size).to_le_bytes();
        let last = bytes.chunks_exact_mut(size).last().unwrap_or_default();
        last.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&sum));
        bytes
    }

    fn boot(&self) -> RawBoot {
        let geometry = &self.geometry;
        let shift = |size: u32| u8::try_from(size.trailing_zeros()).unwrap_or(0);
        let sectors = |bytes: u64| bytes.checked_div(geometry.sector_size.into()).unwrap_or(0);
        let narrow = |bytes: u64| le::U32::new(u32::try_from(sectors(bytes)).unwrap_or(u32::MAX));
        let mut raw = RawBoot::new_zeroed();
        raw.JumpBoot = [0xeb, 0x76, 0x90];
        raw.FileSystemName = *b"EXFAT   ";
        raw.VolumeLength = le::U64::new(sectors(geometry.len));
        (raw.FatOffset, raw.FatLength) = (narrow(geometry.fat_start), narrow(geometry.fat_len));
        raw.ClusterHeapOffset = narrow(geometry.data_start);
        raw.ClusterCount = le::U32::new(geometry.clusters);
        raw.FirstClusterOfRootDirectory = le::U32::new(geometry.root().0);
        raw.VolumeSerialNumber = le::U32::new(self.settings.serial);
        raw.FileSystemRevision = le::U16::new(0x100);
        raw.BytesPerSectorShift = shift(geometry.sector_size);
        raw.SectorsPerClusterShift = shift(geometry.cluster_size).saturating_sub(raw.BytesPerSectorShift);
        (raw.NumberOfFats, raw.DriveSelect) = (1, 0x80);
        raw.BootSignature = [0x55, 0xaa];
        raw
    }
}

fn entry(raw: &(impl IntoBytes + obento_base::wire::Immutable)) -> RawEntry {
    let mut entry = RawEntry::new_zeroed();
    entry.as_mut_bytes().iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
    entry
}

fn guid_entry(guid: [u8; 16]) -> RawEntry {
    let mut raw = RawGuid::new_zeroed();
    (raw.EntryType, raw.VolumeGuid) = (kind::GUID, swap_guid(guid));
    raw.SetChecksum = le::U16::new(set::checksum([entry(&raw)].iter()));
    entry(&raw)
}
