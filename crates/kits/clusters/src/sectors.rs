//! Writing sectors to the device.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::{BlockDevice, Cache};

use crate::portions::skip_zeros;
use crate::unit::Slot;

/// Maximum size of a write that combines sectors.
const MAX_WRITE: usize = 256 << 10;
/// Size of the pages in which a file of the host has holes.
const PAGE: u64 = 4 << 10;
/// Minimum size of a range that is punched instead of written.
const PUNCHED: u64 = 16 << 20;
/// Zeros to write.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The contents of sectors by their numbers.
pub type Sectors = BTreeMap<u64, Vec<u8>>;

/// Returns the current contents of sectors, including changes in memory that are not written yet. Fails if
/// the device fails.
pub fn current(cache: &Cache, numbers: impl Iterator<Item = u64>) -> Result<Sectors> {
    let mut sectors = Sectors::new();
    // Collecting would sort first, which needs 4 KiB of stack.
    for number in numbers {
        sectors.insert(number, cache.get(number)?.to_vec());
    }
    Ok(sectors)
}

/// Returns a copy. Cloning the map would recurse, and needs more code.
pub fn copy(sectors: &Sectors) -> Sectors {
    let mut copy = Sectors::new();
    copy.extend(sectors.iter().map(|(&number, bytes)| (number, bytes.clone())));
    copy
}

/// Writes sectors to the device, each `distance` bytes after its own location. Combines adjacent sectors into
/// one write. Fails if the device fails.
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
pub fn with_entries<'e>(
    mut sectors: Sectors,
    size: u64,
    shown: impl Iterator<Item = (Slot, &'e [u8])>,
) -> Sectors {
    for (slot, bytes) in shown {
        let number = slot.offset().checked_div(size).unwrap_or(0);
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        let target = sectors.get_mut(&number).and_then(|sector| sector.get_mut(within..));
        target.unwrap_or_default().iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
    sectors
}

/// Makes `range` of the device read as zeros. Writes neither bytes that are known to be zeros, nor long
/// ranges that the device can punch. Fails if the device fails.
pub fn clear(device: &dyn BlockDevice, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        at = skip_zeros(device, at..range.end, 1);
        if range.end.saturating_sub(at) >= PUNCHED && device.punch(at..range.end)? {
            return Ok(());
        }
        // Only a part of the first page may be in use.
        let page = at.checked_next_multiple_of(PAGE).filter(|&end| end > at);
        let end = page.unwrap_or(at.saturating_add(to_u64(MAX_WRITE))).min(range.end);
        zero(device, at..end)?;
        at = end;
    }
    Ok(())
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
