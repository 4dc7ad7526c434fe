//! The map from inodes of the source to written files, for files with several names.
//!
//! Invariant: memory stays within a budget for any link counts of a hostile image. An entry whose last name
//! was written stays while there is room, because a damaged image may have more names than its link counts.
//! Such entries are removed first. An inode that does not fit is not stored, and its further names become
//! separate files.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use obento_base::{Name, NameBuf};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::FileId;
use crate::handle::{self, HandleOf};

/// The budget in bytes: about 400,000 entries.
const BUDGET: usize = 48 << 20;
/// Bytes of an entry in addition to its names: a slot of the table at the usual load, and the counts of its
/// directory.
const ENTRY: usize = 112;
/// Bytes of a name of a path in addition to its characters.
const NAME: usize = 32;

/// An inode of a source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkKey {
    /// Distinguishes the sources of one tree, which may use the same inode numbers.
    pub source: u32,
    /// The inode number in the source.
    pub ino: u64,
}

/// The written file of an inode.
#[derive(Clone)]
pub(super) struct Original {
    /// Names from the root of the tree to its directory, shared by the files in it.
    pub directory: Arc<[NameBuf]>,
    pub name: NameBuf,
    /// The identity of the file, so that a replaced file is not linked to.
    pub id: FileId,
}

/// The inodes with several names.
pub(super) struct LinkTable {
    known: HashMap<LinkKey, LinkedInode>,
    /// The directory of the previous entry, which the next one probably shares.
    last: Option<Arc<[NameBuf]>>,
    /// Bytes of all entries. A shared path counts once.
    held: usize,
    budget: usize,
    /// Whether the budget was exceeded once. From then on, an entry is removed with its last name.
    is_tight: bool,
}

struct LinkedInode {
    original: Original,
    /// Expected further names according to the source.
    left: u32,
}

impl Default for LinkTable {
    fn default() -> Self {
        Self::with_budget(BUDGET)
    }
}

impl LinkTable {
    pub fn with_budget(budget: usize) -> Self {
        Self { known: HashMap::new(), last: None, held: 0, budget, is_tight: false }
    }

    /// Records `name` in the directory `directory`, with `more` names expected for its inode. Returns false
    /// if the budget is exhausted.
    pub fn insert<'a>(
        &mut self,
        key: LinkKey,
        directory: impl Iterator<Item = &'a NameBuf> + Clone,
        name: &Name,
        id: FileId,
        more: u32,
    ) -> bool {
        if let Some(before) = self.known.remove(&key) {
            self.release(&before.original);
        }
        let same = self.last.as_ref().filter(|last| last.iter().eq(directory.clone())).cloned();
        let path = if same.is_some() { 0 } else { directory.clone().map(|name| NAME + len(name)).sum() };
        let cost = ENTRY + len(name) + path;
        if self.held + cost > self.budget {
            self.drop_finished();
        }
        if self.held + cost > self.budget {
            return false;
        }
        self.held += cost;
        let directory = same.unwrap_or_else(|| directory.cloned().collect());
        self.last = Some(directory.clone());
        let original = Original { directory, name: name.to_buf(), id };
        self.known.insert(key, LinkedInode { original, left: more });
        true
    }

    /// Returns the written file of `key`, for a further name.
    pub fn next(&mut self, key: LinkKey) -> Option<Original> {
        let known = self.known.get_mut(&key)?;
        known.left = known.left.saturating_sub(1);
        if known.left > 0 || !self.is_tight {
            return Some(known.original.clone());
        }
        let LinkedInode { original, .. } = self.known.remove(&key)?;
        self.release(&original);
        Some(original)
    }

    /// Removes finished entries once. From then on, finished entries are removed at once.
    fn drop_finished(&mut self) {
        if std::mem::replace(&mut self.is_tight, true) {
            return;
        }
        self.last = None;
        let finished = self.known.extract_if(|_, known| known.left == 0);
        let finished: Vec<_> = finished.map(|(_, known)| known.original).collect();
        finished.into_iter().for_each(|original| self.release(&original));
        self.known.shrink_to_fit();
    }

    /// Releases the memory of `original`, which is removed.
    fn release(&mut self, original: &Original) {
        let Original { directory, name, .. } = original;
        let is_last = self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, directory));
        let mut freed = ENTRY + len(name);
        if Arc::strong_count(directory) == 1 + usize::from(is_last) {
            freed += directory.iter().map(|name| NAME + len(name)).sum::<usize>();
            if is_last {
                self.last = None;
            }
        }
        self.held = self.held.saturating_sub(freed);
    }
}

