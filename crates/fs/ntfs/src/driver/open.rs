//! Recognising and opening a volume.

use alloc::sync::Arc;

use obento_base::wire::IntoBytes;
use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{Access, Check, Decoded, Driver, Evidence, FileSystem, Notice, OpenOptions, Probe};

use super::info::probe_of;
use super::options::NtfsOptions;
use super::volume::Volume;
use crate::attribute::Attributes;
use crate::attribute::name::to_utf8;
use crate::layout::boot::{self, Geometry, OEM_ID, RawBoot};
use crate::layout::raw::{kind, record};
use crate::mft::Mft;

/// The driver of NTFS. It reads volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NtfsDriver {
    /// How volumes are shown.
    pub options: NtfsOptions,
}

/// Geometry of a volume, and how it was found.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// The boot sector, which may be damaged.
    pub boot: Result<RawBoot>,
    pub geometry: Geometry,
    /// Damage of the boot sector, and the sector number of the copy that is used in its place.
    pub damage: Option<(Error, u64)>,
}

/// Returns the geometry that `probe` contains, or finds the boot sector or its copy.
///
/// # Errors
///
/// - `Corrupt`: neither can be used.
pub(crate) fn locate(device: &dyn BlockDevice, probe: Option<&Probe>) -> Result<Located> {
    Decoded::of(probe, || locate_from(device, boot::read(device, 0)))
}

/// Returns the geometry of the boot sector, or that of its copy. Fails like [`locate`].
fn locate_from(device: &dyn BlockDevice, boot: Result<RawBoot>) -> Result<Located> {
    let main = boot.and_then(|raw| Geometry::decode(&raw));
    // A boot sector that leads to no table is damaged, however plausible its fields are.
    let main = main.and_then(|geometry| match Mft::first(device, &geometry, record::MFT) {
        Some(_) => Ok(geometry),
        None => Err(boot::no_table(&geometry)),
    });
    match main {
        Ok(geometry) => Ok(Located { boot, geometry, damage: None }),
        Err(error) => {
            let (offset, geometry) = boot::backup(device).ok_or(error)?;
            let sector = offset.checked_div(geometry.sector_size.into()).unwrap_or(0);
            Ok(Located { boot, geometry, damage: Some((error, sector)) })
        }
    }
}

impl Driver for NtfsDriver {
    fn names(&self) -> &'static [&'static str] {
        &["ntfs", "ntfs3"]
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        if device.len() < 4096 {
            return Ok(None);
        }
        let raw = boot::read(device, 0)?;
        let has_table = |geometry: &Geometry| {
            let mut magic = [0; 4];
            device.read_at(geometry.mft, &mut magic).is_ok() && magic == *b"FILE"
        };
        let has_copy = |geometry: &Geometry| Mft::first(device, geometry, record::MFT).is_some();
        let is_blank = IntoBytes::as_bytes(&raw).iter().all(|&byte| byte == 0);
        // The copy is used only if the first sector contains no other format.
        if raw.oem_id != OEM_ID && !is_blank {
            return Ok(None);
        }
        let located = locate_from(device, Ok(raw));
        let (geometry, evidence) = match (Geometry::decode(&raw), located) {
            // Another format may leave the boot sector as it is: only the table makes it a signature, as for libblkid.
            (Ok(main), _) if has_table(&main) => (main, Evidence::Signature),
            (_, Ok(Located { geometry, .. })) if has_copy(&geometry) => (geometry, Evidence::Traces),
            _ => return Ok(None),
        };
        let label = label_of(device, geometry).unwrap_or_default();
        let decoded = located.map_or_else(|_| Decoded::default(), Decoded::new);
        Ok(Some(Probe { evidence, label, decoded, ..probe_of(&geometry) }))
    }

    fn check(&self) -> Option<&dyn Check> {
        Some(self)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let Located { geometry, damage, .. } = locate(&*device, options.probe.as_ref())?;
        if options.access == Access::ReadWrite {
            return Err(Error::Unsupported(Feature::Writing));
        }
        let (expected, found) = (geometry.len, device.len());
        let mut volume = Volume::open(device, geometry, self.options.with(&options.shown), options.cache)?;
        if let Some((error, block)) = damage {
            volume.notices.push(Notice::Damaged(error));
            volume.notices.push(Notice::BackupSuperBlock { block });
        }
        if expected > found {
            volume.notices.push(Notice::Truncated { expected, found });
        }
        Ok(Arc::new(volume))
    }
}

/// Returns the label, from the fourth record.
fn label_of(device: &dyn BlockDevice, geometry: Geometry) -> Option<alloc::vec::Vec<u8>> {
    let shared = Mft::first(device, &geometry, record::VOLUME)?;
    let found = Attributes::new(&shared).filter_map(Result::ok).find(|it| it.kind == kind::VOLUME_NAME)?;
    found.resident().map(to_utf8)
}
