//! Transactions: groups of changes that reach the volume together or not at all.
//!
//! A [`Txn`] is the handle of one caller in the running transaction. Many callers join the same
//! transaction, and one commit makes all their changes durable. The first caller that needs the commit
//! performs it (the leader); the other callers wait. While the leader writes, the next transaction runs:
//! the leader writes the versions of the blocks that it captured, and a change creates a new version
//! ([`obento_block::Edit`]).
//!
//! Invariant: everything that can fail happens before the first [`Txn::edit`]. Handles share blocks, so
//! that none of them can be rolled back alone: dropping a `Txn` after an edit aborts the transaction and
//! makes the volume read-only.
//! Invariant: a block is written to its home location only after the transaction that changed it is
//! durable.
//! Locking: locks of the caller come first, then [`Transactions::begin`]. While a thread has a `Txn`, it
//! takes leaf locks only, begins no other transaction, and waits for no commit. The hooks run on the thread
//! of the leader and take leaf locks only, since the leader may hold any lock that is taken before `begin`.

mod backend;
mod commit;
mod few;
mod handle;
mod homes;
mod options;
mod ticker;
mod transactions;

pub use handle::{BlockMut, Extended, Taken, Txn};
pub use options::{CommitHooks, CommitOptions, CommitStats, Credits, Log, NoHooks};
pub use transactions::Transactions;
