//! Renaming and exchanging names.
//!
//! Invariant: a changed inode is copied once, so the two directories are one edit if they are the same.
//! Locking: both directories and the inodes of both names, together. The caller ensures that no directory becomes its
//! own ancestor; renames that would do that directly are refused here.
//! Source: Linux fs/ext4/namei.c `ext4_rename`, `ext4_cross_rename`.

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_driver::{NewNode, RenameFlags};
use obento_journal::{Credits, Txn};

use super::names::{ENTRY, GROWTH, LAST_NAME, NEW_INODE, expect_same_project};
use crate::dir::{DirEdit, EntryPosition, EntrySpace, FoundName, FreeSlot, NewEntry, RecordRun};
use crate::inode::Inode;
use crate::writer::{InodeEdit, LockedInodes, Writer};

/// The source or the target of a rename.
#[derive(Clone, Copy)]
pub(crate) struct RenameEnd<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a Name,
}

/// The state before a rename, with everything locked.
struct LockedRename<'a> {
    from: Inode,
    to: Inode,
    moved: Named,
    target: Option<Named>,
    /// The place for the new name, if it does not exist.
    room: Option<EntrySpace>,
    locked: LockedInodes<'a>,
}

/// The use of the old name after a rename.
#[derive(Clone, Copy)]
pub(crate) enum OldName<'a> {
    /// The name is removed.
    Remove,
    /// The name refers to a new inode.
    Whiteout(&'a NewNode<'a>),
}

/// The results of looking up both names.
struct LookupResults {
    moved: FoundName,
    target: Result<FoundName, EntrySpace>,
}

/// A name and its inode.
struct Named {
    hit: FoundName,
    inode: Inode,
}

/// The place for the new name.
enum Destination {
    Free(RecordRun, FreeSlot),
    Taken(RecordRun, EntryPosition),
}

impl Writer {
    /// [`obento_driver::WritableFileSystem::rename`].
    pub(crate) fn rename(&self, from: RenameEnd<'_>, to: RenameEnd<'_>, flags: RenameFlags) -> Result<()> {
        self.rename_with(from, to, flags, OldName::Remove)
    }

