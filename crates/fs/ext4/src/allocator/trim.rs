//! Discarding free blocks.
//!
//! Invariant: a discarded block is durably free and not allocated meanwhile: it is held like a reservation during the
//! discard.
//! Source: Linux `fs/ext4/mballoc.c` `ext4_trim_fs`, which takes the run in its buddy bitmap instead.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits groups, clusters and blocks")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::whole_units;

use super::{Allocator, bits, count};

impl Allocator {
    /// Discards every free run of at least `min_len` bytes in these bytes of the device, and returns the number of
    /// bytes. The free blocks of a group are not available while the group is processed. Fails with `Corrupt` for
    /// damaged groups after processing all others, or if the device fails.
    pub fn trim(&self, within: &Range<u64>, min_len: u64) -> Result<u64> {
        let (mut bytes, mut damage) = (0_u64, Ok(()));
        for index in 0..self.super_block().groups {
            let group = self.bytes_of(index, &(0..self.super_block().group_clusters(index)));
            if group.end <= within.start || within.end <= group.start {
                continue;
            }
            match self.trim_group(index, within, min_len) {
                Ok(more) => bytes += more,
                Err(error @ Error::Corrupt(_)) => damage = damage.and(Err(error)),
                Err(error) => return Err(error),
            }
        }
        damage.map(|()| bytes)
    }

    fn trim_group(&self, index: u32, within: &Range<u64>, min_len: u64) -> Result<u64> {
        let held = self.hold_free(index)?;
        let (mut bytes, mut result) = (0_u64, Ok(()));
        for range in &held {
            let place =
                whole_units(&self.bytes_of(index, range), within, self.super_block().block_size.into());
            let len = place.end.saturating_sub(place.start);
            if result.is_ok() && len >= min_len.max(1) {
                result = self.volume.device().discard(place);
                bytes += if result.is_ok() { len } else { 0 };
            }
        }
        let mut group = self.group(index)?.lock();
        held.into_iter().for_each(|range| self.let_go(index, &mut group, range));
        result.map(|()| bytes)
    }

    /// Holds all available clusters of a group.
    fn hold_free(&self, index: u32) -> Result<Vec<Range<u32>>> {
        let end = self.super_block().group_clusters(index);
        let mut group = self.group(index)?.lock();
        let bitmap = group.block_bits(&self.volume, index)?;
        let (mut at, mut runs) = (0, Vec::new());
        while at < end {
            let start = bits::next_clear(&bitmap, at..end);
            let free = group.held.run_at(&bitmap, start, end - start, end);
            if free.is_empty() {
                at = start + 1;
                continue;
            }
            at = free.end;
            runs.try_reserve(1)?;
            runs.push(free.clone());
            count(&self.available, 0, free.end - free.start);
            group.held.insert(free);
        }
        Ok(runs)
    }

    /// Returns the bytes of clusters on the device, without the part past the end of the volume.
    fn bytes_of(&self, index: u32, range: &Range<u32>) -> Range<u64> {
        let sb = self.super_block();
        let byte = |cluster| {
            let block = self.block_of(index, cluster).0.min(sb.blocks_count);
            sb.block_size.len(block)
        };
        byte(range.start)..byte(range.end)
    }
}
