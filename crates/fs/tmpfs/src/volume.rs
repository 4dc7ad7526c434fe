//! The mounted state: inodes by number, space, clock.
//!
//! Invariant: a reused inode number has a new generation.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, DeviceNumber, Error, FileKind, Generation, Ino, Mode, Result};
use obento_block::BlockDevice;
use obento_driver::{NewNode, WritableFileSystem};
use obento_env::Clock;
use obento_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use obento_env::sync::{Mutex, RwLock};

use crate::inode::{Body, Inode, State};
use crate::space::{PAGE, Space};

/// Number of shards: enough that threads rarely collide.
const SHARDS: u64 = 16;
/// The inode number of the root, as in most formats.
pub(crate) const ROOT: Ino = Ino(2);

/// Options of a new volume.
#[derive(Clone)]
pub struct Options {
    /// Space for file data in bytes.
    pub size: u64,
    /// Maximum number of inodes.
    pub inodes: u64,
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Device for file data, instead of memory. Its previous contents are lost.
    pub device: Option<Arc<dyn BlockDevice>>,
    /// Permissions of the root directory.
    pub mode: Mode,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
}

impl Options {
    /// Returns options without limits, with a root directory that user 0 owns and all users may read.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { size: u64::MAX, inodes: u64::MAX, clock, device: None, mode: Mode::new(0o755), uid: 0, gid: 0 }
    }
}

/// A volume in memory.
pub struct Tmpfs {
    shards: Vec<RwLock<HashMap<Ino, Arc<Inode>>>>,
    numbers: Mutex<Numbers>,
    inodes: u64,
    used_inodes: AtomicU64,
    pub(crate) space: Space,
    pub(crate) closed: AtomicBool,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Free inode numbers: released numbers, and all from `fresh` on.
#[derive(Debug)]
struct Numbers {
    fresh: u64,
    returned: Vec<(Ino, Generation)>,
}

impl Tmpfs {
    /// Creates an empty volume.
    pub fn new(options: Options) -> Self {
        let volume = Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            numbers: Mutex::new(Numbers { fresh: ROOT.0, returned: Vec::new() }),
            inodes: options.inodes,
            used_inodes: AtomicU64::new(0),
            space: Space::new(options.size / PAGE, options.device),
            closed: AtomicBool::new(false),
            clock: options.clock,
        };
        let node = NewNode {
            kind: FileKind::Directory,
            mode: options.mode,
            uid: options.uid,
            gid: options.gid,
            rdev: DeviceNumber::default(),
            target: &[],
        };
        let mut state = State::new(&node, ROOT, volume.now());
        state.attr.nlink = 2;
        volume.used_inodes.store(1, Ordering::Relaxed);
        volume.add(FileKind::Directory, state);
        volume
    }

    fn shard(&self, ino: Ino) -> &RwLock<HashMap<Ino, Arc<Inode>>> {
        #[expect(clippy::indexing_slicing, reason = "there are SHARDS of them")]
        &self.shards[to_usize(ino.0 % SHARDS)]
    }

    /// Returns the inode with this number. Fails with `Stale`.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.shard(ino).read().get(&ino).cloned().ok_or(Error::Stale)
    }

    /// Calls `look` with the state of an inode. Fails with `Stale`, and with the errors of `look`.
    pub(crate) fn look<T>(&self, ino: Ino, look: impl FnOnce(&Inode, &State) -> Result<T>) -> Result<T> {
        let inode = self.inode(ino)?;
        let state = inode.state.read();
        look(&inode, &state)
    }

    /// Fails with `ReadOnly` after `close`, for callers that still have the writable interface.
    pub(crate) fn expect_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Calls `act` with the state of an inode for modification. Fails with `ReadOnly`, `Stale`, and the
    /// errors of `act`.
    pub(crate) fn act<T>(&self, ino: Ino, act: impl FnOnce(&Inode, &mut State) -> Result<T>) -> Result<T> {
        self.expect_open()?;
        let inode = self.inode(ino)?;
        let mut state = inode.state.write();
        act(&inode, &mut state)
    }

    /// Reserves an inode. Fails with `NoSpace`.
    pub(crate) fn reserve_inode(&self) -> Result<()> {
        let more = |used: u64| used.checked_add(1).filter(|&used| used <= self.inodes);
        let counted = self.used_inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map(drop).map_err(|_| Error::NoSpace)
    }

    /// Adds a new inode, which was reserved, to the table.
    pub(crate) fn add(&self, kind: FileKind, state: State) -> Attr {
        let (ino, generation) = self.numbers.lock().take();
        let inode = Inode { ino, generation, kind, state: RwLock::new(state) };
        // Before other threads can find and lock the inode, since the caller holds the lock of its
        // directory.
        let attr = inode.attr(&inode.state.read());
        self.shard(ino).write().insert(ino, Arc::new(inode));
        attr
    }

    /// Frees the inode if it has no name.
    pub(crate) fn free_if_nameless(&self, ino: Ino) {
        let Ok(inode) = self.inode(ino) else { return };
        let mut state = inode.state.write();
        // Only once: a second call does not find it in the table.
        if state.attr.nlink != 0 || self.shard(ino).write().remove(&ino).is_none() {
            return;
        }
        if let Body::Regular(data) = &mut state.body {
            data.truncate(&self.space, 0);
        }
        self.numbers.lock().returned.push((ino, inode.generation));
        self.used_inodes.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the maximum number of inodes and the number of free ones.
    pub(crate) fn inode_counts(&self) -> (u64, u64) {
        (self.inodes, self.inodes.saturating_sub(self.used_inodes.load(Ordering::Relaxed)))
    }

    /// Returns the number of inodes in memory, including those without a name.
    pub fn inodes_in_use(&self) -> u64 {
        self.shards.iter().map(|shard| to_u64(shard.read().len())).fold(0, u64::saturating_add)
    }
}

impl Numbers {
    fn take(&mut self) -> (Ino, Generation) {
        match self.returned.pop() {
            Some((ino, generation)) => (ino, Generation(generation.0.wrapping_add(1))),
            None => {
                let ino = Ino(self.fresh);
                self.fresh = self.fresh.saturating_add(1);
                (ino, Generation(1))
            }
        }
    }
}
