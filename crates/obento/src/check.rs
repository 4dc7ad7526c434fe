//! Checks the volumes of an image.

use std::fmt;

use obento_base::{DeviceError, Error};
use obento_driver::{CheckObserver, CheckOptions, CheckReport, Mending};

use crate::{Image, OpenError, Part};

/// The reason why a volume was not checked.
#[derive(Debug)]
pub enum CheckError {
    /// The image, or the named part, cannot be opened.
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
            Self::Unknown => f.write_str("no file system is recognised there"),
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

/// Checks the file system that `part` of `image` names, or its only one, however damaged it is. Repairs the
/// findings that `options` selects, which requires an image that was opened for change.
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
    part: Option<&Part>,
    options: &CheckOptions,
    observer: &mut dyn CheckObserver,
) -> Result<CheckReport, CheckError> {
    if options.mending != Mending::Nothing && image.access() == obento_driver::Access::ReadOnly {
        return Err(CheckError::Failed(DeviceError::ReadOnly.into()));
    }
    let (device, driver) = image.volume_ground(part, options)?;
    let driver = driver.ok_or(CheckError::Unknown)?;
    let fs_type = driver.names().first().copied().unwrap_or_default();
    let check = driver.check().ok_or(CheckError::NotSupported { fs_type })?;
    check.check(device, options, observer).map_err(CheckError::Failed)
}
