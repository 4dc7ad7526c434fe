//! The entries of a directory.
//!
//! Invariant: the number of an entry is larger than that of every older entry, and is its cookie. The cookie stays
//! valid when other entries are created or removed.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::{FileKind, Ino, Name, NameBuf};
use obento_driver::Cookie;

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: NameBuf,
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
}

#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) parent: Ino,
    last: u64,
    by_number: BTreeMap<u64, Entry>,
    by_name: HashMap<NameBuf, u64>,
}

impl Directory {
    pub(crate) fn new(parent: Ino) -> Self {
        Self { parent, last: 0, by_number: BTreeMap::new(), by_name: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&Entry> {
        self.by_number.get(self.by_name.get(name)?)
    }

    /// Adds an entry whose name does not exist yet.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.last = self.last.saturating_add(1);
        self.by_name.insert(entry.name.clone(), self.last);
        self.by_number.insert(self.last, entry);
    }

    pub(crate) fn remove(&mut self, name: &Name) {
        if let Some(number) = self.by_name.remove(name) {
            self.by_number.remove(&number);
        }
    }

    /// Makes `name` refer to another inode.
    pub(crate) fn retarget(&mut self, name: &Name, ino: Ino, kind: FileKind) {
        if let Some(entry) = self.by_name.get(name).and_then(|number| self.by_number.get_mut(number)) {
            entry.ino = ino;
            entry.kind = kind;
        }
    }

    /// Returns at most `max` entries after `from`, each with the position at which a listing continues
    /// after it.
    pub(crate) fn after(&self, from: Cookie, max: usize) -> Vec<(Cookie, Entry)> {
        let rest = self.by_number.range(from.0.saturating_add(1)..);
        rest.take(max).map(|(&number, entry)| (Cookie(number), entry.clone())).collect()
    }
}
