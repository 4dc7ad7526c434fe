//! Renaming.
//!
//! A file that replaces another takes over its set, so that the name is never without a file; one that moves to a new
//! set is at the old one or at none until a commit is over, and never at both.

use alloc::sync::Arc;

use obento_base::{Error, Ino, Name, Result};
use obento_driver::RenameFlags;

use crate::dir::{Directory, Location};
use crate::inode::Inode;
use crate::set::EntrySet;
use crate::volume::Volume;
use crate::writer::{Writer, in_one_sector};

/// One end of a rename.
struct End {
    dir: Arc<Directory>,
    at: Location,
    inode: Inode,
}

impl Writer {
    /// Moves a name, as the contract's `rename` has it. Errors besides: Invalid for a name that the format lacks.
    pub fn rename(
        &mut self,
        volume: &Volume,
        from: (Ino, &Name),
        to: (Ino, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.contains(RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE) {
            return Err(Error::Invalid);
        }
        let (dir, target) = (volume.directory(from.0)?, Self::directory(volume, to.0)?);
        let (at, inode) = Self::entry(volume, &dir, from.1)?.ok_or(Error::NotFound)?;
        let source = End { dir, at, inode };
        let there = Self::entry(volume, &target, to.1)?;
        let is_itself = there.as_ref().is_some_and(|(_, there)| there.ino == source.inode.ino);
        volume.numbers().write().reserve()?;
        match there {
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
            Some((at, inode)) if flags.contains(RenameFlags::EXCHANGE) => {
                let other = End { dir: target, at, inode };
                if is_itself { Ok(()) } else { self.exchange(volume, &source, &other) }
            }
            None if flags.contains(RenameFlags::EXCHANGE) => Err(Error::NotFound),
            // Only how it is written changes.
            Some(_) if is_itself && from.1 == to.1 => Ok(()),
            Some((at, inode)) if !is_itself => {
                let other = End { dir: target, at, inode };
                Self::check_replaced(volume, &source.inode, &other.inode)?;
                self.move_over(volume, &source, &other, to)
            }
            _ => self.move_to(volume, &source, to),
        }
    }

    /// Errors: IsDirectory; NotDirectory; NotEmpty.
    fn check_replaced(volume: &Volume, source: &Inode, target: &Inode) -> Result<()> {
        match (source.is_dir(), target.is_dir()) {
            (false, true) => Err(Error::IsDirectory),
            (true, false) => Err(Error::NotDirectory),
            (true, true) => Self::check_empty(volume, target),
            (false, false) => Ok(()),
        }
    }

    /// To a name that is free.
    fn move_to(&mut self, volume: &Volume, source: &End, (dir, name): (Ino, &Name)) -> Result<()> {
        let added = self.add(volume, dir, name, source.inode.set.clone())?;
        let target = volume.directory(dir)?;
        if !is_one_write(volume, &[(&source.dir, &source.at), (&target, &added)]) {
            self.arrive_at(volume, &target, &added)?;
        }
        // The directory may have grown meanwhile, and its sets are where they were.
        self.remove(volume, &source.dir, &source.at)?;
        volume.numbers().write().move_to(source.inode.ino, added.slot);
        self.moved(volume, source, dir)
    }

    /// Over what is there.
    fn move_over(&mut self, volume: &Volume, source: &End, target: &End, to: (Ino, &Name)) -> Result<()> {
        // What others put behind a name goes with its file: then no set can be taken over.
        if !source.at.set.others().is_empty() || !target.at.set.others().is_empty() {
            self.remove(volume, &target.dir, &target.at)?;
            let (ino, set) = (target.inode.ino, target.inode.set.clone());
            volume.numbers().write().orphan_of(ino, set, target.dir.ino);
            return self.move_to(volume, source, to);
        }
        if !is_one_write(volume, &[(&source.dir, &source.at), (&target.dir, &target.at)]) {
            self.replace(volume, &target.dir, &target.at)?;
        }
        self.put_over(volume, &target.dir, &target.at, &with_name(&source.inode.set, &target.at.set))?;
        self.remove(volume, &source.dir, &source.at)?;
        {
            let mut numbers = volume.numbers().write();
            numbers.orphan_of(target.inode.ino, target.inode.set.clone(), target.dir.ino);
            numbers.move_to(source.inode.ino, target.at.slot);
        }
        self.moved(volume, source, target.dir.ino)
    }

    fn exchange(&mut self, volume: &Volume, one: &End, other: &End) -> Result<()> {
        if !one.at.set.others().is_empty() || !other.at.set.others().is_empty() {
            return Err(Error::NotSupported);
        }
        if !is_one_write(volume, &[(&one.dir, &one.at), (&other.dir, &other.at)]) {
            // Neither is shown until both are gone from where they were.
            for end in [one, other] {
                self.arrive_at(volume, &end.dir, &end.at)?;
            }
        }
        self.put_over(volume, &other.dir, &other.at, &with_name(&one.inode.set, &other.at.set))?;
        self.put_over(volume, &one.dir, &one.at, &with_name(&other.inode.set, &one.at.set))?;
        {
            let mut numbers = volume.numbers().write();
            numbers.move_to(one.inode.ino, other.at.slot);
            numbers.move_to(other.inode.ino, one.at.slot);
        }
        self.moved(volume, one, other.dir.ino)?;
        self.moved(volume, other, one.dir.ino)
    }

    /// What follows when `end` lies in `dir` now.
    fn moved(&mut self, volume: &Volume, end: &End, dir: Ino) -> Result<()> {
        if end.inode.is_dir() && end.dir.ino != dir {
            self.set_parent(volume, end.inode.ino, dir)?;
        }
        self.stamp_dir(volume, end.dir.ino)?;
        if end.dir.ino == dir { Ok(()) } else { self.stamp_dir(volume, dir) }
    }
}

/// `set` under the name of `named`.
fn with_name(set: &EntrySet, named: &EntrySet) -> EntrySet {
    let mut file = set.file;
    file.SecondaryCount = named.file.SecondaryCount;
    let mut stream = set.stream;
    (stream.NameLength, stream.NameHash) = (named.stream.NameLength, named.stream.NameHash);
    EntrySet { file, stream, rest: named.rest.clone() }
}

/// Whether one write changes all of these sets.
fn is_one_write(volume: &Volume, sets: &[(&Arc<Directory>, &Location)]) -> bool {
    let slots = sets.iter().flat_map(|(dir, at)| {
        let end = at.index.saturating_add(at.set.count());
        (at.index..end).filter_map(|index| dir.slot(index))
    });
    in_one_sector(volume, &slots.collect::<alloc::vec::Vec<_>>())
}
