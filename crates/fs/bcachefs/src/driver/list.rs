//! Names of directories.

use core::ops::ControlFlow;

use obento_base::{Corrupt, Error, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink};

use super::number::Location;
use super::volume::Volume;
use crate::btree::id;
use crate::btree::key::{Key, Pos, kind};
use crate::file::dirent::{Dirent, Target};
use crate::file::hash;
use crate::file::inode::Inode;

/// Greatest cookie. A hash of a name is below it, or the entry after it could not be named.
const COOKIE_MAX: u64 = (1 << 63) - 1;

impl Volume {
    /// Returns the inode that an entry refers to.
    fn target(&self, dir: Location, entry: &Dirent<'_>) -> Result<Ino> {
        match entry.target {
            Target::Inode(number) => Location { subvolume: dir.subvolume, number }.ino(),
            Target::Subvolume { child, .. } => {
                let found = self.snapshots.subvolume(child);
                let ino = Ino(u64::from(child));
                let root = found.ok_or(Error::from(Corrupt::UnusedInode { ino }))?.root;
                Location { subvolume: child, number: root }.ino()
            }
        }
    }

    /// Passes the entries of a directory from a hash on to `f`.
    fn entries(
        &self,
        dir: Location,
        from: u64,
        f: &mut dyn FnMut(Result<Key<'_>>) -> ControlFlow<()>,
    ) -> Result<()> {
        let snapshot = self.subvolume(dir.subvolume)?.snapshot;
        self.walk(id::DIRENTS, Pos::new(dir.number, from, 0), snapshot, &mut |key| match key {
            Ok(key) if key.pos.inode != dir.number => ControlFlow::Break(()),
            key => f(key),
        });
        Ok(())
    }

    /// Returns the inode that a name refers to.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: it has no such entry.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let inode = self.directory(dir)?;
        let location = Location::of(dir);
        let found = match hash::of_name(inode.hash, inode.seed, name) {
            Some(hash) => self.probe(location, hash, name)?,
            None => self.search(location, name)?,
        };
        let found = match found {
            None if self.super_block.has_casefolding() => self.search(location, name)?,
            found => found,
        };
        let ino = found.ok_or(Error::NotFound)?;
        self.expect_child(dir, ino)?;
        Ok(ino)
    }

    /// Finds a name at its hash or directly after it. A collision is resolved by the next free number, and a removed
    /// entry of a chain leaves a mark (Linux `fs/bcachefs/str_hash.h`, `bch2_hash_lookup_in_snapshot`).
    fn probe(&self, dir: Location, hash: u64, name: &[u8]) -> Result<Option<Ino>> {
        let (mut expected, mut found) = (hash, Ok(None));
        self.entries(dir, hash, &mut |key| {
            let key = match key {
                Ok(key) if key.pos.offset == expected => key,
                Ok(_) => return ControlFlow::Break(()),
                Err(error) => {
                    found = Err(error);
                    return ControlFlow::Break(());
                }
            };
            expected = expected.saturating_add(1);
            if key.kind == kind::HASH_WHITEOUT {
                return ControlFlow::Continue(());
            }
            let entry = Dirent::decode(key).filter(|_| key.kind == kind::DIRENT);
            let Some(entry) = entry.filter(|entry| entry.is_seen_by(dir.subvolume)) else {
                return ControlFlow::Break(());
            };
            if entry.name == name {
                found = self.target(dir, &entry).map(Some);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        found
    }

    /// Finds a name among all entries: its hash may be that of the name without differences of case.
    fn search(&self, dir: Location, name: &[u8]) -> Result<Option<Ino>> {
        let lower = core::str::from_utf8(name).ok().map(str::to_lowercase);
        let (mut folded, mut found, mut damage) = (None, None, None);
        self.entries(dir, 0, &mut |key| {
            let key = match key {
                Err(error) => {
                    damage = Some(error);
                    return ControlFlow::Continue(());
                }
                Ok(key) => key,
            };
            let entry = Dirent::decode(key).filter(|_| key.kind == kind::DIRENT);
            let Some(entry) = entry.filter(|entry| entry.is_seen_by(dir.subvolume)) else {
                return ControlFlow::Continue(());
            };
            if entry.name == name {
                found = Some(self.target(dir, &entry));
                return ControlFlow::Break(());
            }
            if folded.is_none()
                && entry.folded.is_some()
                && entry.folded == lower.as_deref().map(str::as_bytes)
            {
                folded = Some(self.target(dir, &entry));
            }
            ControlFlow::Continue(())
        })?;
        match (found.or(folded), damage) {
            (Some(found), _) => found.map(Some),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// Passes the names of a directory after `from` to `sink`.
    pub fn list(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let _: Inode = self.directory(dir)?;
        let location = Location::of(dir);
        self.entries(location, from.0, &mut |key| {
            let key = match key {
                Ok(key) => key,
                Err(error) => return sink(Err(error)),
            };
            if key.kind != kind::DIRENT {
                return ControlFlow::Continue(());
            }
            self.pass(dir, location, key, sink)
        })
    }

    fn pass(&self, dir: Ino, location: Location, key: Key<'_>, sink: &mut EntrySink<'_>) -> ControlFlow<()> {
        let damaged = Corrupt::EntryName { dir, block: 0, offset: 0 };
        let Some(entry) = Dirent::decode(key).filter(|_| key.pos.offset < COOKIE_MAX) else {
            return sink(Err(damaged.into()));
        };
        if !entry.is_seen_by(location.subvolume) {
            return ControlFlow::Continue(());
        }
        let Ok(name) = Name::new(entry.name) else { return sink(Err(damaged.into())) };
        let ino = match self.target(location, &entry) {
            Ok(ino) => ino,
            Err(error) => return sink(Err(error)),
        };
        let kind = entry.kind();
        if kind == Some(obento_base::FileKind::Directory)
            && let Err(error) = self.expect_child(dir, ino)
        {
            return sink(Err(error));
        }
        let next = Cookie(key.pos.offset.saturating_add(1));
        sink(Ok(DirEntry { name, ino, kind, next }))
    }
}
