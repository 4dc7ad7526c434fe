//! A thread that commits changes after a given age, if the environment supports threads.
//!
//! Without threads, changes wait for a sync, for the close, or until too many of them are pending.
//! Locking: the lock in this module is a leaf; the thread commits without holding it.

use alloc::sync::{Arc, Weak};
use core::time::Duration;

use obento_driver::WritableFileSystem;
use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

/// Commits changes before they are too old.
pub(crate) struct CommitTimer {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No change is pending.
    Clean,
    /// A change is pending and ages.
    Changed,
    Stopped,
}

impl CommitTimer {
    /// Creates an ager that commits nothing yet.
    pub fn new() -> Self {
        let shared = Shared { state: Mutex::new(State::Clean), changed: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Syncs `volume` when its oldest change has reached `age`, or never if `age` is zero. The thread does not keep
    /// `volume` alive. The first error ends the thread; the next sync reports it.
    pub fn start(&self, volume: Weak<impl WritableFileSystem + 'static>, age: Duration) {
        if age.is_zero() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let run = move || while shared.wait(age) && volume.upgrade().is_some_and(|it| it.sync().is_ok()) {};
        *self.thread.lock() = thread::spawn("obento-commit", run);
    }

    /// Records that a change is pending.
    pub fn changed(&self) {
        let mut state = self.shared.state.lock();
        if *state == State::Clean {
            *state = State::Changed;
            self.shared.changed.notify_all();
        }
    }

    /// Ends the thread. The caller must hold no lock that a sync takes.
    pub fn stop(&self) {
        *self.shared.state.lock() = State::Stopped;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Drop for CommitTimer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Waits until a change has reached `age`. Returns false if the thread must stop.
    fn wait(&self, age: Duration) -> bool {
        let mut state = self.state.lock();
        while *state == State::Clean {
            state = self.changed.wait(&self.state, state);
        }
        if *state == State::Changed {
            // Only the end wakes the thread early.
            state = self.changed.wait_for(&self.state, state, age);
        }
        let goes_on = *state != State::Stopped;
        if goes_on {
            *state = State::Clean;
        }
        goes_on
    }
}
