//! What making a volume has in common, whatever the format: what is asked for is understood one by one, and what was there goes.

use alloc::string::ToString as _;

use obento_block::BlockDevice;
use obento_driver::{Allowed, Contents, FormatError, FormatOptions, Setting};

use crate::sectors::zero;

/// `set` understands each of `options`' settings, which are among `known`, and answers `None` for a value that cannot be. Errors,
/// the first that holds: UnknownFeature, since the formats have none; UnknownSetting; BadValue.
pub fn each_setting(
    options: &FormatOptions,
    known: &'static [Setting],
    mut set: impl FnMut(&Setting, &str) -> Option<()>,
) -> Result<(), FormatError> {
    if let Some(name) = options.features.first() {
        return Err(FormatError::UnknownFeature { name: name.clone() });
    }
    for (name, value) in &options.settings {
        let setting = known.iter().find(|setting| setting.name == name);
        let setting = setting.ok_or_else(|| FormatError::UnknownSetting { name: name.clone() })?;
        set(setting, value).ok_or_else(|| bad(setting.name, value, setting.takes))?;
    }
    Ok(())
}

/// That a value cannot be.
pub fn bad(name: &'static str, value: &str, allowed: Allowed) -> FormatError {
    FormatError::BadValue { name, value: value.to_string(), allowed }
}

/// A serial number by chance.
pub fn random_serial(options: &FormatOptions) -> u32 {
    let mut bytes = [0; 4];
    options.random.fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// The length of the volume. Errors: PastDevice.
pub fn length(device_len: u64, options: &FormatOptions) -> Result<u64, FormatError> {
    match options.len.unwrap_or(device_len) {
        len if len > device_len => Err(FormatError::PastDevice { len, device_len }),
        len => Ok(len),
    }
}

/// Makes zeros of the first bytes up to `start`, by which something may be recognised there, before all else, and of those up to
/// `end`, unless they are that. Errors: those of the device.
pub fn clear(
    device: &dyn BlockDevice,
    (start, end): (u64, u64),
    contents: Contents,
) -> Result<(), FormatError> {
    zero(device, 0..start)?;
    device.flush()?;
    let is_zeros = match contents {
        Contents::Zeros => true,
        Contents::Unknown => device.punch(0..device.len())?,
        Contents::Kept => false,
    };
    if !is_zeros {
        zero(device, start..end)?;
    }
    Ok(())
}
