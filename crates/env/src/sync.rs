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
