//! What making a volume has in common, whatever the format: a serial number, and what was there goes.

use obento_block::BlockDevice;
use obento_driver::{Contents, FormatError, FormatOptions};

use crate::sectors::zero;

/// Returns a serial number by chance.
pub fn random_serial(options: &FormatOptions) -> u32 {
    let mut bytes = [0; 4];
    options.random.fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// Makes zeros of the first bytes up to `start`, by which something may be recognised there, before all else, and of
/// those up to `end`, unless they are that. Fails if the device fails.
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
