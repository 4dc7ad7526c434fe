//! Changing the settings of an existing volume.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::Error;
use obento_block::BlockDevice;
use obento_env::Clock;

/// The settings to change. All other settings keep their values.
#[derive(Clone)]
pub struct TuneOptions {
    /// The new label. An empty label removes the existing label.
    pub label: Option<Vec<u8>>,
    /// The new UUID.
    pub uuid: Option<[u8; 16]>,
    /// The new serial number, for a format that has a serial number.
    pub serial: Option<u32>,
    /// Settings of the format as names and values.
    pub settings: Vec<(String, String)>,
    /// The clock for times that are written.
    pub clock: Arc<dyn Clock>,
}

impl TuneOptions {
    /// Returns options that change nothing.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { label: None, uuid: None, serial: None, settings: Vec::new(), clock }
    }

    /// Checks that the options change nothing except the label and the serial number, for FAT and exFAT, which have
    /// no other settings.
    ///
    /// # Errors
    ///
    /// - `Refused`: the options contain a UUID. The reason contains `format`, the name of the format.
    /// - `Unavailable`: the options contain another setting.
    pub fn expect_label_and_serial(&self, format: &str) -> Result<(), TuneError> {
        if self.uuid.is_some() {
            let why = format_args!("{format} has a serial number instead, such as 1234-ABCD");
            return Err(TuneError::refused("uuid", why));
        }
        match self.settings.first() {
            Some((name, _)) => {
                Err(TuneError::unavailable(name, format_args!("{format} does not have this setting")))
            }
            None => Ok(()),
        }
    }
}

/// The reason why settings were not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TuneError {
    /// The setting cannot have this value on this volume.
    #[error("{setting}: {why}{}", shown(step))]
    Refused {
        /// The setting.
        setting: String,
        /// The reason. It can contain the value that the user gave.
        why: String,
        /// The next step for the user.
        step: Option<String>,
    },
    /// The format does not have the setting, or the setting cannot be changed on this volume, whatever its value.
    #[error("{setting}: {why}{}", shown(step))]
    Unavailable {
        /// The setting.
        setting: String,
        /// The reason. It can contain the value that the user gave.
        why: String,
        /// The next step for the user.
        step: Option<String>,
    },
    /// The volume is damaged, or the device failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl TuneError {
    /// Returns the error for a setting that is refused.
    pub fn refused(setting: &str, why: impl fmt::Display) -> Self {
        Self::Refused { setting: setting.to_string(), why: why.to_string(), step: None }
    }

    /// Returns the error for a setting that the volume does not have, or that cannot be changed.
    pub fn unavailable(setting: &str, why: impl fmt::Display) -> Self {
        Self::Unavailable { setting: setting.to_string(), why: why.to_string(), step: None }
    }

    /// Sets the next step for the user. Has no effect on [`Failed`](Self::Failed).
    #[must_use]
    pub fn with_step(mut self, next: impl fmt::Display) -> Self {
        if let Self::Refused { step, .. } | Self::Unavailable { step, .. } = &mut self {
            *step = Some(next.to_string());
        }
        self
    }
}

/// Returns the next step as a text that an error appends to its message.
fn shown(step: &Option<String>) -> String {
    step.as_ref().map(|step| format!("; {step}")).unwrap_or_default()
}

/// Changes the settings of a volume that is not open.
pub trait Tune: Send + Sync {
    /// Changes the settings of the volume on `device`. Returns notes for the user. The driver checks all
    /// settings before it writes the first one.
    ///
    /// # Errors
    ///
    /// - `Failed` with `ReadOnly`: the device is read-only. Nothing was changed.
    /// - `Refused`: the value of a setting is not possible on this volume. For example, the options contain a
    ///   UUID, and the driver can change only a serial number, or the reverse. Nothing was changed.
    /// - `Unavailable`: the format does not have the setting, or the setting cannot be changed on this volume, whatever
    ///   its value. Nothing was changed.
    /// - `Failed`: the volume is damaged, the device failed, or the volume has too little free space. After a
    ///   failure of the device or a lack of space, some of the settings may have been changed.
    fn tune(&self, device: Arc<dyn BlockDevice>, options: &TuneOptions) -> Result<Vec<String>, TuneError>;
}
