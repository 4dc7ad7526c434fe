//! Extents as values, and the only change of a sorted list of them: replacing the mappings of a range.
//!
//! Invariant: a list is sorted by file block, and its mappings are disjoint. Each mapping, except new ones that are
//! passed in, has a length that one extent can have.
//! Source: Linux `fs/ext4/extents.c` `ext4_can_extents_be_merged`, `fs/ext4/ext4_extents.h`.
#![allow(clippy::arithmetic_side_effects, reason = "blocks of files have 32 bits")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;

use crate::unit::VolBlock;

/// `EXT_INIT_MAX_LEN`.
pub(crate) const MAX_WRITTEN: u32 = 32768;
/// `EXT_UNWRITTEN_MAX_LEN`.
pub(crate) const MAX_UNWRITTEN: u32 = 32767;

/// Whether the blocks of an extent contain the file's data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ExtentState {
    /// They do.
    Written,
    /// They have arbitrary contents, and read as zeros.
    Unwritten,
}

/// A run of file blocks on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Mapping {
    /// First file block.
    pub start: u32,
    /// Number of blocks.
    pub len: u32,
    /// The first volume block.
    pub place: VolBlock,
    pub state: ExtentState,
}

impl Mapping {
    /// Returns the file blocks of the mapping.
    pub fn range(&self) -> Range<u64> {
        let start = u64::from(self.start);
        start..start + u64::from(self.len)
    }

    pub fn end(&self) -> u64 {
        self.range().end
    }

    /// Returns the part of the mapping in `range`.
    pub fn within(&self, range: &Range<u64>) -> Option<Self> {
        let start = self.range().start.max(range.start);
        let len = u32::try_from(self.end().min(range.end).checked_sub(start)?).ok().filter(|&len| len > 0)?;
        let skip = start.checked_sub(self.start.into())?;
        let place = self.place.checked_add(skip)?;
        Some(Self { start: u32::try_from(start).ok()?, len, place, state: self.state })
    }

    /// Returns whether `next` follows directly in the file and on the volume.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.state == next.state
            && self.end() == u64::from(next.start)
            && self.place.checked_add(self.len.into()) == Some(next.place)
    }

    fn max_len(&self) -> u32 {
        match self.state {
            ExtentState::Written => MAX_WRITTEN,
            ExtentState::Unwritten => MAX_UNWRITTEN,
        }
    }
}

/// Appends `next` to `list`: extends the last mapping up to the maximum length, and adds the rest as new mappings.
pub(crate) fn push(list: &mut Vec<Mapping>, next: Mapping) -> Result<()> {
    let mut rest = Some(next);
    while let Some(next) = rest {
        let most = next.max_len();
        let take = match list.last_mut() {
            Some(last) if last.is_followed_by(&next) && last.len < most => {
                let take = most.saturating_sub(last.len).min(next.len);
                last.len += take;
                take
            }
            _ => {
                let take = most.min(next.len);
                list.try_reserve(1)?;
                list.push(Mapping { len: take, ..next });
                take
            }
        };
        let left = next.range().start + u64::from(take)..next.end();
        rest = next.within(&left);
    }
    Ok(())
}

/// Replaces the mappings of `range` in `list` by `new`, which is within it and sorted, and adds the old ones to
/// `removed`. Adjacent mappings at the boundaries are merged.
pub(crate) fn splice(
    list: &[Mapping],
    range: &Range<u64>,
    new: &[Mapping],
    removed: &mut Vec<Mapping>,
) -> Result<Vec<Mapping>> {
    let before = list.partition_point(|mapping| mapping.end() <= range.start);
    let after = list.partition_point(|mapping| u64::from(mapping.start) < range.end).max(before);
    let (kept, touched) =
        (list.get(..before).unwrap_or_default(), list.get(before..after).unwrap_or_default());
    let mut out = Vec::new();
    out.try_reserve_exact(list.len() + new.len() + 2)?;
    out.extend_from_slice(kept);
    removed.try_reserve(touched.len())?;
    removed.extend(touched.iter().filter_map(|mapping| mapping.within(range)));
    let left = touched.first().and_then(|mapping| mapping.within(&(0..range.start)));
    let right = touched.last().and_then(|mapping| mapping.within(&(range.end..u64::MAX)));
    for mapping in left.iter().chain(new).chain(&right) {
        push(&mut out, *mapping)?;
    }
    let mut rest = list.get(after..).unwrap_or_default();
    if let Some((first, others)) = rest.split_first().filter(|_| right.is_none() && !new.is_empty()) {
        push(&mut out, *first)?;
        rest = others;
    }
    out.try_reserve(rest.len())?;
    out.extend_from_slice(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(start: u32, len: u32, place: u64) -> Mapping {
        Mapping { start, len, place: VolBlock(place), state: ExtentState::Written }
    }

    fn unwritten(start: u32, len: u32, place: u64) -> Mapping {
        Mapping { state: ExtentState::Unwritten, ..written(start, len, place) }
    }

    fn replace(list: &[Mapping], range: Range<u64>, new: &[Mapping]) -> (Vec<Mapping>, Vec<Mapping>) {
        let mut removed = Vec::new();
        (splice(list, &range, new, &mut removed).unwrap(), removed)
    }

    #[test]
    fn an_append_grows_the_last_extent_up_to_the_format_s_length() {
        let (list, _) = replace(&[written(0, 8, 100)], 8..9, &[written(8, 1, 108)]);
        assert_eq!(list, [written(0, 9, 100)]);
        let (list, _) = replace(&[written(0, 32767, 100)], 32767..32770, &[written(32767, 3, 32867)]);
        assert_eq!(list, [written(0, 32768, 100), written(32768, 2, 32868)]);
    }

    #[test]
    fn converting_the_middle_of_an_unwritten_extent_makes_three() {
        let (list, removed) = replace(&[unwritten(0, 10, 50)], 3..5, &[written(3, 2, 53)]);
        assert_eq!(list, [unwritten(0, 3, 50), written(3, 2, 53), unwritten(5, 5, 55)]);
        assert_eq!(removed, [unwritten(3, 2, 53)]);
        let (list, _) = replace(&list, 0..3, &[written(0, 3, 50)]);
        assert_eq!(list, [written(0, 5, 50), unwritten(5, 5, 55)]);
        let (list, _) = replace(&list, 5..10, &[written(5, 5, 55)]);
        assert_eq!(list, [written(0, 10, 50)]);
    }

    #[test]
    fn a_hole_in_the_middle_leaves_both_ends() {
        let (list, removed) = replace(&[written(2, 10, 50), written(20, 4, 90)], 4..22, &[]);
        assert_eq!(list, [written(2, 2, 50), written(22, 2, 92)]);
        assert_eq!(removed, [written(4, 8, 52), written(20, 2, 90)]);
    }

    #[test]
    fn a_filled_gap_joins_both_neighbours() {
        let (list, _) = replace(&[written(0, 4, 10), written(5, 4, 15)], 4..5, &[written(4, 1, 14)]);
        assert_eq!(list, [written(0, 9, 10)]);
    }
}
