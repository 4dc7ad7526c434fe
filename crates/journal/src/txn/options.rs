//! Options of transactions: the log, and the time of commits.

use alloc::sync::Arc;
use core::ops::{Add, Mul};
use core::time::Duration;

use obento_block::RedoLog;
use obento_env::Clock;

use crate::JournalWriter;

/// The number of different blocks that a [`Txn`](super::Txn) may [take](super::Txn::take).
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

/// The log to which transactions are written.
#[expect(clippy::large_enum_variant, reason = "there is one a volume")]
pub enum Log {
    /// No log. A commit writes the blocks to their home locations. After a crash during a commit, the volume must be
    /// checked.
    None,
    /// A journal in the format of ext3 and ext4.
    Jbd2(JournalWriter),
}

/// Options of commits.
#[derive(Clone)]
pub struct CommitOptions {
    /// Whether commits flush the devices. Without flushes, a transaction counts as durable once it is
    /// written, although a power failure can still lose or damage it.
    pub barrier: bool,
    /// Maximum age of a change before a thread commits it. With `None`, or in an environment without threads, changes
    /// are committed only on request.
    pub interval: Option<Duration>,
    /// Maximum size in bytes of the changed blocks in memory. If the blocks exceed this size, the next handle
    /// waits until they are committed and written to their home locations. The size also limits the credits
    /// of a handle ([`Transactions::credits_max`](super::Transactions::credits_max)).
    pub budget: usize,
    /// Clock for the times in commit records.
    pub clock: Arc<dyn Clock>,
    /// The log to which [`Transactions::publish`](super::Transactions::publish) adds changed blocks.
    pub redo: Option<Arc<dyn RedoLog>>,
}

impl CommitOptions {
    /// Returns options with barriers, a budget of 64 MiB, and no thread.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { barrier: true, interval: None, budget: 64 << 20, clock, redo: None }
    }
}

/// Statistics for tests and benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommitStats {
    /// Number of commits with changes, including failed commits.
    pub commits: u64,
    /// Number of flushes of all devices.
    pub flushes: u64,
    /// Number of logged blocks, without control blocks.
    pub logged: u64,
    /// Number of revoked block numbers.
    pub revoked: u64,
    /// Number of checkpoints that wrote blocks.
    pub checkpoints: u64,
    /// Number of blocks written to their home locations.
    pub homes: u64,
}
