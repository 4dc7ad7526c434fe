//! Names that fast commits changed, as an overlay over the blocks of a directory.
//!
//! Invariant: a name is listed once. Names that a fast commit changed are removed from the directory's own listing if
//! they no longer refer to the same inode. Added names follow at the end, ordered by their bytes.

use core::ops::ControlFlow;

use obento_base::{Error, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink};

use crate::dir::COOKIES_END;
use crate::fast_commit::NameChanges;
use crate::inode::Inode;
use crate::volume::Volume;

/// Cookies of added names start here, above all cookies of the directory's own listing.
const ADDED: u64 = COOKIES_END;

impl Volume {
    /// Returns the inode to which `name` refers in `dir`.
    pub(crate) fn current_lookup(&self, dir: &Inode, name: &Name) -> Result<Ino> {
        let Some(changes) = self.fast_commits().names(dir.ino()) else {
            return self.stored_lookup(dir, name);
        };
        let stored = match self.stored_lookup(dir, name) {
            Ok(ino) => Some(ino),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        changes.resolve(name.as_bytes(), stored).ok_or(Error::NotFound)
    }

    /// Returns the parent of `dir`.
    pub(crate) fn current_parent(&self, dir: &Inode) -> Result<Ino> {
        match self.fast_commits().made_in(dir.ino()) {
            Some(parent) => Ok(parent),
            None => self.parent(dir),
        }
    }

    /// Passes the entries of `dir` from `from` on to `sink`.
    pub(crate) fn current_list(&self, dir: &Inode, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let Some(changes) = self.fast_commits().names(dir.ino()) else {
            return self.stored_list(dir, from, sink);
        };
        let mut broken = ControlFlow::Continue(());
        if from.0 <= ADDED {
            self.stored_list(dir, from, &mut |entry| {
                broken = match entry {
                    Ok(entry) => pass_on(changes, entry, sink),
                    Err(error) => sink(Err(error)),
                };
                broken
            })?;
        }
        if broken.is_continue() {
            self.list_added(dir, changes, from, sink)?;
        }
        Ok(())
    }

    /// Lists the names that exist only in fast commits.
    fn list_added(
        &self,
        dir: &Inode,
        changes: &NameChanges,
        from: Cookie,
        sink: &mut EntrySink<'_>,
    ) -> Result<()> {
        let added = changes.added(|visit| {
            // Damaged parts were reported by the directory's own listing, and contain no names to compare.
            let _ = self.stored_list(dir, Cookie::START, &mut |entry| {
                if let Ok(entry) = entry {
                    visit(entry.name.as_bytes());
                }
                ControlFlow::Continue(())
            });
        });
        for (next, added) in (ADDED.saturating_add(1)..).zip(added.iter()) {
            // An invalid name can come only from a damaged log.
            let Ok(name) = Name::new(&added.name) else { continue };
            if next <= from.0 {
                continue;
            }
            let entry = DirEntry { name, ino: added.ino, kind: None, next: Cookie(next) };
            if sink(Ok(entry)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn stored_lookup(&self, dir: &Inode, name: &Name) -> Result<Ino> {
        match self.fast_commits().made_in(dir.ino()) {
            Some(_) => Err(Error::NotFound),
            None => self.lookup(dir, name),
        }
    }

    fn stored_list(&self, dir: &Inode, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        match self.fast_commits().made_in(dir.ino()) {
            Some(_) => Ok(()),
            None => self.read_dir(dir, from, sink),
        }
    }
}

/// Passes on an entry of the directory with its current inode, unless its name was removed.
fn pass_on(changes: &NameChanges, entry: DirEntry<'_>, sink: &mut EntrySink<'_>) -> ControlFlow<()> {
    match changes.resolve(entry.name.as_bytes(), Some(entry.ino)) {
        Some(ino) if ino == entry.ino => sink(Ok(entry)),
        Some(ino) => sink(Ok(DirEntry { ino, kind: None, ..entry })),
        None => ControlFlow::Continue(()),
    }
}
