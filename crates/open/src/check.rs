//! Checks the volumes of an image.

use obento_base::{DeviceError, Error};
use obento_driver::{CheckObserver, CheckOptions, CheckReport, RepairMode};

use crate::address::PartSelector;
use crate::finding_paths::{FindingPaths, Stability};
use crate::history_check::check_history;
use crate::{Image, OpenError};

/// The reason why a volume was not checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The image, or the requested part of it, cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// No driver recognises the volume.
    #[error("no supported file system")]
    Unknown,
    /// The driver cannot check the format.
    #[error("{fs_type} cannot be checked")]
    NotSupported {
        /// The name of the format.
        fs_type: &'static str,
    },
    /// The check failed.
    #[error("{0}")]
    Failed(Error),
}

/// Checks the file system that `part` of `image` selects, or the only file system of the image. The volume
/// must not be open for change. The volume may be too damaged to open. Makes the repairs that
/// `options.repair_mode` permits. Repairs require an image that was opened for change. A finding about a file
/// has the field `path` if the path of the file is found.
///
/// If no finding is left, also checks the log of the provenance layer. A damaged segment of the log is a
/// note. A damaged or superfluous index is a finding, and the safe repair removes the index.
///
/// # Errors
///
/// 1. `Failed` with `DeviceError::ReadOnly`: a repair is requested, and the image was opened for reading.
/// 2. `Open`: the image has no such part, or the part cannot be read.
/// 3. `Unknown`: no driver recognises the volume.
/// 4. `NotSupported`: the driver cannot check the format.
/// 5. `Failed`: the error of [`Check::check`](obento_driver::Check::check).
///
/// ```no_run
/// use std::sync::Arc;
/// use obento::driver::{CheckOptions, Finding};
/// use obento::Image;
/// use obento::check::check;
/// use obento::env::SystemClock;
///
/// let image = Image::open("disk.img")?;
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
    let (device, driver, probe) = image.volume_to_check(part, options)?;
    let driver = driver.ok_or(CheckError::Unknown)?;
    let fs_type = driver.names().first().copied().unwrap_or_default();
    let check = driver.check().ok_or(CheckError::NotSupported { fs_type })?;
    let stability = match options.repair_mode {
        RepairMode::Nothing => Stability::Unchanged,
        RepairMode::Safe | RepairMode::All => Stability::Repaired,
    };
    let open = || image.volume_to_read(part).ok();
    let mut paths = FindingPaths::new(observer, stability, &open);
    let options = &CheckOptions { probe, ..options.clone() };
    let mut report = check.check(device, options, &mut paths).map_err(CheckError::Failed)?;
    // A search may have left the volume open, which excludes a repair of the log.
    drop(paths);
    if report.left() == 0 {
        check_history(image, part, options.repair_mode, observer, &mut report);
    }
    Ok(report)
}
