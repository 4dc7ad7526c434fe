//! Discarding free clusters.
//!
//! Invariant: discarded clusters are durably free and not allocated meanwhile. Clusters that were freed since the
//! last commit are held, and the lock of the volume is held around each step.

use core::ops::Range;

use obento_base::Result;
use obento_block::BlockDevice as _;
use obento_driver::{Trim, whole_units};

use crate::contract::Mounted;
use crate::guard::Locked;
use crate::pieces::last_of;
use crate::unit::Cluster;
use crate::volume::{Commit as _, Volume};

/// Maximum number of runs that are discarded before the lock is released.
const STEP: u32 = 256;

impl<V: Volume> Trim for Mounted<V> {
    fn trim_within(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        self.change(|writer, volume| writer.commit(volume))?;
        let first = |volume: &Locked<'_, V>| -> Result<Cluster> {
            let place = volume.bytes_of((Cluster(2), 1))?;
            let size = place.end.saturating_sub(place.start);
            let skipped = range.start.saturating_sub(place.start).checked_div(size).unwrap_or(0);
            Ok(Cluster(u32::try_from(skipped).unwrap_or(u32::MAX).saturating_add(2)))
        };
        let (mut bytes, mut at) = (0_u64, Some(self.change(|_, volume| first(volume))?));
        while let Some(from) = at {
            let (more, next) =
                self.change(|writer, volume| trim_some(writer, volume, from, (&range, min_len)))?;
            (bytes, at) = (bytes.saturating_add(more), next);
        }
        Ok(bytes)
    }
}

/// Discards runs from `from` on. Returns the number of bytes, and where the next step begins.
fn trim_some<V: Volume>(
    writer: &mut V::Writer,
    volume: &Locked<'_, V>,
    from: Cluster,
    (within, min_len): (&Range<u64>, u64),
) -> Result<(u64, Option<Cluster>)> {
    let (mut bytes, mut at) = (0_u64, from);
    for _ in 0..STEP {
        let Some(run) = writer.allocator().free_run(at) else { return Ok((bytes, None)) };
        let place = volume.bytes_of(run)?;
        if place.start >= within.end {
            return Ok((bytes, None));
        }
        let cluster = place.end.saturating_sub(place.start).checked_div(run.1.into()).unwrap_or(0);
        let place = whole_units(&place, within, cluster);
        let len = place.end.saturating_sub(place.start);
        if len >= min_len.max(1) {
            volume.cache().device().discard(place)?;
            bytes = bytes.saturating_add(len);
        }
        at = Cluster(last_of(&run).0.saturating_add(1));
    }
    Ok((bytes, Some(at)))
}
