//! Transactions: groups of changes that reach the volume together or not at all.
//!
//! A [`Txn`] is the handle of one caller in the running transaction. Many callers join the same transaction, and one
//! commit makes all their changes durable. The first caller that needs the commit performs it. This caller is the
//! *leader*, and the other callers wait.
//!
//! While the leader writes, the next transaction runs. The leader writes the versions of the blocks that it captured.
//! A change of a captured block creates a new version ([`obento_block::Edit`]).
//!
//! Invariant: every operation that can fail is performed before the first [`Txn::edit`]. Handles share blocks, so one
//! handle cannot be rolled back alone. If a `Txn` is dropped after an edit, the transaction is aborted and the volume
//! becomes read-only.
//! Invariant: a block is written to its home location only after the transaction that changed it is durable.
//! Locking: the locks of the caller are acquired before [`Transactions::begin`]. While a thread has a `Txn`, it
//! acquires only leaf locks, begins no other transaction, and waits for no commit. The hooks run on the thread of the
//! leader. They acquire only leaf locks, since the leader may hold any lock that is acquired before `begin`.

mod backend;
mod commit;
mod few;
mod handle;
mod homes;
mod options;
mod publish;
mod ticker;
mod transactions;

pub use handle::{BlockMut, Extended, Taken, Txn};
pub use options::{CommitHooks, CommitOptions, CommitStats, Credits, Log, NoHooks};
pub use transactions::Transactions;
