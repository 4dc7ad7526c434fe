//! The guard that keeps a mapping valid while data is transferred.
//!
//! Locking: `vfs` owns one [`LayoutLock`] per inode. It is held shared from `map` until the I/O and
//! `end_write` have completed, and exclusively for truncate, punch, collapse, insert and eviction. A commit
//! never takes it. It is acquired before every lock inside a driver.

use obento_env::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the mapping of one inode.
#[derive(Debug, Default)]
pub struct LayoutLock(RwLock<()>);

/// A shared guard. The mapping does not change while this guard exists.
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
