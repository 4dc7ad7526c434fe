//! The name cache: what names lead to, and which lead nowhere.
//!
//! Sets of a few entries each, so that memory is bounded and nothing is ever rearranged. An entry that led somewhere
//! holds a use of its inode.
//!
//! Invariant: an entry is put in under the directory's shared guard, by whoever looked it up under that same guard,
//! and taken out under the exclusive one: it never tells of the past.
//! Invariant: a directory that goes away leaves no entry but those of names that lead nowhere; they hold for the
//! next directory of that number too, because it starts empty.
//! Locking: one leaf lock a set.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use obento_base::wire::{to_u64, to_usize};
use obento_base::{Ino, Name, NameBuf};
use obento_env::sync::Mutex;

use crate::table::Inode;

/// Entries a set: few enough to be looked through, enough that unlucky neighbours do not drive each other out.
const WAYS: usize = 8;

#[derive(Debug)]
struct Entry {
    hash: u64,
    dir: Ino,
    name: NameBuf,
    target: Option<Arc<Inode>>,
    /// Found again since the hand last passed.
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

    /// Puts `entry` in; answers the one that had to make room: the first that was not found again since the hand
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

/// A name in a directory, hashed.
pub(crate) struct Key<'a> {
    hash: u64,
    dir: Ino,
    name: &'a Name,
}

/// What the cache knows of a name.
pub(crate) enum Known {
    /// It leads to this inode; the use is the caller's now.
    Leads(Arc<Inode>),
    /// It leads nowhere.
    Nowhere,
}

#[derive(Debug)]
pub(crate) struct Names {
    sets: Vec<Mutex<Set>>,
    hasher: DefaultHashBuilder,
}

/// Uses that left the cache; the caller gives them back, without a lock of the cache.
pub(crate) type Dropped = Option<Arc<Inode>>;

impl Names {
    /// A cache of about `entries` names; 0 for none.
    pub(crate) fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS);
        Self {
            sets: (0..sets).map(|_| Mutex::new(Set::default())).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// What to ask the cache by, so that a name is hashed once.
    pub(crate) fn key<'a>(&self, dir: Ino, name: &'a Name) -> Key<'a> {
        Key { hash: self.hasher.hash_one((dir, name)), dir, name }
    }

    fn set(&self, key: &Key<'_>) -> Option<&Mutex<Set>> {
        let index = key.hash.checked_rem(to_u64(self.sets.len()))?;
        self.sets.get(to_usize(index))
    }

    pub(crate) fn get(&self, key: &Key<'_>) -> Option<Known> {
        let mut set = self.set(key)?.lock();
        let entry = set.find(key)?;
        entry.hot = true;
        Some(match &entry.target {
            Some(inode) => {
                inode.use_again();
                Known::Leads(Arc::clone(inode))
            }
            None => Known::Nowhere,
        })
    }

    /// Notes what a name leads to. A use of `target` goes over to the cache. Without a cache nothing is noted and the
    /// use comes back.
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

    /// Takes out what is known of a name: the use that was held, none if the name leads nowhere.
    pub(crate) fn take(&self, key: &Key<'_>) -> Option<Dropped> {
        let mut set = self.set(key)?.lock();
        let at = set.entries.iter().position(|entry| entry.is(key))?;
        Some(set.entries.swap_remove(at).target)
    }

    /// Notes that a name leads nowhere, if it is here: names that are gone are seldom asked for.
    #[must_use]
    pub(crate) fn clear(&self, key: &Key<'_>) -> Dropped {
        self.set(key)?.lock().find(key)?.target.take()
    }

    /// Empties the cache; answers the uses it held.
    #[must_use]
    pub(crate) fn drain(&self) -> Vec<Arc<Inode>> {
        self.sets
            .iter()
            .flat_map(|set| core::mem::take(&mut set.lock().entries))
            .filter_map(|entry| entry.target)
            .collect()
    }
}
