//! Locks of a kernel: words that a thread takes without a call if they are free, and two hypercalls to sleep
//! and to wake.
//!
//! Source of the algorithms: the standard library of Rust, `library/std/src/sys/sync/{mutex,rwlock,condvar}/futex.rs`
//! (MIT OR Apache-2.0).
//! Invariant: a thread that waits sleeps; nothing here spins, since a kernel may run one processor.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use atomic::AtomicU32;
use atomic::Ordering::{Acquire, Relaxed, Release};
pub use core::sync::atomic;

use crate::hyper;

/// A word on which threads sleep.
#[derive(Debug, Default)]
struct Word(AtomicU32);

impl Word {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }
    fn wait(&self, expected: u32) {
        hyper::wait_for_lock(&self.0, expected);
    }
}

/// A value that one thread at a time may use.
#[derive(Default)]
pub struct Mutex<T> {
    word: Word,
    value: UnsafeCell<T>,
}
// SAFETY: the lock owns the value.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: the word gives one thread at a time access to the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to the value of a [`Mutex`].
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    _not_send: core::marker::PhantomData<*const ()>,
}
// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { word: Word::new(), value: UnsafeCell::new(value) }
    }
    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if self.word.0.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            self.contended();
        }
        MutexGuard { lock: self, _not_send: core::marker::PhantomData }
    }
    #[cold]
    fn contended(&self) {
        while self.word.0.swap(2, Acquire) != 0 {
            self.word.wait(2);
        }
    }
    #[inline]
    fn unlock(&self) {
        if self.word.0.swap(0, Release) == 2 {
            hyper::wake_one(&self.word.0);
        }
    }
}
impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}
impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread owns the lock.
        unsafe { &*self.lock.value.get() }
    }
}
impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread owns the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}
impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}
impl<T> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}

const READ_LOCKED: u32 = 1;
const MASK: u32 = (1 << 30) - 1;
const WRITE_LOCKED: u32 = MASK;
const MAX_READERS: u32 = MASK - 1;
const READERS_WAITING: u32 = 1 << 30;
const WRITERS_WAITING: u32 = 1 << 31;

fn is_unlocked(state: u32) -> bool {
    state & MASK == 0
}
fn is_read_lockable(state: u32) -> bool {
    state & MASK < MAX_READERS && state & (READERS_WAITING | WRITERS_WAITING) == 0
}

/// A value that one thread may change, or several may read.
#[derive(Default)]
pub struct RwLock<T> {
    state: Word,
    writer: Word,
    value: UnsafeCell<T>,
}
// SAFETY: the lock owns the value.
unsafe impl<T: Send> Send for RwLock<T> {}
// SAFETY: the word gives access to one writer or to any number of readers.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}

