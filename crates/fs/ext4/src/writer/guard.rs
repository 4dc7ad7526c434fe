//! Inodes that may be changed.
//!
//! Invariant: [`Writer::edit_inode`], the only way to change an inode, takes an [`InodeWrite`]. Such a view borrows a
//! lock of the inode, so the lock is held until the inode is copied into the transaction.
//! Invariant: the view shows the inode as it was last read under this lock. The holder reads it again
//! ([`InodeGuard::refresh`]) after a transaction that changed it, before it changes it once more.

use core::ops::Deref;

use obento_base::{Ino, Result};
use obento_env::sync::MutexGuard;

use super::Writer;
use super::locks::{LockedInode, LockedInodes};
use crate::inode::Inode;

/// An inode, as it was read under the exclusive lock that this borrows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeWrite<'l>(&'l Inode);

impl<'l> InodeWrite<'l> {
    /// Returns a view of an inode that belongs to several files, or to the format: a value of an attribute, or a quota
    /// file. Such inodes have no lock of their own, but change only under the mutex of `_guard`.
    pub(crate) fn under<T>(_guard: &'l MutexGuard<'_, T>, inode: &'l Inode) -> Self {
        Self(inode)
    }
}

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

impl InodeGuard<'_> {
    /// Returns the view that permits changes.
    pub(crate) fn view(&self) -> InodeWrite<'_> {
        InodeWrite(&self.inode)
    }

    /// Returns the number of this lock, see [`LockedInode::turn`].
    pub(crate) fn turn(&self) -> u64 {
        self.lock.turn()
    }

    /// Reads the inode again, after a transaction that changed it.
    pub(crate) fn refresh(&mut self, writer: &Writer) -> Result<()> {
        self.inode = writer.volume().inode(self.inode.ino())?;
        Ok(())
    }
}

impl Deref for InodeGuard<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl Writer {
    /// Locks inode `ino`, and reads it. Fails with `Corrupt`, or with `Stale` if it is not in use.
    pub(crate) fn lock_inode(&self, ino: Ino) -> Result<InodeGuard<'_>> {
        self.lock_as(ino, |writer, ino| writer.volume().inode(ino))
    }

    /// Locks inode `ino`, unless it is reserved by the format, and reads it. Fails as [`Self::lock_inode`] does.
    pub(crate) fn lock_user_inode(&self, ino: Ino) -> Result<InodeGuard<'_>> {
        self.lock_as(ino, |writer, ino| writer.volume().user_inode(ino))
    }

    /// Locks inode `ino`, and reads it by `read`, which may refuse it.
    pub(crate) fn lock_as(
        &self,
        ino: Ino,
        read: impl FnOnce(&Self, Ino) -> Result<Inode>,
    ) -> Result<InodeGuard<'_>> {
        let lock = self.locks().write_one(ino);
        let inode = read(self, ino)?;
        Ok(InodeGuard { lock, inode })
    }
}
