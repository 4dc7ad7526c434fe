//! Changes the settings of the volumes of an image.

use obento_base::{DeviceError, Error};
use obento_driver::{Access, TuneError, TuneOptions};

use crate::address::PartSelector;
use crate::{Image, OpenError};

/// The reason why settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum TuneFailure {
    /// The image, or the requested part of it, cannot be opened.
    #[error("{0}")]
    Open(OpenError),
    /// No driver recognises the volume. The text describes its contents.
    #[error("no supported file system; the data looks like {0}")]
    Unknown(String),
    /// The driver cannot change settings of the format.
    #[error("obento does not change the settings of {fs_type} volumes")]
    NotSupported {
        /// The name of the format.
        fs_type: &'static str,
    },
    /// The setting was refused, or the change failed.
    #[error("{0}")]
    Tune(TuneError),
}

/// Changes settings of the file system that `part` of `image` selects, or of the only file system. The image must be
/// open for change, and the volume must not be open. Returns notes for the user.
///
/// # Errors
///
/// 1. `Tune` with `DeviceError::ReadOnly`: the image was opened for reading.
/// 2. `Open`: the image has no such part, or the part cannot be read.
/// 3. `Unknown`: no driver recognises the volume.
/// 4. `NotSupported`: the driver cannot change settings of the format.
/// 5. `Tune`: the error of [`Tune::tune`](obento_driver::Tune::tune).
///
/// ```no_run
/// use std::sync::Arc;
/// use obento::Image;
/// use obento::driver::TuneOptions;
/// use obento::env::SystemClock;
/// use obento::tune::tune;
///
/// let image = Image::builder().for_change().open("disk.img")?;
/// let options = TuneOptions { label: Some(b"data".to_vec()), ..TuneOptions::new(Arc::new(SystemClock)) };
/// tune(&image, None, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tune(
    image: &Image,
    part: Option<&PartSelector>,
    options: &TuneOptions,
) -> Result<Vec<String>, TuneFailure> {
    if image.access() == Access::ReadOnly {
        return Err(TuneFailure::Tune(Error::from(DeviceError::ReadOnly).into()));
    }
    let (device, choice) = image.volume_bytes(part).map_err(TuneFailure::Open)?;
    let Some(probe) = choice.probe() else { return Err(TuneFailure::Unknown(choice.holds.to_string())) };
    let unsupported = TuneFailure::NotSupported { fs_type: probe.fs_type };
    let driver = image.registry().find(probe.fs_type);
    let Some(driver) = driver.and_then(|driver| driver.tune()) else { return Err(unsupported) };
    driver.tune(device, options).map_err(TuneFailure::Tune)
}
