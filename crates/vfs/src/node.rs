//! An inode in use.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use obento_base::{Attr, Error, FileFlags, FileKind, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink, FileSystem};

use crate::access;
use crate::caller::{AccessRequest, Caller};
use crate::names::{CachedName, Key};
use crate::table::{Facts, Inode};
use crate::vfs::Vfs;

/// Maximum number of attempts of an operation that other threads can disturb. The operation fails if all of these
/// attempts are disturbed.
const TRIES: u32 = 64;

/// A reference to an inode. The inode stays in use while the reference exists, even if the inode loses its last
/// name. Clones refer to the same inode. Two nodes are equal if they refer to the same inode of the same
/// [`Vfs`]. If the inode has no name, dropping the last reference frees the inode, which may take long.
pub struct Node {
    pub(crate) vfs: Vfs,
    pub(crate) inode: Arc<Inode>,
}

impl Node {
    /// Takes over a reference to `inode`.
    pub(crate) fn new(vfs: Vfs, inode: Arc<Inode>) -> Self {
        Self { vfs, inode }
    }

    /// Returns the volume of the inode.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    pub(crate) fn file_system(&self) -> &dyn FileSystem {
        &*self.vfs.0.fs
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// Returns the current attributes. First passes the gathered data of the file to the driver. If the driver cannot
    /// write this data, the data is lost, and the call returns the attributes of the file without it.
    ///
    /// # Errors
    ///
    /// - `Stale`: the volume contains no inode with this number, for example because a damaged directory
    ///   entry refers to it.
    pub fn attr(&self) -> Result<Attr> {
        self.settle();
        self.stored()
    }

    /// Returns the attributes as the driver stores them. The size, space and times of a gathering file may be outdated.
    pub(crate) fn stored(&self) -> Result<Attr> {
        let attr = self.file_system().getattr(self.ino())?;
        self.inode.learn(Facts::of(&attr));
        Ok(attr)
    }

    /// Returns the flags of the file. Unlike [`attr`](Self::attr), passes no gathered data to the driver.
    /// Fails as `attr` does.
    pub fn flags(&self) -> Result<FileFlags> {
        self.stored().map(|attr| attr.flags)
    }

    pub(crate) fn facts(&self) -> Result<Facts> {
        match self.inode.facts() {
            Some(facts) => Ok(facts),
            None => self.stored().map(|attr| Facts::of(&attr)),
        }
    }

    /// Returns the type, which never changes. Fails as [`attr`](Self::attr) does.
    pub fn kind(&self) -> Result<FileKind> {
        self.facts().map(|facts| facts.kind)
    }

    /// Returns whether this is a directory that ignores case when it compares names. Fails as [`attr`](Self::attr)
    /// does.
    pub fn is_casefold(&self) -> Result<bool> {
        self.facts().map(|facts| facts.casefold)
    }

    /// Returns whether this is the root directory.
    pub fn is_root(&self) -> bool {
        Arc::ptr_eq(&self.inode, &self.vfs.0.root)
    }

    /// Checks that the permission bits or the access control list grant `want` to `caller`.
    ///
    /// # Errors
    ///
    /// - `AccessDenied`: `caller` lacks the access, or the access control list that decides is malformed.
    pub fn access(&self, caller: &Caller, want: AccessRequest) -> Result<()> {
        access::check(self, &self.stored()?, caller, want)
    }

