//! Common steps of creating volumes: a serial number, and erasing previous contents.

use obento_block::BlockDevice;
use obento_driver::{Contents, FormatError, FormatOptions, erase_signatures};

use crate::sectors::zero;

/// Returns a random serial number.
pub fn random_serial(options: &FormatOptions) -> u32 {
    let mut bytes = [0; 4];
    options.random.fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// Erases the signatures of previous contents, zeroes the bytes up to `start`, and then the bytes up to `end` that are
/// not zero. Discards the `len` bytes of the volume. The bytes after the requested length stay. Fails if the device
/// fails.
pub fn clear(
    device: &dyn BlockDevice,
    (start, end): (u64, u64),
    len: u64,
    options: &FormatOptions,
) -> Result<(), FormatError> {
    erase_signatures(device, options.length_on(device.len())?, options.contents)?;
    zero(device, 0..start)?;
    device.flush()?;
    let is_zeros = match options.contents {
        Contents::Zeros => true,
        Contents::Unknown => device.punch(0..len.min(device.len()))?,
        Contents::Preserved => false,
    };
    if !is_zeros {
        zero(device, start..end)?;
    }
    Ok(())
}
