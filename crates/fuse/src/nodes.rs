//! The inodes that the kernel refers to by node ID.
//!
//! Invariant: an inode stays in this table, and so in use, until FORGET requests have undone all lookups that were
//! reported to the kernel. An open file without a name stays in use by the same rule: the kernel forgets the inode
//! after the last close.
//! Invariant: a node ID equals the inode number, with one exception. The root has node ID 1, and an inode numbered 1
//! has the root's inode number as its node ID.
//! Invariant: the kernel caches attributes for a long time only while the file is not written to. The kernel does not
//! update the allocated space when it caches written pages. A write invalidates attributes that are cached for long.
//! Invariant: while a [`FirstUse`] exists, the kernel caches no data of its file, and no process has the file open.
//! Locking: the locks of shards are leaves. Nodes are dropped outside the lock, because dropping the last node of an
//! inode may take long. A [`FirstUse`] holds a lock that is taken before the lock of a shard.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use obento_base::{Errno, Ino};
use obento_vfs::{Node, Vfs};
use parking_lot::{Mutex, MutexGuard};

use crate::handover::NodeState;
use crate::ledger::Ledger;

/// The root's node ID in every FUSE file system.
pub(crate) const ROOT: u64 = 1;
/// A number that makes contention between threads rare.
const SHARDS: u64 = 16;
/// A file is no longer being written to if the last write is this long ago.
const QUIET: Duration = Duration::from_secs(2);

/// One inode of the table.
#[derive(Clone)]
pub(crate) struct KernelInode {
    pub(crate) node: Node,
    /// Whether the inode is known to have no capability, which a write would remove, and no flag that forbids writes.
    pub(crate) is_plain: bool,
}

struct Counted {
    known: KernelInode,
    lookups: u64,
    written: Option<Instant>,
    /// Whether the kernel may cache attributes for long: a reply that allows it was sent or is being sent.
    is_cached_for_long: bool,
    is_regular: bool,
    /// Whether the kernel may cache data of the file, or a process may have it open.
    is_used: bool,
    /// The error that lost gathered data of the file, until a write has reported it.
    failure: Option<Errno>,
}

/// The time before a file is first used. Other uses of the file wait until it ends.
pub(crate) struct FirstUse<'n>(#[expect(dead_code, reason = "held until it is dropped")] MutexGuard<'n, ()>);

/// The table of inodes by node ID.
pub(crate) struct Nodes {
    root: Node,
    ledger: Option<Arc<Ledger>>,
    shards: Vec<Mutex<HashMap<u64, Counted>>>,
    /// The locks of [`FirstUse`], one for each shard.
    uses: Vec<Mutex<()>>,
}

impl Nodes {
    pub(crate) fn new(vfs: &Vfs) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { root: vfs.root(), ledger: None, shards, uses: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Records all lookups in `ledger`.
    pub(crate) fn set_ledger(&mut self, ledger: Arc<Ledger>) {
        self.ledger = Some(ledger);
    }

    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.as_ref()
    }

    fn record(&self, id: u64, lookups: u64, is_regular: bool) {
        if let Some(ledger) = &self.ledger {
            ledger.count(id, lookups, is_regular);
        }
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Counted>> {
        &self.shards[(id % SHARDS) as usize]
    }

    /// Returns the inode with node ID `id`. Returns `None` if the kernel never received the ID, or has forgotten it.
    pub(crate) fn get(&self, id: u64) -> Option<KernelInode> {
        if id == ROOT {
            return Some(KernelInode { node: self.root.clone(), is_plain: true });
        }
        self.shard(id).lock().get(&id).map(|counted| counted.known.clone())
    }

    /// Returns the node ID of `node`.
    pub(crate) fn id(node: &Node) -> u64 {
        match node.ino().0 {
            _ if node.is_root() => ROOT,
            // Such as the first file of a squashfs volume.
            ROOT => node.vfs().root().ino().0,
            ino => ino,
        }
    }

    /// Returns the inode number of the node ID `id`: the inverse of [`id`](Self::id).
    pub(crate) fn ino(vfs: &Vfs, id: u64) -> Ino {
        let root = vfs.root().ino();
        match id {
            ROOT => root,
            _ if id == root.0 => Ino(ROOT),
            _ => Ino(id),
        }
    }

    /// Counts a lookup of `node`. The caller sends a reply with the node ID `id`.
    pub(crate) fn remember(&self, id: u64, node: Node, is_regular: bool) {
        if id == ROOT {
            return;
        }
        let mut shard = self.shard(id).lock();
        match shard.entry(id) {
            Entry::Occupied(mut known) => {
                let counted = known.get_mut();
                counted.lookups += 1;
                self.record(id, counted.lookups, counted.is_regular);
            }
            Entry::Vacant(slot) => {
                self.record(id, 1, is_regular);
                let known = KernelInode { node, is_plain: false };
                let (written, failure) = (None, None);
                slot.insert(Counted {
                    known,
                    lookups: 1,
                    written,
                    is_cached_for_long: true,
                    is_regular,
                    is_used: false,
                    failure,
                });
            }
        }
    }

    /// Subtracts `lookups`, and removes the inode when none is left.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        let mut shard = self.shard(id).lock();
        let Entry::Occupied(mut known) = shard.entry(id) else { return };
        let left = known.get().lookups.saturating_sub(lookups);
        if left > 0 {
            known.get_mut().lookups = left;
            return self.record(id, left, known.get().is_regular);
        }
        // Before the inode may be freed.
        self.record(id, 0, known.get().is_regular);
        let gone = known.remove();
        drop(shard);
        drop(gone);
    }

