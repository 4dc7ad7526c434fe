//! The destination of committed blocks. With a log, blocks are written to the log first, and to their home locations
//! later. Without a log, they are written to their home locations directly.
//!
//! Only the leader commits and checkpoints, so commits and checkpoints never overlap. When a transaction that
//! revokes a block becomes durable, the block is therefore not being written to its home location. Other
//! threads only flush the volume and read the statistics, under the same lock.

use alloc::sync::Arc;

use obento_base::Result;
use obento_block::{BlockDevice, Cache};
use obento_env::Clock;

use super::batch::Batch;
use super::homes::{Homes, write_homes};
use super::{CommitOptions, CommitStats, Log};
use crate::Tid;

/// The maximum part of the log that one transaction may use, as in jbd2 (`jbd2_journal_get_max_txn_bufs`).
/// The rest is for its control blocks, for blocks that the hooks add, and for earlier transactions that
/// have not been checkpointed.
const LOG_PART: u32 = 4;

/// The devices, the log and the blocks to write. The leader changes them.
pub(super) struct Backend {
    volume: Device,
    block_size: u32,
    log: Log,
    clock: Arc<dyn Clock>,
    homes: Homes,
    stats: CommitStats,
}

/// A device that is flushed if barriers are enabled.
struct Device {
    inner: Arc<dyn BlockDevice>,
    barrier: bool,
}

impl Device {
    fn flush(&self, stats: &mut CommitStats) -> Result<()> {
        if self.barrier {
            stats.flushes = stats.flushes.saturating_add(1);
            self.inner.flush()?;
        }
        Ok(())
    }

    fn is(&self, other: &Arc<dyn BlockDevice>) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.inner), Arc::as_ptr(other))
    }
}

/// The state of the log after a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// The log remains in use.
    Open,
    /// There is nothing to replay.
    Empty,
}

impl Backend {
    pub(super) fn new(cache: &Cache, log: Log, options: &CommitOptions) -> Self {
        let volume = Device { inner: Arc::clone(cache.device()), barrier: options.barrier };
        let (block_size, clock) = (cache.block_size(), Arc::clone(&options.clock));
        Self { volume, block_size, log, clock, homes: Homes::default(), stats: CommitStats::default() }
    }

    /// Returns the maximum number of blocks of a transaction.
    pub(super) fn limit(&self) -> u32 {
        match &self.log {
            Log::None => u32::MAX,
            Log::Jbd2(writer) => writer.capacity() / LOG_PART,
        }
    }

    /// Returns the number of the first transaction.
    pub(super) fn next(&self) -> Tid {
        match &self.log {
            Log::None => Tid(1),
            Log::Jbd2(writer) => writer.next(),
        }
    }

    pub(super) fn stats(&self) -> CommitStats {
        self.stats
    }

    /// Makes `batch` durable.
    pub(super) fn commit(&mut self, cache: &Cache, batch: Batch) -> Result<()> {
        self.stats.commits = self.stats.commits.saturating_add(1);
        self.make_room(cache, &batch)?;
        match &mut self.log {
            Log::None => self.commit_home(cache, &batch),
            Log::Jbd2(writer) => {
                debug_assert_eq!(batch.tid, writer.next());
                let start = writer.head();
                let log = Device { inner: Arc::clone(writer.device()), barrier: self.volume.barrier };
                writer.write(&batch.blocks, &batch.revoked)?;
                // File data before the commit block; otherwise a crash exposes the previous contents of its
                // blocks.
                if !self.volume.is(&log.inner) {
                    self.volume.flush(&mut self.stats)?;
                }
                let now = self.clock.now();
                if log.barrier {
                    self.stats.flushes = self.stats.flushes.saturating_add(2);
                    writer.write_commit_in_order(now)?;
                } else {
                    writer.write_commit(now)?;
                }
                self.count(&batch);
                self.homes.add(batch, start);
                Ok(())
            }
        }
    }

    fn count(&mut self, batch: &Batch) {
        let add = |sum: &mut u64, n: usize| *sum = sum.saturating_add(obento_base::wire::to_u64(n));
        add(&mut self.stats.logged, batch.blocks.len());
        add(&mut self.stats.revoked, batch.revoked.len());
    }

    fn commit_home(&mut self, cache: &Cache, batch: &Batch) -> Result<()> {
        let count = write_homes(&*self.volume.inner, self.block_size, batch.blocks.iter())?;
        self.stats.homes = self.stats.homes.saturating_add(count);
        self.flush_data()?;
        for block in &batch.blocks {
            cache.unpin(block.number(), batch.tid.0);
        }
        Ok(())
    }

    /// Frees as much of the log as `batch` needs.
    fn make_room(&mut self, cache: &Cache, batch: &Batch) -> Result<()> {
        let Log::Jbd2(writer) = &self.log else { return Ok(()) };
        let space = writer.space(batch.blocks.len(), batch.revoked.len());
        if writer.free() >= space {
            return Ok(());
        }
        let (tid, start) = self.homes.tail().unwrap_or((writer.next(), writer.head()));
        if writer.free_from(start) >= space {
            // All earlier blocks have newer versions in the log, so nothing has to be written.
            self.move_tail(tid, start)
        } else {
            self.checkpoint(cache, Leave::Open)
        }
    }

    /// Writes all durable blocks to their home locations and frees the log.
    pub(super) fn checkpoint(&mut self, cache: &Cache, leave: Leave) -> Result<()> {
        if !self.homes.is_empty() {
            let count = self.homes.write(&*self.volume.inner, self.block_size)?;
            self.stats.checkpoints = self.stats.checkpoints.saturating_add(1);
            self.stats.homes = self.stats.homes.saturating_add(count);
            self.flush_data()?;
        }
        self.homes.clear(cache);
        let Log::Jbd2(writer) = &mut self.log else { return Ok(()) };
        if !writer.is_in_use() {
            return Ok(());
        }
        match leave {
            Leave::Open => {
                let (tid, start) = (writer.next(), writer.head());
                self.move_tail(tid, start)
            }
            Leave::Empty => {
                writer.write_empty()?;
                self.flush_log()
            }
        }
    }

    fn move_tail(&mut self, tid: Tid, start: u32) -> Result<()> {
        if let Log::Jbd2(writer) = &mut self.log {
            writer.write_tail(tid, start)?;
        }
        self.flush_log()?;
        if let Log::Jbd2(writer) = &mut self.log {
            writer.release(start);
        }
        Ok(())
    }

    /// Records in the journal that it was aborted. A failure of this write has no effect.
    pub(super) fn give_up(&mut self) {
        if let Log::Jbd2(writer) = &mut self.log {
            let _ = writer.write_error();
        }
        let _ = self.flush_log();
    }

    /// Flushes the device of the volume.
    pub(super) fn flush_data(&mut self) -> Result<()> {
        self.volume.flush(&mut self.stats)
    }

    fn flush_log(&mut self) -> Result<()> {
        let Log::Jbd2(writer) = &self.log else { return Ok(()) };
        let log = Device { inner: Arc::clone(writer.device()), barrier: self.volume.barrier };
        log.flush(&mut self.stats)
    }
}
