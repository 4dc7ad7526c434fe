//! The inodes in use.
//!
//! Invariant: an inode is in the table from its first use until `forget` came back, so that a number which the driver
//! may give away in `forget` is never taken up again meanwhile.
//! Invariant: the count of uses goes from 1 to 0 only under the lock of the shard, so that whoever finds an inode
//! there with a count above 0 may raise it.
//! Locking: shards are leaves. `leaving` is held while the driver's `forget` runs, and waited for without the shard.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, HashMap};
use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, FileFlags, FileKind, Ino};
use obento_driver::LayoutLock;
use obento_env::sync::{Mutex, RwLock};

use crate::gather::Gather;

/// Enough that threads seldom meet.
const SHARDS: u64 = 16;

/// One inode in use.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    facts: AtomicU8,
    uses: AtomicUsize,
    /// A directory's names, a file's writers.
    pub(crate) guard: RwLock<()>,
    pub(crate) layout: LayoutLock,
    pub(crate) gather: Gather,
    leaving: Mutex<()>,
}

/// What of an inode's attributes holds for as long as it is in use, or changes through `vfs` alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: FileKind,
    /// Names in this directory are compared without case.
    pub(crate) casefold: bool,
}

const CASEFOLD: u8 = 0x80;

impl Facts {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { kind: attr.kind, casefold: attr.flags.contains(FileFlags::CASEFOLD) }
    }

    fn encode(self) -> u8 {
        let kind = match self.kind {
            FileKind::Regular => 1,
            FileKind::Directory => 2,
            FileKind::Symlink => 3,
            FileKind::CharDevice => 4,
            FileKind::BlockDevice => 5,
            FileKind::Fifo => 6,
            FileKind::Socket => 7,
        };
        if self.casefold { kind | CASEFOLD } else { kind }
    }

    fn decode(bits: u8) -> Option<Self> {
        let kind = match bits & !CASEFOLD {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::CharDevice,
            5 => FileKind::BlockDevice,
            6 => FileKind::Fifo,
            7 => FileKind::Socket,
            _ => return None,
        };
        Some(Self { kind, casefold: bits & CASEFOLD != 0 })
    }
}

impl Inode {
    fn new(ino: Ino) -> Self {
        Self {
            ino,
            facts: AtomicU8::new(0),
            uses: AtomicUsize::new(1),
            guard: RwLock::new(()),
            layout: LayoutLock::new(),
            gather: Gather::default(),
            leaving: Mutex::new(()),
        }
    }

    /// One more use. Only for who has one already.
    pub(crate) fn use_again(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// What was learnt of it so far.
    pub(crate) fn facts(&self) -> Option<Facts> {
        Facts::decode(self.facts.load(Ordering::Relaxed))
    }

    pub(crate) fn learn(&self, facts: Facts) {
        // Mostly it is known, and what is not written stays in every thread's cache.
        let bits = facts.encode();
        if self.facts.load(Ordering::Relaxed) != bits {
            self.facts.store(bits, Ordering::Relaxed);
        }
    }
}

/// On cache lines of its own, or threads at different shards would wait for each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<Ino, Arc<Inode>>>);

#[derive(Debug)]
pub(crate) struct Table {
    shards: Vec<Shard>,
    hasher: DefaultHashBuilder,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Arc<Inode>>> {
        let index = to_usize(self.hasher.hash_one(ino) % SHARDS);
        #[expect(clippy::indexing_slicing, reason = "there are SHARDS of them")]
        &self.shards[index].0
    }

    /// A use of `ino`, to be given back by [`release`](Self::release).
    pub(crate) fn acquire(&self, ino: Ino) -> Arc<Inode> {
        loop {
            let leaving = match self.shard(ino).lock().entry(ino) {
                Entry::Vacant(slot) => return Arc::clone(slot.insert(Arc::new(Inode::new(ino)))),
                Entry::Occupied(slot) => {
                    let inode = slot.get();
                    if inode.uses.load(Ordering::Relaxed) != 0 {
                        inode.use_again();
                        return Arc::clone(inode);
                    }
                    Arc::clone(inode)
                }
            };
            drop(leaving.leaving.lock());
        }
    }

    /// Gives a use back, and with the last one the inode, by `forget`.
    pub(crate) fn release(&self, inode: &Inode, forget: impl FnOnce()) {
        let keep = |uses: usize| uses.checked_sub(1).filter(|&left| left != 0);
        if inode.uses.fetch_update(Ordering::Release, Ordering::Relaxed, keep).is_ok() {
            return;
        }
        let shard = self.shard(inode.ino).lock();
        if inode.uses.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let leaving = inode.leaving.lock();
        drop(shard);
        forget();
        self.shard(inode.ino).lock().remove(&inode.ino);
        drop(leaving);
    }

    /// How many inodes are in use.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| to_u64(shard.0.lock().len())).fold(0, u64::saturating_add)
    }
}
