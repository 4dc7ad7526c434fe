//! Where committed blocks go: the log first, their homes later; or their homes at once.

use alloc::sync::Arc;

use obento_base::Result;
use obento_block::{BlockDevice, Cache};

use super::commit::Batch;
use super::home::write_homes;
use super::{CommitOptions, CommitStats, Log};
use crate::Tid;

/// What the leader works with.
pub(super) struct Backend {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    barrier: bool,
    log: Log,
    stats: CommitStats,
}

impl Backend {
    pub(super) fn new(cache: &Cache, log: Log, options: &CommitOptions) -> Self {
        let (device, block_size) = (cache.device().clone(), cache.block_size());
        Self { device, block_size, barrier: options.barrier, log, stats: CommitStats::default() }
    }

    /// The most blocks that a transaction may have.
    pub(super) fn limit(&self) -> u32 {
        match self.log {
            Log::None => u32::MAX,
        }
    }

    /// The first transaction.
    pub(super) fn next(&self) -> Tid {
        match self.log {
            Log::None => Tid(1),
        }
    }

    pub(super) fn stats(&self) -> CommitStats {
        self.stats
    }

    /// Makes `batch` durable.
    pub(super) fn commit(&mut self, cache: &Cache, batch: Batch) -> Result<()> {
        match self.log {
            Log::None => self.commit_home(cache, &batch)?,
        }
        self.stats.commits = self.stats.commits.saturating_add(1);
        Ok(())
    }

    fn commit_home(&mut self, cache: &Cache, batch: &Batch) -> Result<()> {
        let count = write_homes(&*self.device, self.block_size, batch.blocks.iter())?;
        self.stats.homes = self.stats.homes.saturating_add(count);
        self.flush_data()?;
        for block in &batch.blocks {
            cache.unpin(block.number(), batch.tid.0);
        }
        Ok(())
    }

    /// Writes everything that is durable to its home.
    pub(super) fn checkpoint(&mut self, _cache: &Cache) -> Result<()> {
        match self.log {
            Log::None => Ok(()),
        }
    }

    /// Leaves the log empty.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.log {
            Log::None => Ok(()),
        }
    }

    /// Flushes the volume's device.
    pub(super) fn flush_data(&mut self) -> Result<()> {
        if self.barrier {
            self.stats.flushes = self.stats.flushes.saturating_add(1);
            self.device.flush()?;
        }
        Ok(())
    }
}
