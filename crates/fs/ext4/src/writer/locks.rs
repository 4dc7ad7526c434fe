//! The locks of inodes.
//!
//! Invariant: an operation takes all of its inode locks at once, as a sorted set of stripes, before it begins its
//! transaction. No two operations therefore wait for each other, and no operation waits for a commit that waits for
//! it. A lock that turns out to be needed later is taken without waiting, or all locks are released and the operation
//! starts again.
//! Invariant: each exclusive lock of a stripe increments its counter. If a thread finds the counter that it left, no
//! other thread has changed the inode meanwhile.
//! Locking: after the guards and layouts of `vfs`, before `Transactions::begin`; groups, orphans and the cache come
//! after.

use alloc::vec::Vec;

use obento_base::Ino;
use obento_env::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Enough that operations on different inodes rarely use the same stripe.
const STRIPES: u64 = 1024;

/// The lock of one or more inodes. Its order is the lock order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockKey(u16);

impl LockKey {
    /// Returns the lock of `ino`.
    pub fn of(ino: Ino) -> Self {
        Self(u16::try_from(ino.0 % STRIPES).unwrap_or(0))
    }
}

/// The number of times that a stripe was locked for changes.
type Turn = u64;

/// One lock per stripe of inode numbers. The first is separate, so that each key has a lock without a check of bounds.
#[derive(Debug)]
pub struct InodeLocks {
    first: RwLock<Turn>,
    others: Vec<RwLock<Turn>>,
}

/// Maximum number of inodes that one operation changes: both directories of a rename, and the inodes of both names.
const MOST: usize = 4;

/// Inodes that no other thread reads or changes while this lives.
#[derive(Debug)]
pub struct LockedInodes<'a> {
    /// In their order. A stripe that occurs twice is locked once.
    keys: [LockKey; MOST],
    /// One guard for each different key, in any order.
    guards: [Option<RwLockWriteGuard<'a, Turn>>; MOST],
}

/// An inode that no other thread reads or changes while this lives.
#[derive(Debug)]
pub struct LockedInode<'a>(RwLockWriteGuard<'a, Turn>);

impl InodeLocks {
    /// Creates the locks.
    pub fn new() -> Self {
        Self { first: RwLock::new(0), others: (1..STRIPES).map(|_| RwLock::new(0)).collect() }
    }

    fn stripe(&self, key: LockKey) -> &RwLock<Turn> {
        self.others.get(usize::from(key.0).wrapping_sub(1)).unwrap_or(&self.first)
    }

    /// Locks one inode for reading.
    pub fn read(&self, ino: Ino) -> RwLockReadGuard<'_, Turn> {
        self.stripe(LockKey::of(ino)).read()
    }

    /// Locks one inode for changes.
    pub fn write_one(&self, ino: Ino) -> LockedInode<'_> {
        LockedInode(count(self.stripe(LockKey::of(ino)).write()))
    }

    /// Locks `inodes`, at least one and at most `MOST`, for changes.
    pub fn write<const N: usize>(&self, inodes: &[Ino; N]) -> LockedInodes<'_> {
        const { assert!(N > 0 && N <= MOST) };
        let at = |n: usize| inodes.get(n).or(inodes.first()).map_or(LockKey(0), |&ino| LockKey::of(ino));
        let mut keys = core::array::from_fn(at);
        keys.sort_unstable();
        let mut last = None;
        let guards =
            keys.map(|key| (last.replace(key) != Some(key)).then(|| count(self.stripe(key).write())));
        LockedInodes { keys, guards }
    }

    /// Adds `ino` to `set`, which has space for it, if its lock is free. Waiting could deadlock with another thread.
    pub fn try_add<'a>(&'a self, set: &mut LockedInodes<'a>, ino: Ino) -> bool {
        if set.covers(ino) {
            return true;
        }
        let key = LockKey::of(ino);
        let Some(guard) = self.stripe(key).try_write() else { return false };
        // A key that occurs twice has one guard.
        let twice = set.keys.windows(2).position(|pair| pair.first() == pair.last());
        let place = twice.and_then(|at| set.keys.get_mut(at));
        let slot = set.guards.iter_mut().find(|guard| guard.is_none());
        let (Some(place), Some(slot)) = (place, slot) else { return false };
        (*place, *slot) = (key, Some(count(guard)));
        set.keys.sort_unstable();
        true
    }
}

/// Records that a stripe is locked for changes.
fn count(mut guard: RwLockWriteGuard<'_, Turn>) -> RwLockWriteGuard<'_, Turn> {
    *guard = guard.wrapping_add(1);
    guard
}

impl LockedInode<'_> {
    /// Returns the number of this lock. If the previous lock has the previous number, no other thread had a lock in
    /// between.
    pub fn turn(&self) -> u64 {
        *self.0
    }
}

impl Default for InodeLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl LockedInodes<'_> {
    /// Returns whether `ino` is locked. If not, an operation that needs it drops the set, takes a larger one, and
    /// repeats its lookups.
    pub fn covers(&self, ino: Ino) -> bool {
        self.keys.binary_search(&LockKey::of(ino)).is_ok()
    }
}

/// The number of stripes fits an index everywhere.
const _: () = assert!(STRIPES <= 1 << 15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_sorted_and_takes_each_lock_once() {
        let locks = InodeLocks::new();
        let set = locks.write(&[Ino(5000), Ino(12), Ino(12 + STRIPES), Ino(12)]);
        assert_eq!(set.keys, [LockKey(12), LockKey(12), LockKey(12), LockKey::of(Ino(5000))]);
        assert!(set.covers(Ino(12)) && !set.covers(Ino(13)));
        drop(set);
        let _shared = (locks.read(Ino(12)), locks.read(Ino(12 + STRIPES)));
    }

    #[test]
    fn a_lock_that_can_be_had_is_added_and_no_other_waited_for() {
        let locks = InodeLocks::new();
        let mut set = locks.write(&[Ino(12)]);
        assert!(locks.try_add(&mut set, Ino(5)) && locks.try_add(&mut set, Ino(12 + STRIPES)));
        assert_eq!(set.keys, [LockKey(5), LockKey(12), LockKey(12), LockKey(12)]);
        assert!(set.covers(Ino(5)) && set.covers(Ino(12)));
        let mut other = locks.write(&[Ino(40)]);
        assert!(!locks.try_add(&mut other, Ino(5)) && !other.covers(Ino(5)));
        drop(set);
        assert!(locks.try_add(&mut other, Ino(5)));
    }

    #[test]
    fn a_lock_for_changes_is_counted_and_one_for_reading_is_not() {
        let locks = InodeLocks::new();
        let first = locks.write_one(Ino(12)).turn();
        drop((locks.read(Ino(12)), locks.write_one(Ino(13))));
        assert_eq!(locks.write_one(Ino(12)).turn(), first + 1);
        drop(locks.write(&[Ino(12), Ino(12 + STRIPES)]));
        let mut set = locks.write(&[Ino(40)]);
        assert!(locks.try_add(&mut set, Ino(12)));
        drop(set);
        assert_eq!(locks.write_one(Ino(12)).turn(), first + 4);
    }

    #[test]
    fn numbers_of_any_size_have_a_lock() {
        let locks = InodeLocks::new();
        assert_eq!(1 + locks.others.len(), 1024);
        drop(locks.read(Ino(u64::MAX)));
    }
}
