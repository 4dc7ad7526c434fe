//! Creating and removing names.

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_driver::{AskUsage, Cookie, NewNode, RemovalKind, Usage};

use super::stamp_dir;
use crate::guard::{DirWrite, InodeWrite, Locked};
use crate::inode::FileEntry;
use crate::volume::{Commit as _, Data as _, Entries as _, Location as _, Volume};

/// Creates a file or directory, as `create` of the contract requires. Also fails with `NotPermitted` for a type that
/// the format cannot store, and with `Invalid` for a name that it cannot store.
pub fn create<V: Volume>(
    writer: &mut V::Writer,
    dir: &DirWrite<'_, V>,
    name: &Name,
    node: &NewNode<'_>,
) -> Result<Ino> {
    let volume = dir.volume();
    if volume.find(&*dir.current()?, name)?.is_some() {
        return Err(Error::Exists);
    }
    match node.kind {
        FileKind::Regular | FileKind::Directory => {}
        FileKind::Symlink if node.target.is_empty() => return Err(Error::Invalid),
        _ => return Err(Error::NotPermitted),
    }
    let mut entry = V::Entry::new(node.kind);
    entry.stamp(writer.now(), volume.owner().zone);
    let is_dir = node.kind == FileKind::Directory;
    if !is_dir && node.mode.bits() & 0o222 == 0 {
        entry.set_read_only(true);
    }
    volume.numbers_mut().reserve()?;
    let made = if is_dir { Some(writer.make_directory(dir, &mut entry)?) } else { None };
    let at = match (writer.add(dir, name, entry), made) {
        (Ok(at), _) => at,
        (Err(error), Some(cluster)) => {
            writer.free_one(volume, cluster)?;
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    let ino = volume.numbers_mut().create(at.slot());
    volume.forget(ino);
    stamp_dir(writer, dir)?;
    Ok(ino)
}

/// The place of a name, and the inode that it refers to.
pub(super) type Named<'l, V> = (<V as Volume>::Location, InodeWrite<'l, V>);

/// Returns the place of `name` in `dir`, and the inode that it refers to.
pub(super) fn entry<'l, V: Volume>(dir: &DirWrite<'l, V>, name: &Name) -> Result<Option<Named<'l, V>>> {
    let volume = dir.volume();
    let Some(at) = volume.find(&*dir.current()?, name)? else { return Ok(None) };
    let inode = volume.inode(volume.ino_at(at.slot()))?;
    Ok(Some((at, inode)))
}

/// Removes a name, as `remove` of the contract requires.
pub fn remove_name<V: Volume>(
    writer: &mut V::Writer,
    dir: &DirWrite<'_, V>,
    name: &Name,
    victim: RemovalKind,
    ask: &mut AskUsage<'_>,
) -> Result<()> {
    let volume = dir.volume();
    let (at, inode) = entry(dir, name)?.ok_or(Error::NotFound)?;
    let usage = ask(&volume.attr_of(&inode))?;
    match victim {
        RemovalKind::File if inode.is_dir() => return Err(Error::IsDirectory),
        RemovalKind::File => {}
        RemovalKind::EmptyDirectory => check_empty(&inode)?,
    }
    volume.numbers_mut().reserve()?;
    writer.remove((dir, &at))?;
    volume.numbers_mut().orphan_of(inode.ino, inode.entry.clone(), dir.ino());
    stamp_dir(writer, dir)?;
    match usage {
        Usage::Used => Ok(()),
        Usage::Unused => forget(writer, volume, inode.ino),
    }
}

/// Drops the state of an inode that the caller no longer uses. Frees the inode if it has no name.
pub fn forget<V: Volume>(writer: &mut V::Writer, volume: &Locked<'_, V>, ino: Ino) -> Result<()> {
    let pieces = writer.waiting_mut().reservations.take_back(ino);
    writer.give_back(volume, &pieces);
    volume.forget(ino);
    let Some(inode) = volume.nameless(ino) else { return Ok(()) };
    volume.numbers_mut().forget(ino);
    writer.free_inode(inode)
}

/// Checks that a directory is empty. Fails with `NotDirectory`, `NotEmpty`, or with the errors of a directory that
/// cannot be read.
pub(super) fn check_empty<V: Volume>(inode: &InodeWrite<'_, V>) -> Result<()> {
    let dir = inode.dir().current()?;
    match inode.volume().list(&dir, Cookie(0), 1)?.0.pop() {
        Some(Ok(_)) => Err(Error::NotEmpty),
        Some(Err(error)) => Err(error),
        None => Ok(()),
    }
}
