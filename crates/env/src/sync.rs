//! Locks without poisoning: a thread that panics leaves the lock usable, because nothing in obento panics on what it
//! reads and a volume is turned read-only by its journal, not by its locks.
//!
//! With `std`: the ones of `parking_lot`. Without: spinning ones, right for a single-threaded page or a kernel's
//! first steps, until a kernel host puts its own here.

#[cfg(feature = "std")]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "std"))]
pub use spin::{
    Mutex, MutexGuard, RwLock,
    rwlock::{RwLockReadGuard, RwLockWriteGuard},
};

/// Lets threads wait until what a [`Mutex`] guards has changed. Whoever waits looks again after waking, since it may
/// wake without a cause; without `std` it always does, at once.
#[derive(Debug, Default)]
pub struct Condvar {
    #[cfg(feature = "std")]
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self {
            #[cfg(feature = "std")]
            inner: parking_lot::Condvar::new(),
        }
    }

    /// Gives up `guard`, which is of `mutex`, waits to be woken, and takes it again.
    #[cfg(feature = "std")]
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let _ = mutex;
        self.inner.wait(&mut guard);
        guard
    }

    /// Gives up `guard`, which is of `mutex`, waits to be woken, and takes it again.
    #[cfg(not(feature = "std"))]
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        drop(guard);
        core::hint::spin_loop();
        mutex.lock()
    }

    /// Like [`Condvar::wait`], for `limit` at most. Without `std`, where nothing tells how time passes, not at all.
    pub fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        #[cfg_attr(not(feature = "std"), allow(unused_mut))] mut guard: MutexGuard<'a, T>,
        limit: core::time::Duration,
    ) -> MutexGuard<'a, T> {
        let _ = (mutex, limit);
        #[cfg(feature = "std")]
        self.inner.wait_for(&mut guard, limit);
        guard
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        #[cfg(feature = "std")]
        self.inner.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        #[cfg(feature = "std")]
        self.inner.notify_all();
    }
}
