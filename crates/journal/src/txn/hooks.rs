//! The functions of a file system that a commit calls.

use obento_base::Result;

use super::Txn;
use crate::Tid;

/// Functions of the file system that a thread calls before and after a commit, and before changes are
/// published. The thread is the leader, or a caller of
/// [`Transactions::publish`](super::Transactions::publish). The functions may acquire only leaf locks.
pub trait CommitHooks: Send + Sync {
    /// Adds deferred changes to the transaction that is about to be committed or published. The function is called
    /// once for the commit, and once for each time that the transaction is published. No other handle of the
    /// transaction exists. The credits of `txn` are unlimited. However, the function must take only blocks
    /// that the transaction has already changed, and a few others. An error makes the volume read-only.
    fn before_commit(&self, txn: &mut Txn<'_>) -> Result<()>;

    /// Informs the file system that transaction `tid` is durable. Space that the transaction freed may now be reused.
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
