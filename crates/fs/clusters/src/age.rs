//! The thread that commits changes by their age, where the environment has threads.
//!
//! Without one changes wait for a sync, the close, or until there are too many.
//! Locking: the lock in here is a leaf; the thread commits with nothing held.

use alloc::sync::{Arc, Weak};
use core::time::Duration;

use obento_driver::WritableFileSystem;
use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

/// Sees to it that no change waits for long.
pub(crate) struct Ager {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing waits.
    Clean,
    /// Something does, and ages.
    Changed,
    Stopped,
}

impl Ager {
    /// One that commits nothing yet.
    pub fn new() -> Self {
        let shared = Shared { state: Mutex::new(State::Clean), changed: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Syncs `volume`, whose life this does not prolong, `age` after the first of its changes; never, if that is zero.
    /// The first error ends it: whoever syncs next is told.
    pub fn start(&self, volume: Weak<impl WritableFileSystem + 'static>, age: Duration) {
        if age.is_zero() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let run = move || while shared.wait(age) && volume.upgrade().is_some_and(|it| it.sync().is_ok()) {};
        *self.thread.lock() = thread::spawn("obento-commit", run);
    }

    /// Something was changed.
    pub fn changed(&self) {
        let mut state = self.shared.state.lock();
        if *state == State::Clean {
            *state = State::Changed;
            self.shared.changed.notify_all();
        }
    }

    /// Ends the thread. No lock is held that a sync takes.
    pub fn stop(&self) {
        *self.shared.state.lock() = State::Stopped;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Drop for Ager {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Waits until something is old enough. False: to stop.
    fn wait(&self, age: Duration) -> bool {
        let mut state = self.state.lock();
        while *state == State::Clean {
            state = self.changed.wait(&self.state, state);
        }
        if *state == State::Changed {
            // Nothing but the end wakes it early.
            state = self.changed.wait_for(&self.state, state, age);
        }
        let goes_on = *state != State::Stopped;
        if goes_on {
            *state = State::Clean;
        }
        goes_on
    }
}
