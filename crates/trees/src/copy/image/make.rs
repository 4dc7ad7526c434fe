//! Creates files, links and nodes, under a free name or in place of an existing entry.

use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name, NameBuf};
use obento_driver::{NewNode, StoredProperties};
use obento_host::tree::{Keep, LinkKey, Loss, Trust, Written};
use obento_host::{HostError, Metadata};
use obento_vfs::Node;

use super::attributes::CreatedEntry;
use super::sink::{Failure, ImageSink};
use super::slot::{ReplacedFile, Slot};
use super::{ImageWriter, Inherits, Names, OWNER};
use crate::backup::take_place;
use crate::copy::tree_sink::{FileError, Fill};
use crate::copy::{ProblemReason, Shortage};
use crate::unfinished::free_name;

impl ImageWriter {
    /// Creates a regular file with the bytes that `fill` passes. Removes the file if that fails.
    pub(super) fn file(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        fill: &mut Fill<'_>,
    ) -> Result<(), FileError> {
        self.make_waiting();
        self.take_entry(name)?;
        let slot = self.slot(name, FileKind::Regular, meta)?;
        if let Slot::Shared(node) = &slot {
            return self.overwrite(node, name, meta, fill);
        }
        let new = self.new_node(FileKind::Regular, meta, &slot);
        let Some((node, place)) = self.make(name, &slot, &new)? else { return Ok(()) };
        let taken = self.take_xattrs(name, meta).map_err(FileError::from);
        let filled = taken.and_then(|()| self.fill(&node, name, fill));
        let done = filled.and_then(|()| Ok(self.settle((&node, &place), name, &slot, meta)?));
        if let Err(error) = done {
            // An incomplete file must not look complete. If it cannot be removed, the error is still
            // reported.
            let _ = self.vfs.unlink(OWNER, self.place_dir(&slot), &place);
            return Err(error);
        }
        self.report.files += 1;
        Ok(())
    }

    /// Writes into a file that has several names, as cp(1) does. If that fails, the file stays partially
    /// written.
    fn overwrite(
        &mut self,
        node: &Node,
        name: &Name,
        meta: &Metadata<'_>,
        fill: &mut Fill<'_>,
    ) -> Result<(), FileError> {
        self.take_xattrs(name, meta)?;
        self.vfs.truncate(OWNER, node, 0).map_err(|error| self.failed(Some(name), error))?;
        self.fill(node, name, fill)?;
        self.apply_over(node, meta, Some(name))?;
        self.note_written(name, None);
        self.report.files += 1;
        Ok(())
    }

    /// Writes the bytes that `fill` passes to the empty file `node`.
    fn fill(&mut self, node: &Node, name: &Name, fill: &mut Fill<'_>) -> Result<(), FileError> {
        let bytes = self.report.bytes;
        let room = self.options.max_bytes.saturating_sub(bytes).saturating_sub(self.xattr_bytes);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut sink = ImageSink { node, buffer: &mut buffer, position: 0, end: 0, room, failure: None };
        let filled = fill(&mut sink);
        let finished = match (&filled, sink.finish()) {
            (Ok(()), Err(error)) => Err(error),
            _ => Ok(()),
        };
        let (written, failure) = (room - sink.room, sink.failure.take());
        self.buffer = buffer;
        self.report.bytes = bytes.saturating_add(written);
        match (filled, finished, failure) {
            (_, _, Some(Failure::Limit)) => {
                let (path, limit) = (self.host_path(Some(name)), self.options.max_bytes);
                Err(ProblemReason::Host(HostError::Limit { path, limit }).into())
            }
            (_, _, Some(Failure::Volume(error))) | (Ok(()), Err(error), None) => {
                Err(self.failed(Some(name), error).into())
            }
            (Err(error), _, None) => Err(error.into()),
            (Ok(()), Ok(()), None) => Ok(()),
        }
    }

    /// Creates a symbolic link.
    pub(super) fn symlink(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        target: &[u8],
    ) -> Result<Written, ProblemReason> {
        if !self.limits.keeps.contains(StoredProperties::SYMLINKS) {
            self.drop_entry(name, Loss::Symlink);
            return Ok(Written::Dropped);
        }
        self.make_waiting();
        self.take_entry(name)?;
        self.take_xattrs(name, meta)?;
        let slot = self.slot(name, FileKind::Symlink, meta)?;
        let new = NewNode { target, ..self.new_node(FileKind::Symlink, meta, &slot) };
        self.other(name, &slot, meta, &new).map(|()| Written::Created)
    }

    /// Creates a device node, FIFO or socket. Device nodes are dropped if the image is not trusted.
    pub(super) fn node(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        kind: FileKind,
        rdev: DeviceNumber,
    ) -> Result<Written, ProblemReason> {
        let loss = if kind.is_device() { Loss::Device } else { Loss::Special };
        if kind.is_device() && self.options.trust == Trust::Untrusted {
            let path = self.host_path(Some(name));
            self.report.lose(loss, None, || path);
            return Ok(Written::Dropped);
        }
        if !self.limits.keeps.contains(StoredProperties::SPECIAL) {
            self.drop_entry(name, loss);
            return Ok(Written::Dropped);
        }
        self.make_waiting();
        self.take_entry(name)?;
        self.take_xattrs(name, meta)?;
        let slot = self.slot(name, kind, meta)?;
        let new = NewNode { rdev, ..self.new_node(kind, meta, &slot) };
        self.other(name, &slot, meta, &new).map(|()| Written::Created)
    }

