//! The table of inodes in use.
//!
//! Invariant: an inode is in the table from its first use to its last use. Afterwards, its number is in the list of
//! leaving numbers until the driver has forgotten or freed the inode. No thread uses a leaving number, since the
//! driver may assign the number to another inode.
//! Invariant: the use count drops from 1 to 0 only under the lock of the shard, and the inode is then removed from
//! the table. A thread that finds an inode in the table may therefore increment its count.
//! Locking: the locks of shards are leaf locks. A thread may lock a shard while it holds locks of the driver, since the
//! driver asks for the users of an inode ([`Table::users`]). A thread that waits for a leaving number holds neither a
//! lock of the driver nor the lock of a shard.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};
use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, FileFlags, FileKind, Ino};
use obento_driver::{ExclusiveLayout, LayoutLock};
use obento_env::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use obento_env::sync::{Condvar, Mutex, MutexGuard, RwLock};

use crate::gathered::Gather;
use crate::places::Places;

/// Number of shards: enough that threads rarely collide.
const SHARDS: u64 = 16;

/// An inode in use.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    facts: AtomicU8,
    uses: AtomicUsize,
    /// Protects the names of a directory, and serialises the writers of a file.
    pub(crate) guard: RwLock<()>,
    pub(crate) layout: LayoutLock,
    pub(crate) places: Places,
    pub(crate) gather: Gather,
}

/// Attributes that never change while the inode is in use, or change through `vfs` only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: FileKind,
    /// Whether this directory compares names without regard to case.
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
            places: Places::default(),
            gather: Gather::default(),
        }
    }

    /// Adds a use. The caller already has one.
    pub(crate) fn use_again(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks the mapping for removing or moving blocks.
    pub(crate) fn exclusive(&self) -> ExclusiveLayout<'_> {
        let layout = self.layout.exclusive();
        self.places.clear();
        layout
    }

    /// Returns the facts that are known.
    pub(crate) fn facts(&self) -> Option<Facts> {
        Facts::decode(self.facts.load(Ordering::Relaxed))
    }

    pub(crate) fn learn(&self, facts: Facts) {
        // The facts are usually known already; not writing keeps the cache line shared between threads.
        let bits = facts.encode();
        if self.facts.load(Ordering::Relaxed) != bits {
            self.facts.store(bits, Ordering::Relaxed);
        }
    }
}

/// Aligned to cache lines, so that threads on different shards do not contend.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    state: Mutex<State>,
    /// Signals that a number has left.
    gone: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inodes: HashMap<Ino, Arc<Inode>>,
    /// Leaving numbers: few at a time, at most one per thread.
    leaving: Vec<Ino>,
    /// Number of threads that wait for a leaving number.
    waiting: usize,
}

#[derive(Debug)]
pub(crate) struct Table {
    shards: Vec<Shard>,
    hasher: DefaultHashBuilder,
}

/// A number that no thread reuses while this guard exists.
#[must_use]
pub(crate) struct Leaving<'a> {
    shard: &'a Shard,
    ino: Ino,
}

/// The users of an inode.
pub(crate) enum Users<'a> {
    /// The inode is in use; the caller receives a use.
    Some(Arc<Inode>),
    /// The inode is not in use while this guard exists.
    None(Leaving<'a>),
    /// The last use of the inode has ended, and the driver has not forgotten or freed the inode yet.
    Leaving,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    fn shard(&self, ino: Ino) -> &Shard {
        let index = to_usize(self.hasher.hash_one(ino) % SHARDS);
        #[expect(clippy::indexing_slicing, reason = "there are SHARDS of them")]
        &self.shards[index]
    }

    /// Returns a use of `ino`, which the caller must [release](Self::release).
    pub(crate) fn acquire(&self, ino: Ino) -> Arc<Inode> {
        let mut state = self.shard(ino).without(ino);
        if let Some(inode) = state.inodes.get(&ino) {
            inode.use_again();
            return Arc::clone(inode);
        }
        let inode = Arc::new(Inode::new(ino));
        state.inodes.insert(ino, Arc::clone(&inode));
        inode
    }

    /// Releases a use. The last release removes the inode and calls `forget`.
    pub(crate) fn release(&self, inode: &Inode, forget: impl FnOnce()) {
        let keep = |uses: usize| uses.checked_sub(1).filter(|&left| left != 0);
        if inode.uses.fetch_update(Ordering::Release, Ordering::Relaxed, keep).is_ok() {
            return;
        }
        let shard = self.shard(inode.ino);
        let mut state = shard.state.lock();
        if inode.uses.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let last = state.inodes.remove(&inode.ino);
        let leaving = shard.leave(&mut state, inode.ino);
        drop(state);
        forget();
        drop(leaving);
        drop(last);
    }

    /// Returns the users of `ino` without waiting.
    pub(crate) fn users(&self, ino: Ino) -> Users<'_> {
        let shard = self.shard(ino);
        let mut state = shard.state.lock();
        match state.inodes.get(&ino) {
            Some(inode) => {
                inode.use_again();
                Users::Some(Arc::clone(inode))
            }
            None if state.leaving.contains(&ino) => Users::Leaving,
            None => Users::None(shard.leave(&mut state, ino)),
        }
    }

    /// Returns once `ino` is not leaving. The number may be leaving again when the call returns.
    pub(crate) fn wait_gone(&self, ino: Ino) {
        drop(self.shard(ino).without(ino));
    }

    /// Returns the number of inodes in use.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| to_u64(shard.state.lock().inodes.len())).fold(0, u64::saturating_add)
    }
}

impl Shard {
    fn leave<'a>(&'a self, state: &mut State, ino: Ino) -> Leaving<'a> {
        state.leaving.push(ino);
        Leaving { shard: self, ino }
    }

    /// Returns the locked state once `ino` is not leaving.
    fn without(&self, ino: Ino) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.leaving.contains(&ino) {
            state.waiting = state.waiting.saturating_add(1);
            state = self.gone.wait(&self.state, state);
            state.waiting = state.waiting.saturating_sub(1);
        }
        state
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.shard.state.lock();
        if let Some(at) = state.leaving.iter().position(|&ino| ino == self.ino) {
            state.leaving.swap_remove(at);
        }
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.shard.gone.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(12);

    #[test]
    fn a_leaving_number_is_reused_only_after_it_has_left() {
        let table = Table::new();
        let Users::None(leaving) = table.users(INO) else { panic!("it is not in use") };
        assert!(matches!(table.users(INO), Users::Leaving));
        assert!(matches!(table.users(Ino(13)), Users::None(_)), "other numbers are not affected");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| table.acquire(INO));
            assert_eq!(table.len(), 0, "a new user waits");
            drop(leaving);
            assert_eq!(next.join().unwrap().ino, INO);
        });
        assert_eq!(table.len(), 1);
        table.wait_gone(INO);
    }

    #[test]
    fn a_number_leaves_during_forget_and_not_before_its_last_use_ends() {
        let table = Table::new();
        let (first, mut forgotten) = (table.acquire(INO), 0);
        let Users::Some(second) = table.users(INO) else { panic!("it is in use") };
        table.release(&second, || forgotten += 1);
        assert_eq!((table.len(), forgotten), (1, 0));
        table.release(&first, || assert!(matches!(table.users(INO), Users::Leaving)));
        assert!(matches!(table.users(INO), Users::None(_)));
    }
}