/// Shared access to the value of an [`RwLock`].
pub struct RwLockReadGuard<'a, T>(&'a RwLock<T>, core::marker::PhantomData<*const ()>);
/// Exclusive access to the value of an [`RwLock`].
pub struct RwLockWriteGuard<'a, T>(&'a RwLock<T>, core::marker::PhantomData<*const ()>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { state: Word::new(), writer: Word::new(), value: UnsafeCell::new(value) }
    }
    /// Waits until no thread changes the value, and takes the lock for reading.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let state = self.state.0.load(Relaxed);
        if !is_read_lockable(state)
            || self.state.0.compare_exchange_weak(state, state + READ_LOCKED, Acquire, Relaxed).is_err()
        {
            self.read_contended();
        }
        RwLockReadGuard(self, core::marker::PhantomData)
    }
    #[cold]
    fn read_contended(&self) {
        let mut state = self.state.0.load(Relaxed);
        loop {
            if is_read_lockable(state) {
                match self.state.0.compare_exchange_weak(state, state + READ_LOCKED, Acquire, Relaxed) {
                    Ok(_) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            if state & READERS_WAITING == 0 {
                if let Err(now) =
                    self.state.0.compare_exchange(state, state | READERS_WAITING, Relaxed, Relaxed)
                {
                    state = now;
                    continue;
                }
            }
            self.state.wait(state | READERS_WAITING);
            state = self.state.0.load(Relaxed);
        }
    }
    /// Waits until no thread uses the value, and takes the lock for writing.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        if self.state.0.compare_exchange(0, WRITE_LOCKED, Acquire, Relaxed).is_err() {
            self.write_contended();
        }
        RwLockWriteGuard(self, core::marker::PhantomData)
    }
    /// Takes the lock for writing if no thread uses the value.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let mut state = self.state.0.load(Relaxed);
        while is_unlocked(state) {
            match self.state.0.compare_exchange_weak(state, state + WRITE_LOCKED, Acquire, Relaxed) {
                Ok(_) => return Some(RwLockWriteGuard(self, core::marker::PhantomData)),
                Err(now) => state = now,
            }
        }
        None
    }
    #[cold]
    fn write_contended(&self) {
        let mut state = self.state.0.load(Relaxed);
        let mut others = 0;
        loop {
            if is_unlocked(state) {
                match self.state.0.compare_exchange_weak(
                    state,
                    state | WRITE_LOCKED | others,
                    Acquire,
                    Relaxed,
                ) {
                    Ok(_) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            if state & WRITERS_WAITING == 0 {
                if let Err(now) =
                    self.state.0.compare_exchange(state, state | WRITERS_WAITING, Relaxed, Relaxed)
                {
                    state = now;
                    continue;
                }
            }
            others = WRITERS_WAITING;
            let seen = self.writer.0.load(Acquire);
            state = self.state.0.load(Relaxed);
            if is_unlocked(state) || state & WRITERS_WAITING == 0 {
                continue;
            }
            self.writer.wait(seen);
            state = self.state.0.load(Relaxed);
        }
    }
    fn read_unlock(&self) {
        let state = self.state.0.fetch_sub(READ_LOCKED, Release) - READ_LOCKED;
        if is_unlocked(state) && state & WRITERS_WAITING != 0 {
            self.wake(state);
        }
    }
    fn write_unlock(&self) {
        let state = self.state.0.fetch_sub(WRITE_LOCKED, Release) - WRITE_LOCKED;
        if state & (READERS_WAITING | WRITERS_WAITING) != 0 {
            self.wake(state);
        }
    }
    #[cold]
    fn wake(&self, mut state: u32) {
        if state == WRITERS_WAITING {
            match self.state.0.compare_exchange(state, 0, Relaxed, Relaxed) {
                Ok(_) => {
                    self.writer.0.fetch_add(1, Release);
                    hyper::wake_one(&self.writer.0);
                    return;
                }
                Err(now) => state = now,
            }
        }
        if state == READERS_WAITING + WRITERS_WAITING {
            if self.state.0.compare_exchange(state, READERS_WAITING, Relaxed, Relaxed).is_err() {
                return;
            }
            self.writer.0.fetch_add(1, Release);
            // Whether a writer woke is unknown, so the readers wake as well.
            hyper::wake_one(&self.writer.0);
            state = READERS_WAITING;
        }
        if state == READERS_WAITING && self.state.0.compare_exchange(state, 0, Relaxed, Relaxed).is_ok() {
            hyper::wake_all(&self.state.0);
        }
    }
}
impl<T> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.read_unlock();
    }
}
impl<T> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.write_unlock();
    }
}
impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no thread changes the value while the guard exists.
        unsafe { &*self.0.value.get() }
    }
}
impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread owns the lock.
        unsafe { &*self.0.value.get() }
    }
}
impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread owns the lock.
        unsafe { &mut *self.0.value.get() }
    }
}
// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: Sync> Sync for RwLockWriteGuard<'_, T> {}
impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}
impl<T> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLockReadGuard")
    }
}
impl<T> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLockWriteGuard")
    }
}

/// The threads that wait for a condition: a counter of notifications.
#[derive(Debug, Default)]
pub(super) struct Waiters(Word);

impl Waiters {
    pub(super) const fn new() -> Self {
        Self(Word::new())
    }
    pub(super) fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.sleep(mutex, guard, None)
    }
    pub(super) fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> MutexGuard<'a, T> {
        self.sleep(mutex, guard, Some(limit))
    }
    fn sleep<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, T> {
        let seen = self.0.0.load(Relaxed);
        drop(guard);
        hyper::wait_for_notification(&self.0.0, seen, limit);
        mutex.lock()
    }
    pub(super) fn notify_one(&self) {
        self.0.0.fetch_add(1, Relaxed);
        hyper::wake_one(&self.0.0);
    }
    pub(super) fn notify_all(&self) {
        self.0.0.fetch_add(1, Relaxed);
        hyper::wake_all(&self.0.0);
    }
}