    /// As [`TreeSink::remember`](crate::copy::tree_sink::TreeSink::remember).
    pub(super) fn remember_inode(
        &mut self,
        key: LinkKey,
        name: &Name,
        more: u32,
    ) -> Result<(), ProblemReason> {
        self.make_waiting();
        let Some(node) = self.find(name)? else { return Ok(()) };
        let attr = node.attr().map_err(|error| self.failed(Some(name), error))?;
        if !self.links.insert(key, attr.ino, attr.generation, more) {
            self.lose_link(name, Error::NoMemory);
        }
        Ok(())
    }

    /// As [`TreeSink::link`](crate::copy::tree_sink::TreeSink::link).
    pub(super) fn link_recorded(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        key: LinkKey,
    ) -> Result<bool, ProblemReason> {
        let Some(copied) = self.links.next(key) else { return Ok(false) };
        let Ok(node) = self.vfs.node(copied.ino) else { return Ok(false) };
        if node.attr().map_err(|error| self.failed(Some(name), error))?.generation != copied.generation {
            return Ok(false);
        }
        self.link_to(name, meta, &node)
    }

    /// Makes `name` another name of `node`. Returns false if it cannot be linked to, which is counted.
    pub fn link_to(&mut self, name: &Name, meta: &Metadata<'_>, node: &Node) -> Result<bool, ProblemReason> {
        self.make_waiting();
        self.take_entry(name)?;
        // A hard link replaces the entry itself, and not the target of a symbolic link.
        let slot = self.slot(name, FileKind::Symlink, meta)?;
        if let Slot::Taken(ReplacedFile { node: there, .. }) = &slot
            && there == node
        {
            return Ok(true);
        }
        let Some(place) = self.place(name, &slot)? else { return Ok(true) };
        match self.vfs.link(OWNER, node, self.place_dir(&slot), &place) {
            Ok(()) => {}
            Err(error @ (Error::TooManyLinks | Error::NotPermitted | Error::CrossDevice)) => {
                self.lose_link(name, error);
                // A file is created instead.
                self.entries -= 1;
                return Ok(false);
            }
            Err(error) => return Err(self.made_before(name, error)),
        }
        self.put_in_place(&place, name, &slot, None)?;
        self.report.others += 1;
        Ok(true)
    }

    /// Counts one more entry. Fails with `FileLimit`.
    pub(super) fn take_entry(&mut self, name: &Name) -> Result<(), ProblemReason> {
        let limit = self.options.max_files;
        if self.entries >= limit {
            let path = self.host_path(Some(name));
            return Err(ProblemReason::Host(HostError::FileLimit { path, limit }));
        }
        self.entries += 1;
        Ok(())
    }

    /// Counts the extended attributes in `meta` that are set. They can be longer than the data. Fails with `Limit`.
    pub(super) fn take_xattrs(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), ProblemReason> {
        let keep = self.options.keep;
        let set = meta.xattrs.iter().filter(|xattr| self.options.sets(xattr, keep));
        let len: u64 = set.map(|xattr| (xattr.name.len() + xattr.value.len()) as u64).sum();
        self.xattr_bytes = self.xattr_bytes.saturating_add(len);
        let limit = self.options.max_bytes;
        if len == 0 || self.xattr_bytes.saturating_add(self.report.bytes) <= limit {
            return Ok(());
        }
        let path = self.host_path(Some(name));
        Err(ProblemReason::Host(HostError::Limit { path, limit }))
    }

    /// Counts an entry that the format cannot store.
    fn drop_entry(&mut self, name: &Name, loss: Loss) {
        let path = self.host_path(Some(name));
        self.report.refused(loss, Error::NotPermitted, || path);
    }

    fn lose_link(&mut self, name: &Name, error: Error) {
        let path = self.host_path(Some(name));
        // A format without hard links has too many with the second name of any file.
        let error = if self.limits.link_max > 1 { error } else { Error::NotSupported };
        self.report.refused(Loss::HardLink, error, || path);
    }

