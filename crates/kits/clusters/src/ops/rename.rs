//! Renaming.
//!
//! A file that replaces another takes over its entry, so that the name always refers to a file. Until a commit is
//! over, a file that moves to a new entry has its old name or none, but never both.

use alloc::sync::Arc;

use obento_base::{Error, Ino, Name, Result};
use obento_driver::RenameFlags;

use super::names::{check_empty, directory, entry};
use super::stamp_dir;
use crate::inode::Inode;
use crate::unit::Slot;
use crate::volume::{At, Commit as _, Entries as _, Location as _, Volume};

/// A directory and a name in it: the source or the target of a rename.
struct End<V: Volume> {
    ino: Ino,
    dir: Arc<V::Directory>,
    at: V::Location,
    inode: Inode<V::Entry>,
}

impl<V: Volume> End<V> {
    fn at(&self) -> At<'_, V> {
        (&self.dir, &self.at)
    }
}

/// Renames a file, as `rename` of the contract requires. Also fails with `Invalid` for a name that the format cannot
/// store.
pub fn rename<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    from: (Ino, &Name),
    to: (Ino, &Name),
    flags: RenameFlags,
) -> Result<()> {
    if flags.contains(RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE) {
        return Err(Error::Invalid);
    }
    let (dir, target) = (volume.directory(from.0)?, directory(volume, to.0)?);
    let (at, inode) = entry(volume, &dir, from.1)?.ok_or(Error::NotFound)?;
    let source = End::<V> { ino: from.0, dir, at, inode };
    let there = entry(volume, &target, to.1)?;
    let there = there.map(|(at, inode)| End::<V> { ino: to.0, dir: target, at, inode });
    let is_itself = there.as_ref().is_some_and(|there| there.inode.ino == source.inode.ino);
    volume.numbers().write().reserve()?;
    match there {
        Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
        Some(_) if flags.contains(RenameFlags::EXCHANGE) && is_itself => Ok(()),
        Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
            exchange(writer, volume, (&source, from.1), (&other, to.1))
        }
        None if flags.contains(RenameFlags::EXCHANGE) => Err(Error::NotFound),
        // Only the case of the name changes.
        Some(_) if is_itself && from.1 == to.1 => Ok(()),
        Some(other) if !is_itself => {
            check_replaced(volume, &source.inode, &other.inode)?;
            move_over(writer, volume, &source, &other, to)
        }
        _ => move_to(writer, volume, &source, to),
    }
}

/// Checks that `source` may replace `target`. Fails with `IsDirectory`, `NotDirectory` or `NotEmpty`.
fn check_replaced<V: Volume>(volume: &V, source: &Inode<V::Entry>, target: &Inode<V::Entry>) -> Result<()> {
    match (source.is_dir(), target.is_dir()) {
        (false, true) => Err(Error::IsDirectory),
        (true, false) => Err(Error::NotDirectory),
        (true, true) => check_empty(volume, target),
        (false, false) => Ok(()),
    }
}

/// Returns whether one write changes both places, and neither place must be written late. A place must be written late
/// if a file moved to it since the last commit: the file must not appear on disk before its old place is written.
fn is_at_once<V: Volume>(writer: &V::Writer, volume: &V, one: At<'_, V>, other: At<'_, V>) -> bool {
    let is_late = |at: At<'_, V>| writer.waiting().late.contains_key(&at.1.slot());
    !is_late(one) && !is_late(other) && V::Writer::is_one_write(volume, one, other)
}

/// Removes a name. Reads the directory again: if the directory has grown since the lookup, a new object with a new
/// index represents it. The entries of the directory are in the same places.
fn take_away<V: Volume>(writer: &mut V::Writer, volume: &V, end: &End<V>) -> Result<()> {
    let dir = volume.directory(end.ino)?;
    writer.remove(volume, (&dir, &end.at))
}

/// Moves a file to a name that does not exist.
fn move_to<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    source: &End<V>,
    (dir, name): (Ino, &Name),
) -> Result<()> {
    let added = writer.add(volume, dir, name, source.inode.entry.clone())?;
    let target = volume.directory(dir)?;
    if !is_at_once(writer, volume, source.at(), (&target, &added)) {
        writer.arrive(volume, (&target, &added))?;
    }
    take_away(writer, volume, source)?;
    volume.numbers().write().move_to(source.inode.ino, added.slot());
    moved(writer, volume, source, dir)
}

