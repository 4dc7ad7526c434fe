//! Common steps of creating volumes: a serial number, and erasing previous contents.

use obento_block::BlockDevice;
use obento_driver::{Contents, FormatError, FormatOptions};

use crate::sectors::zero;

/// Returns a random serial number.
pub fn random_serial(options: &FormatOptions) -> u32 {
    let mut bytes = [0; 4];
    options.random.fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// Zeroes the bytes up to `start` first, since they may identify a previous format, and then the bytes up to `end`
/// that are not zero. Fails if the device fails.
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
        Contents::Preserved => false,
    };
    if !is_zeros {
        zero(device, start..end)?;
    }
    Ok(())
}
