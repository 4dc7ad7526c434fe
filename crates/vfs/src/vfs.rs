//! One open volume and what is shared among all who use it.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino, Result};
use obento_driver::{FileSystem, Limits, WritableFileSystem};
use obento_env::sync::Mutex;
use obento_env::{Clock, NO_CLOCK};

use crate::gather::Gathering;
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
    /// Bytes of small writes that are gathered at most, over all files, before they go to the driver; 0 to hand each
    /// write on at once.
    pub gather: usize,
    /// How long they are gathered at most; a thread sees to it, and where there can be none nothing is gathered.
    /// `None`: until somebody looks at the file, changes it otherwise, syncs, or is done with it.
    pub gather_age: Option<Duration>,
}

impl Default for Config {
    /// 32768 names, which with their inodes take some 10 MiB; no access times, 8 MiB gathered for a second.
    fn default() -> Self {
        Self {
            names: 32768,
            atime: Atime::Never,
            clock: Arc::new(NO_CLOCK),
            gather: 8 << 20,
            gather_age: Some(Duration::from_secs(1)),
        }
    }
}

/// An open volume. Clones are the same volume.
#[derive(Clone)]
pub struct Vfs(pub(crate) Arc<Stripe>);

/// A count of users of its own for those who work in one directory, or every thread would wait for every other to
/// count a node. Each holds the volume.
pub(crate) struct Stripe(Arc<Shared>);

impl Deref for Stripe {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Enough that threads in different directories seldom meet.
const STRIPES: u64 = 16;

/// A [`Vfs`] as long as anybody else has it, or a node of it.
#[derive(Clone)]
pub struct WeakVfs(Weak<Shared>);

impl WeakVfs {
    /// The volume, if it is still open.
    pub fn upgrade(&self) -> Option<Vfs> {
        self.0.upgrade().map(|shared| Vfs(Arc::new(Stripe(shared))))
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
    stripes: Vec<Mutex<Weak<Stripe>>>,
    pub(crate) gathering: Arc<Gathering>,
}

impl Vfs {
    /// Takes over `fs`: nothing else may change it from now on.
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self::with(fs, Config::default())
    }

    /// [`Vfs::new`] with a configuration.
    pub fn with(fs: Arc<dyn FileSystem>, config: Config) -> Self {
        let table = Table::new();
        Self(Arc::new(Stripe(Arc::new(Shared {
            limits: fs.limits(),
            // Without an answer nothing can be written; reading does not ask.
            block_size: fs.statfs().map_or(1, |stat| stat.block_size.max(1)),
            names: Names::new(config.names),
            root: table.acquire(fs.root()),
            rename: Mutex::new(()),
            gathering: Arc::default(),
            table,
            config,
            fs,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }))))
    }

    /// Names the volume without keeping it open.
    pub fn downgrade(&self) -> WeakVfs {
        WeakVfs(Arc::downgrade(&self.0.0))
    }

    /// The file system below, with all that was written until now. To read only: changes go through the `Vfs`.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        self.0.settle_all();
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

    /// Brings every change to stable storage; nothing to do for a volume that is open for reading. Errors: the one by
    /// which bytes were lost that a write had taken; those of the volume.
    pub fn sync(&self) -> Result<()> {
        self.0.settle_all();
        if self.0.fs.writable().is_none() { Ok(()) } else { self.0.syncable()?.sync() }
    }

    /// [`Node::sync`] for all of `nodes`, for many who wait at once: a journal does it by one commit. Errors: one of theirs;
    /// then any may be on stable storage or not.
    pub fn sync_nodes(&self, nodes: &[Node]) -> Result<()> {
        nodes.iter().for_each(Node::settle);
        let inos: Vec<_> = nodes.iter().map(Node::ino).collect();
        self.0.syncable()?.sync_files(&inos)
    }

    /// Gives free space in runs of at least `min_len` bytes back to the device; answers how many bytes. Errors:
    /// ReadOnly; NotSupported; those of [`Trim`](obento_driver::Trim).
    pub fn trim(&self, min_len: u64) -> Result<u64> {
        self.writable()?;
        // What has no name and no user any more is free, too.
        self.drop_names();
        self.0.fs.trim().ok_or(Error::NotSupported)?.trim(min_len)
    }

    /// Ends writing: empties the name cache, so that what has no name and no user is freed, and leaves the volume clean
    /// for the next who opens it. Nothing to do for a volume that is open for reading. Errors: as [`sync`](Self::sync).
    pub fn close(&self) -> Result<()> {
        self.drop_names();
        self.0.gathering.stop();
        self.0.settle_all();
        self.0.fs.writable().map_or(Ok(()), |fs| fs.close())?;
        self.0.gathering.lost().map_or(Ok(()), Err)
    }

    /// A use of `ino`, which the caller knows to live.
    pub(crate) fn take(&self, ino: Ino) -> Node {
        Node::new(self.clone(), self.0.table.acquire(ino))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// The same volume for who goes on to work in directory `ino`.
    pub(crate) fn for_directory(&self, ino: Ino) -> Self {
        let Some(stripe) = self.0.stripes.get(to_usize(ino.0 % STRIPES)) else { return self.clone() };
        let mut stripe = stripe.lock();
        Self(stripe.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Stripe(Arc::clone(&self.0.0)));
            *stripe = Arc::downgrade(&fresh);
            fresh
        }))
    }

    /// Errors: ReadOnly, also once bytes were lost.
    pub(crate) fn writable(&self) -> Result<&dyn WritableFileSystem> {
        self.0.fs.writable().filter(|_| self.0.gathering.lost().is_none()).ok_or(Error::ReadOnly)
    }
}

impl Shared {
    pub(crate) fn release(&self, inode: &Inode) {
        self.table.release(inode, || {
            self.settle_last(inode);
            self.fs.forget(inode.ino);
        });
    }

    /// What can bring changes to stable storage. Errors: the one by which bytes were lost; ReadOnly.
    pub(crate) fn syncable(&self) -> Result<&dyn WritableFileSystem> {
        match self.gathering.lost() {
            Some(error) => Err(error),
            None => self.fs.writable().ok_or(Error::ReadOnly),
        }
    }
}

/// Also the uses of the cache and of the root end, so that the driver frees what has no name any more.
impl Drop for Shared {
    fn drop(&mut self) {
        self.names.drain().iter().for_each(|inode| self.release(inode));
        self.release(&self.root);
        self.gathering.stop();
    }
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}
