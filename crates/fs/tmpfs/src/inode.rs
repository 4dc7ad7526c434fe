//! An inode and its contents.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_base::{Attr, Error, FileKind, Generation, Ino, Name, Result, Timestamp};
use obento_driver::NewNode;
use obento_env::sync::{RwLock, RwLockWriteGuard};

use crate::dir::{Directory, Entry};
use crate::map::Data;
use crate::space::PAGE;

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) generation: Generation,
    pub(crate) kind: FileKind,
    pub(crate) state: RwLock<State>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Directory(Directory),
    Regular(Data),
    Symlink(Box<[u8]>),
    /// A device, FIFO or socket: attributes only.
    Node,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The attributes, except those that [`Inode::attr`] derives.
    pub(crate) attr: Attr,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) body: Body,
}

impl State {
    /// Creates an inode without a name. `parent` is the parent of a directory.
    pub(crate) fn new(node: &NewNode<'_>, parent: Ino, now: Timestamp) -> Self {
        let body = match node.kind {
            FileKind::Directory => Body::Directory(Directory::new(parent)),
            FileKind::Regular => Body::Regular(Data::default()),
            FileKind::Symlink => Body::Symlink(node.target.into()),
            _ => Body::Node,
        };
        // The inode assigns its number later.
        let mut attr = node.attr(Ino(0), Generation(0), now);
        attr.size = if node.kind == FileKind::Symlink { to_u64(node.target.len()) } else { 0 };
        attr.change = 1;
        Self { attr, xattrs: BTreeMap::new(), body }
    }

    /// Returns the entries. Fails with `NotDirectory`.
    pub(crate) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Returns the entries for modification. Fails with `NotDirectory`.
    pub(crate) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Returns the entry `name`. Fails with `NotDirectory` or `NotFound`.
    pub(crate) fn entry(&self, name: &Name) -> Result<&Entry> {
        self.directory()?.get(name).ok_or(Error::NotFound)
    }

    /// Returns the pages. Fails with `IsDirectory`, or with `Invalid` if the inode is not a regular file.
    pub(crate) fn data(&self) -> Result<&Data> {
        match &self.body {
            Body::Regular(data) => Ok(data),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Returns the pages for modification. Fails with `IsDirectory`, or with `Invalid` if the inode is not
    /// a regular file.
    pub(crate) fn data_mut(&mut self) -> Result<&mut Data> {
        match &mut self.body {
            Body::Regular(data) => Ok(data),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }
}

impl Inode {
    pub(crate) fn attr(&self, state: &State) -> Attr {
        let pages = state.data().map_or(0, Data::page_count);
        let blocks = pages.saturating_mul(PAGE / 512);
        Attr { ino: self.ino, generation: self.generation, blocks, ..state.attr }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// The locked states of several inodes, locked in ascending order of their numbers, each once.
pub(crate) struct LockSet<'a>(Vec<(Ino, RwLockWriteGuard<'a, State>)>);

impl<'a> LockSet<'a> {
    pub(crate) fn new(inodes: impl IntoIterator<Item = &'a Arc<Inode>>) -> Self {
        let mut inodes: Vec<_> = inodes.into_iter().collect();
        inodes.sort_by_key(|inode| inode.ino);
        inodes.dedup_by_key(|inode| inode.ino);
        Self(inodes.into_iter().map(|inode| (inode.ino, inode.state.write())).collect())
    }

    /// Returns the state of `inode`. Fails with `Stale` if the set does not contain it.
    pub(crate) fn of(&mut self, inode: &Inode) -> Result<&mut State> {
        let found = self.0.iter_mut().find(|(ino, _)| *ino == inode.ino);
        found.map(|(_, state)| &mut **state).ok_or(Error::Stale)
    }
}