fn len(name: &Name) -> usize {
    name.as_bytes().len()
}

impl Original {
    /// Opens its directory, from the root of the tree.
    pub fn open_directory(&self, root: impl AsFd) -> Result<OwnedFd, Errno> {
        let mut dir = rustix::io::fcntl_dupfd_cloexec(root, 0)?;
        for name in &*self.directory {
            dir = handle::open(&dir, name.as_bytes(), HandleOf::Directory)?;
        }
        Ok(dir)
    }
}

/// Returns the identity of `name` in `dir`.
pub(super) fn identify(dir: impl AsFd, name: &Name) -> Result<FileId, Errno> {
    let stat = rustix::fs::statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileId::of(&stat))
}

/// Removes a file that was created as `name` in `dir` but not completed, since it must not look complete. An entry that
/// another user has put in its place remains. If the file cannot be removed, the error that is the reason for this is
/// still reported.
pub(super) fn remove_incomplete(dir: impl AsFd, name: &Name, file: impl AsFd) {
    let created = rustix::fs::fstat(file).map(|stat| FileId::of(&stat));
    if created.is_ok() && identify(&dir, name) == created {
        let _ = rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn key(ino: u64) -> LinkKey {
        LinkKey { source: 0, ino }
    }

    /// Creates a map with room for `entries` in one directory with one short name.
    fn with_room_for(entries: usize) -> LinkTable {
        LinkTable::with_budget(NAME + 1 + entries * (ENTRY + 1))
    }

    fn insert(links: &mut LinkTable, ino: u64, directory: &str, more: u32) -> bool {
        let path = [name(directory).to_buf()];
        links.insert(key(ino), path.iter(), name("f"), FileId { dev: 1, ino }, more)
    }

    #[test]
    fn finished_entries_stay_while_space_exists_and_are_dropped_first() {
        let mut links = with_room_for(3);
        for ino in 1..=3 {
            assert!(insert(&mut links, ino, "d", 1));
        }
        for ino in [1, 2, 1] {
            // A third name of an inode with a link count of two.
            assert!(links.next(key(ino)).is_some());
        }
        assert!(insert(&mut links, 4, "d", 2));
        let known = |links: &LinkTable, ino| links.known.contains_key(&key(ino));
        assert_eq!([1, 2, 3, 4].map(|ino| known(&links, ino)), [false, false, true, true]);
        assert!(links.next(key(4)).is_some() && links.next(key(4)).is_some());
        assert!(links.next(key(4)).is_none());
    }

    #[test]
    fn claims_of_many_names_are_refused_when_the_budget_is_spent() {
        let mut links = with_room_for(100);
        let held = (0..10_000).filter(|&ino| insert(&mut links, ino, "d", 65_000)).count();
        assert_eq!(held, 100);
        // A separate path for each file costs more than the file.
        let mut links = with_room_for(100);
        let held = (0..10_000).filter(|&ino| insert(&mut links, ino, &ino.to_string(), 65_000)).count();
        assert!((60..100).contains(&held), "{held}");
    }

    #[test]
    fn taken_buffers_are_returned_in_any_order() {
        let mut links = with_room_for(8);
        links.is_tight = true;
        for round in 0..1000 {
            for ino in 0..6 {
                assert!(
                    insert(&mut links, ino, ["a", "b"][usize::from((round + ino) % 4 < 2)], 1),
                    "{round}"
                );
            }
            for ino in 0..6 {
                assert!(links.next(key((ino * 5 + round) % 6)).is_some());
            }
            assert!(links.known.is_empty());
            assert_eq!(links.held, 0);
        }
    }
}
