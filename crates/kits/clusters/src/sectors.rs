//! Writing sectors to the device.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::{BlockDevice, Cache};

use crate::unit::Slot;

/// Maximum size of a write that combines sectors.
const MAX_WRITE: usize = 256 << 10;
/// Zeros to write.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The contents of sectors by their numbers.
pub type Sectors = BTreeMap<u64, Vec<u8>>;

/// Returns the contents of sectors as they are in memory. Fails if the device fails.
pub fn current(cache: &Cache, numbers: impl Iterator<Item = u64>) -> Result<Sectors> {
    numbers.map(|number| Ok((number, cache.get(number)?.to_vec()))).collect()
}

/// Writes sectors `distance` bytes after their places, and adjacent sectors together. Fails if the device fails.
pub fn write(cache: &Cache, distance: u64, sectors: &Sectors) -> Result<()> {
    let (device, size) = (cache.device(), u64::from(cache.block_size()));
    let mut gathered: Vec<u8> = Vec::new();
    let mut start = 0_u64;
    for (&number, bytes) in sectors {
        let offset = number.saturating_mul(size).saturating_add(distance);
        let end = start.saturating_add(to_u64(gathered.len()));
        if !gathered.is_empty() && (end != offset || gathered.len() >= MAX_WRITE) {
            device.write_at(start, &gathered)?;
            gathered.clear();
        }
        if gathered.is_empty() {
            start = offset;
        }
        gathered.extend_from_slice(bytes);
    }
    if gathered.is_empty() { Ok(()) } else { device.write_at(start, &gathered) }
}

/// Returns sectors of `size` bytes in which the directory entries of `shown` replace the current ones.
pub fn with_entries(mut sectors: Sectors, size: u64, shown: &BTreeMap<Slot, [u8; 32]>) -> Sectors {
    for (slot, bytes) in shown {
        let number = slot.offset().checked_div(size).unwrap_or(0);
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        let target = sectors.get_mut(&number).and_then(|sector| sector.get_mut(within..));
        target.unwrap_or_default().iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
    sectors
}

/// Writes zeros to `range` of the device. Fails if the device fails.
pub fn zero(device: &dyn BlockDevice, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let len = range.end.saturating_sub(at).min(to_u64(ZEROS.len()));
        device.write_at(at, ZEROS.get(..to_usize(len)).unwrap_or_default())?;
        at = at.saturating_add(len);
    }
    Ok(())
}
