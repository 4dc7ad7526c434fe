//! Recognising and opening a volume.

use alloc::sync::Arc;
use alloc::vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Checksums, Decoded, Driver, Evidence, FileSystem, Notice, OpenOptions, Probe};

use crate::contract::Fat;
use crate::options::FatOptions;
use crate::super_block::{SuperBlock, Width, raw_of};
use crate::volume::{ChainSource, Volume};

/// The driver of FAT12, FAT16 and FAT32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FatDriver {
    /// Properties that the format does not store.
    pub options: FatOptions,
}

/// Number of bytes of a boot sector that are used.
pub(crate) const BOOT: usize = 512;
/// Sector of the backup boot sector on nearly every FAT32 volume (fatgen103, `BPB_BkBootSec`).
const BACKUP: u16 = 6;
/// Backups elsewhere are searched in the sectors that nearly every FAT32 volume reserves (fatgen103,
/// `BPB_RsvdSecCnt`).
const RESERVED: u16 = 32;
/// Cache size for reading a volume that is not opened.
const SMALL_CACHE: usize = 64 << 10;

/// A boot sector, and how it was found.
pub(crate) struct Located {
    pub(crate) sb: SuperBlock,
    /// Why the primary boot sector was not used.
    pub(crate) instead_of: Option<Error>,
}

/// The primary boot sector of a device.
#[derive(Clone)]
pub(crate) struct PrimaryBoot {
    /// Its bytes, or zeros if the device is shorter.
    pub(crate) bytes: [u8; BOOT],
    /// The decoded bytes.
    pub(crate) decoded: Result<SuperBlock>,
}

impl PrimaryBoot {
    /// Returns the boot sector that `probe` contains, or reads that of `device`. Fails if the device fails.
    pub(crate) fn of(device: &dyn BlockDevice, probe: Option<&Probe>) -> Result<Self> {
        Decoded::of(probe, || {
            let bytes = read_boot(device, 0)?.unwrap_or([0; BOOT]);
            Ok(Self { bytes, decoded: SuperBlock::of_bytes(&bytes) })
        })
    }
}

pub(crate) fn read_boot(device: &dyn BlockDevice, offset: u64) -> Result<Option<[u8; BOOT]>> {
    let mut bytes = [0; BOOT];
    if offset.checked_add(to_u64(BOOT)).is_none_or(|end| end > device.len()) {
        return Ok(None);
    }
    device.read_at(offset, &mut bytes)?;
    Ok(Some(bytes))
}

/// Returns the boot sector, which `probe` may contain, or its backup if only that can be read. Fails with the `Corrupt`
/// error of the primary boot sector, or if the device fails.
pub(crate) fn locate(device: &dyn BlockDevice, probe: Option<&Probe>) -> Result<Located> {
    let error = match PrimaryBoot::of(device, probe).and_then(|boot| boot.decoded) {
        Ok(sb) => return Ok(Located { sb, instead_of: None }),
        Err(error) => error,
    };
    match backup(device) {
        Some(sb) => Ok(Located { sb, instead_of: Some(error) }),
        None => Err(error),
    }
}

/// Returns a backup boot sector that contains its own sector number, if its volume fits the device.
pub(crate) fn backup(device: &dyn BlockDevice) -> Option<SuperBlock> {
    let sectors = core::iter::once(BACKUP).chain(1..RESERVED);
    let mut places = sectors.flat_map(|sector| [512_u32, 1024, 2048, 4096].map(|size| (sector, size)));
    places.find_map(|(sector, size)| {
        let bytes = read_boot(device, u64::from(size).saturating_mul(sector.into())).ok()??;
        let raw =
            raw_of(&bytes).filter(|raw| raw.signature == [0x55, 0xaa] && SuperBlock::is_possible(raw))?;
        let sb = SuperBlock::decode(&raw).ok()?;
        let fits = sb.sector_size == size && sb.backup == Some(sector) && sb.len <= device.len();
        (fits && sb.width == Width::Fat32).then_some(sb)
    })
}

