//! A device whose writes stay in memory.
//!
//! Locking: one lock for the changed blocks, which readers share.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_env::sync::RwLock;

use crate::device::{Backing, BlockDevice, check_buf, check_range};

/// The granularity of the overlay in bytes: a page, the usual size of a write.
const GRAIN: u64 = 4096;

/// A copy-on-write overlay of a device. The overlay is writable, even if the underlying device is read-only.
/// Writes are stored in memory, in pages of 4 KiB, and are lost when the overlay is dropped. A flush has no
/// effect. The first write to a page reads the whole page from the underlying device, so a write can also
/// fail with the errors of [`BlockDevice::read_at`].
///
/// Invariant: only [`write_through`](Self::write_through) writes to the underlying device.
#[derive(Debug)]
pub struct Overlay<D> {
    below: D,
    changed: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl<D: BlockDevice> Overlay<D> {
    /// Creates an overlay without changes.
    pub fn new(below: D) -> Self {
        Self { below, changed: RwLock::new(BTreeMap::new()) }
    }

    /// Returns the ranges that may differ from the underlying device, in bytes, in ascending order. Each
    /// range is one page of 4 KiB. The last range may extend past the end of the device.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let range = |index: u64| index.saturating_mul(GRAIN)..index.saturating_add(1).saturating_mul(GRAIN);
        self.changed.read().keys().map(|&index| range(index)).collect()
    }

    /// Returns the total length in bytes of the ranges that [`changed`](Self::changed) returns.
    pub fn changed_len(&self) -> u64 {
        to_u64(self.changed.read().len()).saturating_mul(GRAIN)
    }

    /// Discards all changes. If the caller needs the changes, it must have written them to the underlying
    /// device before the call.
    pub fn forget(&self) {
        self.changed.write().clear();
    }

    /// Writes `buf` at byte `offset` of the underlying device. The data uses no memory, and [`forget`](Self::forget)
    /// does not discard the data. The data is durable after a flush of the underlying device.
    ///
    /// # Errors
    ///
    /// 1. `OutOfBounds`: a byte is past the end.
    /// 2. The errors of [`BlockDevice::write_at`] of the underlying device.
    pub fn write_through(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check_buf(self.len(), offset, buf)?;
        let mut changed = self.changed.write();
        self.below.write_at(offset, buf)?;
        for (index, inside, at, len) in pieces(offset, buf.len()) {
            let grain = changed.get_mut(&index);
            let target = grain.and_then(|grain| grain.get_mut(inside..inside.saturating_add(len)));
            if let (Some(target), Some(source)) = (target, buf.get(at..at.saturating_add(len))) {
                target.copy_from_slice(source);
            }
        }
        Ok(())
    }

    /// Passes the current `len` bytes from `offset` on to `edit`, which may change the bytes, and stores the
    /// result. If the bytes are in one page of 4 KiB, no other thread changes the bytes during the call. If
    /// the bytes are in several pages, a concurrent write of the same bytes may be lost.
    ///
    /// # Errors
    ///
    /// 1. `OutOfBounds`: a byte is past the end.
    /// 2. The errors of [`BlockDevice::read_at`] of the underlying device, and `NoMemory`.
    pub fn edit(&self, offset: u64, len: usize, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        check_range(self.len(), offset, to_u64(len))?;
        let inside = to_usize(offset & (GRAIN - 1));
        let end = inside.saturating_add(len);
        if end > to_usize(GRAIN) {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len)?;
            bytes.resize(len, 0);
            self.read_at(offset, &mut bytes)?;
            edit(&mut bytes);
            return self.write_at(offset, &bytes);
        }
        let mut changed = self.changed.write();
        let grain = match changed.entry(offset / GRAIN) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.fetch(offset / GRAIN)?),
        };
        edit(grain.get_mut(inside..end).unwrap_or_default());
        Ok(())
    }

    /// Reads the page `index` of the underlying device; zeros past its end.
    fn fetch(&self, index: u64) -> Result<Box<[u8]>> {
        let start = index.saturating_mul(GRAIN);
        let mut grain = Vec::new();
        grain.try_reserve_exact(to_usize(GRAIN))?;
        grain.resize(to_usize(GRAIN), 0);
        let len = to_usize(self.below.len().saturating_sub(start).min(GRAIN));
        if let Some(present) = grain.get_mut(..len) {
            self.below.read_at(start, present)?;
        }
        Ok(grain.into_boxed_slice())
    }
}

