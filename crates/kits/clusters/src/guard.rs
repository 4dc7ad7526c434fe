//! A volume that is locked for a change, and the inodes and directories that were found under this lock.
//!
//! Invariant: a function that changes an inode or its clusters takes an [`InodeWrite`], and one that changes
//! names takes a [`DirWrite`]. Both borrow a [`Locked`] volume, which owns the lock, so the lock is held
//! until the change is made.
//! Invariant: an [`InodeWrite`] shows the inode as it was read under this lock. A function that stores the
//! inode consumes the view, unless its caller continues to change it.
//! Locking: the lock is taken before the mutex of the writer. [`Mounted`](crate::Mounted) takes both.

use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};

use obento_base::{Error, Ino, Result};
use obento_env::sync::RwLockWriteGuard;

use crate::inode::Inode;
use crate::numbers::Numbers;
use crate::volume::Volume;

/// A volume that no other thread reads or changes while this exists.
pub struct Locked<'m, V> {
    volume: &'m V,
    _lock: RwLockWriteGuard<'m, ()>,
}

impl<V> Deref for Locked<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.volume
    }
}

impl<'m, V: Volume> Locked<'m, V> {
    /// Combines a volume with its lock.
    pub(crate) fn new(volume: &'m V, lock: RwLockWriteGuard<'m, ()>) -> Self {
        Self { volume, _lock: lock }
    }

    /// Returns the inode numbers, for changes.
    pub fn numbers_mut(&self) -> RwLockWriteGuard<'_, Numbers<V::Entry>> {
        self.volume.mount_state().numbers.write()
    }

    /// Returns the inode `ino`. Fails with `Stale`.
    pub fn inode(&self, ino: Ino) -> Result<InodeWrite<'_, V>> {
        self.volume.inode(ino).map(|inode| InodeWrite { volume: self, inode })
    }

    /// Returns a regular file. Fails with `Stale` or `IsDirectory`.
    pub fn file(&self, ino: Ino) -> Result<InodeWrite<'_, V>> {
        self.volume.file(ino).map(|inode| InodeWrite { volume: self, inode })
    }

    /// Returns a file or directory without a name.
    pub(crate) fn nameless(&self, ino: Ino) -> Option<InodeWrite<'_, V>> {
        let numbers = self.volume.numbers();
        let (entry, _) = numbers.orphan(ino)?;
        let inode = Inode { ino, entry, generation: numbers.generation(ino), is_named: false };
        Some(InodeWrite { volume: self, inode })
    }

    /// Returns a directory. Fails as [`Volume::directory`] does.
    pub(crate) fn dir(&self, ino: Ino) -> Result<DirWrite<'_, V>> {
        self.volume.directory(ino).map(|_| DirWrite { volume: self, ino })
    }

    /// Returns a directory in which an entry may be created. Fails with `NotDirectory`, or with `NotFound` if
    /// it was removed.
    pub(crate) fn live_dir(&self, ino: Ino) -> Result<DirWrite<'_, V>> {
        let inode = self.volume.inode(ino)?;
        match inode.is_dir() {
            false => Err(Error::NotDirectory),
            true if !inode.is_named => Err(Error::NotFound),
            true => self.dir(ino),
        }
    }
}

/// An inode, as it was read from the locked volume that this borrows.
pub struct InodeWrite<'l, V: Volume> {
    volume: &'l Locked<'l, V>,
    inode: Inode<V::Entry>,
}

impl<'l, V: Volume> InodeWrite<'l, V> {
    /// Returns the locked volume.
    pub fn volume(&self) -> &'l Locked<'l, V> {
        self.volume
    }

    /// Returns the directory that this inode is.
    pub fn dir(&self) -> DirWrite<'l, V> {
        DirWrite { volume: self.volume, ino: self.inode.ino }
    }
}

impl<V: Volume> Deref for InodeWrite<'_, V> {
    type Target = Inode<V::Entry>;

    fn deref(&self) -> &Inode<V::Entry> {
        &self.inode
    }
}

impl<V: Volume> DerefMut for InodeWrite<'_, V> {
    fn deref_mut(&mut self) -> &mut Inode<V::Entry> {
        &mut self.inode
    }
}

/// A directory of the locked volume that this borrows.
pub struct DirWrite<'l, V> {
    volume: &'l Locked<'l, V>,
    ino: Ino,
}

impl<'l, V: Volume> DirWrite<'l, V> {
    /// Returns the locked volume.
    pub fn volume(&self) -> &'l Locked<'l, V> {
        self.volume
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the current state of the directory, which is another object after the directory has grown.
    /// Fails as [`Volume::directory`] does.
    pub fn current(&self) -> Result<Arc<V::Directory>> {
        self.volume.directory(self.ino)
    }
}
