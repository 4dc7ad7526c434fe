//! The entries of a directory.
//!
//! Invariant: an entry's number is larger than that of every entry made before it, and is its cookie: it survives what
//! comes and goes around it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::{FileKind, Ino, Name, NameBuf};
use obento_driver::Cookie;

/// One entry.
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

    /// Adds an entry; the caller knows that the name is free.
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

    /// Lets `name` lead to another inode.
    pub(crate) fn retarget(&mut self, name: &Name, ino: Ino, kind: FileKind) {
        if let Some(entry) = self.by_name.get(name).and_then(|number| self.by_number.get_mut(number)) {
            entry.ino = ino;
            entry.kind = kind;
        }
    }

    /// At most `max` entries that follow `from`, each with where to go on after it.
    pub(crate) fn after(&self, from: Cookie, max: usize) -> Vec<(Cookie, Entry)> {
        let rest = self.by_number.range(from.0.saturating_add(1)..);
        rest.take(max).map(|(&number, entry)| (Cookie(number), entry.clone())).collect()
    }
}