    /// Records that a process uses the data of `id`: an open, or a change of the size. Waits while another thread has the
    /// [`FirstUse`] of the file. Returns it if the file was not used since the kernel looked it up.
    pub(crate) fn begin_use(&self, id: u64) -> Option<FirstUse<'_>> {
        let first = FirstUse(self.uses[(id % SHARDS) as usize].lock());
        let mut shard = self.shard(id).lock();
        let is_used = std::mem::replace(&mut shard.get_mut(&id)?.is_used, true);
        (!is_used).then_some(first)
    }

    /// Records whether `id` is known to have no capability and no flag that forbids writes.
    pub(crate) fn set_plain(&self, id: u64, is_plain: bool) {
        if let Some(counted) = self.shard(id).lock().get_mut(&id) {
            counted.known.is_plain = is_plain;
        }
    }

    /// Records a write to `id`. Returns whether the kernel caches attributes for long, which the caller must
    /// invalidate.
    pub(crate) fn note_write(&self, id: u64) -> bool {
        let mut shard = self.shard(id).lock();
        let Some(counted) = shard.get_mut(&id) else { return false };
        counted.written = Some(Instant::now());
        std::mem::take(&mut counted.is_cached_for_long)
    }

    /// Returns whether the kernel may cache attributes of `id` for long. If so, records that it does.
    pub(crate) fn may_cache_for_long(&self, id: u64) -> bool {
        let mut shard = self.shard(id).lock();
        let Some(counted) = shard.get_mut(&id) else { return true };
        let is_quiet = counted.written.is_none_or(|written| written.elapsed() > QUIET);
        counted.is_cached_for_long |= is_quiet;
        is_quiet
    }

    /// The regular files that the kernel has looked up.
    pub(crate) fn regular_files(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            ids.extend(shard.iter().filter(|(_, counted)| counted.is_regular).map(|(&id, _)| id));
        }
        ids
    }

    /// Records the error that lost gathered data of `id`, or that a write has reported it.
    pub(crate) fn set_failure(&self, id: u64, failure: Option<Errno>) {
        if let Some(counted) = self.shard(id).lock().get_mut(&id) {
            counted.failure = failure;
        }
    }

    /// Returns the error that lost gathered data of `id`, until a write has reported it.
    pub(crate) fn failure(&self, id: u64) -> Option<Errno> {
        self.shard(id).lock().get(&id).and_then(|counted| counted.failure)
    }

    /// Returns the number of inodes in the table.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Returns all inodes, for the process that serves the kernel next.
    pub(crate) fn export(&self) -> Vec<NodeState> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(shard.iter().map(|(&id, counted)| NodeState {
                id,
                lookups: counted.lookups,
                is_plain: counted.known.is_plain,
                is_regular: counted.is_regular,
                is_cached_for_long: counted.is_cached_for_long,
                is_written: counted.written.is_some_and(|written| written.elapsed() <= QUIET),
                failure: counted.failure.map(|errno| errno.0),
            }));
        }
        all
    }

    /// Adds the inodes that another process exported. `vfs` has them in use.
    pub(crate) fn import(&self, vfs: &Vfs, all: &[NodeState]) {
        for state in all.iter().filter(|state| state.id != ROOT && state.lookups > 0) {
            let node = vfs.adopt(Self::ino(vfs, state.id));
            let counted = Counted {
                known: KernelInode { node, is_plain: state.is_plain },
                lookups: state.lookups,
                written: state.is_written.then(Instant::now),
                is_cached_for_long: state.is_cached_for_long,
                is_regular: state.is_regular,
                is_used: true,
                failure: state.failure.map(Errno),
            };
            let before = self.shard(state.id).lock().insert(state.id, counted);
            drop(before);
        }
    }

    /// Removes all inodes, when the connection has ended.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock());
            drop(gone);
        }
    }
}
