//! What a set of transactions is given: where it logs to, when it commits, whom it calls.

use alloc::sync::Arc;
use core::ops::{Add, Mul};
use core::time::Duration;

use obento_base::Result;
use obento_env::Clock;

use super::Txn;
use crate::{JournalWriter, Tid};

/// How many different blocks a [`Txn`] may take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Credits(pub u32);

impl Add for Credits {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Mul<u32> for Credits {
    type Output = Self;
    fn mul(self, times: u32) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

/// Where transactions are logged.
#[expect(clippy::large_enum_variant, reason = "there is one a volume")]
pub enum Log {
    /// Nowhere: a commit writes the blocks to their homes. A crash in between leaves the volume to a check.
    None,
    /// In a journal as ext3 and ext4 have it.
    Jbd2(JournalWriter),
}

/// When and how transactions are committed.
#[derive(Clone)]
pub struct CommitOptions {
    /// Whether commits flush the device.
    pub barrier: bool,
    /// How old a change becomes before a thread commits it; `None`, or no thread to be had: until somebody asks.
    pub interval: Option<Duration>,
    /// How many bytes of changed blocks may be in memory before they are committed and written to their homes.
    pub budget: usize,
    /// Where the times in commit records come from.
    pub clock: Arc<dyn Clock>,
}

impl CommitOptions {
    /// With barriers and a budget of 64 MiB, without a thread.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { barrier: true, interval: None, budget: 64 << 20, clock }
    }
}

/// What the user of the transactions does around a commit.
pub trait CommitHooks: Send + Sync {
    /// Adds to a transaction what was kept back until it is complete. Nobody else has joined it. The credits of `txn`
    /// have no end, but what is taken must not be more than the transaction already changed plus a few blocks. An
    /// error turns the volume read-only.
    fn before_commit(&self, txn: &mut Txn<'_>) -> Result<()>;

    /// Transaction `tid` is durable: what it freed may be used again.
    fn durable(&self, tid: Tid);
}

/// Hooks that do nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoHooks;

impl CommitHooks for NoHooks {
    fn before_commit(&self, _txn: &mut Txn<'_>) -> Result<()> {
        Ok(())
    }

    fn durable(&self, _tid: Tid) {}
}

/// What was done so far, for tests and benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommitStats {
    /// Commits of transactions that held something.
    pub commits: u64,
    /// Flushes of any device.
    pub flushes: u64,
    /// Blocks that were logged; control blocks are not among them.
    pub logged: u64,
    /// Block numbers that were revoked.
    pub revoked: u64,
    /// Checkpoints that wrote something.
    pub checkpoints: u64,
    /// Blocks that were written to their homes.
    pub homes: u64,
}
