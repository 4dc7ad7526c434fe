//! Recognising and opening a volume.

use alloc::sync::Arc;
use alloc::vec;

use obento_base::wire::{FromBytes as _, to_usize};
use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Check, Driver, Evidence, FileSystem, Format, Notice, OpenOptions, Probe};

use crate::boot::{self, BootRegion, Region};
use crate::contract::ExFat;
use crate::info::State;
use crate::options::ExFatOptions;
use crate::raw::{RawEntry, RawGuid, kind};
use crate::super_block::{SuperBlock, raw_of};
use crate::tables::{label_of, swap_guid};
use crate::volume::Volume;

/// The driver of exFAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExFatDriver {
    /// How volumes are shown.
    pub options: ExFatOptions,
}

/// Bytes of a boot sector that count.
const BOOT: usize = 512;
/// A volume that is not closed is looked at with this much memory.
const SMALL_CACHE: usize = 64 << 10;
/// How much of the root directory a probe reads.
const PROBED: u32 = 4096;

/// What was found at the place of a boot region.
struct Located {
    sb: SuperBlock,
    /// What is wrong with the first.
    damage: Option<Error>,
    /// Whether the copy was used in its place.
    is_backup: bool,
}

/// The boot region, or its copy where that alone is whole. A first sector that can be believed does for reading, even
/// where neither region has the right checksum. Fails in the same cases as the first boot region is, or if the device
/// fails.
fn locate(device: &dyn BlockDevice) -> Result<Located> {
    let size = boot::sector_size(device).unwrap_or(512);
    let main = BootRegion::read(device, Region::Main, size);
    let whole = main.as_ref().map_err(|error| *error).and_then(|region| region.verify(Region::Main));
    let damage = match (whole, main) {
        (Ok(()), Ok(region)) => return Ok(Located { sb: region.sb, damage: None, is_backup: false }),
        (Err(error), main) => (error, main),
        (Ok(()), Err(error)) => (error, Err(error)),
    };
    if matches!(damage.0, Error::Unsupported(_)) {
        return Err(damage.0);
    }
    match (boot::backup(device), damage) {
        (Some(region), (error, _)) => Ok(Located { sb: region.sb, damage: Some(error), is_backup: true }),
        (None, (error, Ok(region))) => Ok(Located { sb: region.sb, damage: Some(error), is_backup: false }),
        (None, (error, Err(_))) => Err(error),
    }
}

impl Driver for ExFatDriver {
    fn names(&self) -> &'static [&'static str] {
        &["exfat"]
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        let mut bytes = [0; BOOT];
        if device.len() < 1 << 15 {
            return Ok(None);
        }
        device.read_at(0, &mut bytes)?;
        let likely = raw_of(&bytes).filter(SuperBlock::is_likely);
        let (sb, evidence) = match likely {
            Some(raw) => (SuperBlock::decode(&raw).ok().or_else(|| backup(device)), Evidence::Signature),
            // The copy is not used if the first sector holds anything else.
            None if bytes.iter().all(|&byte| byte == 0) => (backup(device), Evidence::Traces),
            None => (None, Evidence::Traces),
        };
        Ok(sb.map(|sb| Probe { evidence, ..probe_of(device, &sb) }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let volume = open_volume(device, options, self.options.with(&options.shown))?;
        Ok(match options.access {
            Access::ReadOnly => Arc::new(ExFat::new(volume)),
            Access::ReadWrite => {
                ExFat::writing(volume, options.clock.clone(), options.journalling.commit_interval)?
            }
        })
    }

    fn format(&self) -> Option<&dyn Format> {
        Some(self)
    }

    fn check(&self) -> Option<&dyn Check> {
        Some(self)
    }
}

fn backup(device: &dyn BlockDevice) -> Option<SuperBlock> {
    boot::backup(device).map(|region| region.sb)
}

/// Type, label, GUID and length, from the start of the root directory.
fn probe_of(device: &dyn BlockDevice, sb: &SuperBlock) -> Probe {
    let mut probe = Probe { fs_type: "exfat", serial: Some(sb.serial), len: sb.len, ..Probe::default() };
    let mut bytes = vec![0; to_usize(sb.cluster_size.min(PROBED).into())];
    let read = sb.offset_of(sb.root).is_some_and(|start| device.read_at(start, &mut bytes).is_ok());
    let entries =
        bytes.chunks_exact(32).filter(|_| read).map_while(|entry| RawEntry::read_from_bytes(entry).ok());
    for entry in entries.take_while(|entry| entry.EntryType != kind::END) {
        match entry.EntryType {
            kind::LABEL => probe.label = label_of(&entry),
            kind::GUID => {
                let raw = RawGuid::read_from_bytes(obento_base::wire::IntoBytes::as_bytes(&entry)).ok();
                probe.uuid = raw.map(|raw| swap_guid(raw.VolumeGuid));
            }
            _ => {}
        }
    }
    probe
}

/// Opens the volume that fills `device`. For changes it must be whole: Corrupt for a boot region that is damaged, Unsupported for a
/// volume with two FATs.
pub fn open_volume(
    device: Arc<dyn BlockDevice>,
    options: &OpenOptions,
    shown: ExFatOptions,
) -> Result<Volume> {
    let Located { sb, damage, is_backup } = locate(&*device)?;
    if options.access == Access::ReadWrite {
        if sb.fats > 1 {
            return Err(Error::Unsupported(Feature::Named("changing a volume with two FATs (TexFAT)")));
        }
        if let Some(error) = damage {
            return Err(error);
        }
    }
    let (expected, found) = (sb.len, device.len());
    let mut volume = Volume::new(device, sb, shown, options.cache.max(SMALL_CACHE))?;
    if let Some(error) = damage {
        volume.notice(Notice::Damaged(error));
    }
    if is_backup {
        volume.notice(Notice::BackupSuperBlock { block: boot::SECTORS });
    }
    if expected > found {
        volume.notice(Notice::Truncated { expected, found });
    }
    if State::of(volume.super_block().flags) == State::Errors {
        volume.notice(Notice::MarkedWithErrors);
    }
    Ok(volume)
}
