//! Requests that wait for stable storage, answered together.
//!
//! Requests that arrive while one commit is being written share the next commit, and one thread answers all of them.
//! With one waiting thread per request, a request took seven wake-ups.
//! Invariant: while requests wait, exactly one thread is going to take them.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::abi::{InHeader, opcode};
use super::reply::Pending;
use super::{Wire, guarded};

/// Requests that wait, and that one thread answers together.
#[derive(Default)]
pub(super) struct Syncs(Mutex<State>);

/// A request that waits.
type Waiting = (InHeader, Pending);

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    has_thread: bool,
}

impl Syncs {
    /// Adds a request. Returns whether the caller must start a thread that [takes](Self::take) it.
    pub fn push(&self, header: InHeader, pending: Pending) -> bool {
        let mut state = self.0.lock();
        state.waiting.push((header, pending));
        !mem::replace(&mut state.has_thread, true)
    }

    /// Takes all waiting requests. If no request waits, the calling thread must end.
    pub fn take(&self) -> Vec<Waiting> {
        let mut state = self.0.lock();
        let waiting = mem::take(&mut state.waiting);
        state.has_thread = !waiting.is_empty();
        waiting
    }
}

impl Wire {
    /// Handles FSYNC and FSYNCDIR.
    pub(super) fn sync(self: &Arc<Self>, header: &InHeader, pending: Pending) {
        if self.syncs.push(*header, pending) {
            let wire = Arc::clone(self);
            self.pool.run(move || wire.sync_all());
        }
    }

    /// Answers requests until none waits.
    fn sync_all(&self) {
        loop {
            let (headers, pendings): (Vec<_>, Vec<_>) = self.syncs.take().into_iter().unzip();
            let ids: Vec<_> = headers.iter().map(|header| header.nodeid).collect();
            if ids.is_empty() {
                return;
            }
            // A request without an answer, because of a bug, gets EIO.
            let answers = guarded(|| Ok(self.server.fsync(&ids))).unwrap_or_default();
            if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err().copied()) {
                self.note_error(opcode::FSYNC, error);
            }
            for (pending, answer) in pendings.into_iter().zip(answers) {
                pending.answer(answer.as_ref().map(|()| &[][..]).map_err(|&error| error));
            }
        }
    }
}
