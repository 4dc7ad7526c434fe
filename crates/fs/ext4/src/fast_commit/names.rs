//! The changes of fast commits to the names in one directory.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Ino;
use obento_env::sync::Mutex;

use crate::dir::{Fold, Folder};

/// One record about one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameStep {
    /// The name refers to this inode, unless it already refers to another one.
    Link(Ino),
    /// The name no longer refers to this inode.
    Unlink(Ino),
}

/// The names of a directory that fast commits changed. The inode of a name depends on its inode on the volume, which
/// only the directory code can read.
///
/// Locking: a leaf lock over the added names, which are computed once.
#[derive(Debug)]
pub(crate) struct NameChanges {
    /// Set if names that differ only in case are equal.
    fold: Option<Fold>,
    touched: BTreeMap<Box<[u8]>, Touched>,
    added: Mutex<Option<Arc<[Added]>>>,
}

/// The changes of one name.
#[derive(Default, Debug)]
struct Touched {
    /// The name as it was written last.
    name: Box<[u8]>,
    steps: Vec<NameStep>,
}

impl Touched {
    /// Returns the current inode of the name, which refers to `base` on the volume.
    fn resolve(&self, base: Option<Ino>) -> Option<Ino> {
        self.steps.iter().fold(base, |now, &step| match (step, now) {
            (NameStep::Link(ino), None) => Some(ino),
            (NameStep::Unlink(ino), Some(present)) if present == ino => None,
            (NameStep::Link(_) | NameStep::Unlink(_), now) => now,
        })
    }
}

/// A name that does not exist in the directory on the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Added {
    pub(crate) name: Box<[u8]>,
    pub(crate) ino: Ino,
}

impl NameChanges {
    /// Creates an empty set for a directory that compares names with `fold`.
    pub(super) fn new(fold: Option<Fold>) -> Self {
        Self { fold, touched: BTreeMap::new(), added: Mutex::new(None) }
    }

    pub(super) fn push(&mut self, name: &[u8], step: NameStep) {
        let key = self.key(name).into_owned().into_boxed_slice();
        let touched = self.touched.entry(key).or_default();
        touched.steps.push(step);
        if touched.name.is_empty() || matches!(step, NameStep::Link(_)) {
            touched.name = name.into();
        }
    }

    /// Returns the key for comparing names. A name that is not UTF-8 equals only the same bytes, and no folded name.
    fn key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        let folded = self.fold.and_then(|_| Folder::default().fold(name).map(Vec::from));
        folded.map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// Returns the changed names, ordered by their bytes.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &[u8]> {
        self.touched.values().map(|touched| &*touched.name)
    }

    /// Returns the current inode of `name`, which refers to `base` on the volume.
    pub(crate) fn resolve(&self, name: &[u8], base: Option<Ino>) -> Option<Ino> {
        match self.touched.get(&*self.key(name)) {
            Some(touched) => touched.resolve(base),
            None => base,
        }
    }

    /// Returns the existing names that are not in the directory on the volume. The order is always the same, so that an
    /// index into the names can be a cookie. `scan` passes on the names of the directory; it is called at most once for
    /// this object.
    pub(crate) fn added(&self, scan: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Arc<[Added]> {
        if let Some(added) = &*self.added.lock() {
            return Arc::clone(added);
        }
        let mut stored = BTreeSet::new();
        scan(&mut |name| {
            if let Some((key, _)) = self.touched.get_key_value(&*self.key(name)) {
                stored.insert(key);
            }
        });
        let new = self.touched.iter().filter(|(key, _)| !stored.contains(key));
        let added: Arc<[Added]> = new
            .filter_map(|(_, touched)| {
                Some(Added { ino: touched.resolve(None)?, name: touched.name.clone() })
            })
            .collect();
        // Another thread may have stored the same result before.
        *self.added.lock() = Some(Arc::clone(&added));
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(fold: Option<Fold>) -> NameChanges {
        let mut changes = NameChanges::new(fold);
        changes.push(b"new", NameStep::Link(Ino(20)));
        changes.push(b"gone", NameStep::Unlink(Ino(12)));
        changes.push(b"over", NameStep::Unlink(Ino(13)));
        changes.push(b"over", NameStep::Link(Ino(21)));
        changes.push(b"brief", NameStep::Link(Ino(22)));
        changes.push(b"brief", NameStep::Unlink(Ino(22)));
        changes
    }

    #[test]
    fn names_follow_links_and_unlinks() {
        let changes = changes(None);
        let now = |name: &[u8], base: Option<u64>| changes.resolve(name, base.map(Ino)).map(|ino| ino.0);
        assert_eq!((now(b"new", None), now(b"new", Some(9))), (Some(20), Some(9)));
        assert_eq!((now(b"gone", Some(12)), now(b"gone", Some(99))), (None, Some(99)));
        assert_eq!(now(b"over", Some(13)), Some(21));
        assert_eq!((now(b"brief", None), now(b"NEW", None)), (None, None));
        assert_eq!(now(b"other", Some(5)), Some(5));
    }

    #[test]
    fn added_names_are_those_that_the_directory_lacks_and_it_is_scanned_once() {
        let changes = changes(None);
        let added = |name: &[u8], ino| Added { name: name.into(), ino: Ino(ino) };
        let first = changes.added(|visit| [&b"over"[..], b"gone", b"other"].into_iter().for_each(visit));
        assert_eq!(*first, [added(b"new", 20)]);
        assert_eq!(changes.added(|_| panic!("scanned twice")), first);
    }

    #[test]
    fn names_without_case_are_one_and_keep_their_last_spelling() {
        let mut changes = changes(Some(Fold { strict: false, scan: false }));
        changes.push(b"NEU", NameStep::Link(Ino(30)));
        assert_eq!(changes.resolve(b"GONE", Some(Ino(12))), None);
        assert_eq!(changes.resolve(b"neu", None), Some(Ino(30)));
        let names: Vec<_> =
            changes.added(|visit| visit(b"Over")).iter().map(|added| added.name.clone()).collect();
        assert_eq!(names, [(*b"NEU").into(), Box::from(*b"new")]);
    }
}
