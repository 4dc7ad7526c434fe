//! The blocks that are durable in the log and have not been written to their home locations.
//!
//! Invariant: only the newest durable version of a block is stored. A transaction without such a version
//! needs no replay. The log before the first transaction that must be replayed can be freed.

use alloc::collections::{BTreeMap, VecDeque};

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_block::{Block, BlockDevice, Cache};

use super::batch::Batch;
use crate::Tid;
use crate::gather::Gather;

#[derive(Default)]
pub(super) struct Homes {
    blocks: BTreeMap<u64, Home>,
    logged: VecDeque<Logged>,
}

struct Home {
    tid: Tid,
    block: Block,
}

/// A transaction in the log.
struct Logged {
    tid: Tid,
    /// Start position in the log.
    start: u32,
    /// Number of block versions of the transaction that are still the newest ones.
    newest: usize,
}

impl Homes {
    /// Adds a transaction that became durable and starts at `start` in the log.
    pub(super) fn add(&mut self, batch: Batch, start: u32) {
        for number in &batch.revoked {
            // Otherwise the old version would overwrite the new contents of the block.
            let old = self.blocks.remove(number);
            self.outdate(old);
        }
        let (tid, newest) = (batch.tid, batch.blocks.len());
        self.logged.push_back(Logged { tid, start, newest });
        for block in batch.blocks {
            let old = self.blocks.insert(block.number(), Home { tid, block });
            self.outdate(old);
        }
        while self.logged.front().is_some_and(|logged| logged.newest == 0) {
            self.logged.pop_front();
        }
    }

    fn outdate(&mut self, old: Option<Home>) {
        let Some(old) = old else { return };
        let first = self.logged.front().map_or(old.tid, |logged| logged.tid);
        // All transactions from the first one on are present, so the number determines the index.
        let place = obento_base::wire::to_usize(old.tid.since(first).into());
        if let Some(logged) = self.logged.get_mut(place) {
            debug_assert!(logged.tid == old.tid);
            logged.newest = logged.newest.saturating_sub(1);
        }
    }

    /// Returns the first transaction that must be replayed and its start position.
    pub(super) fn tail(&self) -> Option<(Tid, u32)> {
        self.logged.front().map(|logged| (logged.tid, logged.start))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Writes all versions to their home locations, without a flush. Returns their number.
    pub(super) fn write(&self, device: &dyn BlockDevice, block_size: u32) -> Result<u64> {
        write_homes(device, block_size, self.blocks.values().map(|home| &home.block))
    }

    /// Removes all versions, after they have reached stable storage.
    pub(super) fn clear(&mut self, cache: &Cache) {
        for (number, home) in core::mem::take(&mut self.blocks) {
            cache.unpin(number, home.tid.0);
        }
        self.logged.clear();
    }
}

/// Writes `blocks`, which are sorted, to their home locations, without a flush. Returns their number.
pub(super) fn write_homes<'b>(
    device: &dyn BlockDevice,
    block_size: u32,
    blocks: impl Iterator<Item = &'b Block>,
) -> Result<u64> {
    let mut gather = Gather::new(device, block_size);
    let mut count = 0_usize;
    for block in blocks {
        gather.put(block.number(), block)?;
        count = count.saturating_add(1);
    }
    gather.finish()?;
    Ok(to_u64(count))
}
