//! Renaming.
//!
//! A file that replaces another takes over its entry, so that the name is never without a file; one that moves to a new
//! entry is at the old one or at none until a commit is over, and never at both.

use alloc::sync::Arc;

use obento_base::{Error, Ino, Name, Result};
use obento_driver::RenameFlags;

use crate::dir::{Directory, Location};
use crate::inode::Inode;
use crate::raw::RawEntry;
use crate::volume::Volume;
use crate::writer::{Writer, is_written_with};

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
                self.check_replaced(volume, &source.inode, &other.inode)?;
                self.move_over(volume, &source, &other)
            }
            _ => self.move_to(volume, &source, to),
        }
    }

    /// Errors: IsDirectory; NotDirectory; NotEmpty.
    fn check_replaced(&self, volume: &Volume, source: &Inode, target: &Inode) -> Result<()> {
        match (source.is_dir(), target.is_dir()) {
            (false, true) => Err(Error::IsDirectory),
            (true, false) => Err(Error::NotDirectory),
            (true, true) => self.check_empty(volume, target),
            (false, false) => Ok(()),
        }
    }

    /// To a name that is free.
    fn move_to(&mut self, volume: &Volume, source: &End, (dir, name): (Ino, &Name)) -> Result<()> {
        let added = self.add(volume, dir, name, source.inode.raw)?;
        if !is_written_with(source.at.slot, added.slot) {
            self.arrive(volume, added.slot)?;
        }
        // The directory may have grown meanwhile, and its entries are where they were.
        self.remove(volume, &source.dir, source.at)?;
        volume.numbers().write().move_to(source.inode.ino, added.slot);
        self.moved(volume, source, dir)
    }

    /// Over what is there.
    fn move_over(&mut self, volume: &Volume, source: &End, target: &End) -> Result<()> {
        if !is_written_with(source.at.slot, target.at.slot) {
            self.replace(volume, target.at.slot, &target.inode.raw)?;
        }
        self.put(volume, target.at.slot, bytes(&with_name(&source.inode.raw, &target.inode.raw)))?;
        self.remove(volume, &source.dir, source.at)?;
        {
            let mut numbers = volume.numbers().write();
            numbers.orphan_of(target.inode.ino, target.inode.raw, target.dir.ino);
            numbers.move_to(source.inode.ino, target.at.slot);
        }
        self.moved(volume, source, target.dir.ino)
    }

    fn exchange(&mut self, volume: &Volume, one: &End, other: &End) -> Result<()> {
        if !is_written_with(one.at.slot, other.at.slot) {
            // Neither is shown until both are gone from where they were.
            for end in [one, other] {
                self.arrive(volume, end.at.slot)?;
            }
        }
        self.put(volume, other.at.slot, bytes(&with_name(&one.inode.raw, &other.inode.raw)))?;
        self.put(volume, one.at.slot, bytes(&with_name(&other.inode.raw, &one.inode.raw)))?;
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

/// `raw` under the name of `named`.
fn with_name(raw: &RawEntry, named: &RawEntry) -> RawEntry {
    RawEntry { DIR_Name: named.DIR_Name, DIR_NTRes: named.DIR_NTRes, ..*raw }
}

fn bytes(raw: &RawEntry) -> &[u8] {
    obento_base::wire::IntoBytes::as_bytes(raw)
}
