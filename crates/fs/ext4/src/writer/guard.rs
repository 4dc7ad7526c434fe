//! Inodes that may be changed.
//!
//! Invariant: `Writer::edit_inode` takes an [`InodeWrite`], which borrows the lock of the inode for the life
//! of the transaction. The lock is therefore taken before the transaction begins, and held until it ends.
//! Other inodes that change are new, or have no lock of their own (`Writer::edit_shared_inode`).
//! Invariant: the view shows the inode as it was last read under this lock. After a transaction that changed
//! the inode, the owner of the lock reads the inode again (`Writer::refresh`) before the next change.

use core::ops::Deref;

use super::locks::{LockedInode, LockedInodes};
use crate::inode::Inode;

/// An inode, as it was read under the exclusive lock that this borrows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeWrite<'l>(&'l Inode);

impl Deref for InodeWrite<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        self.0
    }
}

impl LockedInodes<'_> {
    /// Returns a view of `inode`, which was read under this lock.
    pub(crate) fn view<'l>(&'l self, inode: &'l Inode) -> InodeWrite<'l> {
        debug_assert!(self.covers(inode.ino()), "{:?} is not locked", inode.ino());
        InodeWrite(inode)
    }
}

/// One inode with its exclusive lock.
#[derive(Debug)]
pub(crate) struct InodeGuard<'w> {
    lock: LockedInode<'w>,
    inode: Inode,
}

impl<'w> InodeGuard<'w> {
    /// Combines an inode with the lock under which it was read.
    pub(super) fn new(lock: LockedInode<'w>, inode: Inode) -> Self {
        Self { lock, inode }
    }

    /// Returns the view that permits changes.
    pub(crate) fn view(&self) -> InodeWrite<'_> {
        InodeWrite(&self.inode)
    }

    /// Returns the number of this lock, see [`LockedInode::turn`].
    pub(crate) fn turn(&self) -> u64 {
        self.lock.turn()
    }

    /// Replaces the inode by `inode`, which was read after a transaction that changed it.
    pub(super) fn replace(&mut self, inode: Inode) {
        self.inode = inode;
    }
}

impl Deref for InodeGuard<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}
