//! A thread that commits changes after a given age, if the environment supports threads.
//!
//! Without threads, changes wait for a sync, for the close, or until too many of them are pending.
//! The thread starts with the first change after threads are permitted ([`thread::may_start`]), so that it does not
//! have privileges that the process has dropped by then.
//! Locking: each lock in this module is a leaf; the thread commits without holding one.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::mem;
use core::time::Duration;

use obento_driver::WritableFileSystem;
use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

/// Commits changes before they exceed a maximum age.
pub(crate) struct CommitTimer {
    shared: Arc<Shared>,
    life: Mutex<Life>,
}

enum Life {
    /// No thread exists, and none will start.
    Without,
    /// The function that the thread will run, once there is a change and threads are permitted.
    Wanted(Box<dyn FnOnce() + Send>),
    Runs(Thread),
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
    /// Creates a timer that commits nothing before [`start`](Self::start).
    pub fn new() -> Self {
        let shared = Shared { state: Mutex::new(State::Clean), changed: Condvar::new() };
        Self { shared: Arc::new(shared), life: Mutex::new(Life::Without) }
    }

    /// Syncs `volume` when its oldest change has reached `age`, or never if `age` is zero. The thread does not keep
    /// `volume` alive. The first error ends the thread; the next sync reports it.
    pub fn start(&self, volume: Weak<impl WritableFileSystem + 'static>, age: Duration) {
        if age.is_zero() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let run = move || while shared.wait(age) && volume.upgrade().is_some_and(|it| it.sync().is_ok()) {};
        *self.life.lock() = Life::Wanted(Box::new(run));
    }

    /// Records that a change is pending.
    pub fn changed(&self) {
        let mut state = self.shared.state.lock();
        if *state == State::Clean {
            *state = State::Changed;
            self.shared.changed.notify_all();
        }
        drop(state);
        let mut life = self.life.lock();
        *life = match mem::replace(&mut *life, Life::Without) {
            Life::Wanted(run) if thread::may_start() => {
                thread::spawn("obento-commit", run).map_or(Life::Without, Life::Runs)
            }
            known => known,
        };
    }

    /// Ends the thread, and waits for it. The caller must hold no lock that a sync acquires.
    pub fn stop(&self) {
        *self.shared.state.lock() = State::Stopped;
        self.shared.changed.notify_all();
        let life = mem::replace(&mut *self.life.lock(), Life::Without);
        if let Life::Runs(thread) = life {
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
