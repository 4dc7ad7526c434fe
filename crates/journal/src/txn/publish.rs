//! Publishing changes in a redo log before they are committed.
//!
//! A *hold* keeps the running transaction from being committed while one operation changes the volume in several
//! handles. When the operation has ended, [`Transactions::publish`] adds the blocks that the operation
//! changed to the redo log, and ends the hold. The redo log therefore contains the operation before a commit
//! makes a part of it durable.
//!
//! Invariant: the redo log contains all changes of a transaction before it contains a change of a later transaction.
//! Invariant: at most one thread has a hold at a time, and only this thread begins handles of its operation. The thread
//! waits for a commit only before its operation has changed anything. The hold is suspended during this wait.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_block::{Block, RedoLog};
use obento_env::IN_KERNEL;

use super::handle::Role;
use super::{Credits, Transactions, Txn};
use crate::Tid;

/// Number of credits that a hold reserves: more than an operation on names changes.
const HOLD: u32 = 64;

impl Transactions {
    /// Returns the redo log. Returns `None` in a kernel module, where no other process could read the log.
    pub(super) fn redo(&self) -> Option<&Arc<dyn RedoLog>> {
        self.redo.as_ref().filter(|_| !IN_KERNEL)
    }

    /// Returns whether changes are added to a redo log.
    pub(super) fn has_redo(&self) -> bool {
        self.redo().is_some()
    }

    /// Returns whether this thread handles a request that must not be divided.
    pub(super) fn is_held_here(&self) -> bool {
        self.redo().is_some_and(|redo| redo.is_held_here())
    }

    /// Prevents commits until this thread calls [`publish`](Self::publish). At most one thread may have a
    /// hold at a time. Fails as [`begin`](Self::begin) does.
    pub fn hold(&self) -> Result<()> {
        let credits = HOLD.min(self.credits_max().0 / 2);
        self.join(Credits(credits))?;
        self.state.lock().held = Some(credits);
        Ok(())
    }

    /// Waits until `tid` is durable. If this thread handles a request that must not be divided, returns at once, and
    /// [`publish`](Self::publish) waits instead. Fails as [`wait_durable`](Self::wait_durable) does.
    pub fn wait_in_the_end(&self, tid: Tid) -> Result<()> {
        if self.is_held_here() {
            self.state.lock().awaited = Some(tid);
            return Ok(());
        }
        self.wait_durable(tid)
    }

    /// Adds all changes of ended handles to the redo log, and ends the hold. Without a redo log, only ends
    /// the hold. Then waits for the transaction of [`wait_in_the_end`](Self::wait_in_the_end), if that call
    /// has deferred its wait. The hold ends even if the call fails. The calling thread must have no [`Txn`].
    ///
    /// # Errors
    ///
    /// 1. The error that made the volume read-only. This includes an error of [`CommitHooks::before_commit`].
    /// 2. The errors of the redo log.
    /// 3. The errors of [`wait_durable`](Self::wait_durable).
    ///
    /// [`CommitHooks::before_commit`]: super::CommitHooks::before_commit
    pub fn publish(&self) -> Result<()> {
        let captured = self.capture_unpublished();
        let published = captured.and_then(|(tid, blocks)| match self.redo() {
            Some(redo) => redo.append(tid.0, &blocks),
            None => Ok(()),
        });
        let mut state = self.state.lock();
        state.publishing = false;
        if let Some(credits) = state.held.take() {
            state.running.joiners = state.running.joiners.saturating_sub(1);
            state.running.reserved = state.running.reserved.saturating_sub(credits);
        }
        let awaited = state.awaited.take();
        drop(state);
        self.changed.notify_all();
        published?;
        awaited.map_or(Ok(()), |tid| self.wait_durable(tid))
    }

    /// Excludes other handles, has the hooks add their deferred changes, and returns the blocks that changed.
    fn capture_unpublished(&self) -> Result<(Tid, Vec<Block>)> {
        let mut state = self.state.lock();
        // A commit that captures its blocks waits for a hold, but for nothing else.
        while state.held.is_none() && state.running.locked {
            state = self.changed.wait(&self.state, state);
        }
        state.publishing = true;
        while state.running.joiners > u32::from(state.held.is_some()) {
            state = self.changed.wait(&self.state, state);
        }
        if let Some(error) = state.error {
            return Err(error);
        }
        let (tid, is_empty) = (state.running.tid, state.running.is_empty());
        drop(state);
        if is_empty || !self.has_redo() {
            return Ok((tid, Vec::new()));
        }
        let mut txn = Txn::new(self, tid, Credits(u32::MAX), Role::Hook);
        self.hooks.before_commit(&mut txn).inspect_err(|&error| self.abort(error))?;
        txn.commit();
        Ok((tid, self.take_unpublished(tid)))
    }

    /// Adds the unpublished changes of the locked transaction `tid` to the redo log. Changes of the next transaction
    /// are based on these changes, so the call must return before the next transaction begins. Fails with the errors
    /// of the redo log.
    pub(super) fn publish_rest(&self, tid: Tid) -> Result<()> {
        let Some(redo) = self.redo() else { return Ok(()) };
        match self.take_unpublished(tid) {
            blocks if blocks.is_empty() => Ok(()),
            blocks => redo.append(tid.0, &blocks),
        }
    }

    /// Takes the blocks that changed since they were last published. No other thread changes them meanwhile.
    fn take_unpublished(&self, tid: Tid) -> Vec<Block> {
        let numbers = core::mem::take(&mut self.state.lock().running.unpublished);
        numbers.into_iter().filter_map(|number| self.cache().seal(number, tid.0)).collect()
    }

    /// Ends the hold of this thread until the result is dropped.
    pub(super) fn interrupt_hold(&self) -> Option<InterruptedHold<'_>> {
        if !self.is_held_here() {
            return None;
        }
        let mut state = self.state.lock();
        let credits = state.held.take()?;
        state.running.joiners = state.running.joiners.saturating_sub(1);
        state.running.reserved = state.running.reserved.saturating_sub(credits);
        drop(state);
        self.changed.notify_all();
        Some(InterruptedHold(self))
    }
}

/// A hold that continues when this value is dropped.
pub(super) struct InterruptedHold<'t>(&'t Transactions);

impl Drop for InterruptedHold<'_> {
    fn drop(&mut self) {
        // After an error, nothing is committed any more.
        let _ = self.0.hold();
    }
}
