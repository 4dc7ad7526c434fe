//! Transactions: groups of changes that become durable together or not at all.
//!
//! A [`Txn`] is the handle of one caller in the running transaction. Many callers join the same transaction, and one
//! commit makes all their changes durable. The first caller that needs the commit performs it. This caller is the
//! *leader*, and the other callers wait.
//!
//! While the leader writes, the next transaction runs. The leader first captures the current version of each
//! changed block, and then writes the captured versions. A change of a captured block creates a new version
//! ([`obento_block::Edit`]).
//!
//! Invariant: every operation that can fail is performed before the first [`Txn::edit`]. Handles share blocks, so one
//! handle cannot be rolled back alone. If a `Txn` is dropped after a change and without [`Txn::commit`], the
//! transaction is aborted and the volume becomes read-only.
//! Invariant: with a log, a block is written to its home location only after the transaction that changed the
//! block is durable. Without a log ([`Log::None`]), writing the blocks to their home locations is the commit.
//! Locking: a caller acquires its own locks before it calls [`Transactions::begin`]. While a thread has a
//! `Txn`, the thread acquires only leaf locks, begins no other transaction, and waits for no commit. The
//! hooks run on the thread of the leader, or on a thread that calls [`Transactions::publish`]. The hooks
//! acquire only leaf locks, since this thread may hold any lock that callers acquire before `begin`.

mod backend;
mod batch;
mod commit;
mod few;
mod handle;
mod homes;
mod hooks;
mod options;
mod publish;
mod ticker;
mod transactions;

pub use handle::{BlockMut, Extended, Taken, TakenUnread, Txn};
pub use hooks::{CommitHooks, NoHooks};
pub use options::{CommitOptions, CommitStats, Credits, Log};
pub use transactions::Transactions;
