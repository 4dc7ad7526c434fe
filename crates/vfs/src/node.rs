//! One inode in use.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink, FileSystem};

use crate::access::{self, Caller, Want};
use crate::names::{Key, Known};
use crate::table::{Facts, Inode};
use crate::vfs::Vfs;

/// An inode that lives at least as long as this. Clones are the same inode; equal are nodes of one inode of one
/// [`Vfs`].
pub struct Node {
    pub(crate) vfs: Vfs,
    pub(crate) inode: Arc<Inode>,
}

impl Node {
    /// Takes over a use of `inode`.
    pub(crate) fn new(vfs: Vfs, inode: Arc<Inode>) -> Self {
        Self { vfs, inode }
    }

    /// The volume it is on.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    pub(crate) fn file_system(&self) -> &dyn FileSystem {
        &*self.vfs.0.fs
    }

    /// Its number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// Its attributes now. Errors: Stale if the inode is not in use on the volume.
    pub fn attr(&self) -> Result<Attr> {
        self.settle();
        self.stored()
    }

    /// Its attributes as the driver knows them: size, space and times of a file that gathers are to come.
    pub(crate) fn stored(&self) -> Result<Attr> {
        let attr = self.file_system().getattr(self.ino())?;
        self.inode.learn(Facts::of(&attr));
        Ok(attr)
    }

    pub(crate) fn facts(&self) -> Result<Facts> {
        match self.inode.facts() {
            Some(facts) => Ok(facts),
            None => self.stored().map(|attr| Facts::of(&attr)),
        }
    }

    /// Its kind, which never changes. Errors: as [`attr`](Self::attr).
    pub fn kind(&self) -> Result<FileKind> {
        self.facts().map(|facts| facts.kind)
    }

    /// Whether it is a directory whose names are compared without case. Errors: as [`attr`](Self::attr).
    pub fn is_casefold(&self) -> Result<bool> {
        self.facts().map(|facts| facts.casefold)
    }

    /// Whether it is the root directory.
    pub fn is_root(&self) -> bool {
        Arc::ptr_eq(&self.inode, &self.vfs.0.root)
    }

    /// Whether permission bits and access control lists grant `want` to `caller`. Errors: AccessDenied.
    pub fn access(&self, caller: &Caller, want: Want) -> Result<()> {
        access::check(self, &self.stored()?, caller, want)
    }

    /// What `name` leads to in this directory, through the cache. Errors, the first that holds: NotDirectory;
    /// NameTooLong; NotFound.
    pub fn lookup(&self, name: &Name) -> Result<Node> {
        let names = &self.vfs.0.names;
        let key = names.key(self.ino(), name);
        let known = names.get(&key);
        if let Some(Known::Leads(inode)) = known {
            return Ok(self.child_of(inode));
        }
        // What the cache says of a number that was a directory in an earlier life holds no more for a file.
        match known {
            _ if self.kind()? != FileKind::Directory => Err(Error::NotDirectory),
            _ if !self.vfs.name_fits(name) => Err(Error::NameTooLong),
            Some(_) => Err(Error::NotFound),
            None => {
                let _names = self.inode.guard.read();
                self.ask_driver(&key, name)
            }
        }
    }

    /// `lookup` for who holds the guard of this directory, exclusive, and is about to change the name: the cache is
    /// told afterwards.
    pub(crate) fn lookup_to_change(&self, name: &Name) -> Result<Node> {
        match self.known(name) {
            Some(known) => known,
            None => self
                .file_system()
                .lookup(self.ino(), name)
                .map(|ino| self.child_of(self.vfs.0.table.acquire(ino))),
        }
    }

    /// A node of `inode`, whose use this takes over, that was found from here.
    fn child_of(&self, inode: Arc<Inode>) -> Node {
        let is_directory = inode.facts().is_some_and(|facts| facts.kind == FileKind::Directory);
        let vfs = if is_directory { self.vfs.for_directory(inode.ino) } else { self.vfs.clone() };
        Node::new(vfs, inode)
    }

    /// What the cache knows of `name`.
    pub(crate) fn known(&self, name: &Name) -> Option<Result<Node>> {
        let key = self.vfs.0.names.key(self.ino(), name);
        Some(match self.vfs.0.names.get(&key)? {
            Known::Leads(inode) => Ok(self.child_of(inode)),
            Known::Nowhere => Err(Error::NotFound),
        })
    }

    fn ask_driver(&self, key: &Key<'_>, name: &Name) -> Result<Node> {
        match self.file_system().lookup(self.ino(), name) {
            Ok(ino) => {
                let node = self.child_of(self.vfs.0.table.acquire(ino));
                self.note_key(key, Some(&node));
                Ok(node)
            }
            Err(error) => {
                if error == Error::NotFound {
                    self.note_key(key, None);
                }
                Err(error)
            }
        }
    }

    /// Notes in the cache what `name` leads to. Only for who holds the guard of this directory.
    pub(crate) fn note(&self, name: &Name, target: Option<&Node>) {
        self.note_key(&self.vfs.0.names.key(self.ino(), name), target);
    }

    /// Notes in the cache that `name` leads nowhere any more, if it knows it. Only for who holds the guard of this
    /// directory.
    pub(crate) fn note_gone(&self, name: &Name) {
        let key = self.vfs.0.names.key(self.ino(), name);
        if let Some(left) = self.vfs.0.names.clear(&key) {
            self.vfs.0.release(&left);
        }
    }

    /// Where several names lead to one entry because case does not count, a change could not reach all of them in
    /// the cache: such a directory is cached only while nothing can change.
    pub(crate) fn note_key(&self, key: &Key<'_>, target: Option<&Node>) {
        if self.file_system().writable().is_some() && self.facts().map_or(true, |facts| facts.casefold) {
            return;
        }
        let used = target.map(|node| {
            node.inode.use_again();
            Arc::clone(&node.inode)
        });
        if let Some(left) = self.vfs.0.names.put(key, used) {
            self.vfs.0.release(&left);
        }
    }

    /// What an entry of a listing leads to. On a volume that cannot change, the number in the entry is taken without
    /// another lookup. Errors: as [`lookup`](Self::lookup).
    pub fn child(&self, entry: &DirEntry<'_>) -> Result<Node> {
        if self.file_system().writable().is_some() {
            return self.lookup(entry.name);
        }
        Ok(self.vfs.take(entry.ino))
    }

    /// The directory that this one lies in; the root's is the root. Errors: NotDirectory; NotFound if this one was
    /// removed.
    pub fn parent(&self) -> Result<Node> {
        /// Renames that may come between two looks before the volume counts as changing too fast.
        const TRIES: u32 = 64;
        if self.is_root() {
            return Ok(self.clone());
        }
        if self.kind()? != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        for _ in 0..TRIES {
            let parent = self.vfs.take(self.file_system().parent(self.ino())?);
            // While this directory lies in it, it cannot be removed; and once it is in use its number stays its own.
            if self.file_system().parent(self.ino())? == parent.ino() {
                return if self.attr()?.nlink == 0 { Err(Error::NotFound) } else { Ok(parent) };
            }
        }
        Err(Error::Busy)
    }

    /// Hands the entries that follow `from` to `sink`, as [`FileSystem::read_dir`] does. No lock is held meanwhile.
    pub fn read_dir(&self, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.file_system().read_dir(self.ino(), from, sink)
    }

    /// The target of a symbolic link. Errors: Invalid if it is none.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        self.file_system().read_link(self.ino())
    }

    /// The value of an extended attribute. Errors, the first that holds: NotSupported if the format has none; NoData.
    pub fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.file_system().xattrs().ok_or(Error::NotSupported)?.get_xattr(self.ino(), name)
    }

    /// The names of all extended attributes; none where the format has none.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        if let Some(xattrs) = self.file_system().xattrs() {
            xattrs.list_xattrs(self.ino(), &mut |name| names.push(name.to_vec()))?;
        }
        Ok(names)
    }
}

impl Vfs {
    pub(crate) fn name_fits(&self, name: &Name) -> bool {
        u32::try_from(name.as_bytes().len()).is_ok_and(|len| len <= self.0.limits.name_max)
    }
}

impl Clone for Node {
    fn clone(&self) -> Self {
        self.inode.use_again();
        Self { vfs: self.vfs.clone(), inode: Arc::clone(&self.inode) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.vfs.0.release(&self.inode);
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inode, &other.inode)
    }
}

impl Eq for Node {}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.ino())
    }
}
