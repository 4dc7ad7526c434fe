//! Renaming.
//!
//! A file that replaces another takes over its entry, so that the name always refers to a file. Until a commit is
//! over, a file that moves to a new entry has its old name or none, but never both.

use obento_base::{Error, Name, Result};
use obento_driver::RenameFlags;

use super::names::{check_empty, entry};
use super::stamp_dir;
use crate::guard::{DirWrite, InodeWrite};
use crate::inode::Inode;
use crate::unit::Slot;
use crate::volume::{At, Commit as _, Entries as _, Location as _, Volume};

/// A name in a directory.
type NamePlace<'a, V> = (&'a DirWrite<'a, V>, &'a Name);

/// A name that was found, and its inode: the source or the target of a rename.
struct End<'a, V: Volume> {
    dir: &'a DirWrite<'a, V>,
    name: &'a Name,
    at: V::Location,
    inode: InodeWrite<'a, V>,
}

impl<'a, V: Volume> End<'a, V> {
    fn find((dir, name): NamePlace<'a, V>) -> Result<Option<Self>> {
        Ok(entry(dir, name)?.map(|(at, inode)| Self { dir, name, at, inode }))
    }

    fn at(&self) -> At<'_, V> {
        (self.dir, &self.at)
    }
}

/// Renames a file, as `rename` of the contract requires; `flags` contains at most one of the two flags. Also
/// fails with `Invalid` for a name that the format cannot store.
pub fn rename<V: Volume>(
    writer: &mut V::Writer,
    from: NamePlace<'_, V>,
    to: NamePlace<'_, V>,
    flags: RenameFlags,
) -> Result<()> {
    let source = End::find(from)?.ok_or(Error::NotFound)?;
    let target = End::find(to)?;
    let is_itself = target.as_ref().is_some_and(|target| target.inode.ino == source.inode.ino);
    from.0.volume().numbers_mut().reserve()?;
    match target {
        Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
        Some(_) if flags.contains(RenameFlags::EXCHANGE) && is_itself => Ok(()),
        Some(other) if flags.contains(RenameFlags::EXCHANGE) => exchange(writer, &source, &other),
        None if flags.contains(RenameFlags::EXCHANGE) => Err(Error::NotFound),
        // Only the case of the name changes.
        Some(_) if is_itself && from.1 == to.1 => Ok(()),
        Some(other) if !is_itself => {
            check_replaced(&source.inode, &other.inode)?;
            move_over(writer, &source, &other)
        }
        _ => move_to(writer, &source, to),
    }
}

/// Checks that `source` may replace `target`. Fails with `IsDirectory`, `NotDirectory` or `NotEmpty`.
fn check_replaced<V: Volume>(source: &InodeWrite<'_, V>, target: &InodeWrite<'_, V>) -> Result<()> {
    match (source.is_dir(), target.is_dir()) {
        (false, true) => Err(Error::IsDirectory),
        (true, false) => Err(Error::NotDirectory),
        (true, true) => check_empty(target),
        (false, false) => Ok(()),
    }
}

/// Returns whether one write changes both places, and neither place must be written late. A place must be written late
/// if a file moved to it since the last commit: the file must not appear on disk before its old place is written.
fn is_at_once<V: Volume>(writer: &V::Writer, one: At<'_, V>, other: At<'_, V>) -> Result<bool> {
    let is_late = |at: At<'_, V>| writer.waiting().late.contains(at.1.slot());
    Ok(!is_late(one) && !is_late(other) && V::Writer::is_one_write(one, other)?)
}

/// Moves a file to a name that does not exist.
fn move_to<V: Volume>(
    writer: &mut V::Writer,
    source: &End<'_, V>,
    (dir, name): NamePlace<'_, V>,
) -> Result<()> {
    let added = writer.add(dir, name, source.inode.entry.clone())?;
    if !is_at_once::<V>(writer, source.at(), (dir, &added))? {
        writer.arrive((dir, &added))?;
    }
    writer.remove(source.at())?;
    dir.volume().numbers_mut().move_to(source.inode.ino, added.slot());
    moved(writer, source, dir)
}

