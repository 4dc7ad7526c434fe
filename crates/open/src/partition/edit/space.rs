//! Finds free space for partitions.

use std::ops::Range;

use super::EditError;
use crate::partition::{ALIGNMENT, Partition};

/// The requested position of a partition. The editor chooses a value that is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// The first byte. The default is the first aligned byte of the first sufficient gap.
    pub start: Option<u64>,
    /// The length in bytes, which is rounded up to sectors. By default, the partition extends to the end of
    /// the gap that contains `start`. Without `start`, the partition fills the largest gap. Such an end is
    /// rounded down to a multiple of [`ALIGNMENT`], or to sectors in a small gap.
    pub len: Option<u64>,
}

/// Returns the parts of `usable` that no range of `used` touches.
pub fn gaps(usable: Range<u64>, used: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut used: Vec<_> = used.into_iter().collect();
    used.sort_by_key(|range| range.start);
    let (mut free, mut at) = (Vec::new(), usable.start);
    for range in used {
        let end = range.start.min(usable.end);
        if end > at {
            free.push(at..end);
        }
        at = at.max(range.end);
    }
    if usable.end > at {
        free.push(at..usable.end);
    }
    free
}

impl Placement {
    /// Chooses the range of a partition in `gaps`. Each gap needs `lead` bytes before the partition.
    ///
    /// # Errors
    ///
    /// 1. `Unaligned`: the length cannot be rounded up to sectors.
    /// 2. `NoSpace`: no gap is large enough.
    ///
    /// If `start` is given, the method does not check the range. The caller must check it.
    pub(super) fn choose(
        self,
        gaps: &[Range<u64>],
        lead: u64,
        sector_size: u64,
    ) -> Result<Range<u64>, EditError> {
        let starts = gaps.iter().map(|gap| {
            let start = gap.start.saturating_add(lead).checked_next_multiple_of(ALIGNMENT);
            start.unwrap_or(u64::MAX)..gap.end
        });
        let room = |gap: &Range<u64>| gap.end.saturating_sub(gap.start);
        let largest = || starts.clone().max_by_key(room).filter(|gap| room(gap) > 0);
        let no_space = || EditError::NoSpace { largest: largest().map_or(0, |gap| room(&gap)) };
        let len = match self.len {
            Some(len) => Some(
                len.max(1)
                    .checked_next_multiple_of(sector_size)
                    .ok_or(EditError::Unaligned { sector_size })?,
            ),
            None => None,
        };
        match (self.start, len) {
            (Some(start), Some(len)) => Ok(start..start.saturating_add(len)),
            (Some(start), None) => {
                // Without a gap at the start, the check of the range reports the reason.
                let end = start.saturating_add(sector_size);
                let gap = gaps.iter().find(|gap| gap.contains(&start));
                Ok(start..gap.map_or(end, |gap| rounded_end(start, gap.end, sector_size)))
            }
            (None, Some(len)) => {
                let gap = starts.clone().find(|gap| room(gap) >= len).ok_or_else(no_space)?;
                Ok(gap.start..gap.start.saturating_add(len))
            }
            (None, None) => {
                let gap = largest().ok_or_else(no_space)?;
                Ok(gap.start..rounded_end(gap.start, gap.end, sector_size))
            }
        }
    }
}

/// Returns the end of a partition that fills the rest of a gap: the end of the gap, rounded down to a
/// multiple of [`ALIGNMENT`]. If the partition would then be empty, rounds down to a sector instead.
fn rounded_end(start: u64, end: u64, sector_size: u64) -> u64 {
    let down = |to: u64| end.saturating_sub(end.checked_rem(to).unwrap_or(0));
    let aligned = down(ALIGNMENT);
    if aligned > start { aligned } else { down(sector_size) }
}

/// Returns the number of a partition that `range` overlaps.
pub(super) fn overlapped<'p>(
    range: &Range<u64>,
    partitions: impl IntoIterator<Item = &'p Partition>,
) -> Option<u32> {
    let mut partitions = partitions.into_iter();
    let hit = partitions.find(|other| other.start < range.end && range.start < other.end());
    hit.map(|other| other.number)
}
