//! Locks without poisoning: after a panic of a thread, a lock stays usable. No input makes obento panic,
//! and its journal, not its locks, turns a volume read-only.
//!
//! With `std`, the locks are those of `parking_lot`. Without it, they spin, which suits single-threaded
//! environments. With `--cfg obento_env="kernel"`, they are words on which the kernel lets threads sleep.
//! With `--cfg obento_env="shuttle"`, they belong to a scheduler that explores orders of threads. State that crosses threads without a lock uses the atomics of
//! this module, so that the scheduler controls them too.

#[cfg_attr(obento_env = "shuttle", path = "explored.rs")]
#[cfg_attr(all(feature = "std", not(obento_env = "shuttle")), path = "parked.rs")]
#[cfg_attr(obento_env = "kernel", path = "kernel.rs")]
#[cfg_attr(not(any(feature = "std", obento_env = "shuttle", obento_env = "kernel")), path = "spinning.rs")]
mod chosen;

pub use chosen::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

/// A condition variable for state that a [`Mutex`] guards. A wait may end without a cause, so callers check
/// the state in a loop. Without `std`, every wait ends immediately.
#[derive(Debug, Default)]
pub struct Condvar(chosen::Waiters);

impl Condvar {
    /// Creates a condition variable without waiting threads.
    pub const fn new() -> Self {
        Self(chosen::Waiters::new())
    }

    /// Releases `guard`, which belongs to `mutex`, waits for a notification, and acquires the lock again.
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(mutex, guard)
    }

    /// Waits as [`Condvar::wait`] does, for at most `limit`. Without `std`, which has no time, returns
    /// immediately.
    pub fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        limit: core::time::Duration,
    ) -> MutexGuard<'a, T> {
        self.0.wait_for(mutex, guard, limit)
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
