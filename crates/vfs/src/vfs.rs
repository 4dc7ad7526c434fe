//! One open volume and what is shared among all who use it.

use alloc::sync::{Arc, Weak};
use core::fmt;

use obento_base::{Error, Ino, Result};
use obento_driver::{FileSystem, Limits, WritableFileSystem};
use obento_env::sync::Mutex;
use obento_env::{Clock, NO_CLOCK};

use crate::names::Names;
use crate::node::Node;
use crate::table::{Inode, Table};

/// When reading a file through a [`File`](crate::File) stamps its access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// Never (`noatime`).
    #[default]
    Never,
    /// If it is not after the last change, or older than a day (`relatime`).
    Relative,
    /// Every time (`strictatime`).
    Always,
}

/// How a [`Vfs`] works.
#[derive(Clone)]
pub struct Config {
    /// Names that the cache holds at most; 0 for no cache.
    pub names: usize,
    /// When access times are stamped, on a volume that is open for changes.
    pub atime: Atime,
    /// The present, against which `Atime::Relative` compares.
    pub clock: Arc<dyn Clock>,
}

impl Default for Config {
    /// 8192 names, no access times.
    fn default() -> Self {
        Self { names: 8192, atime: Atime::Never, clock: Arc::new(NO_CLOCK) }
    }
}

/// An open volume. Clones are the same volume.
#[derive(Clone)]
pub struct Vfs(pub(crate) Arc<Shared>);

/// A [`Vfs`] as long as anybody else has it, or a node of it.
#[derive(Clone)]
pub struct WeakVfs(Weak<Shared>);

impl WeakVfs {
    /// The volume, if it is still open.
    pub fn upgrade(&self) -> Option<Vfs> {
        self.0.upgrade().map(Vfs)
    }
}

pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) limits: Limits,
    /// The grain in which files are mapped.
    pub(crate) block_size: u32,
    pub(crate) config: Config,
    pub(crate) names: Names,
    pub(crate) table: Table,
    pub(crate) rename: Mutex<()>,
    pub(crate) root: Arc<Inode>,
}

impl Vfs {
    /// Takes over `fs`: nothing else may change it from now on.
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self::with(fs, Config::default())
    }

    /// [`Vfs::new`] with a configuration.
    pub fn with(fs: Arc<dyn FileSystem>, config: Config) -> Self {
        let table = Table::new();
        Self(Arc::new(Shared {
            limits: fs.limits(),
            // Without an answer nothing can be written; reading does not ask.
            block_size: fs.statfs().map_or(1, |stat| stat.block_size.max(1)),
            names: Names::new(config.names),
            root: table.acquire(fs.root()),
            rename: Mutex::new(()),
            table,
            config,
            fs,
        }))
    }

    /// Names the volume without keeping it open.
    pub fn downgrade(&self) -> WeakVfs {
        WeakVfs(Arc::downgrade(&self.0))
    }

    /// The file system below. To read only: changes go through the `Vfs`.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.0.fs
    }

    /// What the format can hold.
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// The root directory.
    pub fn root(&self) -> Node {
        self.0.root.use_again();
        Node::new(self.clone(), Arc::clone(&self.0.root))
    }

    /// The inode of this number, by whatever names. Errors: Stale if it is not in use.
    pub fn node(&self, ino: Ino) -> Result<Node> {
        let node = self.take(ino);
        node.attr()?;
        Ok(node)
    }

    /// How many inodes are in use by nodes, open files and the name cache.
    pub fn nodes_in_use(&self) -> u64 {
        self.0.table.len()
    }

    /// Empties the name cache.
    pub fn drop_names(&self) {
        self.0.names.drain().into_iter().for_each(|inode| self.0.release(&inode));
    }

    /// Brings every change to stable storage. Errors: those of the volume.
    pub fn sync(&self) -> Result<()> {
        self.0.fs.writable().map_or(Ok(()), |fs| fs.sync())
    }

    /// Ends writing: empties the name cache, so that what has no name and no user is freed, and leaves the volume clean
    /// for the next who opens it. Nothing to do for a volume that is open for reading. Errors: those of the volume.
    pub fn close(&self) -> Result<()> {
        self.drop_names();
        self.0.fs.writable().map_or(Ok(()), |fs| fs.close())
    }

    /// A use of `ino`, which the caller knows to live.
    pub(crate) fn take(&self, ino: Ino) -> Node {
        Node::new(self.clone(), self.0.table.acquire(ino))
    }

    /// Errors: ReadOnly.
    pub(crate) fn writable(&self) -> Result<&dyn WritableFileSystem> {
        self.0.fs.writable().ok_or(Error::ReadOnly)
    }
}

impl Shared {
    pub(crate) fn release(&self, inode: &Inode) {
        self.table.release(inode, &*self.fs);
    }
}

/// Also the uses of the cache and of the root end, so that the driver frees what has no name any more.
impl Drop for Shared {
    fn drop(&mut self) {
        self.names.drain().iter().for_each(|inode| self.release(inode));
        self.release(&self.root);
    }
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}
