//! The clusters that a FAT does not describe as free.

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_clusters::{Bits, Entry, Portions};

use super::{COUNTED_32, decode, last, place};
use crate::super_block::{SuperBlock, Width};
use crate::unit::Cluster;

/// Returns the clusters that a copy of the FAT does not describe as free. Parts that cannot be read count as used; the
/// first error is returned too. Holes of the image take neither time nor memory. Fails with `NoMemory`.
pub fn used(device: &dyn BlockDevice, sb: &SuperBlock, copy: u8) -> Result<(Bits, Option<Error>)> {
    let (mut used, mut failed) = (Bits::default(), None);
    let start = sb.fat_offset(copy);
    let len = sb.width.table_len(sb.clusters).min(sb.fat_len);
    let mut portions = Portions::new(device, start..start.saturating_add(len));
    let mut bits = Vec::new();
    while let Some((range, bytes)) = portions.next_portion() {
        let within = range.start.saturating_sub(start);
        // A FAT of 12 bits is one portion, unless it begins in a hole.
        let first = within.saturating_mul(8).checked_div(sb.width.bits().into()).unwrap_or(0);
        let first = Cluster(u32::try_from(first).unwrap_or(u32::MAX));
        match bytes {
            Ok(bytes) => {
                bits.clear();
                used_among(sb.width, within, first, bytes, &mut bits);
                used.load(first, &bits)?;
            }
            Err(error) => {
                failed = failed.or(Some(error));
                let bytes = range.end.saturating_sub(range.start);
                let count = bytes.saturating_mul(8).div_ceil(sb.width.bits().into());
                used.set_run(first, u32::try_from(count).unwrap_or(u32::MAX))?;
            }
        }
    }
    used.unset_run(Cluster(0), 2)?;
    Ok((used, failed))
}

/// Returns the FAT with the fewest impossible entries, and their number. Of equal FATs, returns the one that is read. If a
/// volume has an active FAT, the others are not compared.
pub fn best_copy(device: &dyn BlockDevice, sb: &SuperBlock) -> (u8, u64) {
    let read = sb.read_fat();
    let mut best = (read, faults(device, sb, read));
    let others = if sb.active_fat.is_some() { 0 } else { sb.fats };
    for copy in (0..others).filter(|&copy| copy != read) {
        if best.1 == 0 {
            break;
        }
        let faults = faults(device, sb, copy);
        if faults < best.1 {
            best = (copy, faults);
        }
    }
    best
}

/// Returns the number of impossible and of unreadable entries of a FAT.
fn faults(device: &dyn BlockDevice, sb: &SuperBlock, copy: u8) -> u64 {
    let start = sb.fat_offset(copy);
    let len = sb.width.table_len(sb.clusters).min(sb.fat_len);
    let bits = u64::from(sb.width.bits());
    let mut portions = Portions::new(device, start..start.saturating_add(len));
    let mut faults = 0_u64;
    let mut is_started = false;
    while let Some((range, bytes)) = portions.next_portion() {
        let within = range.start.saturating_sub(start);
        is_started |= within == 0;
        let found = match bytes {
            Ok(bytes) => faults_among(sb, within, bytes),
            Err(_) => range.end.saturating_sub(range.start).saturating_mul(8).div_ceil(bits),
        };
        faults = faults.saturating_add(found);
    }
    // The first entry is never zero.
    faults.saturating_add(u64::from(!is_started))
}

/// Returns the number of impossible entries among the bytes of the FAT from `within` on.
fn faults_among(sb: &SuperBlock, within: u64, bytes: &[u8]) -> u64 {
    let first = within.saturating_mul(8).div_ceil(sb.width.bits().into());
    let entries = (u32::try_from(first).unwrap_or(u32::MAX)..sb.clusters.saturating_add(2)).map(Cluster);
    let value = |cluster: Cluster| {
        let (at, shift) = place(sb.width, cluster);
        let rest = bytes.get(to_usize(at.checked_sub(within)?)..)?;
        let len = if sb.width == Width::Fat32 { 4 } else { 2 };
        let bytes = rest.get(..len)?;
        let value = bytes.iter().rev().fold(0, |value: u32, byte| value << 8 | u32::from(*byte));
        Some(value >> shift & last(sb.width))
    };
    let is_fault = |cluster: Cluster, value: u32| match cluster.0 {
        // The low byte is that of the media type.
        0 => value | 0xff != last(sb.width),
        1 => false,
        _ => matches!(decode(value, sb), Entry::Invalid(_)),
    };
    let values = entries.map_while(|cluster| Some((cluster, value(cluster)?)));
    to_u64(values.filter(|&(cluster, value)| is_fault(cluster, value)).count())
}

/// Appends a bit for each entry from `first` on to `bits`, set if the entry is used. `bytes` are the bytes of the FAT from
/// `within` on.
pub fn used_among(width: Width, within: u64, first: Cluster, bytes: &[u8], bits: &mut Vec<u8>) {
    let packed = |flags: &mut dyn Iterator<Item = bool>| {
        (0..8).zip(flags).fold(0_u8, |byte, (bit, is_used)| byte | u8::from(is_used) << bit)
    };
    match width {
        Width::Fat12 => {
            let end = within.saturating_add(to_u64(bytes.len()));
            // Bytes before the portion are in a hole.
            let byte = |at: u64| {
                let byte = at.checked_sub(within).and_then(|at| bytes.get(to_usize(at)));
                byte.map_or(0, |&byte| u32::from(byte))
            };
            let entries = (first.0..).map(|cluster| place(width, Cluster(cluster)));
            let entries = entries
                .take_while(|(at, _)| *at < end)
                .map(|(at, shift)| (byte(at) | byte(at.saturating_add(1)) << 8) >> shift & 0xfff != 0);
            let mut entries = entries.peekable();
            while entries.peek().is_some() {
                bits.push(packed(&mut entries));
            }
        }
        Width::Fat16 => {
            let entries = bytes.as_chunks::<2>().0.chunks(8);
            bits.extend(entries.map(|eight| packed(&mut eight.iter().map(|&entry| entry != [0; 2]))));
        }
        Width::Fat32 => {
            let entries = bytes.as_chunks::<4>().0.chunks(8);
            let is_used = |entry: &[u8; 4]| u32::from_le_bytes(*entry) & COUNTED_32 != 0;
            bits.extend(entries.map(|eight| packed(&mut eight.iter().map(is_used))));
        }
    }
}
