//! The name cache. For a name in a directory, the cache stores the inode that the name refers to, or the fact that the
//! name does not exist.
//!
//! The cache consists of sets with a few entries each, so that memory is bounded and entries never move. An entry for
//! an existing name holds a reference to its inode. A clock hand per set selects the entry to replace.
//!
//! Invariant: a thread that inserts an entry holds the guard of the directory, shared or exclusive, from the lookup to
//! the insertion. A thread that changes a name holds the guard exclusively until it has updated the entry. Entries are
//! therefore never stale.
//! Invariant: after a directory is removed, only entries for names that do not exist remain. If a new
//! directory gets the same inode number, these entries are valid for the new directory, which is empty at
//! first.
//! Locking: one leaf lock per set.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use obento_base::wire::{to_u64, to_usize};
use obento_base::{Ino, Name, NameBuf};
use obento_env::sync::Mutex;

use crate::table::Inode;

/// Number of entries per set: few enough for a linear search, and many enough that names of the same set rarely evict
/// each other.
const WAYS: usize = 8;

#[derive(Debug)]
struct Entry {
    hash: u64,
    dir: Ino,
    name: NameBuf,
    target: Option<Arc<Inode>>,
    /// Whether the entry was found since the clock hand last passed it.
    hot: bool,
}

impl Entry {
    fn is(&self, key: &Key<'_>) -> bool {
        self.hash == key.hash && self.dir == key.dir && *self.name == *key.name
    }
}

#[derive(Debug, Default)]
struct Set {
    entries: Vec<Entry>,
    hand: usize,
}

impl Set {
    fn find(&mut self, key: &Key<'_>) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.is(key))
    }

    /// Inserts `entry`. Returns the entry that it replaces: the first entry that was not found since the clock hand
    /// last passed it.
    fn insert(&mut self, entry: Entry) -> Option<Entry> {
        if self.entries.len() < WAYS {
            self.entries.push(entry);
            return None;
        }
        for _ in 0..=WAYS {
            self.hand = self.hand.wrapping_add(1) % WAYS;
            let slot = self.entries.get_mut(self.hand)?;
            if !slot.hot {
                return Some(core::mem::replace(slot, entry));
            }
            slot.hot = false;
        }
        Some(entry)
    }
}

/// A name in a directory with its hash.
pub(crate) struct Key<'a> {
    hash: u64,
    dir: Ino,
    name: &'a Name,
}

/// The cached result of a lookup.
pub(crate) enum CachedName {
    /// The name refers to this inode. The caller must release the reference.
    Leads(Arc<Inode>),
    /// The name does not exist.
    Nowhere,
}

#[derive(Debug)]
pub(crate) struct Names {
    sets: Vec<Mutex<Set>>,
    hasher: DefaultHashBuilder,
}

/// A reference that was removed from the cache. The caller releases the reference without holding a lock of
/// the cache.
pub(crate) type Dropped = Option<Arc<Inode>>;

impl Names {
    /// Creates a cache of `entries` names, rounded up to a multiple of [`WAYS`]; 0 disables the cache.
    pub(crate) fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS);
        Self {
            sets: (0..sets).map(|_| Mutex::new(Set::default())).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Returns the cache key of a name. The key contains the hash, so that the name is hashed only once.
    pub(crate) fn key<'a>(&self, dir: Ino, name: &'a Name) -> Key<'a> {
        Key { hash: self.hasher.hash_one((dir, name)), dir, name }
    }

    fn set(&self, key: &Key<'_>) -> Option<&Mutex<Set>> {
        let index = key.hash.checked_rem(to_u64(self.sets.len()))?;
        self.sets.get(to_usize(index))
    }

    pub(crate) fn get(&self, key: &Key<'_>) -> Option<CachedName> {
        let mut set = self.set(key)?.lock();
        let entry = set.find(key)?;
        entry.hot = true;
        Some(match &entry.target {
            Some(inode) => {
                inode.use_again();
                CachedName::Leads(Arc::clone(inode))
            }
            None => CachedName::Nowhere,
        })
    }

    /// Inserts the result of a lookup. The reference to `target` passes to the cache. Returns a reference
    /// that the caller must release: that of the replaced or evicted entry, or `target` if the cache is
    /// disabled.
    #[must_use]
    pub(crate) fn put(&self, key: &Key<'_>, target: Option<Arc<Inode>>) -> Dropped {
        let Some(set) = self.set(key) else { return target };
        let mut set = set.lock();
        if let Some(entry) = set.find(key) {
            return core::mem::replace(&mut entry.target, target);
        }
        let entry = Entry { hash: key.hash, dir: key.dir, name: key.name.to_buf(), target, hot: false };
        set.insert(entry).and_then(|old| old.target)
    }

    /// Removes the entry of a name, and returns the reference of the entry. The reference is `None` if the entry is for
    /// a name that does not exist. Returns `None` if the cache has no entry for the name.
    pub(crate) fn take(&self, key: &Key<'_>) -> Option<Dropped> {
        let mut set = self.set(key)?.lock();
        let at = set.entries.iter().position(|entry| entry.is(key))?;
        Some(set.entries.swap_remove(at).target)
    }

    /// Records that a name no longer exists, if the name is cached. Adds no entry for other names, since
    /// removed names are rarely looked up again. Returns the reference of the entry, which the caller must
    /// release.
    #[must_use]
    pub(crate) fn clear(&self, key: &Key<'_>) -> Dropped {
        self.set(key)?.lock().find(key)?.target.take()
    }

    /// Empties the cache and returns the references that it held.
    #[must_use]
    pub(crate) fn drain(&self) -> Vec<Arc<Inode>> {
        self.sets
            .iter()
            .flat_map(|set| core::mem::take(&mut set.lock().entries))
            .filter_map(|entry| entry.target)
            .collect()
    }
}
