//! The places of the volume's own metadata, so that no file is read from them.
//!
//! Invariant: memory is bounded. The list is built for volumes of at most [`MAX_LISTED_GROUPS`] groups, and adjacent
//! ranges are merged (a flex group leaves about three ranges). Larger volumes are examined group by group.
//! Source: Linux `fs/ext4/block_validity.c`.

use alloc::vec::Vec;

use obento_base::Result;

use crate::group::GroupDescriptor;
use crate::size::ClusterSize;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// 24 TiB with blocks of 4 KiB. The ranges take at most 9 MiB, and all data about groups during a check or a repair
/// stays within 256 MiB.
pub const MAX_LISTED_GROUPS: u32 = 3 << 16;

/// Ranges of blocks, sorted and disjoint.
#[derive(Clone, Debug, Default)]
pub struct Zones {
    ranges: Vec<Range>,
}

/// Blocks `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Range {
    start: u64,
    end: u64,
}

impl Zones {
    /// Adds `len` blocks from `start` on. Call [`Zones::finish`] after the last one.
    pub fn add(&mut self, start: VolBlock, len: u64) -> Result<()> {
        let range = Range { start: start.0, end: start.0.saturating_add(len) };
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => {
                self.ranges.try_reserve(1)?;
                self.ranges.push(range);
            }
        }
        Ok(())
    }

    /// Adds the backups of the super block and the descriptors in `group`.
    pub fn add_copies(&mut self, sb: &SuperBlock, group: u32) -> Result<()> {
        let (start, len) = sb.copy_blocks(group);
        if len > 0 { self.add(start, len) } else { Ok(()) }
    }

    /// Adds the bitmaps and the inode table of `descriptor` if they are on the volume.
    pub fn add_descriptor(&mut self, sb: &SuperBlock, descriptor: &GroupDescriptor) -> Result<()> {
        let table = u64::from(sb.inode_table_blocks());
        for (start, len) in
            [(descriptor.block_bitmap, 1), (descriptor.inode_bitmap, 1), (descriptor.inode_table, table)]
        {
            if sb.holds_blocks(start, len) {
                self.add(start, len)?;
            }
        }
        Ok(())
    }

    /// Sorts and merges the ranges.
    pub fn finish(&mut self) {
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
            }
            touches
        });
        self.ranges.shrink_to_fit();
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of clusters of this size that contain metadata.
    pub fn clusters(&self, size: ClusterSize) -> u64 {
        let cluster = |block: u64| size.whole(block);
        let mut next_free = 0;
        let mut count = 0_u64;
        for range in &self.ranges {
            let first = cluster(range.start).max(next_free);
            let end = cluster(range.end.saturating_sub(1)).saturating_add(1);
            count = count.saturating_add(end.saturating_sub(first));
            next_free = next_free.max(end);
        }
        count
    }

    /// Returns whether any of the `len` blocks from `start` on is metadata.
    pub fn overlap(&self, start: VolBlock, len: u64) -> bool {
        let end = start.0.saturating_add(len);
        let after = self.ranges.partition_point(|range| range.end <= start.0);
        self.ranges.get(after).is_some_and(|range| range.start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_ranges_merge_and_are_found_by_any_overlap() {
        let mut zones = Zones::default();
        for (start, len) in [(10, 2), (12, 1), (40, 5), (5, 5), (42, 1)] {
            zones.add(VolBlock(start), len).unwrap();
        }
        zones.finish();
        assert_eq!(zones.ranges, [Range { start: 5, end: 13 }, Range { start: 40, end: 45 }]);
        let overlap = |start, len| zones.overlap(VolBlock(start), len);
        assert_eq!(
            [overlap(0, 5), overlap(0, 6), overlap(13, 27), overlap(13, 28)],
            [false, true, false, true]
        );
        assert!(overlap(44, 1) && !overlap(45, u64::MAX));
    }
}
