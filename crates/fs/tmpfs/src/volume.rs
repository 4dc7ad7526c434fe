//! The mounted state: inodes by number, room, clock.
//!
//! Invariant: a number that was given back starts its next life with another generation.

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

/// Enough that threads seldom meet.
const SHARDS: u64 = 16;
/// The first number, as root directories of most formats have it.
pub(crate) const ROOT: Ino = Ino(2);

/// What a new volume is like.
#[derive(Clone)]
pub struct Options {
    /// Room for the data of files in bytes.
    pub size: u64,
    /// How many inodes there may be.
    pub inodes: u64,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Where the data of files goes instead of memory; what it held is lost.
    pub device: Option<Arc<dyn BlockDevice>>,
    /// Permissions of the root directory.
    pub mode: Mode,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
}

impl Options {
    /// As much as memory holds, a root directory of user 0 that all may search and list.
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

/// Inode numbers that are free: those given back, and all from `fresh` on.
#[derive(Debug)]
struct Numbers {
    fresh: u64,
    returned: Vec<(Ino, Generation)>,
}

impl Tmpfs {
    /// An empty volume.
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

    /// The inode of this number. Errors: Stale.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.shard(ino).read().get(&ino).cloned().ok_or(Error::Stale)
    }

    /// Does something with a state that is only looked at. Errors: Stale; those of `look`.
    pub(crate) fn look<T>(&self, ino: Ino, look: impl FnOnce(&Inode, &State) -> Result<T>) -> Result<T> {
        let inode = self.inode(ino)?;
        let state = inode.state.read();
        look(&inode, &state)
    }

    /// Errors: ReadOnly after a close, for who still holds the capability to change the volume.
    pub(crate) fn expect_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Does something that changes one state. Errors: ReadOnly; Stale; those of `act`.
    pub(crate) fn act<T>(&self, ino: Ino, act: impl FnOnce(&Inode, &mut State) -> Result<T>) -> Result<T> {
        self.expect_open()?;
        let inode = self.inode(ino)?;
        let mut state = inode.state.write();
        act(&inode, &mut state)
    }

    /// Room for one more inode. Errors: NoSpace.
    pub(crate) fn reserve_inode(&self) -> Result<()> {
        let more = |used: u64| used.checked_add(1).filter(|&used| used <= self.inodes);
        let counted = self.used_inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map(drop).map_err(|_| Error::NoSpace)
    }

    /// Puts a new inode into the table, for which room was reserved.
    pub(crate) fn add(&self, kind: FileKind, state: State) -> Attr {
        let (ino, generation) = self.numbers.lock().take();
        let inode = Inode { ino, generation, kind, state: RwLock::new(state) };
        // Before others can find and lock it, because the caller holds its directory.
        let attr = inode.attr(&inode.state.read());
        self.shard(ino).write().insert(ino, Arc::new(inode));
        attr
    }

    /// Frees the inode if it has no name.
    pub(crate) fn free_if_nameless(&self, ino: Ino) {
        let Ok(inode) = self.inode(ino) else { return };
        let mut state = inode.state.write();
        // Only once: a second call finds it gone from the table.
        if state.attr.nlink != 0 || self.shard(ino).write().remove(&ino).is_none() {
            return;
        }
        if let Body::Regular(data) = &mut state.body {
            data.truncate(&self.space, 0);
        }
        self.numbers.lock().returned.push((ino, inode.generation));
        self.used_inodes.fetch_sub(1, Ordering::Relaxed);
    }

    /// All inodes there may be, and those that are free.
    pub(crate) fn inode_counts(&self) -> (u64, u64) {
        (self.inodes, self.inodes.saturating_sub(self.used_inodes.load(Ordering::Relaxed)))
    }

    /// Inodes that take memory, those without a name included.
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