/// Moves a file over an existing one.
fn move_over<V: Volume>(writer: &mut V::Writer, source: &End<'_, V>, target: &End<'_, V>) -> Result<()> {
    let at = if V::Writer::can_swap(&source.at, &target.at) {
        if !is_at_once::<V>(writer, source.at(), target.at())? {
            writer.replace(target.at(), &target.inode)?;
        }
        writer.put_over(target.at(), &source.inode.entry)?;
        writer.remove(source.at())?;
        target.at.slot()
    } else {
        let at = add_late(writer, &source.inode, (target.dir, target.name))?;
        writer.remove(source.at())?;
        writer.remove(target.at())?;
        at
    };
    {
        let mut numbers = target.dir.volume().numbers_mut();
        numbers.orphan_of(target.inode.ino, target.inode.entry.clone(), target.dir.ino());
        numbers.move_to(source.inode.ino, at);
    }
    moved(writer, source, target.dir)
}

/// Adds the name `to` for a file. The new entry is written after the old place of the file. Returns the place of the
/// new entry.
fn add_late<V: Volume>(
    writer: &mut V::Writer,
    inode: &Inode<V::Entry>,
    (dir, name): NamePlace<'_, V>,
) -> Result<Slot> {
    let added = writer.add(dir, name, inode.entry.clone())?;
    if let Err(error) = writer.arrive((dir, &added)) {
        writer.remove((dir, &added))?;
        return Err(error);
    }
    Ok(added.slot())
}

/// Exchanges two entries by creating new entries for both.
fn exchange_apart<V: Volume>(writer: &mut V::Writer, one: &End<'_, V>, other: &End<'_, V>) -> Result<()> {
    // Both new entries get space before an old one is removed, so that a full directory does not change.
    let there = writer.add(other.dir, other.name, one.inode.entry.clone())?;
    let here = writer.add(one.dir, one.name, other.inode.entry.clone());
    let Ok(here) = here else {
        writer.remove((other.dir, &there))?;
        return here.map(drop);
    };
    writer.arrive((other.dir, &there))?;
    writer.arrive((one.dir, &here))?;
    writer.remove(one.at())?;
    writer.remove(other.at())?;
    exchanged(writer, (one, there.slot()), (other, here.slot()))
}

/// Exchanges two entries.
fn exchange<V: Volume>(writer: &mut V::Writer, one: &End<'_, V>, other: &End<'_, V>) -> Result<()> {
    if !V::Writer::can_swap(&one.at, &other.at) {
        return exchange_apart(writer, one, other);
    }
    if !is_at_once::<V>(writer, one.at(), other.at())? {
        // Neither entry is written before both old places are written.
        for end in [one, other] {
            writer.arrive(end.at())?;
        }
    }
    writer.put_over(other.at(), &one.inode.entry)?;
    writer.put_over(one.at(), &other.inode.entry)?;
    exchanged(writer, (one, other.at.slot()), (other, one.at.slot()))
}

/// Completes an exchange once both entries are in their new places.
fn exchanged<V: Volume>(
    writer: &mut V::Writer,
    (one, there): (&End<'_, V>, Slot),
    (other, here): (&End<'_, V>, Slot),
) -> Result<()> {
    {
        let mut numbers = one.dir.volume().numbers_mut();
        numbers.move_to(one.inode.ino, there);
        numbers.move_to(other.inode.ino, here);
    }
    moved(writer, one, other.dir)?;
    moved(writer, other, one.dir)
}

/// Completes a move of `end` to `dir`.
fn moved<V: Volume>(writer: &mut V::Writer, end: &End<'_, V>, dir: &DirWrite<'_, V>) -> Result<()> {
    if end.inode.is_dir() && end.dir.ino() != dir.ino() {
        writer.set_parent(&end.inode, dir)?;
    }
    stamp_dir(writer, end.dir)?;
    if end.dir.ino() == dir.ino() { Ok(()) } else { stamp_dir(writer, dir) }
}
