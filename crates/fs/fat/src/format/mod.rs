//! Creating volumes, byte for byte identical to those that mkfs.fat 4.2 creates in a file.
//!
//! [`settings`] parses the options, [`geometry`] computes the layout, and this module writes it. The boot sector is
//! written last, since it makes the volume valid.
//! Source: fatgen103; where it leaves a choice, the manual of mkfs.fat and the volumes that it creates.

mod bad;
mod boot;
mod geometry;
mod settings;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{FromZeros as _, IntoBytes as _, le, to_u64, to_usize};
use obento_block::BlockDevice;
use obento_driver::{Fact, Format, FormatError, FormatNotice, FormatOptions, Formatted, Setting};

use self::geometry::{FAT32_LEAST, Geometry, INFO};
use self::settings::Settings;
pub use self::settings::is_label;
use crate::inode::Attributes;
use crate::open::FatDriver;
use crate::raw::{RawEntry, RawFsInfo};
use crate::super_block::Width;
use crate::table::pieces;
use crate::time::Zone;
use crate::unit::Cluster;
use obento_clusters::FileEntry as _;
use obento_clusters::format::clear;

/// Returns the sector of the backup boot sector for this number of reserved sectors; 0 for none.
pub fn backup_sector(reserved: u16) -> u16 {
    geometry::backup(None, reserved).unwrap_or(0)
}

/// `BS_VolLab` of a volume without a label.
pub const NO_NAME: [u8; 11] = *b"NO NAME    ";
/// The first cluster of the root directory of FAT32.
const ROOT_CLUSTER: Cluster = Cluster(2);
/// The FAT entry of a bad cluster. Narrower FATs have its lower bits.
const BAD: u32 = 0x0fff_fff7;

impl Format for FatDriver {
    fn types(&self) -> &'static [&'static str] {
        &["vfat", "fat", "msdos"]
    }

    fn settings(&self) -> &'static [Setting] {
        settings::SETTINGS
    }

    fn plan(&self, device_len: u64, options: &FormatOptions) -> Result<Formatted, FormatError> {
        Plan::new(device_len, options).map(|plan| plan.describe())
    }

    fn format(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError> {
        let mut plan = Plan::new(device.len(), options)?;
        if plan.settings.check_blocks {
            plan.bad.extend(bad::found(device, &plan.geometry)?);
        }
        plan.write(device, options)?;
        Ok(plan.describe())
    }
}

/// A volume to create.
struct Plan {
    geometry: Geometry,
    settings: Settings,
    /// Clusters that must not be used.
    bad: BTreeSet<Cluster>,
}

impl Plan {
    fn new(device_len: u64, options: &FormatOptions) -> Result<Self, FormatError> {
        let settings = Settings::parse(options)?;
        let len = options.length_on(device_len)?;
        let geometry = Geometry::plan(len, &settings.wanted)?;
        let bad = bad::listed(&geometry, &settings.bad_blocks)?;
        Ok(Self { geometry, settings, bad })
    }

    fn describe(&self) -> Formatted {
        let Geometry { width, clusters, reserved, fats, backup, unused, .. } = self.geometry;
        let fact = |name, value: alloc::string::String| Fact { name, value };
        let mut notices = Vec::new();
        if unused > 0 {
            notices.push(FormatNotice::Unused(unused));
        }
        if width == Width::Fat32 && u64::from(clusters) < FAT32_LEAST {
            notices.push(FormatNotice::FewClusters { clusters: clusters.into(), least: FAT32_LEAST });
        }
        let message_max = boot::message_max(width, self.settings.mbr);
        if self.settings.message.as_ref().is_some_and(|message| message.len() > message_max) {
            notices.push(FormatNotice::MessageCut(u32::try_from(message_max).unwrap_or(u32::MAX)));
        }
        if !self.bad.is_empty() {
            notices.push(FormatNotice::BadUnits(to_u64(self.bad.len())));
        }
        Formatted {
            fs_type: "vfat",
            label: self.settings.shown_label(),
            serial: Some(self.settings.serial),
            block_size: self.geometry.cluster_size(),
            blocks: clusters.into(),
            backups: if backup > 0 { Vec::from([backup.into()]) } else { Vec::new() },
            features: Vec::from([width.name().to_string()]),
            notices,
            facts: Vec::from([
                fact("FAT width", format!("{} bits", width.bits())),
                fact("sector size", self.geometry.sector_size.to_string()),
                fact("reserved sectors", reserved.to_string()),
                fact("FATs", fats.to_string()),
                fact("sectors per FAT", self.geometry.fat_sectors.to_string()),
                fact("root directory entries", self.geometry.root_entries.to_string()),
            ]),
            ..Formatted::default()
        }
    }

