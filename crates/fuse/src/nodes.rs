//! The inodes that the kernel knows by number.
//!
//! Invariant: an inode is here, and so in use, as long as the kernel has not taken back with FORGET all the lookups that
//! it was answered. That is also what keeps an open file that lost its name: the kernel forgets it after the last close.
//! Invariant: a number is the inode's own, but 1 is the root's, whatever its own, which is that of an inode whose own is 1.
//! Invariant: the kernel has attributes for long only of what is not being written to, because it does not count the space
//! that written pages take; it is told when a write makes them old.
//! Locking: shards are leaves; nodes are dropped outside, because the last one of an inode may take long.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use obento::{Ino, Node, Vfs};
use parking_lot::Mutex;

/// The root's number in every FUSE file system.
pub(crate) const ROOT: u64 = 1;
/// Enough that threads seldom meet.
const SHARDS: u64 = 16;
/// Who wrote so long ago is not writing any more.
const QUIET: Duration = Duration::from_secs(2);

/// One inode that the kernel knows.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) node: Node,
    /// It is known that writing to it takes nothing away and is not forbidden: no capability, no flag.
    pub(crate) is_plain: bool,
}

struct Counted {
    known: Known,
    lookups: u64,
    written: Option<Instant>,
    /// The kernel may have attributes that hold for long: it was told so, or is just being told.
    told_for_long: bool,
}

/// What numbers lead to.
pub(crate) struct Nodes {
    root: Node,
    shards: Vec<Mutex<HashMap<u64, Counted>>>,
}

impl Nodes {
    pub(crate) fn new(vfs: &Vfs) -> Self {
        Self { root: vfs.root(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Counted>> {
        &self.shards[(id % SHARDS) as usize]
    }

    /// The inode of this number. None for a number that the kernel was never told, or has given back.
    pub(crate) fn get(&self, id: u64) -> Option<Known> {
        if id == ROOT {
            return Some(Known { node: self.root.clone(), is_plain: true });
        }
        self.shard(id).lock().get(&id).map(|counted| counted.known.clone())
    }

    /// The number of `node`.
    pub(crate) fn id(node: &Node) -> u64 {
        match node.ino().0 {
            _ if node.is_root() => ROOT,
            // As the first file of a squashfs.
            ROOT => node.vfs().root().ino().0,
            ino => ino,
        }
    }

    /// The inode number for which `id` stands: the inverse of [`id`](Self::id).
    pub(crate) fn ino(vfs: &Vfs, id: u64) -> Ino {
        let root = vfs.root().ino();
        match id {
            ROOT => root,
            _ if id == root.0 => Ino(ROOT),
            _ => Ino(id),
        }
    }

    /// Counts a lookup of `node`, which the kernel is about to be told of under `id`.
    pub(crate) fn remember(&self, id: u64, node: Node) {
        if id == ROOT {
            return;
        }
        match self.shard(id).lock().entry(id) {
            Entry::Occupied(mut known) => known.get_mut().lookups += 1,
            Entry::Vacant(slot) => {
                let known = Known { node, is_plain: false };
                slot.insert(Counted { known, lookups: 1, written: None, told_for_long: true });
            }
        }
    }

    /// Takes `lookups` back, and with the last the inode.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        let mut shard = self.shard(id).lock();
        let Entry::Occupied(mut known) = shard.entry(id) else { return };
        let left = known.get().lookups.saturating_sub(lookups);
        if left > 0 {
            known.get_mut().lookups = left;
            return;
        }
        let gone = known.remove();
        drop(shard);
        drop(gone);
    }

    /// Notes whether writing to `id` is plain.
    pub(crate) fn set_plain(&self, id: u64, is_plain: bool) {
        if let Some(counted) = self.shard(id).lock().get_mut(&id) {
            counted.known.is_plain = is_plain;
        }
    }

    /// Notes that `id` was written to; whether the kernel has attributes for long, which it has to be told about.
    pub(crate) fn note_write(&self, id: u64) -> bool {
        let mut shard = self.shard(id).lock();
        let Some(counted) = shard.get_mut(&id) else { return false };
        counted.written = Some(Instant::now());
        std::mem::take(&mut counted.told_for_long)
    }

    /// Whether the kernel may be told attributes of `id` for long, which it is taken to be then.
    pub(crate) fn tell_for_long(&self, id: u64) -> bool {
        let mut shard = self.shard(id).lock();
        let Some(counted) = shard.get_mut(&id) else { return true };
        let is_quiet = counted.written.is_none_or(|written| written.elapsed() > QUIET);
        counted.told_for_long |= is_quiet;
        is_quiet
    }

    /// How many inodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Takes all back: the connection is over.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock());
            drop(gone);
        }
    }
}
