//! What fast commits did to the names in one directory.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::Ino;

/// One record about one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The name now names this inode, unless it named another already.
    Link(Ino),
    /// The name no longer names this inode, if it did.
    Unlink(Ino),
}

/// The names of a directory that fast commits touched. What stands under a name now follows from what the volume has
/// there, which only the directory's own code can tell.
#[derive(Clone, Default, Debug)]
pub(crate) struct NameChanges(BTreeMap<Box<[u8]>, Vec<Step>>);

impl NameChanges {
    pub(super) fn push(&mut self, name: &[u8], step: Step) {
        match self.0.get_mut(name) {
            Some(steps) => steps.push(step),
            None => {
                self.0.insert(name.into(), Vec::from([step]));
            }
        }
    }

    /// What `name` names now, where the volume's directory has `base` under it.
    pub(crate) fn resolve(&self, name: &[u8], base: Option<Ino>) -> Option<Ino> {
        let steps = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        steps.iter().fold(base, |now, &step| match (step, now) {
            (Step::Link(ino), None) => Some(ino),
            (Step::Unlink(ino), Some(present)) if present == ino => None,
            (Step::Link(_) | Step::Unlink(_), now) => now,
        })
    }

    /// The names touched, in the order of their bytes: the same each time, so that a position among them can serve as
    /// a cookie.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(|name| &**name)
    }

    /// Whether `name` was touched.
    pub(crate) fn touches(&self, name: &[u8]) -> bool {
        self.0.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_what_was_linked_and_unlinked() {
        let mut changes = NameChanges::default();
        changes.push(b"new", Step::Link(Ino(20)));
        changes.push(b"gone", Step::Unlink(Ino(12)));
        changes.push(b"over", Step::Unlink(Ino(13)));
        changes.push(b"over", Step::Link(Ino(21)));
        changes.push(b"brief", Step::Link(Ino(22)));
        changes.push(b"brief", Step::Unlink(Ino(22)));
        let now = |name: &[u8], base: Option<u64>| changes.resolve(name, base.map(Ino)).map(|ino| ino.0);
        assert_eq!((now(b"new", None), now(b"new", Some(9))), (Some(20), Some(9)));
        assert_eq!((now(b"gone", Some(12)), now(b"gone", Some(99))), (None, Some(99)));
        assert_eq!(now(b"over", Some(13)), Some(21));
        assert_eq!(now(b"brief", None), None);
        assert_eq!(now(b"other", Some(5)), Some(5));
    }
}
