//! Transactions: changes that reach the volume together or not at all.
//!
//! A [`Txn`] is one caller's part of the running transaction; many join it, and one commit makes all of them durable.
//! Whoever needs that commit first makes it (the leader); the others wait for it. While the leader writes, the next
//! transaction runs: what is being written are the versions of the blocks that the leader captured, and a change makes
//! another version ([`obento_block::Edit`]).
//!
//! Invariant: all that can fail comes before the first [`Txn::edit`]. Joiners share blocks, so that none can be rolled
//! back alone: a `Txn` that is dropped after an edit aborts all of them and turns the volume read-only.
//! Invariant: a block goes to its home only after the transaction that changed it is durable.
//! Locking: the caller's own locks come first, then [`Transactions::begin`]; while a `Txn` is open its thread takes
//! leaf locks only, begins no other and waits for no commit. The hooks run on the leader's thread and take leaf locks
//! only, since the leader may hold anything that is taken before `begin`.

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