/// Returns whether a boot sector without any signature is that of a volume: the volume fits the device, and the first
/// FAT entry repeats the media type. Every FAT repeats it (fatgen103, "FAT Data Structure").
fn is_plausible(device: &dyn BlockDevice, sb: &SuperBlock) -> bool {
    let mut first = [0; 3];
    sb.len <= device.len()
        && device.read_at(sb.fat_start, &mut first).is_ok()
        && first == [sb.media, 0xff, 0xff]
}

impl Driver for FatDriver {
    fn names(&self) -> &'static [&'static str] {
        &["vfat", "fat", "msdos"]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        if device.len() < to_u64(BOOT) {
            return Ok(None);
        }
        let boot = PrimaryBoot::of(device, None)?;
        let is_blank = boot.bytes.iter().all(|&byte| byte == 0);
        let primary = raw_of(&boot.bytes).zip(boot.decoded.clone().ok());
        let (sb, evidence) = match primary.filter(|(raw, _)| SuperBlock::is_possible(raw)) {
            Some((raw, sb)) if SuperBlock::is_likely(&raw) => (sb, Evidence::Signature),
            Some((_, sb)) if is_plausible(device, &sb) => (sb, Evidence::Traces),
            // The backup is used only if the first sector is zero.
            None if is_blank => match backup(device) {
                Some(sb) => (sb, Evidence::Traces),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let probe = Probe { evidence, decoded: Decoded::new(boot), ..sb.probe(None) };
        Ok(Some(match root_label(device, &sb) {
            Some(label) => Probe { label, ..probe },
            None => probe,
        }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let volume = open_volume(device, options, self.options.with(&options.shown)?)?;
        Ok(Fat::open(volume, options)?)
    }

    obento_driver::capabilities!(undelete: Undelete, tune: Tune, resize: Resize, format: Format, check: Check);
}

/// Returns the label of the root directory, as an open volume reports it.
fn root_label(device: &dyn BlockDevice, sb: &SuperBlock) -> Option<alloc::vec::Vec<u8>> {
    // The device is borrowed, so the start of the root directory is copied.
    let start = match sb.root {
        crate::super_block::Root::Region { start, .. } => start,
        crate::super_block::Root::Chain(cluster) => sb.offset_of(cluster)?,
    };
    let len = to_usize(sb.cluster_size.min(4096).into());
    let mut bytes = vec![0; len];
    device.read_at(start, &mut bytes).ok()?;
    crate::dir::label_in(&bytes).map(|name| name.to_label(crate::name::CodePage::default()))
}

/// Opens the volume on `device`. Fails with `OutOfBounds` if the volume is opened for changes and the device does not
/// contain all of it.
pub fn open_volume(device: Arc<dyn BlockDevice>, options: &OpenOptions, shown: FatOptions) -> Result<Volume> {
    let Located { sb, instead_of } = locate(&*device, options.probe.as_ref())?;
    if options.access == Access::ReadWrite {
        sb.expect_whole(&*device)?;
    }
    let (expected, found) = (sb.len, device.len());
    let copy = sb.backup.unwrap_or(BACKUP);
    // A caller that ignores checksums reads all files of a damaged volume.
    let chain_source = match (options.checksums, options.access) {
        (Checksums::Ignore | Checksums::IgnoreIfSupported, Access::ReadOnly) => ChainSource::Complete,
        _ => ChainSource::Active,
    };
    let mut volume = Volume::new(device, sb, shown, (options.cache.max(SMALL_CACHE), chain_source))?;
    if let Some(error) = instead_of {
        volume.notice(Notice::Damaged(error));
        volume.notice(Notice::BackupSuperBlock { block: copy.into() });
    }
    if expected > found {
        volume.notice(Notice::Truncated { expected, found });
    }
    if chain_source == ChainSource::Complete {
        volume.compare_fats();
    }
    if volume.state() == crate::info::VolumeState::Errors {
        volume.notice(Notice::MarkedWithErrors);
    }
    Ok(volume)
}