    /// [`obento_driver::Whiteouts::rename_leaving`], for `OldName::Whiteout`.
    pub(crate) fn rename_with(
        &self,
        from: RenameEnd<'_>,
        to: RenameEnd<'_>,
        flags: RenameFlags,
        old: OldName<'_>,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if flags.contains(RenameFlags::all()) || (exchange && matches!(old, OldName::Whiteout(_))) {
            return Err(Error::Invalid);
        }
        self.with_space(|| self.rename_once(from, to, flags, old))
    }

    fn rename_once(
        &self,
        from: RenameEnd<'_>,
        to: RenameEnd<'_>,
        flags: RenameFlags,
        old: OldName<'_>,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let locked_rename = self.lock_rename(from, to, exchange)?;
        if flags.contains(RenameFlags::NO_REPLACE) && locked_rename.target.is_some() {
            return Err(Error::Exists);
        }
        let same = |target: &Named| target.hit.ino == locked_rename.moved.hit.ino;
        if locked_rename.target.as_ref().is_some_and(same) {
            return Ok(());
        }
        locked_rename.expect_whole(exchange)?;
        let sb = self.volume().super_block();
        expect_same_project(sb, &locked_rename.to, &locked_rename.moved.inode)?;
        match exchange {
            true => self.exchange(locked_rename),
            false => self.replace(locked_rename, (from.name, to.name), old),
        }
    }

    /// Looks up both names and locks everything. Fails with `NotDirectory` or `Corrupt`, with `NotFound`, also for the
    /// new name of an exchange, or with `NoSpace` if the new name cannot get space.
    fn lock_rename(
        &self,
        from: RenameEnd<'_>,
        to: RenameEnd<'_>,
        exchange: bool,
    ) -> Result<LockedRename<'_>> {
        let mut seen: Option<LookupResults> = None;
        loop {
            let moved = seen.as_ref().map_or(from.dir, |seen| seen.moved.ino);
            let target = seen.as_ref().and_then(|seen| seen.target.as_ref().ok());
            let locked =
                self.locks().write(&[from.dir, to.dir, moved, target.map_or(from.dir, |hit| hit.ino)]);
            let from_dir = self.live_directory(from.dir);
            let to_dir = if from.dir == to.dir { from_dir.clone() } else { self.live_directory(to.dir) };
            if matches!((&from_dir, &to_dir), (Err(Error::NotFound), Err(Error::NotDirectory))) {
                return Err(Error::NotDirectory);
            }
            let (from_dir, to_dir) = (from_dir?, to_dir?);
            let sight = self.look_at(&from_dir, from.name, &to_dir, to.name, exchange, seen.take())?;
            let target = sight.target.as_ref().ok();
            if !locked.covers(sight.moved.ino) || target.is_some_and(|hit| !locked.covers(hit.ino)) {
                seen = Some(sight);
                continue;
            }
            let named = |hit: FoundName| self.named_inode(hit.ino).map(|inode| Named { hit, inode });
            let moved = named(sight.moved)?;
            let (target, room) = match sight.target {
                Ok(hit) => (Some(named(hit)?), None),
                Err(room) => (None, Some(room)),
            };
            return Ok(LockedRename { from: from_dir, to: to_dir, moved, target, room, locked });
        }
    }

    /// Looks up both names, except for results of `seen` that are still valid. An entry stays in its block, and a name
    /// is added to the block that has space for it.
    fn look_at(
        &self,
        from: &Inode,
        name: &Name,
        to: &Inode,
        new_name: &Name,
        exchange: bool,
        seen: Option<LookupResults>,
    ) -> Result<LookupResults> {
        let (moved, target) = match seen {
            Some(LookupResults { moved, target }) => (Some(moved), Some(target)),
            None => (None, None),
        };
        let moved = match moved.filter(|hit| self.is_current(&hit.home)) {
            Some(hit) => hit,
            None => self.find(from, name)?,
        };
        let target = match target {
            Some(Ok(hit)) if self.is_current(&hit.home) => Ok(hit),
            Some(Err(EntrySpace::Slot(home, slot))) if self.is_current(&home) => {
                Err(EntrySpace::Slot(home, slot))
            }
            _ if exchange => Ok(self.find(to, new_name)?),
            _ => match self.volume().with_directory(to, |directory| directory.room(new_name)) {
                Err(Error::Exists) => Ok(self.find(to, new_name)?),
                room => Err(room?),
            },
        };
        Ok(LookupResults { moved, target })
    }

    /// Moves a name, and replaces an existing one.
    fn replace(
        &self,
        locked_rename: LockedRename<'_>,
        (name, new_name): (&Name, &Name),
        old: OldName<'_>,
    ) -> Result<()> {
        let moves_dir = locked_rename.moved.inode.is_dir();
        match &locked_rename.target {
            Some(target) if target.inode.is_dir() && !moves_dir => return Err(Error::IsDirectory),
            Some(target) if moves_dir && !target.inode.is_dir() => return Err(Error::NotDirectory),
            Some(target) if moves_dir => self.expect_empty(&target.inode)?,
            None if moves_dir && locked_rename.crosses() => {
                self.expect_room_for_subdirectory(&locked_rename.to)?
            }
            _ => {}
        }
        let _room = match &old {
            OldName::Whiteout(new) => {
                self.prepare_owners_of(&locked_rename.from, new)?;
                self.room_for_inode(&locked_rename.from, new)?
            }
            _ => None,
        };
        let growth = if matches!(locked_rename.room, Some(EntrySpace::Grow(_))) { GROWTH } else { ENTRY };
        let whiteout = if matches!(old, OldName::Whiteout(_)) { NEW_INODE } else { Credits(0) };
        let LockedRename { from, to, moved, target, room, locked } = locked_rename;
        let mut txn = self.begin(ENTRY * 4 + LAST_NAME + growth + whiteout)?;
        let mut from_dir = match from.ino() == to.ino() {
            true => None,
            false => Some(DirEdit::new(self, &mut txn, locked.view(&from))?),
        };
        let mut to_dir = DirEdit::new(self, &mut txn, locked.view(&to))?;
        let target = target.as_ref();
        let replacing = Replacing { moved: &moved, target, name, new_name, old, locked: &locked };
        let done = self.replace_in(&mut txn, from_dir.as_mut(), &mut to_dir, replacing, room);
        if done.is_err() {
            to_dir.store_grown(&mut txn);
        }
        let ended = self.end(txn, &[&from, &to], done);
        drop(locked);
        self.settle(ended)
    }

    fn replace_in<'w, 't>(
        &'w self,
        txn: &mut Txn<'t>,
        mut from_dir: Option<&mut DirEdit<'w>>,
        to_dir: &mut DirEdit<'w>,
        replacing: Replacing<'t>,
        room: Option<EntrySpace>,
    ) -> Result<()> {
        let Replacing { moved, target, name, new_name, old: old_name, locked } = replacing;
        let (ino, kind) = (moved.hit.ino, moved.inode.kind());
        let moves_dir = kind == FileKind::Directory;
        let destination = match (target, room) {
            (Some(target), _) => Destination::Taken(to_dir.take(txn, &target.hit.home)?, target.hit.spot),
            (None, Some(room)) => {
                let (run, slot) = to_dir.make_room(txn, new_name, room)?;
                Destination::Free(run, slot)
            }
            (None, None) => return Err(Error::Invalid),
        };
        // The growth of the directory has moved its entries.
        let moves = from_dir.is_none() && to_dir.has_grown();
        let found = if moves { Some(to_dir.find(name)?) } else { None };
        let hit = found.as_ref().unwrap_or(&moved.hit);
        let old = from_dir.as_deref().unwrap_or(to_dir).take(txn, &hit.home)?;
        let mut spot = hit.spot;
        let mut moved = DirEdit::new(self, txn, locked.view(&moved.inode))?;
        let parent = match moves_dir && from_dir.is_some() {
            true => Some(moved.take_parent(txn)?),
            false => None,
        };
        let mut replaced = match target {
            Some(Named { inode, .. }) => Some(self.edit_inode(txn, locked.view(inode))?),
            None => None,
        };
        let whiteout = match old_name {
            OldName::Remove => None,
            OldName::Whiteout(new) => {
                let parent = from_dir.as_deref().unwrap_or(to_dir).inode.inode()?;
                Some(self.make_inode(txn, &parent, new)?.0)
            }
        };
        if let Some(Err(error)) = replaced.as_mut().map(|replaced| self.take_name(replaced)) {
            return Err(self.discard_new(txn, whiteout, error));
        }
        // No later step can fail.
        match &destination {
            Destination::Taken(run, spot) => to_dir.repoint(txn, run, *spot, (ino, kind)),
            Destination::Free(run, slot) => {
                let bits = u32::try_from(ino.0).unwrap_or(0);
                to_dir.put(txn, run, *slot, &NewEntry { name: new_name.as_bytes(), ino: bits, kind });
                if from_dir.is_none() && run.is_same(&old) {
                    spot = spot.after_put(*slot);
                }
            }
        }
        match &whiteout {
            Some(whiteout) => {
                let renamed = (whiteout.ino(), whiteout.kind());
                from_dir.as_deref_mut().unwrap_or(to_dir).repoint(txn, &old, spot, renamed);
                self.store_inode(txn, whiteout);
            }
            None => from_dir.as_deref_mut().unwrap_or(to_dir).remove(txn, &old, spot),
        }
        if let Some(parent) = parent {
            moved.set_parent(txn, &parent, to_dir.inode.ino());
        }
        self.count_moved(from_dir.as_deref_mut(), to_dir, moves_dir, replaced.as_ref());
        moved.inode.touch(self.now());
        moved.store(txn);
        replaced.iter().for_each(|inode| self.store_inode(txn, inode));
        for dir in from_dir.into_iter().chain([to_dir]) {
            dir.inode.touch_data(self.now());
            dir.store(txn);
        }
        Ok(())
    }

    /// Updates the link counts of the directories: a moved directory is counted in its new parent, a replaced one no
    /// longer.
    fn count_moved(
        &self,
        from_dir: Option<&mut DirEdit<'_>>,
        to_dir: &mut DirEdit<'_>,
        moves_dir: bool,
        replaced: Option<&InodeEdit>,
    ) {
        if !moves_dir {
            return;
        }
        match (from_dir, replaced) {
            // The moved directory takes the place of the replaced one in the count.
            (Some(from_dir), Some(_)) => self.lose_subdirectory(&mut from_dir.inode),
            (Some(from_dir), None) => {
                self.lose_subdirectory(&mut from_dir.inode);
                self.gain_subdirectory(&mut to_dir.inode);
            }
            (None, Some(_)) => self.lose_subdirectory(&mut to_dir.inode),
            (None, None) => {}
        }
    }

    /// Exchanges two names.
    fn exchange(&self, locked_rename: LockedRename<'_>) -> Result<()> {
        let LockedRename { from, to, moved, target, locked, .. } = locked_rename;
        let target = target.ok_or(Error::NotFound)?;
        let crosses = from.ino() != to.ino();
        expect_same_project(self.volume().super_block(), &from, &target.inode)?;
        match (moved.inode.is_dir(), target.inode.is_dir()) {
            (true, false) if crosses => self.expect_room_for_subdirectory(&to)?,
            (false, true) if crosses => self.expect_room_for_subdirectory(&from)?,
            _ => {}
        }
        let mut txn = self.begin(ENTRY * 6)?;
        let done = self.exchange_in(&mut txn, &locked, (&from, &to), (&moved, &target));
        let ended = self.end(txn, &[&from, &to], done);
        drop(locked);
        self.settle(ended)
    }

    fn exchange_in<'t>(
        &self,
        txn: &mut Txn<'t>,
        locked: &'t LockedInodes<'_>,
        (from, to): (&'t Inode, &'t Inode),
        (a, b): (&'t Named, &'t Named),
    ) -> Result<()> {
        let crosses = from.ino() != to.ino();
        let mut from_dir = if crosses { Some(DirEdit::new(self, txn, locked.view(from))?) } else { None };
        let mut to_dir = DirEdit::new(self, txn, locked.view(to))?;
        let a_run = from_dir.as_ref().unwrap_or(&to_dir).take(txn, &a.hit.home)?;
        let b_run = to_dir.take(txn, &b.hit.home)?;
        let ((a_spot, b_spot), (a, b)) = ((a.hit.spot, b.hit.spot), (&a.inode, &b.inode));
        let ((a_kind, b_kind), (a_ino, b_ino)) = ((a.kind(), b.kind()), (a.ino(), b.ino()));
        let (mut a, mut b) =
            (DirEdit::new(self, txn, locked.view(a))?, DirEdit::new(self, txn, locked.view(b))?);
        let parent = |txn: &mut Txn<'_>, dir: &DirEdit<'_>, kind| match crosses && kind == FileKind::Directory
        {
            true => dir.take_parent(txn).map(Some),
            false => Ok(None),
        };
        let (a_parent, b_parent) = (parent(txn, &a, a_kind)?, parent(txn, &b, b_kind)?);
        // No later step can fail.
        from_dir.as_mut().unwrap_or(&mut to_dir).repoint(txn, &a_run, a_spot, (b_ino, b_kind));
        to_dir.repoint(txn, &b_run, b_spot, (a_ino, a_kind));
        a_parent.iter().for_each(|run| a.set_parent(txn, run, to.ino()));
        b_parent.iter().for_each(|run| b.set_parent(txn, run, from.ino()));
        if let Some(from_dir) = from_dir.as_mut() {
            match (a_kind == FileKind::Directory, b_kind == FileKind::Directory) {
                (true, false) => {
                    self.lose_subdirectory(&mut from_dir.inode);
                    self.gain_subdirectory(&mut to_dir.inode);
                }
                (false, true) => {
                    self.lose_subdirectory(&mut to_dir.inode);
                    self.gain_subdirectory(&mut from_dir.inode);
                }
                _ => {}
            }
        }
        for inode in [&mut a, &mut b] {
            inode.inode.touch(self.now());
            inode.store(txn);
        }
        for dir in from_dir.iter_mut().chain([&mut to_dir]) {
            dir.inode.touch_data(self.now());
            dir.store(txn);
        }
        Ok(())
    }
}

/// The objects of a rename without exchange.
struct Replacing<'a> {
    moved: &'a Named,
    target: Option<&'a Named>,
    name: &'a Name,
    new_name: &'a Name,
    old: OldName<'a>,
    locked: &'a LockedInodes<'a>,
}

impl LockedRename<'_> {
    fn crosses(&self) -> bool {
        self.from.ino() != self.to.ino()
    }

    /// Fails with `Invalid` if a directory would become an entry of itself.
    fn expect_whole(&self, exchange: bool) -> Result<()> {
        let target = self.target.as_ref().map(|target| target.hit.ino);
        // A replaced directory must be empty, but this directory is not.
        let tears = exchange && target == Some(self.from.ino());
        if tears || self.moved.hit.ino == self.to.ino() { Err(Error::Invalid) } else { Ok(()) }
    }
}
