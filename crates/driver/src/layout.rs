//! The lock that keeps the mapping of a file valid while data is transferred: see [`LayoutLock`].

use obento_env::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the mapping of one inode. The mapping is the location of the data of a file.
///
/// The caller of a driver enforces the following rules. `vfs` owns one `LayoutLock` per inode for this purpose; the
/// kernel module uses other locks.
///
/// - A thread holds the lock shared from `map` or `begin_write` until the I/O and `end_write` have completed,
///   and during `read`, `write` and `allocate`.
/// - A thread holds the lock exclusively during `truncate`, `punch`, `zero_range`, `collapse` and `insert`.
/// - A thread that calls [`forget`](crate::FileSystem::forget) holds no layout lock. `forget` may free the
///   inode and needs no lock, because no other thread uses the inode.
/// - A driver never acquires the lock, not even during a commit.
/// - A thread acquires the lock before every lock inside a driver.
#[derive(Debug, Default)]
pub struct LayoutLock(RwLock<()>);

/// A shared guard. While this guard exists, mapped data does not move, and its blocks are not freed.
///
/// A caller may store a location that `map` returned under one shared guard, and use the location under a
/// later shared guard. The location becomes invalid in two cases: a thread acquires an exclusive guard, or a
/// thread changes the flags of the inode. Nothing else changes the location of mapped data.
#[derive(Debug)]
pub struct Layout<'a> {
    _guard: RwLockReadGuard<'a, ()>,
}

/// An exclusive guard. While this guard exists, no other thread maps or transfers data of the file.
#[derive(Debug)]
pub struct ExclusiveLayout<'a> {
    _guard: RwLockWriteGuard<'a, ()>,
}

impl LayoutLock {
    /// Creates an unlocked lock.
    pub const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// Acquires the lock shared, for reading and writing data. Waits while another thread holds the lock
    /// exclusively. A thread that holds the lock already must not call this method: it could wait for itself.
    pub fn shared(&self) -> Layout<'_> {
        Layout { _guard: self.0.read() }
    }

    /// Acquires the lock exclusively, for removing or moving blocks. Waits while another thread holds the
    /// lock. A thread that holds the lock already must not call this method: it would wait for itself.
    pub fn exclusive(&self) -> ExclusiveLayout<'_> {
        ExclusiveLayout { _guard: self.0.write() }
    }
}
