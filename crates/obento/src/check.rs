//! Checks the volumes of an image.

use std::fmt;

use obento_base::{DeviceError, Error};
use obento_driver::{CheckObserver, CheckOptions, CheckReport, FieldValue, Finding, RepairMode, Severity};
use obento_prov::{Damage, Entries, Header, Segments};

use crate::finding_paths::{FindingPaths, Stability};
use crate::{Image, OpenError, PartSelector};

/// The reason why a volume was not checked.
#[derive(Debug)]
pub enum CheckError {
    /// The image, or the requested part of it, cannot be opened.
    Open(OpenError),
    /// No driver recognises the volume.
    Unknown,
    /// The driver cannot check the format.
    NotSupported {
        /// The name of the format.
        fs_type: &'static str,
    },
    /// The check failed.
    Failed(Error),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Unknown => f.write_str("no supported file system"),
            Self::NotSupported { fs_type } => write!(f, "{fs_type} cannot be checked"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckError {}

impl From<OpenError> for CheckError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// Checks the file system that `part` of `image` selects, or the only file system of the image. The volume may be too
/// damaged to open. Repairs the findings that `options` selects. Repairs require an image that was opened for change. A
/// finding about a file has the field `path` if the path of the file is found.
///
/// ```no_run
/// use std::sync::Arc;
/// use obento::driver::{CheckOptions, Finding};
/// use obento::{Image, Options, Registry, SystemClock, check};
///
/// let image = Image::open("disk.img".as_ref(), &Registry::default(), &Options::default())?;
/// let mut findings: Vec<Finding> = Vec::new();
/// let report = check(&image, None, &CheckOptions::new(Arc::new(SystemClock)), &mut findings)?;
/// findings.iter().for_each(|finding| println!("{finding}"));
/// println!("{}", if report.is_clean() { "clean" } else { "not clean" });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(
    image: &Image,
    part: Option<&PartSelector>,
    options: &CheckOptions,
    observer: &mut dyn CheckObserver,
) -> Result<CheckReport, CheckError> {
    if options.repair_mode != RepairMode::Nothing && image.access() == obento_driver::Access::ReadOnly {
        return Err(CheckError::Failed(DeviceError::ReadOnly.into()));
    }
    let (device, driver) = image.volume_to_check(part, options)?;
    let driver = driver.ok_or(CheckError::Unknown)?;
    let fs_type = driver.names().first().copied().unwrap_or_default();
    let check = driver.check().ok_or(CheckError::NotSupported { fs_type })?;
    let stability = match options.repair_mode {
        RepairMode::Nothing => Stability::Unchanged,
        RepairMode::Safe | RepairMode::All => Stability::Repaired,
    };
    let open = || image.volume_to_read(part).ok();
    let mut paths = FindingPaths::new(observer, stability, &open);
    let report = check.check(device, options, &mut paths).map_err(CheckError::Failed)?;
    if report.left() == 0 {
        check_history(image, part, observer);
    }
    Ok(report)
}

/// Reports the damage of the log of the provenance layer. The log concerns no other file of the volume, so the damage is a
/// remark. A part that cannot be read was reported by the driver's check.
fn check_history(image: &Image, part: Option<&PartSelector>, observer: &mut dyn CheckObserver) {
    let Ok(volume) = image.volume_to_read(part) else { return };
    let Ok(Some(segments)) = Segments::of(volume.vfs()) else { return };
    for &number in segments.numbers() {
        let mut report = |block: Option<u64>, cause: &dyn fmt::Display| {
            let mut fields = vec![("segment", FieldValue::Number(number.into()))];
            fields.extend(block.map(|block| ("block", FieldValue::Number(block))));
            let text = format!("segment {number} of the provenance log: {cause}");
            let (code, severity) = ("provenance-segment", Severity::Note);
            observer.found(Finding { code, severity, fields, text, repaired: false });
        };
        let bytes = match segments.read(number) {
            Ok(bytes) => bytes,
            Err(error) => {
                report(None, &error);
                continue;
            }
        };
        if let Err(damage) = Header::decode(&bytes) {
            report(Some(0), &damage);
        }
        for damage in Entries::new(&bytes).filter_map(Result::err) {
            let (Damage::Checksum { block } | Damage::Record { block }) = damage else { continue };
            report(Some(block), &damage);
        }
    }
}
