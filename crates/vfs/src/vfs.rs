//! An open volume and the state that all its users share.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino, Result};
use obento_block::CacheUse;
use obento_driver::{FileSystem, Limits, VolumeInfo, WritableFileSystem};
use obento_env::sync::Mutex;
use obento_env::{Clock, NO_CLOCK};

use crate::gather::Gathering;
use crate::names::Names;
use crate::node::Node;
use crate::table::{Inode, Table};

/// The policy for access times. [`File`](crate::File) applies the policy after each read. A caller that reads through
/// a [`Node`] applies it with [`Node::stamp_access`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// Never update (`noatime`).
    #[default]
    Never,
    /// Update if the access time is not later than the modification time or the change time, or is at least a day old
    /// (`relatime`).
    Relative,
    /// Always update (`strictatime`).
    Always,
}

/// Options of a [`Vfs`].
#[derive(Clone)]
pub struct Config {
    /// Maximum number of cached names, rounded up to a multiple of 8; 0 disables the cache.
    pub names: usize,
    /// Policy for access times, on a writable volume.
    pub atime: Atime,
    /// Clock that provides the current time for `Atime::Relative`.
    pub clock: Arc<dyn Clock>,
    /// Maximum amount of gathered data of all files in bytes. A file gathers up to 64 KiB plus the rest of
    /// its last block. The maximum number of files that gather at the same time is `gather` divided by 64
    /// KiB. With less than 64 KiB, each write is passed to the driver immediately.
    pub gather: usize,
    /// Maximum age of gathered data. A thread passes data to the driver when the data reaches this age, or earlier. If
    /// the environment has no threads, no data is gathered. With `None`, data has no maximum age, and no
    /// thread is needed.
    ///
    /// Independently of the age, `vfs` passes the data to the driver:
    ///
    /// - when the buffer is full;
    /// - before a read of the data or of [`Node::attr`];
    /// - before a change of the data or the size, except an append that is gathered;
    /// - before [`Vfs::set_attr`], and before the file gets another name;
    /// - before a sync;
    /// - when the last user drops the file.
    pub gather_age: Option<Duration>,
}

impl Default for Config {
    /// Returns the defaults: 32,768 names, no updates of access times, and up to 8 MiB of gathered data that is at most
    /// one second old. The names and their inodes use about 10 MiB.
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

/// An open volume. Clones refer to the same volume.
#[derive(Clone)]
pub struct Vfs(pub(crate) Arc<Stripe>);

/// A separate reference count for the users of some directories, since a single count would be a point of
/// contention for all threads. Each stripe keeps the volume open.
pub(crate) struct Stripe(Arc<Shared>);

impl Deref for Stripe {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Number of stripes: enough that threads in different directories rarely collide.
const STRIPES: u64 = 16;

/// A reference to a [`Vfs`] that does not keep the volume open.
#[derive(Clone)]
pub struct WeakVfs(Weak<Shared>);

impl WeakVfs {
    /// Returns the volume if it is still open.
    pub fn upgrade(&self) -> Option<Vfs> {
        self.0.upgrade().map(|shared| Vfs(Arc::new(Stripe(shared))))
    }
}

pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) limits: Limits,
    /// Granularity of mappings in bytes.
    pub(crate) block_size: u32,
    pub(crate) config: Config,
    pub(crate) names: Names,
    pub(crate) table: Table,
    pub(crate) rename: Mutex<()>,
    pub(crate) root: Arc<Inode>,
    stripes: Vec<Mutex<Weak<Stripe>>>,
    pub(crate) gathering: Arc<Gathering>,
    /// Whether a caller has read or listed extended attributes.
    pub(crate) asked_xattrs: AtomicBool,
}

