//! Making and removing.

use obento_base::wire::le;
use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_driver::{AskUsage, NewNode, Usage, Victim};

use crate::dir::{Directory, Location, Scan};
use crate::inode::{Attributes, Inode};
use crate::volume::Volume;
use crate::writer::Writer;

impl Writer {
    /// Makes a file or directory, as the contract's `create` has it. Errors besides: NotPermitted for what the format
    /// lacks; Invalid for a name that it lacks.
    pub fn create(&mut self, volume: &Volume, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Ino> {
        let known = Self::directory(volume, dir)?;
        if volume.find(&known, name)?.is_some() {
            return Err(Error::Exists);
        }
        match node.kind {
            FileKind::Regular | FileKind::Directory => {}
            FileKind::Symlink if node.target.is_empty() => return Err(Error::Invalid),
            _ => return Err(Error::NotPermitted),
        }
        let is_dir = node.kind == FileKind::Directory;
        let mut set = self.new_set(volume, is_dir);
        if !is_dir && node.mode.bits() & 0o222 == 0 {
            let attributes = set.attributes() | Attributes::READ_ONLY;
            set.file.FileAttributes = le::U16::new(attributes.bits());
        }
        volume.numbers().write().reserve()?;
        let made = if is_dir { Some(self.make_directory(volume, &mut set)?) } else { None };
        let at = match (self.add(volume, dir, name, set), made) {
            (Ok(at), _) => at,
            (Err(error), Some(cluster)) => {
                self.free_one(volume, cluster)?;
                return Err(error);
            }
            (Err(error), None) => return Err(error),
        };
        let ino = volume.numbers().write().create(at.slot);
        volume.forget(ino);
        self.stamp_dir(volume, dir)?;
        Ok(ino)
    }

    /// The set `name` of `dir`, and what it names.
    pub(super) fn entry(volume: &Volume, dir: &Directory, name: &Name) -> Result<Option<(Location, Inode)>> {
        let Some(at) = volume.find(dir, name)? else { return Ok(None) };
        let inode = volume.inode(volume.ino_at(at.slot))?;
        Ok(Some((at, inode)))
    }

    /// Removes a name, as the contract's `remove` has it.
    pub fn remove_name(
        &mut self,
        volume: &Volume,
        (dir, name): (Ino, &Name),
        victim: Victim,
        ask: &mut AskUsage<'_>,
    ) -> Result<()> {
        let known = volume.directory(dir)?;
        let (at, inode) = Self::entry(volume, &known, name)?.ok_or(Error::NotFound)?;
        let usage = ask(&Self::attr(volume, inode.ino)?)?;
        match victim {
            Victim::File if inode.is_dir() => return Err(Error::IsDirectory),
            Victim::File => {}
            Victim::EmptyDirectory => Self::check_empty(volume, &inode)?,
        }
        volume.numbers().write().reserve()?;
        self.remove(volume, &known, &at)?;
        volume.numbers().write().orphan_of(inode.ino, inode.set, known.ino);
        self.stamp_dir(volume, known.ino)?;
        match usage {
            Usage::Used => Ok(()),
            Usage::Unused => self.forget(volume, inode.ino),
        }
    }

    /// Errors: NotDirectory; NotEmpty; those of a directory that cannot be read.
    pub(super) fn check_empty(volume: &Volume, inode: &Inode) -> Result<()> {
        let dir = volume.directory(inode.ino)?;
        match (Scan::new(&dir, volume.super_block(), volume.cache(), 0).next(), dir.damage) {
            (Some(Ok(_)), _) => Err(Error::NotEmpty),
            (Some(Err(error)), _) | (None, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }
}
