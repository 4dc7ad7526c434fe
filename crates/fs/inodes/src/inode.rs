//! Inodes in memory: their attributes as the contract has them, their parent, and the format's map of their blocks.
//!
//! Invariant: an inode that is in use and has no link waits for its `forget`, or for the next open after a crash: xv6-riscv
//! `ireclaim`.

use obento_base::{Attr, Error, FileKind, Ino, Result};

/// An inode in use, as a look or a change has it: a copy, which counts once it is put back.
#[derive(Clone, Debug)]
pub struct Inode<M> {
    /// Its attributes.
    pub attr: Attr,
    /// Of a directory: the one that it lies in.
    pub parent: Ino,
    /// Where its blocks are.
    pub map: M,
}

impl<M: Default> Inode<M> {
    /// One that has no name yet, no parent and no block.
    pub(crate) fn new(attr: Attr) -> Self {
        Self { attr, parent: Ino(0), map: M::default() }
    }
}

impl<M> Inode<M> {
    /// Returns its number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.attr.is_dir()
    }

    /// Fails with `NotDirectory`.
    pub fn expect_dir(&self) -> Result<()> {
        if self.is_dir() { Ok(()) } else { Err(Error::NotDirectory) }
    }

    /// Fails with `IsDirectory`, or with `Invalid` for what is no regular file.
    pub fn expect_file(&self) -> Result<()> {
        match self.attr.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Lets it reach to `end` at least.
    pub fn grow_to(&mut self, end: u64) {
        self.attr.size = self.attr.size.max(end);
    }

    /// One link more. Fails with `TooManyLinks`.
    pub(crate) fn add_link(&mut self, most: u32) -> Result<()> {
        self.attr.nlink = self.attr.nlink.saturating_add(1);
        if self.attr.nlink > most { Err(Error::TooManyLinks) } else { Ok(()) }
    }

    /// One link less.
    pub(crate) fn drop_link(&mut self) {
        self.attr.nlink = self.attr.nlink.saturating_sub(1);
    }

    /// Takes a name away; from a directory, with the link that it has for itself.
    pub(crate) fn drop_name(&mut self) {
        if self.is_dir() {
            self.attr.nlink = 0;
        } else {
            self.drop_link();
        }
    }
}