impl Vfs {
    /// Creates a [`Vfs`] with default options. After this call, only the returned object and its clones may change
    /// `fs`.
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self::with(fs, Config::default())
    }

    /// Creates a [`Vfs`] with the options `config`. After this call, only the returned object and its clones may change
    /// `fs`.
    pub fn with(fs: Arc<dyn FileSystem>, config: Config) -> Self {
        let table = Table::new();
        Self(Arc::new(Stripe(Arc::new(Shared {
            limits: fs.limits(),
            // If this fails, nothing can be written; reads do not need the value.
            block_size: fs.statfs().map_or(1, |stat| stat.block_size.max(1)),
            names: Names::new(config.names),
            root: table.acquire(fs.root()),
            rename: Mutex::new(()),
            gathering: Arc::default(),
            asked_xattrs: AtomicBool::new(false),
            table,
            config,
            fs,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }))))
    }

    /// Creates a reference that does not keep the volume open.
    pub fn downgrade(&self) -> WeakVfs {
        WeakVfs(Arc::downgrade(&self.0.0))
    }

    /// Passes the gathered data of all files to the driver, and returns the file system of the driver. The
    /// sizes and contents of files are then current. The caller must only read from the file system: all
    /// changes must be made through the `Vfs`. A caller that needs only the limits calls [`limits`](Self::limits),
    /// which passes no data to the driver.
    pub fn flushed_file_system(&self) -> &Arc<dyn FileSystem> {
        self.0.settle_all();
        &self.0.fs
    }

    /// Returns the description of the volume. Passes no gathered data to the driver, so the values may be
    /// outdated.
    pub fn info(&self) -> VolumeInfo {
        self.0.fs.info()
    }

    /// Returns whether [`Node::get_xattr`] or [`Node::list_xattrs`] was called for any file. If the volume
    /// [hides](obento_driver::Notice::Hidden) attributes, the result of such a call may be incomplete.
    pub fn has_asked_for_xattrs(&self) -> bool {
        self.0.asked_xattrs.load(Ordering::Relaxed)
    }

    /// Returns the limits of the format.
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// Returns whether a rename can leave a whiteout at the old name.
    pub fn has_whiteouts(&self) -> bool {
        self.0.fs.whiteouts().is_some()
    }

    /// Returns the root directory.
    pub fn root(&self) -> Node {
        self.0.root.use_again();
        Node::new(self.clone(), Arc::clone(&self.0.root))
    }

    /// Checks that the root is a directory. Without a root directory, no path exists. A host must not serve
    /// such a volume.
    ///
    /// # Errors
    ///
    /// 1. `Corrupt` with [`RootKind`](obento_base::Corrupt::RootKind): the root is not a directory.
    /// 2. The error of reading the attributes of the root.
    pub fn expect_root(&self) -> Result<()> {
        self.root().expect_directory()
    }

    /// Returns a node for the inode with the number `ino`.
    ///
    /// # Errors
    ///
    /// - `Stale`: the volume contains no inode with this number, or the driver has forgotten the number.
    pub fn node(&self, ino: Ino) -> Result<Node> {
        let node = self.take(ino);
        if !self.0.fs.acquire(ino) {
            return Err(Error::Stale);
        }
        node.attr()?;
        Ok(node)
    }

    /// Returns a node for the inode with the number `ino`. The inode must have been in use in the process
    /// that passed the volume to this process
    /// ([`HandoverState::inodes`](obento_driver::HandoverState::inodes)). Does not access the volume.
    pub fn adopt(&self, ino: Ino) -> Node {
        if ino == self.0.root.ino { self.root() } else { self.take(ino) }
    }

    /// Prepares the volume for use by another process. Releases the inodes that only the name cache uses, and
    /// then writes all changes to their final location. Returns the state that the other process needs to
    /// open the volume with [`OpenOptions::adopt`](obento_driver::OpenOptions::adopt).
    ///
    /// Afterwards, the caller must not change the volume. Exception: the other process has ended without
    /// changing the volume.
    ///
    /// # Errors
    ///
    /// 1. `NotSupported`: the driver does not support passing the volume to another process.
    /// 2. The error that caused the loss of gathered data.
    /// 3. The errors of [`Handover::prepare`](obento_driver::Handover::prepare).
    pub fn prepare_handover(&self) -> Result<Vec<u8>> {
        let handover = self.0.fs.handover().ok_or(Error::NotSupported)?;
        self.drop_names();
        self.0.settle_all();
        self.0.gathering.lost().map_or(Ok(()), Err)?;
        handover.prepare()
    }

    /// Returns whether [`prepare_handover`](Self::prepare_handover) is supported.
    pub fn can_be_passed_on(&self) -> bool {
        self.0.fs.handover().is_some()
    }

    /// Returns the use of the driver's cache of metadata, or `None` if the driver has no such cache.
    pub fn cache_use(&self) -> Option<CacheUse> {
        self.0.fs.cache_use()
    }

    /// Returns whether changes survive a failure of this process ([`Failover`](obento_driver::Failover)).
    pub fn has_failover(&self) -> bool {
        self.0.fs.failover().is_some()
    }

    /// Starts an operation whose changes must become durable together
    /// ([`Failover::hold`](obento_driver::Failover::hold)).
    ///
    /// # Errors
    ///
    /// 1. `NotSupported`: changes do not survive a failure of this process.
    /// 2. The errors of `Failover::hold`.
    pub fn hold(&self) -> Result<()> {
        self.0.fs.failover().ok_or(Error::NotSupported)?.hold()
    }

    /// Makes all earlier changes survive a failure of this process, and ends the operation that [`hold`](Self::hold)
    /// started ([`Failover::publish`](obento_driver::Failover::publish)). Gathered data would not survive, so
    /// [`Config::gather`] must be 0.
    ///
    /// # Errors
    ///
    /// 1. `NotSupported`: changes do not survive a failure of this process.
    /// 2. The errors of `Failover::publish`.
    pub fn publish(&self) -> Result<()> {
        self.0.fs.failover().ok_or(Error::NotSupported)?.publish()
    }

    /// Returns the number of inodes that nodes, open files and the name cache use. The root is always
    /// counted.
    pub fn nodes_in_use(&self) -> u64 {
        self.0.table.len()
    }

    /// Empties the name cache. The driver then frees the inodes without a name that only the cache used.
    pub fn drop_names(&self) {
        self.0.names.drain().into_iter().for_each(|inode| self.0.release(&inode));
    }

    /// Writes all changes to stable storage. Has no effect on a volume that is open read-only.
    ///
    /// # Errors
    ///
    /// 1. The error that caused the loss of gathered data.
    /// 2. The errors of [`sync`](obento_driver::WritableFileSystem::sync) of the driver.
    pub fn sync(&self) -> Result<()> {
        self.0.settle_all();
        match self.0.gathering.lost() {
            None if self.0.fs.writable().is_none() => Ok(()),
            _ => self.0.syncable()?.sync(),
        }
    }

    /// [Syncs](Node::sync) all `nodes` in one call. A driver with a journal needs only one commit for all
    /// nodes.
    ///
    /// # Errors
    ///
    /// The error of [`Node::sync`] for one of the nodes. Each of the files may then be on stable storage or
    /// not.
    pub fn sync_nodes(&self, nodes: &[Node]) -> Result<()> {
        nodes.iter().for_each(Node::settle);
        let inos: Vec<_> = nodes.iter().map(Node::ino).collect();
        self.0.syncable()?.sync_files(&inos)
    }

    /// Discards the free ranges of the device that are at least `min_len` bytes long. Returns the number of
    /// discarded bytes. First empties the name cache, so that the driver frees the inodes without a name that
    /// only the cache uses. Then writes all changes of the driver to stable storage. The gathered data of files
    /// in use stays in memory.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the driver cannot discard free space.
    /// 3. The errors of [`Trim`](obento_driver::Trim).
    pub fn trim(&self, min_len: u64) -> Result<u64> {
        self.writable()?;
        // Inodes without names that only the cache refers to become free, too.
        self.drop_names();
        self.0.fs.trim().ok_or(Error::NotSupported)?.trim(min_len)
    }

    /// Sets the label of the volume. The new label is on stable storage when the call returns. An empty label removes
    /// the existing label.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the driver cannot change the label of a volume in use.
    /// 3. The errors of [`Relabel`](obento_driver::Relabel).
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.writable()?;
        self.0.fs.relabel().ok_or(Error::NotSupported)?.set_label(label)
    }

    /// Writes all changes to stable storage and marks the volume clean. The caller must ensure that no other
    /// thread changes the volume during the call. Empties the name cache first, so that inodes that have no
    /// name and no other user are freed. After success and after error 2, the volume can be read, and every change
    /// fails with `ReadOnly`. A volume that is open read-only is not changed.
    ///
    /// # Errors
    ///
    /// 1. The errors of [`close`](obento_driver::WritableFileSystem::close).
    /// 2. The error that caused the loss of gathered data. The volume is closed nevertheless.
    pub fn close(&self) -> Result<()> {
        self.drop_names();
        self.0.gathering.stop();
        self.0.settle_all();
        self.0.fs.writable().map_or(Ok(()), |fs| fs.close())?;
        self.0.gathering.lost().map_or(Ok(()), Err)
    }

    /// Returns a node for `ino`. The caller must ensure that the volume contains the inode, or check this
    /// afterwards.
    pub(crate) fn take(&self, ino: Ino) -> Node {
        Node::new(self.clone(), self.0.table.acquire(ino))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Returns a reference to the volume for a caller that works in the directory `ino`.
    pub(crate) fn for_directory(&self, ino: Ino) -> Self {
        let Some(stripe) = self.0.stripes.get(to_usize(ino.0 % STRIPES)) else { return self.clone() };
        let mut stripe = stripe.lock();
        Self(stripe.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Stripe(Arc::clone(&self.0.0)));
            *stripe = Arc::downgrade(&fresh);
            fresh
        }))
    }

    /// Returns the operations that change the volume. Fails with `ReadOnly` if the volume is not open for
    /// writing, or if gathered data was lost.
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

    /// Returns the operations that write changes to stable storage. Fails with the error that caused the loss of
    /// gathered data, or with `ReadOnly`.
    pub(crate) fn syncable(&self) -> Result<&dyn WritableFileSystem> {
        match self.gathering.lost() {
            Some(error) => Err(error),
            None => self.fs.writable().ok_or(Error::ReadOnly),
        }
    }
}

/// Releases the references of the name cache and of the root, so that the driver frees inodes without names.
/// Then stops the thread that limits the age of gathered data.
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
