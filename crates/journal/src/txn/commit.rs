//! The commit of a transaction by the leader.

use obento_base::Result;

use super::batch::Batch;
use super::handle::Role;
use super::transactions::Running;
use super::{Credits, Transactions, Txn};

impl Transactions {
    /// Commits the running transaction unless it is empty. Only the leader calls this method.
    pub(super) fn commit_running(&self) -> Result<()> {
        let Some(tid) = self.lock_running()? else { return Ok(()) };
        let mut txn = Txn::new(self, tid, Credits(u32::MAX), Role::Hook);
        self.hooks.before_commit(&mut txn)?;
        txn.commit();
        self.publish_rest(tid)?;
        let batch = self.capture();
        self.backend.lock().commit(self.cache(), batch)?;
        if let Some(redo) = self.redo() {
            // Before space that the transaction freed is used again.
            redo.durable(tid.0);
        }
        // Before waiting callers are notified, so that a caller that waited for space finds it.
        self.hooks.durable(tid);
        self.set_durable(tid);
        Ok(())
    }

    /// Captures the versions to write, with their checksums. Later changes create new versions.
    fn capture(&self) -> Batch {
        // No thread can join the transaction, so it stays unchanged without the lock.
        let Running { tid, blocks: mut numbers, revoked, .. } = self.take_running();
        numbers.sort_unstable();
        numbers.dedup();
        // A block that was revoked after its change no longer belongs to this transaction.
        let blocks = numbers.into_iter().filter_map(|number| self.cache().seal(number, tid.0)).collect();
        let batch = Batch { tid, blocks, revoked: revoked.into_iter().collect() };
        self.run_next(tid.next());
        batch
    }
}