/// Moves a file over an existing one.
fn move_over<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    source: &End<V>,
    target: &End<V>,
    to: (Ino, &Name),
) -> Result<()> {
    let orphan = || {
        let (ino, entry) = (target.inode.ino, target.inode.entry.clone());
        volume.numbers().write().orphan_of(ino, entry, target.ino);
    };
    if !V::Writer::can_swap(&source.at, &target.at) {
        let at = add_late(writer, volume, &source.inode, to)?;
        take_away(writer, volume, source)?;
        take_away(writer, volume, target)?;
        orphan();
        volume.numbers().write().move_to(source.inode.ino, at);
        return moved(writer, volume, source, target.ino);
    }
    if !is_at_once(writer, volume, source.at(), target.at()) {
        writer.replace(volume, target.at(), &target.inode)?;
    }
    writer.put_over(volume, target.at(), &source.inode.entry)?;
    take_away(writer, volume, source)?;
    orphan();
    volume.numbers().write().move_to(source.inode.ino, target.at.slot());
    moved(writer, volume, source, target.ino)
}

/// Adds the name `to` for a file. The new entry is written after the old place of the file. Returns the place of the
/// new entry.
fn add_late<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    inode: &Inode<V::Entry>,
    (dir, name): (Ino, &Name),
) -> Result<Slot> {
    let added = writer.add(volume, dir, name, inode.entry.clone())?;
    let known = volume.directory(dir)?;
    if let Err(error) = writer.arrive(volume, (&known, &added)) {
        writer.remove(volume, (&known, &added))?;
        return Err(error);
    }
    Ok(added.slot())
}

/// Exchanges two entries by creating new entries for both.
fn exchange_apart<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    (one, to): (&End<V>, &Name),
    (other, from): (&End<V>, &Name),
) -> Result<()> {
    // Both new entries get space before an old one is removed, so that a full directory does not change.
    let there = writer.add(volume, other.ino, from, one.inode.entry.clone())?;
    let target = volume.directory(other.ino)?;
    let here = writer.add(volume, one.ino, to, other.inode.entry.clone());
    let Ok(here) = here else {
        writer.remove(volume, (&target, &there))?;
        return here.map(drop);
    };
    let dir = volume.directory(one.ino)?;
    writer.arrive(volume, (&target, &there))?;
    writer.arrive(volume, (&dir, &here))?;
    take_away(writer, volume, one)?;
    take_away(writer, volume, other)?;
    exchanged(writer, volume, (one, there.slot()), (other, here.slot()))
}

/// Exchanges two entries.
fn exchange<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    (one, to): (&End<V>, &Name),
    (other, from): (&End<V>, &Name),
) -> Result<()> {
    if !V::Writer::can_swap(&one.at, &other.at) {
        return exchange_apart(writer, volume, (one, to), (other, from));
    }
    if !is_at_once(writer, volume, one.at(), other.at()) {
        // Neither entry is written before both old places are written.
        for end in [one, other] {
            writer.arrive(volume, end.at())?;
        }
    }
    writer.put_over(volume, other.at(), &one.inode.entry)?;
    writer.put_over(volume, one.at(), &other.inode.entry)?;
    exchanged(writer, volume, (one, other.at.slot()), (other, one.at.slot()))
}

/// Completes an exchange once both entries are in their new places.
fn exchanged<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    (one, there): (&End<V>, Slot),
    (other, here): (&End<V>, Slot),
) -> Result<()> {
    {
        let mut numbers = volume.numbers().write();
        numbers.move_to(one.inode.ino, there);
        numbers.move_to(other.inode.ino, here);
    }
    moved(writer, volume, one, other.ino)?;
    moved(writer, volume, other, one.ino)
}

/// Completes a move of `end` to `dir`.
fn moved<V: Volume>(writer: &mut V::Writer, volume: &V, end: &End<V>, dir: Ino) -> Result<()> {
    if end.inode.is_dir() && end.ino != dir {
        writer.set_parent(volume, end.inode.ino, dir)?;
    }
    stamp_dir(writer, volume, end.ino)?;
    if end.ino == dir { Ok(()) } else { stamp_dir(writer, volume, dir) }
}
