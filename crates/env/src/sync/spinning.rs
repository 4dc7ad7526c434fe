//! Locks whose waiting threads spin.

use core::time::Duration;

pub use core::sync::atomic;
pub use spin::{
    Mutex, MutexGuard, RwLock,
    rwlock::{RwLockReadGuard, RwLockWriteGuard},
};

#[derive(Debug, Default)]
pub(super) struct Waiters;

impl Waiters {
    pub(super) const fn new() -> Self {
        Self
    }

    pub(super) fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        drop(guard);
        core::hint::spin_loop();
        mutex.lock()
    }

    pub(super) fn wait_for<'a, T>(
        &self,
        _mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        _limit: Duration,
    ) -> MutexGuard<'a, T> {
        guard
    }

    pub(super) fn notify_one(&self) {}

    pub(super) fn notify_all(&self) {}
}
