//! Inodes in memory: the attributes of the contract, the parent, and the block map of the format.
//!
//! Invariant: `forget` frees an inode without a link. After a crash, the next open for writing frees such an
//! inode (`ireclaim` of xv6-riscv).
//! Invariant: a function that changes an inode takes a [`LockedInode`] and the exclusive [`Op`](crate::Op).

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use obento_base::{Attr, Error, FileKind, Ino, Result};

/// An allocated inode in memory.
#[derive(Clone, Debug)]
pub struct Inode<M> {
    /// Its attributes.
    pub attr: Attr,
    /// The parent directory, for directories.
    pub parent: Ino,
    /// The block map.
    pub map: M,
}

/// An inode, as it was read or created under the lock of an [`Op`](crate::Op). It cannot outlive the lock. A
/// change of this copy takes effect when the `Op` stores the copy.
#[derive(Debug)]
pub struct LockedInode<'l, M> {
    inode: Inode<M>,
    lock: PhantomData<&'l ()>,
}

impl<M> LockedInode<'_, M> {
    /// Returns a view of `inode`, which the caller has read or created under the lock.
    pub(crate) fn new(inode: Inode<M>) -> Self {
        Self { inode, lock: PhantomData }
    }
}

impl<M> Deref for LockedInode<'_, M> {
    type Target = Inode<M>;

    fn deref(&self) -> &Inode<M> {
        &self.inode
    }
}

impl<M> DerefMut for LockedInode<'_, M> {
    fn deref_mut(&mut self) -> &mut Inode<M> {
        &mut self.inode
    }
}

impl<M: Default> Inode<M> {
    /// Creates an inode that has no name, no parent and no blocks.
    pub(crate) fn new(attr: Attr) -> Self {
        Self { attr, parent: Ino(0), map: M::default() }
    }
}

impl<M> Inode<M> {
    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Returns whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.attr.is_dir()
    }

    /// Fails with `NotDirectory` if this is not a directory.
    pub fn expect_dir(&self) -> Result<()> {
        if self.is_dir() { Ok(()) } else { Err(Error::NotDirectory) }
    }

    /// Fails with `IsDirectory`, or with `Invalid` for other inodes that are not regular files.
    pub fn expect_file(&self) -> Result<()> {
        match self.attr.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Increases the size to at least `end`.
    pub fn grow_to(&mut self, end: u64) {
        self.attr.size = self.attr.size.max(end);
    }

    /// Adds a link. Fails with `TooManyLinks`.
    pub(crate) fn add_link(&mut self, most: u32) -> Result<()> {
        self.attr.nlink = self.attr.nlink.saturating_add(1);
        if self.attr.nlink > most { Err(Error::TooManyLinks) } else { Ok(()) }
    }

    /// Removes a link.
    pub(crate) fn drop_link(&mut self) {
        self.attr.nlink = self.attr.nlink.saturating_sub(1);
    }

    /// Removes a name, and for a directory also its link to itself.
    pub(crate) fn drop_name(&mut self) {
        if self.is_dir() {
            self.attr.nlink = 0;
        } else {
            self.drop_link();
        }
    }
}