    /// Returns the inode that `name` refers to in this directory. Uses the name cache.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: this is not a directory.
    /// 2. `NameTooLong`: the name exceeds the limit of the format.
    /// 3. `NotFound`: the name does not exist.
    /// 4. `Busy`: each of 64 attempts found an inode whose number the driver dropped during the attempt, because
    ///    another thread called `forget`. Only a driver whose files are on a server drops numbers.
    pub fn lookup(&self, name: &Name) -> Result<Node> {
        let names = &self.vfs.0.names;
        let key = names.key(self.ino(), name);
        let known = names.get(&key);
        if let Some(CachedName::Leads(inode)) = known {
            return Ok(self.child_of(inode));
        }
        // Entries of an inode number that was a directory before do not apply to a file.
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

    /// Looks up `name` before a change of that name. The caller holds the exclusive guard of this
    /// directory, and updates the cache afterwards.
    pub(crate) fn lookup_to_change(&self, name: &Name) -> Result<Node> {
        match self.known(name) {
            Some(known) => known,
            None => self.look_up_in_driver(name),
        }
    }

    /// Looks up `name` without the cache. Fails as [`lookup`](Self::lookup) does.
    pub(crate) fn look_up_in_driver(&self, name: &Name) -> Result<Node> {
        for _ in 0..TRIES {
            let ino = self.file_system().lookup(self.ino(), name)?;
            let node = self.child_of(self.vfs.0.table.acquire(ino));
            // Another thread may have called `forget` after the lookup, which also ended the use of this
            // thread.
            if self.file_system().acquire(ino) {
                return Ok(node);
            }
        }
        Err(Error::Busy)
    }

    /// Creates a node for a child of this directory, and takes over the reference to `inode`.
    fn child_of(&self, inode: Arc<Inode>) -> Node {
        let is_directory = inode.facts().is_some_and(|facts| facts.kind == FileKind::Directory);
        let vfs = if is_directory { self.vfs.for_directory(inode.ino) } else { self.vfs.clone() };
        Node::new(vfs, inode)
    }

    /// Returns the cached result for `name`.
    pub(crate) fn known(&self, name: &Name) -> Option<Result<Node>> {
        let key = self.vfs.0.names.key(self.ino(), name);
        Some(match self.vfs.0.names.get(&key)? {
            CachedName::Leads(inode) => Ok(self.child_of(inode)),
            CachedName::Nowhere => Err(Error::NotFound),
        })
    }

    fn ask_driver(&self, key: &Key<'_>, name: &Name) -> Result<Node> {
        match self.look_up_in_driver(name) {
            Ok(node) => {
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

    /// Caches the result of a lookup of `name`: the inode, or `None` if the name does not exist. The caller
    /// holds the guard of this directory.
    pub(crate) fn note(&self, name: &Name, target: Option<&Node>) {
        self.note_key(&self.vfs.0.names.key(self.ino(), name), target);
    }

    /// Records in the cache that `name` no longer exists, if the name is cached. The caller holds the guard
    /// of this directory.
    pub(crate) fn note_gone(&self, name: &Name) {
        let key = self.vfs.0.names.key(self.ino(), name);
        if let Some(left) = self.vfs.0.names.clear(&key) {
            self.vfs.0.release(&left);
        }
    }

    /// Removes `name` from the cache, since it refers to another inode now. The caller holds the guard of this
    /// directory.
    pub(crate) fn drop_cached(&self, name: &Name) {
        let key = self.vfs.0.names.key(self.ino(), name);
        if let Some(Some(left)) = self.vfs.0.names.take(&key) {
            self.vfs.0.release(&left);
        }
    }

    /// Caches the result of a lookup. In a directory that ignores case, several spellings refer to one entry, and a
    /// change could not update all of them in the cache. Names of such a directory are cached only if the volume
    /// cannot change.
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

    /// Returns the inode that an entry of a listing of this directory refers to.
    ///
    /// - On a writable volume, looks up the name of the entry.
    /// - On any other volume, uses the inode number in the entry. If the driver has dropped this number, looks up the
    ///   name.
    ///
    /// # Errors
    ///
    /// The errors of [`lookup`](Self::lookup), if the call looks up the name.
    pub fn child(&self, entry: &DirEntry<'_>) -> Result<Node> {
        if self.file_system().writable().is_some() {
            return self.lookup(entry.name);
        }
        let child = self.vfs.take(entry.ino);
        if self.file_system().acquire(entry.ino) { Ok(child) } else { self.lookup(entry.name) }
    }

    /// Returns the parent of this directory. The parent of the root is the root.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: this is not a directory.
    /// 2. `NotFound`: this directory was removed.
    /// 3. `Busy`: other threads moved this directory during each of 64 attempts.
    pub fn parent(&self) -> Result<Node> {
        if self.is_root() {
            return Ok(self.clone());
        }
        if self.kind()? != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        for _ in 0..TRIES {
            let parent = self.vfs.take(self.file_system().parent(self.ino())?);
            // The parent cannot be removed while it contains this directory, and the number of an inode in
            // use is not reused. If the second call returns the same parent, `parent` is therefore the right
            // inode.
            if self.file_system().parent(self.ino())? == parent.ino() {
                return if self.attr()?.nlink == 0 { Err(Error::NotFound) } else { Ok(parent) };
            }
        }
        Err(Error::Busy)
    }

    /// Passes the entries of this directory at and after the position `from` to `sink`, as
    /// [`FileSystem::read_dir`] does. `vfs` and the driver hold no lock while they call `sink`.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: this is not a directory.
    pub fn read_dir(&self, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.file_system().read_dir(self.ino(), from, sink)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the inode is not a symbolic link.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        self.file_system().read_link(self.ino())
    }

    /// Returns the names of all extended attributes, including their namespaces. Returns an empty list if the
    /// format has no extended attributes.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.asks_for_xattrs();
        let mut names = Vec::new();
        if let Some(xattrs) = self.file_system().xattrs() {
            xattrs.list_xattrs(self.ino(), &mut |name| names.push(name.to_vec()))?;
        }
        Ok(names)
    }

    pub(crate) fn asks_for_xattrs(&self) {
        self.vfs.0.asked_xattrs.store(true, Ordering::Relaxed);
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
