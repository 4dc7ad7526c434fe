//! Applying the edits that repair issues.
//!
//! Edits are made to sectors in memory, which are written when all edits are applied: directories and the FAT first,
//! then the bitmap. After an interruption, the next run repairs the rest. Sectors of the bitmap all bits of which get the
//! same value take no memory.

use alloc::collections::btree_map::Entry;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_clusters::sectors::{self, Sectors};
use obento_clusters::{Piece, Run};

use super::View;
use super::bitmap::place_of;
use super::edit::Edit;
use crate::table::place;

/// Maximum number of bytes that are filled by one write.
const FILL: u64 = 256 << 10;

/// Changes of a volume that are not written yet.
#[derive(Default)]
struct Pending {
    sectors: Sectors,
    /// Ranges of whole sectors that get the same byte everywhere. No edited sector is in them.
    filled: Vec<(Range<u64>, u8)>,
}

/// Applies all edits. Fails with `NoMemory`, or if the device fails.
pub fn apply<'e>(view: &View, edits: impl Iterator<Item = &'e Edit>) -> Result<()> {
    let (mut first, mut bitmap) = (Pending::default(), Pending::default());
    for edit in edits {
        match edit {
            Edit::Write(offset, bytes) => {
                let mut done = 0;
                while done < bytes.len() {
                    let at = offset.saturating_add(to_u64(done));
                    let (sector, within) = hold(view, &mut first.sectors, at)?;
                    let rest = bytes.get(done..).unwrap_or_default();
                    let target = sector.get_mut(within..).unwrap_or_default();
                    let len = target.len().min(rest.len()).max(1);
                    target.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                    done = done.saturating_add(len);
                }
            }
            Edit::Link(cluster, value) => {
                let (sector, within) = hold(view, &mut first.sectors, place(&view.sb, *cluster))?;
                let target = sector.get_mut(within..).unwrap_or_default();
                target.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
            }
            Edit::Mark(start, len, in_use) => mark(view, &view.bitmap, (*start, *len), *in_use, &mut bitmap)?,
            Edit::MarkNew { bitmap: (start, count), first: cluster, len, in_use } => {
                let run = Run { at: 0, start: *start, len: *count };
                mark(view, &[run], (*cluster, *len), *in_use, &mut first)?;
            }
        }
    }
    for pending in [&first, &bitmap] {
        for (range, byte) in &pending.filled {
            fill(view, range.clone(), *byte)?;
        }
        sectors::write(&view.cache, 0, &pending.sectors)?;
        view.device().flush()?;
        pending.sectors.keys().for_each(|&number| view.cache.forget(number));
    }
    Ok(())
}

/// Changes the bits of contiguous clusters in the bitmap in `runs`.
fn mark(view: &View, runs: &[Run], clusters: Piece, in_use: bool, to: &mut Pending) -> Result<()> {
    let size = u64::from(view.sb.sector_size);
    let mut bit = u64::from(clusters.0.0.saturating_sub(2));
    let end = bit.saturating_add(clusters.1.into());
    while bit < end {
        let Some((at, left)) = place_of(view, runs, bit >> 3) else { break };
        let whole = left.min(end.saturating_sub(bit) >> 3);
        let whole = whole.saturating_sub(whole.checked_rem(size).unwrap_or(0));
        if whole > 0 && bit & 7 == 0 && at.is_multiple_of(size) {
            to.filled.push((at..at.saturating_add(whole), if in_use { u8::MAX } else { 0 }));
            bit = bit.saturating_add(whole.saturating_mul(8));
            continue;
        }
        let (sector, within) = hold(view, &mut to.sectors, at)?;
        for byte in sector.iter_mut().skip(within) {
            for mask in (bit & 7..8).map(|bit| 1_u8 << bit) {
                if bit >= end {
                    return Ok(());
                }
                *byte = if in_use { *byte | mask } else { *byte & !mask };
                bit = bit.saturating_add(1);
            }
        }
    }
    Ok(())
}

/// Fills whole sectors of the device.
fn fill(view: &View, range: Range<u64>, byte: u8) -> Result<()> {
    let size = u64::from(view.sb.sector_size).max(1);
    if byte == 0 {
        sectors::clear(&**view.device(), range.clone())?;
    } else {
        let bytes = vec![byte; to_usize(range.end.saturating_sub(range.start).min(FILL))];
        for start in range.clone().step_by(to_usize(FILL)) {
            let len = to_usize(range.end.saturating_sub(start));
            view.device().write_at(start, bytes.get(..len).unwrap_or(&bytes))?;
        }
    }
    range.step_by(to_usize(size)).for_each(|at| view.cache.forget(at.checked_div(size).unwrap_or(0)));
    Ok(())
}

/// Returns the edited sector that contains `offset`, and the offset in it.
fn hold<'s>(view: &View, sectors: &'s mut Sectors, offset: u64) -> Result<(&'s mut Vec<u8>, usize)> {
    let size = u64::from(view.sb.sector_size);
    let number = offset.checked_div(size).unwrap_or(0);
    let within = to_usize(offset.checked_rem(size).unwrap_or(0));
    let sector = match sectors.entry(number) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(free) => free.insert(view.cache.get(number)?.to_vec()),
    };
    Ok((sector, within))
}