/// Splits `offset..offset + len` at page boundaries: (page, offset in the page, offset in the range,
/// length).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0_usize;
    core::iter::from_fn(move || {
        let left = len.checked_sub(done).filter(|&left| left > 0)?;
        let at = offset.checked_add(to_u64(done))?;
        let inside = to_usize(at & (GRAIN - 1));
        let take = left.min(to_usize(GRAIN).saturating_sub(inside));
        let piece = (at / GRAIN, inside, done, take);
        done = done.saturating_add(take);
        Some(piece)
    })
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn sector_size(&self) -> u32 {
        self.below.sector_size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_buf(self.len(), offset, buf)?;
        let changed = self.changed.read();
        let end = offset.saturating_add(to_u64(buf.len())).div_ceil(GRAIN);
        let mut among = changed.range(offset / GRAIN..end.max(offset / GRAIN)).peekable();
        // If the range is in one changed page, no byte of the underlying device is needed.
        if among.peek().is_none() || end.saturating_sub(offset / GRAIN) > 1 {
            self.below.read_at(offset, buf)?;
        }
        if among.peek().is_none() {
            return Ok(());
        }
        for (index, inside, at, len) in pieces(offset, buf.len()) {
            let Some(grain) = changed.get(&index) else { continue };
            let source = grain.get(inside..inside.saturating_add(len));
            if let (Some(source), Some(target)) = (source, buf.get_mut(at..at.saturating_add(len))) {
                target.copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check_buf(self.len(), offset, buf)?;
        let mut changed = self.changed.write();
        for (index, inside, at, len) in pieces(offset, buf.len()) {
            let grain = match changed.entry(index) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.fetch(index)?),
            };
            let target = grain.get_mut(inside..inside.saturating_add(len));
            if let (Some(target), Some(source)) = (target, buf.get(at..at.saturating_add(len))) {
                target.copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        let changed = self.changed.read();
        let first_change = changed
            .range(range.start / GRAIN..)
            .next()
            .map_or(u64::MAX, |(index, _)| index.saturating_mul(GRAIN));
        let end = range.end.min(first_change);
        if end <= range.start { None } else { self.below.backing(range.start..end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;
    use alloc::sync::Arc;
    use proptest::prelude::*;
    use std::vec;

    proptest! {
        #[test]
        fn an_overlay_reads_like_a_written_device_and_leaves_the_one_below_alone(
            writes in prop::collection::vec((0u64..20_000, prop::collection::vec(any::<u8>(), 1..9000)), 1..12)
        ) {
            let below = Arc::new(MemDevice::read_only(vec![0x55; 20_001]));
            let overlay = Overlay::new(below.clone());
            let model = MemDevice::new(vec![0x55; 20_001]);
            let mut is_changed = false;
            for (number, (offset, bytes)) in writes.into_iter().enumerate() {
                let written = if number % 2 == 0 {
                    overlay.write_at(offset, &bytes)
                } else {
                    let mut before = vec![0; bytes.len()];
                    let _ = model.read_at(offset, &mut before);
                    overlay.edit(offset, bytes.len(), |present| {
                        assert_eq!(present, before);
                        present.copy_from_slice(&bytes);
                    })
                };
                is_changed |= written.is_ok();
                prop_assert_eq!(written, model.write_at(offset, &bytes));
            }
            let mut seen = vec![0; 20_001];
            overlay.read_at(0, &mut seen).unwrap();
            prop_assert_eq!(seen, model.snapshot());
            for at in (0..19_000).step_by(1_009) {
                let mut part = vec![0; 900];
                overlay.read_at(at, &mut part).unwrap();
                prop_assert_eq!(&part[..], &model.snapshot()[at as usize..][..900]);
            }
            prop_assert!(below.snapshot().iter().all(|&b| b == 0x55));
            prop_assert_eq!(overlay.changed_len() > 0, is_changed);
            overlay.forget();
            let mut seen = vec![0; 20_001];
            overlay.read_at(0, &mut seen).unwrap();
            prop_assert_eq!((seen, overlay.changed_len()), (below.snapshot(), 0));
        }

        #[test]
        fn writes_through_the_cache_are_visible_at_once_and_stay_when_changes_are_dropped(
            writes in prop::collection::vec(
                (any::<bool>(), 0u64..20_000, prop::collection::vec(any::<u8>(), 1..9000)),
                1..12,
            )
        ) {
            let below = Arc::new(MemDevice::new(vec![0x55; 30_000]));
            let overlay = Overlay::new(below.clone());
            let (seen, through) = (MemDevice::new(vec![0x55; 30_000]), MemDevice::new(vec![0x55; 30_000]));
            for (is_through, offset, bytes) in writes {
                if is_through {
                    overlay.write_through(offset, &bytes).unwrap();
                    through.write_at(offset, &bytes).unwrap();
                } else {
                    overlay.write_at(offset, &bytes).unwrap();
                }
                seen.write_at(offset, &bytes).unwrap();
            }
            let mut found = vec![0; 30_000];
            overlay.read_at(0, &mut found).unwrap();
            prop_assert_eq!(found, seen.snapshot());
            prop_assert_eq!(below.snapshot(), through.snapshot());
        }
    }
}
