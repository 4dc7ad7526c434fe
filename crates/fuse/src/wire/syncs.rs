//! Those who wait for stable storage, together.
//!
//! While one commit is being written others come to wait; they share the next one, and one thread answers all of them. Each
//! in a thread of its own, woken by the commit and only to answer, took seven wake-ups a request.
//! Invariant: while anybody waits, exactly one thread is about to take all who do.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::abi::InHeader;
use super::reply::Pending;
use super::{Wire, guarded};

/// Who waits for which inode.
#[derive(Default)]
pub(super) struct Syncs(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<(u64, Pending)>,
    has_thread: bool,
}

impl Syncs {
    /// One more waits; whether a thread must be found that [takes](Self::take) it.
    fn push(&self, id: u64, pending: Pending) -> bool {
        let mut state = self.0.lock();
        state.waiting.push((id, pending));
        !mem::replace(&mut state.has_thread, true)
    }

    /// All who wait; empty if nobody does, and then the thread that asks has no more to do.
    fn take(&self) -> Vec<(u64, Pending)> {
        let mut state = self.0.lock();
        let waiting = mem::take(&mut state.waiting);
        state.has_thread = !waiting.is_empty();
        waiting
    }
}

impl Wire {
    /// Has FSYNC or FSYNCDIR answered.
    pub(super) fn sync(self: &Arc<Self>, header: &InHeader) {
        if self.syncs.push(header.nodeid, self.pending(header)) {
            let wire = Arc::clone(self);
            self.pool.run(move || wire.sync_all());
        }
    }

    /// Answers until nobody waits any more.
    fn sync_all(&self) {
        loop {
            let (ids, pendings): (Vec<_>, Vec<_>) = self.syncs.take().into_iter().unzip();
            if ids.is_empty() {
                return;
            }
            // Who gets no answer because of a bug gets EIO.
            let answers = guarded(|| Ok(self.server.fsync(&ids))).unwrap_or_default();
            for (pending, answer) in pendings.into_iter().zip(answers) {
                pending.answer(answer.as_ref().map(|()| &[][..]).map_err(|&error| error));
            }
        }
    }
}
