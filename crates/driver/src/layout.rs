//! The guard that keeps the mapping of a file valid while data is transferred.
//!
//! Locking: `vfs` owns one [`LayoutLock`] per inode. A thread holds the lock shared from `map` until the I/O and
//! `end_write` have completed. A thread holds the lock exclusively for truncate, punch, collapse, insert and
//! eviction. A commit never takes the lock. The lock is acquired before every lock inside a driver.

use obento_env::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the mapping of one inode.
#[derive(Debug, Default)]
pub struct LayoutLock(RwLock<()>);

/// A shared guard. While this guard exists, mapped data does not move, and its blocks are not freed. Between two
/// guards, the location of mapped data changes only under an exclusive guard, or when the flags of the inode change.
/// `vfs` may therefore read the data again without another call of `map`.
#[derive(Debug)]
pub struct Layout<'a> {
    _guard: RwLockReadGuard<'a, ()>,
}

/// An exclusive guard. No other thread maps or transfers data while this guard exists.
#[derive(Debug)]
pub struct ExclusiveLayout<'a> {
    _guard: RwLockWriteGuard<'a, ()>,
}

impl LayoutLock {
    /// Creates an unlocked lock.
    pub const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// Locks the mapping for reading and writing data.
    pub fn shared(&self) -> Layout<'_> {
        Layout { _guard: self.0.read() }
    }

    /// Locks the mapping for removing or moving blocks.
    pub fn exclusive(&self) -> ExclusiveLayout<'_> {
        ExclusiveLayout { _guard: self.0.write() }
    }
}
