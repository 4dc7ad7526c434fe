//! The guard that keeps a mapping true while its bytes move.
//!
//! Locking: `vfs` owns one [`LayoutLock`] an inode. Shared from `map` until the I/O (and `end_write`) is done;
//! exclusive for truncate, punch, collapse, insert and eviction. A commit never takes it. It comes before every lock
//! inside a driver.

use obento_env::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of one inode's mapping.
#[derive(Debug, Default)]
pub struct LayoutLock(RwLock<()>);

/// The mapping cannot change while this lives.
#[derive(Debug)]
pub struct Layout<'a> {
    _guard: RwLockReadGuard<'a, ()>,
}

/// Nobody else maps or moves bytes while this lives.
#[derive(Debug)]
pub struct ExclusiveLayout<'a> {
    _guard: RwLockWriteGuard<'a, ()>,
}

impl LayoutLock {
    /// A lock that nobody holds.
    pub const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// For reading and writing bytes through a mapping.
    pub fn shared(&self) -> Layout<'_> {
        Layout { _guard: self.0.read() }
    }

    /// For taking blocks away from a mapping or moving them.
    pub fn exclusive(&self) -> ExclusiveLayout<'_> {
        ExclusiveLayout { _guard: self.0.write() }
    }
}
