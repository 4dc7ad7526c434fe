//! Locks of `shuttle`: at each lock and each atomic, a scheduler decides which thread continues.
//!
//! Invariant: a wait with a timeout ends whenever the scheduler chooses, since time has no meaning.
//! Invariant: these locks work only inside a run of the scheduler; see the package `obento-schedules`.

use core::time::Duration;
use std::sync::PoisonError;

pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Acquires the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader-writer lock.
#[derive(Debug, Default)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    /// Acquires the lock for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the lock for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the lock for writing, or returns `None` if it is held.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }
}

#[derive(Debug, Default)]
pub(super) struct Waiters(shuttle::sync::Condvar);

impl Waiters {
    pub(super) const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    pub(super) fn wait<'a, T>(&self, _mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        _limit: Duration,
    ) -> MutexGuard<'a, T> {
        drop(guard);
        shuttle::thread::yield_now();
        mutex.lock()
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }
}
