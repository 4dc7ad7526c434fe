//! Creating and removing names.

use alloc::sync::Arc;

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_driver::{AskUsage, Cookie, NewNode, RemovalKind, Usage};

use super::stamp_dir;
use crate::inode::{FileEntry, Inode};
use crate::volume::{Commit as _, Data as _, Entries as _, Location as _, Volume};

/// Returns a directory in which an entry may be created. Fails with `NotDirectory`, or with `NotFound` if it was
/// removed.
pub fn directory<V: Volume>(volume: &V, dir: Ino) -> Result<Arc<V::Directory>> {
    let inode = volume.inode(dir)?;
    match inode.is_dir() {
        false => Err(Error::NotDirectory),
        true if !inode.is_named => Err(Error::NotFound),
        true => volume.directory(dir),
    }
}

/// Creates a file or directory, as `create` of the contract requires. Also fails with `NotPermitted` for a type that
/// the format cannot store, and with `Invalid` for a name that it cannot store.
pub fn create<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    dir: Ino,
    name: &Name,
    node: &NewNode<'_>,
) -> Result<Ino> {
    let known = directory(volume, dir)?;
    if volume.find(&known, name)?.is_some() {
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
    volume.numbers().write().reserve()?;
    let made = if is_dir { Some(writer.make_directory(volume, dir, &mut entry)?) } else { None };
    let at = match (writer.add(volume, dir, name, entry), made) {
        (Ok(at), _) => at,
        (Err(error), Some(cluster)) => {
            writer.free_one(volume, cluster)?;
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    let ino = volume.numbers().write().create(at.slot());
    volume.forget(ino);
    stamp_dir(writer, volume, dir)?;
    Ok(ino)
}

/// The place of a name, and the inode that it refers to.
pub(super) type Named<V> = (<V as Volume>::Location, Inode<<V as Volume>::Entry>);

/// Returns the place of `name` in `dir`, and the inode that it refers to.
pub(super) fn entry<V: Volume>(volume: &V, dir: &V::Directory, name: &Name) -> Result<Option<Named<V>>> {
    let Some(at) = volume.find(dir, name)? else { return Ok(None) };
    let inode = volume.inode(volume.ino_at(at.slot()))?;
    Ok(Some((at, inode)))
}

/// Removes a name, as `remove` of the contract requires.
pub fn remove_name<V: Volume>(
    writer: &mut V::Writer,
    volume: &V,
    (dir, name): (Ino, &Name),
    victim: RemovalKind,
    ask: &mut AskUsage<'_>,
) -> Result<()> {
    let known = volume.directory(dir)?;
    let (at, inode) = entry(volume, &known, name)?.ok_or(Error::NotFound)?;
    let usage = ask(&volume.attr(inode.ino)?)?;
    match victim {
        RemovalKind::File if inode.is_dir() => return Err(Error::IsDirectory),
        RemovalKind::File => {}
        RemovalKind::EmptyDirectory => check_empty(volume, &inode)?,
    }
    volume.numbers().write().reserve()?;
    writer.remove(volume, (&known, &at))?;
    volume.numbers().write().orphan_of(inode.ino, inode.entry, dir);
    stamp_dir(writer, volume, dir)?;
    match usage {
        Usage::Used => Ok(()),
        Usage::Unused => writer.forget(volume, inode.ino),
    }
}

/// Checks that a directory is empty. Fails with `NotDirectory`, `NotEmpty`, or with the errors of a directory that
/// cannot be read.
pub(super) fn check_empty<V: Volume>(volume: &V, inode: &Inode<V::Entry>) -> Result<()> {
    let dir = volume.directory(inode.ino)?;
    match volume.list(&dir, Cookie(0), 1)?.0.pop() {
        Some(Ok(_)) => Err(Error::NotEmpty),
        Some(Err(error)) => Err(error),
        None => Ok(()),
    }
}
