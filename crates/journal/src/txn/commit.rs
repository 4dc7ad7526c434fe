//! Committing: the leader's way through one transaction.

use alloc::vec::Vec;

use obento_base::Result;
use obento_block::Block;

use super::handle::Role;
use super::transactions::Running;
use super::{Credits, Transactions, Txn};
use crate::Tid;

/// A transaction that nothing can change any more.
pub(super) struct Batch {
    pub(super) tid: Tid,
    /// Its blocks, by number, each once.
    pub(super) blocks: Vec<Block>,
    /// The block numbers that it revokes, in order.
    pub(super) revoked: Vec<u64>,
}

impl Transactions {
    /// Commits the running transaction, if there is anything in it. Only the leader calls this.
    pub(super) fn commit_running(&self) -> Result<()> {
        let Some(tid) = self.lock_running()? else { return Ok(()) };
        let mut txn = Txn::new(self, tid, Credits(u32::MAX), Role::Hook);
        self.hooks.before_commit(&mut txn)?;
        txn.commit();
        let batch = self.capture();
        self.backend.lock().commit(self.cache(), batch)?;
        // Before anybody hears of it, so that who waited for space finds it.
        self.hooks.durable(tid);
        self.set_durable(tid);
        Ok(())
    }

    /// The versions that are to be written, with their checksums; what follows makes others.
    fn capture(&self) -> Batch {
        // Nobody can join it, so that it stays as it is without the lock.
        let Running { tid, blocks: mut numbers, revoked, .. } = self.take_running();
        numbers.sort_unstable();
        numbers.dedup();
        // What was revoked after it was changed is no longer this transaction's.
        let blocks = numbers.into_iter().filter_map(|number| self.cache().seal(number, tid.0)).collect();
        let batch = Batch { tid, blocks, revoked: revoked.into_iter().collect() };
        self.run_next(tid.next());
        batch
    }
}
