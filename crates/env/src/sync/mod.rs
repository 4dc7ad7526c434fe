//! Locks without poisoning: a thread that panics leaves the lock usable, because nothing in obento panics on what it
//! reads and a volume is turned read-only by its journal, not by its locks.
//!
//! With `std`: the ones of `parking_lot`. Without: spinning ones, right for a single-threaded page or a kernel's
//! first steps, until a kernel host puts its own here. With `--cfg obento_env="shuttle"`: those of a scheduler that tries
//! one order of threads after the other. What crosses threads without a lock is an atomic of this module, so that the
//! scheduler sees it as well.

#[cfg_attr(obento_env = "shuttle", path = "explored.rs")]
#[cfg_attr(all(feature = "std", not(obento_env = "shuttle")), path = "parked.rs")]
#[cfg_attr(not(any(feature = "std", obento_env = "shuttle")), path = "spinning.rs")]
mod chosen;

pub use chosen::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

/// Lets threads wait until what a [`Mutex`] guards has changed. Whoever waits looks again after waking, since it may
/// wake without a cause; without `std` it always does, at once.
#[derive(Debug, Default)]
pub struct Condvar(chosen::Waiters);

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self(chosen::Waiters::new())
    }

    /// Gives up `guard`, which is of `mutex`, waits to be woken, and takes it again.
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(mutex, guard)
    }

    /// Like [`Condvar::wait`], for `limit` at most. Without `std`, where nothing tells how time passes, not at all.
    pub fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        limit: core::time::Duration,
    ) -> MutexGuard<'a, T> {
        self.0.wait_for(mutex, guard, limit)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
