//! Recognising and opening a volume.

use alloc::sync::Arc;
use alloc::vec;

use obento_base::wire::{FromBytes as _, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Decoded, Driver, Evidence, FileSystem, Notice, OpenOptions, Probe};

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
    /// Properties that the format does not store.
    pub options: ExFatOptions,
}

/// Number of bytes of a boot sector that are used.
const BOOT: usize = 512;
/// Cache size for reading a volume that is not opened.
const SMALL_CACHE: usize = 64 << 10;
/// Number of bytes of the root directory that a probe reads.
const PROBED: u32 = 4096;

/// A boot region, and how it was found.
#[derive(Clone)]
pub(crate) struct Located {
    pub(crate) region: BootRegion,
    /// The damage of the main region.
    pub(crate) damage: Option<Error>,
    /// Whether the backup is used instead.
    pub(crate) is_backup: bool,
}

/// Returns the result of [`find`] that `probe` contains, or that of `device`. Fails with the error of the main boot
/// sector, with `Unsupported` if it has an unknown version, or if the device fails.
pub(crate) fn locate(device: &dyn BlockDevice, probe: Option<&Probe>) -> Result<Located> {
    let located = Decoded::of(probe, || find(device))?;
    match located.damage {
        Some(error @ Error::Unsupported(_)) => Err(error),
        _ => Ok(located),
    }
}

/// Returns the main boot region, or its backup if only that is intact. For reading, a plausible main boot sector
/// suffices if neither region has a correct checksum. Fails with the error of the main boot sector, or if the device
/// fails.
pub(crate) fn find(device: &dyn BlockDevice) -> Result<Located> {
    let size = boot::sector_size(device).unwrap_or(512);
    let main = BootRegion::read(device, Region::Main, size);
    let whole = main.as_ref().map_err(|error| *error).and_then(|region| region.verify(Region::Main));
    let damage = whole.err();
    let backup = damage.and_then(|_| boot::backup(device));
    let is_backup = backup.is_some();
    backup.map_or(main, Ok).map(|region| Located { region, damage, is_backup })
}

impl Driver for ExFatDriver {
    fn names(&self) -> &'static [&'static str] {
        &["exfat"]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        let mut bytes = [0; BOOT];
        if device.len() < 1 << 15 {
            return Ok(None);
        }
        device.read_at(0, &mut bytes)?;
        let likely = raw_of(&bytes).filter(SuperBlock::is_likely);
        let evidence = match likely {
            Some(_) => Evidence::Signature,
            // The backup is used only if the first sector is zero.
            None if bytes.iter().all(|&byte| byte == 0) => Evidence::Traces,
            None => return Ok(None),
        };
        let probe = match (find(device), likely.map(|raw| SuperBlock::decode(&raw))) {
            (Ok(located), _) => {
                let probe = probe_of(device, &located.region.sb);
                Probe { decoded: Decoded::new(located), ..probe }
            }
            // The rest of the region is missing.
            (Err(_), Some(Ok(sb))) => probe_of(device, &sb),
            _ => return Ok(None),
        };
        Ok(Some(Probe { evidence, ..probe }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let volume = open_volume(device, options, self.options.with(&options.shown))?;
        Ok(ExFat::open(volume, options)?)
    }

    obento_driver::capabilities!(undelete: Undelete, tune: Tune, resize: Resize, format: Format, check: Check);
}

/// Returns type, label, GUID and size, from the start of the root directory.
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

/// Opens the volume on `device`. A volume that is opened for changes must be intact. Fails with `Corrupt` for a damaged
/// boot region, and with `Unsupported` for a volume with two FATs.
pub fn open_volume(
    device: Arc<dyn BlockDevice>,
    options: &OpenOptions,
    shown: ExFatOptions,
) -> Result<Volume> {
    let Located { region: BootRegion { sb, .. }, damage, is_backup } =
        locate(&*device, options.probe.as_ref())?;
    if options.access == Access::ReadWrite {
        if let Some(error) = damage {
            return Err(error);
        }
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        sb.expect_one_fat()?;
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