    fn write(&self, device: &dyn BlockDevice, options: &FormatOptions) -> Result<(), FormatError> {
        let geometry = &self.geometry;
        let sector = u64::from(geometry.sector_size);
        let end = geometry.root().saturating_add(geometry.root_len());
        // The backup boot sector is in this range.
        let len = u64::from(geometry.sectors).saturating_mul(sector);
        clear(device, (geometry.fat(0), end), len, options)?;
        for (number, bytes) in self.table() {
            for copy in 0..geometry.fats {
                device.write_at(geometry.fat(copy).saturating_add(geometry.offset(number)), &bytes)?;
            }
        }
        if let Some(entry) = self.label_entry(options) {
            device.write_at(geometry.root(), entry.as_bytes())?;
        }
        let boot = self.boot();
        let backup = u64::from(geometry.backup);
        if geometry.width == Width::Fat32 {
            let info = self.info();
            device.write_at(sector.saturating_mul(INFO.into()), info.as_bytes())?;
            let copy = backup.saturating_add(INFO.into());
            if backup > 0 && copy < geometry.reserved.into() {
                device.write_at(sector.saturating_mul(copy), info.as_bytes())?;
            }
        }
        device.flush()?;
        if backup > 0 {
            device.write_at(sector.saturating_mul(backup), &boot)?;
        }
        device.write_at(0, &boot)?;
        device.flush()?;
        Ok(())
    }

    /// Returns the sectors of a FAT that are not zero, by their number in the FAT.
    fn table(&self) -> BTreeMap<u64, Vec<u8>> {
        let width = self.geometry.width;
        let size = u64::from(self.geometry.sector_size);
        let mut sectors = BTreeMap::new();
        let mut set = |cluster, value| {
            for (at, keep, bits) in pieces(width, cluster, value) {
                let number = at.checked_div(size).unwrap_or(0);
                let bytes = sectors.entry(number).or_insert_with(|| vec![0; to_usize(size)]);
                if let Some(byte) = bytes.get_mut(to_usize(at.checked_rem(size).unwrap_or(0))) {
                    *byte = *byte & keep | bits;
                }
            }
        };
        set(Cluster(0), 0x0fff_ff00 | u32::from(self.geometry.media));
        set(Cluster(1), u32::MAX);
        if width == Width::Fat32 {
            // Any of the last eight values ends a chain; mkfs.fat uses the first of them.
            set(ROOT_CLUSTER, 0x0fff_fff8);
        }
        self.bad.iter().for_each(|&cluster| set(cluster, BAD));
        sectors
    }

    fn label_entry(&self, options: &FormatOptions) -> Option<RawEntry> {
        let label = self.settings.label.filter(|&label| label != NO_NAME)?;
        let mut raw = RawEntry::new_zeroed();
        raw.DIR_Name = label;
        if let Some(first @ &mut 0xe5) = raw.DIR_Name.first_mut() {
            *first = 0x05;
        }
        raw.DIR_Attr = Attributes::VOLUME_ID.bits();
        raw.stamp(options.clock.now(), Zone::default());
        raw.DIR_CrtTimeTenth = 0;
        Some(raw)
    }

    fn info(&self) -> RawFsInfo {
        let mut raw = RawFsInfo::new_zeroed();
        raw.FSI_LeadSig = le::U32::new(RawFsInfo::LEAD);
        raw.FSI_StrucSig = le::U32::new(RawFsInfo::STRUCTURE);
        raw.FSI_TrailSig = le::U32::new(RawFsInfo::TRAIL);
        // Without bad clusters, which mkfs.fat counts as free and `fsck.fat` does not.
        let bad = u32::try_from(self.bad.len()).unwrap_or(u32::MAX);
        raw.FSI_Free_Count = le::U32::new(self.geometry.clusters.saturating_sub(1).saturating_sub(bad));
        raw.FSI_Nxt_Free = le::U32::new(ROOT_CLUSTER.0);
        raw
    }

    fn boot(&self) -> Vec<u8> {
        let boot = boot::sector(&self.geometry, &self.settings);
        debug_assert_eq!(to_u64(boot.as_bytes().len()), 512);
        boot.as_bytes().to_vec()
    }
}