    /// Creates the directory `name` with access for its owner.
    pub(super) fn make_directory(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<Node, ProblemReason> {
        let new = self.new_node(FileKind::Directory, meta, &Slot::Free);
        let made = self.vfs.create(OWNER, &self.top().node, name, &new);
        made.map_err(|error| self.made_before(name, error))
    }

    fn other(
        &mut self,
        name: &Name,
        slot: &Slot,
        meta: &Metadata<'_>,
        new: &NewNode<'_>,
    ) -> Result<(), ProblemReason> {
        let Some((node, place)) = self.make(name, slot, new)? else { return Ok(()) };
        if let Err(error) = self.settle((&node, &place), name, slot, meta) {
            let _ = self.vfs.unlink(OWNER, self.place_dir(slot), &place);
            return Err(error);
        }
        self.report.others += 1;
        Ok(())
    }

    /// Returns the attributes of a new entry. If those of the source are not kept, a file that replaces
    /// another gets the owner and mode of that file.
    pub(super) fn new_node(&self, kind: FileKind, meta: &Metadata<'_>, slot: &Slot) -> NewNode<'static> {
        let keep = self.options.keep;
        let before = match slot {
            Slot::Taken(taken) if taken.is_model => Some(&taken.attr),
            _ => None,
        };
        let (uid, gid) = match before {
            _ if keep.contains(Keep::OWNER) && self.limits.fits_owner(meta.uid, meta.gid) => {
                (meta.uid, meta.gid)
            }
            Some(attr) => (attr.uid, attr.gid),
            None => (0, 0),
        };
        let mode = match before {
            _ if kind == FileKind::Symlink => Mode::new(0o777),
            Some(attr) if !keep.contains(Keep::MODE) => attr.mode,
            _ => self.final_mode(meta, kind),
        };
        NewNode { kind, mode, uid, gid, rdev: DeviceNumber::default(), target: b"" }
    }

    /// Returns the name under which an entry for `slot` is created, or `None` if no entry is created.
    fn place(&self, name: &Name, slot: &Slot) -> Result<Option<NameBuf>, ProblemReason> {
        Ok(match slot {
            Slot::Skipped | Slot::Shared(_) => None,
            Slot::Free => Some(name.to_buf()),
            Slot::Taken(ReplacedFile { dir, name: there, .. }) => {
                let free = free_name(dir, there, |candidate| self.wrote(candidate));
                Some(free.map_err(|error| self.failed(Some(name), error))?)
            }
        })
    }

    /// Returns the directory in which an entry for `slot` is created.
    fn place_dir<'s>(&'s self, slot: &'s Slot) -> &'s Node {
        match slot {
            Slot::Taken(taken) => &taken.dir,
            _ => &self.top().node,
        }
    }

    fn make(
        &mut self,
        name: &Name,
        slot: &Slot,
        new: &NewNode<'_>,
    ) -> Result<Option<(Node, NameBuf)>, ProblemReason> {
        let Some(place) = self.place(name, slot)? else { return Ok(None) };
        let made = self.vfs.create(OWNER, self.place_dir(slot), &place, new);
        let node = made.map_err(|error| self.made_before(name, error))?;
        Ok(Some((node, place)))
    }

    /// Returns the problem of an entry that exists in a directory that this run created. The volume treats its name
    /// and the name of an earlier item as the same. Counts a name that the format cannot store.
    pub(super) fn made_before(&mut self, name: &Name, error: Error) -> ProblemReason {
        match (&self.top().names, error) {
            (_, Error::Invalid) if !self.limits.keeps.contains(StoredProperties::NAMES) => {
                let path = self.host_path(Some(name));
                self.report.refused(Loss::Name, error, || path);
                ProblemReason::Counted
            }
            (Names::Fresh, Error::Exists) => {
                ProblemReason::Host(HostError::Duplicate { path: self.host_path(Some(name)) })
            }
            (_, error) => self.not_created(name, error),
        }
    }

    /// An entry that was not created, perhaps because of something other than blocks.
    fn not_created(&self, name: &Name, error: Error) -> ProblemReason {
        match Shortage::find(&self.vfs, error) {
            Some(shortage) => ProblemReason::Exhausted { path: self.path(Some(name)), shortage },
            None => self.failed(Some(name), error),
        }
    }

    /// Sets the metadata of `node`, which was created at `place`, and gives it its final name.
    fn settle(
        &mut self,
        (node, place): (&Node, &Name),
        name: &Name,
        slot: &Slot,
        meta: &Metadata<'_>,
    ) -> Result<(), ProblemReason> {
        let before = match slot {
            Slot::Taken(taken) if taken.is_model => Some((taken.node.clone(), taken.attr)),
            _ => None,
        };
        let inherits = match slot {
            // A symbolic link leads to another directory.
            Slot::Taken(taken) if taken.dir != self.top().node => {
                Inherits::of(&taken.dir).map_err(|error| self.failed(Some(name), error))?
            }
            _ => self.top().inherits,
        };
        let made = CreatedEntry { node, replaces: before.as_ref(), inherits };
        self.apply(&made, meta, Some(name))?;
        self.put_in_place(place, name, slot, Some(node.ino()))
    }

    /// Gives the entry that was created at `place` its final name. `made` is its inode if this run created
    /// it.
    fn put_in_place(
        &mut self,
        place: &Name,
        name: &Name,
        slot: &Slot,
        made: Option<Ino>,
    ) -> Result<(), ProblemReason> {
        if let Slot::Taken(taken) = slot {
            let to = (&taken.dir, &*taken.name);
            let backup = &self.options.backup;
            if let Err(error) = take_place((&taken.dir, place), to, backup, |kept| self.wrote(kept)) {
                let _ = self.vfs.unlink(OWNER, &taken.dir, place);
                return Err(self.failed(Some(name), error));
            }
        }
        self.note_written(name, made);
        Ok(())
    }
}
