//! What is durable in the log and not yet in its home.
//!
//! Invariant: of a block, only the newest durable version is kept; a transaction none of whose versions is left needs
//! no replay, and the log before the first one that does can be freed.

use alloc::collections::{BTreeMap, VecDeque};

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_block::{Block, BlockDevice, Cache};

use super::commit::Batch;
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
    /// Where it starts.
    start: u32,
    /// How many of its versions are the newest.
    newest: usize,
}

impl Homes {
    /// A transaction that starts at `start` in the log became durable.
    pub(super) fn add(&mut self, batch: Batch, start: u32) {
        for number in &batch.revoked {
            // Or it would be written over whatever the block holds by then.
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
        // Every transaction from the first on is here, so its number says its place.
        let place = obento_base::wire::to_usize(old.tid.since(first).into());
        if let Some(logged) = self.logged.get_mut(place) {
            debug_assert!(logged.tid == old.tid);
            logged.newest = logged.newest.saturating_sub(1);
        }
    }

    /// The first transaction that must be replayed, and where it starts.
    pub(super) fn tail(&self) -> Option<(Tid, u32)> {
        self.logged.front().map(|logged| (logged.tid, logged.start))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Writes all to their homes, without a flush. Answers how many.
    pub(super) fn write(&self, device: &dyn BlockDevice, block_size: u32) -> Result<u64> {
        write_homes(device, block_size, self.blocks.values().map(|home| &home.block))
    }

    /// All are on stable storage.
    pub(super) fn clear(&mut self, cache: &Cache) {
        for (number, home) in core::mem::take(&mut self.blocks) {
            cache.unpin(number, home.tid.0);
        }
        self.logged.clear();
    }
}

/// Writes `blocks`, which come in order, to their homes, without a flush. Answers how many there were.
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
