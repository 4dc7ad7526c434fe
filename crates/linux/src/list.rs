//! Lists directories in portions, and searches for an inode by its number alone.
//!
//! The guest opens no inode by number, so a search lists all directories, breadth first, until an entry has
//! the number.
//! Invariant: a search lists each directory once, by its number. So it ends even if a damaged volume contains
//! a cycle.
//! Invariant: a search records the inode that it finds and the directories on the way, not all entries.
//! Locking: a search releases the state between two requests, so that other threads wait for one listing at
//! most.

use std::collections::{HashSet, VecDeque};

use obento_base::{Attr, Error, FileKind, Ino, Result};
use obento_driver::Cookie;
use obento_linux_wire::{Answer, Entry, Request};

use crate::volume::{State, Volume, attr_of, nonsense};

/// A portion of a directory.
#[derive(Default)]
pub(crate) struct Portion {
    pub(crate) entries: Vec<Entry>,
    /// Whether it is the last portion.
    pub(crate) is_end: bool,
    /// An error of the device during the listing that no entry reports: some types skip an unreadable block.
    pub(crate) missing: Option<Error>,
}

impl Volume {
    /// Lists a portion of a directory, and records all its entries.
    pub(crate) fn list(&self, dir: Ino, from: Cookie) -> Result<Portion> {
        let mut state = self.state();
        let portion = self.portion(&mut state, dir, from)?;
        let mut last: Option<Ino> = None;
        for entry in &portion.entries {
            let Ok(attr) = self.attr_in(entry) else { continue };
            state.nodes.show(dir, &entry.name, attr);
            if attr.kind == FileKind::Regular {
                if let Some(last) = last.filter(|last| *last != attr.ino) {
                    state.nodes.get_mut(last)?.follower = Some(attr.ino);
                }
                last = Some(attr.ino);
            }
        }
        Ok(portion)
    }

    fn portion(&self, state: &mut State, dir: Ino, from: Cookie) -> Result<Portion> {
        self.directory(state, dir)?;
        if state.nodes.get(dir)?.nameless {
            // Linux lists no directory that was removed.
            return Ok(Portion { is_end: true, ..Portion::default() });
        }
        let (failed_before, _) = self.engine.turn().failed_reads();
        let request = Request::List { dir: dir.0, from: from.0 };
        let Answer::Entries { entries, is_end } = self.ask(state, &[dir], request)? else {
            return Err(nonsense());
        };
        // Cookies come from the guest and are returned only to it. An invalid one would break the contract of
        // the upper layers.
        if entries.iter().any(|entry| entry.next == 0 || entry.next > i64::MAX.unsigned_abs()) {
            return Err(nonsense());
        }
        let (failed, why) = self.engine.turn().failed_reads();
        let is_reported = entries.iter().any(|entry| entry.errno != 0);
        let missing = why.filter(|_| failed > failed_before && !is_reported && self.kind.skips_unread);
        Ok(Portion { entries, is_end, missing })
    }

    /// Returns the attributes of an entry. Fails with the errors of the guest, or if the kind is unknown.
    pub(crate) fn attr_in(&self, entry: &Entry) -> Result<Attr> {
        match &entry.stat {
            Some(stat) => attr_of(self.kind, stat),
            None => Err(self.engine.turn().trouble(entry.errno).into()),
        }
    }

    /// Returns the attributes of an inode that no caller has seen. Fails with `Stale` if no directory contains it. If
    /// some directories could not be listed, the error of the listing.
    pub(crate) fn find(&self, ino: Ino) -> Result<Attr> {
        let mut search = Search {
            wanted: ino,
            met: HashSet::from([self.root]),
            waiting: VecDeque::from([self.root]),
            hidden: None,
        };
        while let Some(dir) = search.waiting.pop_front() {
            match self.search_in(dir, &mut search) {
                Ok(Some(attr)) => return Ok(attr),
                // Another thread removed it.
                Ok(None) | Err(Error::Stale | Error::NotFound | Error::NotDirectory) => {}
                Err(error) => {
                    search.hidden.get_or_insert(error);
                }
            }
        }
        Err(search.hidden.unwrap_or(Error::Stale))
    }

    fn search_in(&self, dir: Ino, search: &mut Search) -> Result<Option<Attr>> {
        let (mut from, mut asked) = (Cookie::START, HashSet::new());
        // A damaged directory may contain a cycle.
        while asked.insert(from) {
            let mut state = self.state();
            let Portion { entries, is_end, missing } = self.portion(&mut state, dir, from)?;
            search.hidden = search.hidden.or(missing);
            for entry in &entries {
                let attr = match self.attr_in(entry) {
                    Ok(attr) => attr,
                    Err(error) => {
                        search.hidden.get_or_insert(error);
                        continue;
                    }
                };
                if attr.ino == search.wanted {
                    state.nodes.show(dir, &entry.name, attr);
                    return Ok(Some(state.nodes.in_its_life(attr)));
                }
                if attr.is_dir() && search.met.insert(attr.ino) {
                    state.nodes.show(dir, &entry.name, attr);
                    search.waiting.push_back(attr.ino);
                }
            }
            match entries.last() {
                Some(last) if !is_end => from = Cookie(last.next),
                _ => return Ok(None),
            }
        }
        Err(nonsense())
    }
}

/// A search for an inode.
struct Search {
    wanted: Ino,
    /// Directories that are listed, or will be.
    met: HashSet<Ino>,
    waiting: VecDeque<Ino>,
    /// The first error that hides a part of the tree.
    hidden: Option<Error>,
}
