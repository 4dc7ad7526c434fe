//! Locks whose waiting threads sleep.

use core::time::Duration;

pub use core::sync::atomic;
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[derive(Debug, Default)]
pub(super) struct Waiters(parking_lot::Condvar);

impl Waiters {
    pub(super) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub(super) fn wait<'a, T>(
        &self,
        _mutex: &'a Mutex<T>,
        mut guard: MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    pub(super) fn wait_for<'a, T>(
        &self,
        _mutex: &'a Mutex<T>,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> MutexGuard<'a, T> {
        self.0.wait_for(&mut guard, limit);
        guard
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }
}
