//! Making files, links and nodes, under a name that is free or in place of what has it.

use obento_base::{Attr, DeviceNumber, Error, FileKind, Mode, Name, NameBuf};
use obento_driver::{Keeps, NewNode};
use obento_host::tree::{Existing, Keep, LinkKey, Loss, Trust, Written};
use obento_host::{HostError, Metadata};
use obento_vfs::Node;

use super::attributes::Made;
use super::sink::{Failure, ImageSink};
use super::{FROZEN, ImageWriter, Names, OWNER};
use crate::backup::take_place;
use crate::copy::Trouble;
use crate::copy::tree::{FileError, Fill};
use crate::unfinished::free_name;

/// Where something is made.
pub(super) enum Slot {
    /// Nothing has the name.
    Free,
    /// This has it, and is replaced.
    Taken(Node, Attr),
    /// What has it stays.
    Kept,
}

impl ImageWriter {
    /// Makes a regular file; `fill` hands over its bytes. If that fails, nothing of it stays.
    pub fn file(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        fill: &mut Fill<'_>,
    ) -> Result<Written, FileError> {
        self.make_waiting();
        let slot = self.slot(name, meta)?;
        let new = self.new_node(FileKind::Regular, meta, &slot);
        let Some((node, place)) = self.make(name, &slot, &new)? else { return Ok(Written::Kept) };
        let bytes = self.report.bytes;
        let room = self.options.max_bytes.saturating_sub(bytes);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut sink =
            ImageSink { node: &node, buffer: &mut buffer, position: 0, end: 0, room, failure: None };
        let filled = fill(&mut sink);
        let finished = match (&filled, sink.finish()) {
            (Ok(()), Err(error)) => Err(error),
            _ => Ok(()),
        };
        let (written, failure) = (room - sink.room, sink.failure.take());
        self.buffer = buffer;
        let filled = match (filled, finished, failure) {
            (_, _, Some(Failure::Limit)) => {
                let (path, limit) = (self.host_path(Some(name)), self.options.max_bytes);
                Err(Trouble::Host(HostError::Limit { path, limit }).into())
            }
            (_, _, Some(Failure::Volume(error))) | (Ok(()), Err(error), None) => {
                Err(self.failed(Some(name), error).into())
            }
            (Err(error), _, None) => Err(error.into()),
            (Ok(()), Ok(()), None) => Ok(()),
        };
        self.report.bytes = bytes + written;
        let done = filled.and_then(|()| Ok(self.settle((&node, &place), name, &slot, meta)?));
        if let Err(error) = done {
            // Half a file looks like a whole one. Where it cannot be removed, the error still tells.
            let _ = self.vfs.unlink(OWNER, &self.top().node, &place);
            return Err(error);
        }
        self.report.files += 1;
        Ok(Written::Created)
    }

    /// Makes a symbolic link; `Dropped` where the format has none.
    pub fn symlink(&mut self, name: &Name, meta: &Metadata<'_>, target: &[u8]) -> Result<Written, Trouble> {
        if !self.limits.keeps.contains(Keeps::SYMLINKS) {
            return Ok(self.drop_entry(name, Loss::Symlink));
        }
        self.make_waiting();
        let slot = self.slot(name, meta)?;
        let new = NewNode { target, ..self.new_node(FileKind::Symlink, meta, &slot) };
        self.other(name, &slot, meta, &new)
    }

    /// Makes a device node, FIFO or socket; `Dropped` where the format has none or the image is not to be believed.
    pub fn node(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        kind: FileKind,
        rdev: DeviceNumber,
    ) -> Result<Written, Trouble> {
        let loss = if kind.is_device() { Loss::Device } else { Loss::Special };
        if kind.is_device() && self.options.trust == Trust::Untrusted {
            let path = self.host_path(Some(name));
            self.report.lose(loss, None, || path);
            return Ok(Written::Dropped);
        }
        if !self.limits.keeps.contains(Keeps::SPECIAL) {
            return Ok(self.drop_entry(name, loss));
        }
        self.make_waiting();
        let slot = self.slot(name, meta)?;
        let new = NewNode { rdev, ..self.new_node(kind, meta, &slot) };
        self.other(name, &slot, meta, &new)
    }

    /// Notes that `name`, just made here, is `key` in the source, of which `more` names are to come.
    pub fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), Trouble> {
        self.make_waiting();
        let Some(node) = self.find(name)? else { return Ok(()) };
        let attr = node.attr().map_err(|error| self.failed(Some(name), error))?;
        if !self.links.insert(key, attr.ino, attr.generation, more) {
            self.lose_link(name, Error::NoMemory);
        }
        Ok(())
    }

    /// Makes `name` a hard link to what was remembered as `key`. `None`: nothing was, or it cannot be linked to, which
    /// is then counted; make a file.
    pub fn link(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        key: LinkKey,
    ) -> Result<Option<Written>, Trouble> {
        let Some(copied) = self.links.next(key) else { return Ok(None) };
        let Ok(node) = self.vfs.node(copied.ino) else { return Ok(None) };
        if node.attr().map_err(|error| self.failed(Some(name), error))?.generation != copied.generation {
            return Ok(None);
        }
        self.link_to(name, meta, &node)
    }

    /// Makes `name` another name of `node`. `None`: it cannot be linked to, which is counted.
    pub fn link_to(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        node: &Node,
    ) -> Result<Option<Written>, Trouble> {
        self.make_waiting();
        let slot = self.slot(name, meta)?;
        if let Slot::Taken(there, _) = &slot
            && there == node
        {
            return Ok(Some(Written::Created));
        }
        let Some(place) = self.place(name, &slot)? else { return Ok(Some(Written::Kept)) };
        match self.vfs.link(OWNER, node, &self.top().node, &place) {
            Ok(()) => {}
            Err(error @ (Error::TooManyLinks | Error::NotPermitted | Error::CrossDevice)) => {
                self.lose_link(name, error);
                return Ok(None);
            }
            Err(error) => return Err(self.made_before(name, error)),
        }
        self.put_in_place(&place, name, &slot)?;
        self.report.others += 1;
        Ok(Some(Written::Created))
    }

    /// Counts an entry that the format refuses, as its driver would.
    fn drop_entry(&mut self, name: &Name, loss: Loss) -> Written {
        let path = self.host_path(Some(name));
        self.report.refused(loss, Error::NotPermitted, || path);
        Written::Dropped
    }

    fn lose_link(&mut self, name: &Name, error: Error) {
        let path = self.host_path(Some(name));
        self.report.refused(Loss::HardLink, error, || path);
    }

    /// Makes the directory `name`, open to its owner.
    pub(super) fn make_directory(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<Node, Trouble> {
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
    ) -> Result<Written, Trouble> {
        let Some((node, place)) = self.make(name, slot, new)? else { return Ok(Written::Kept) };
        if let Err(error) = self.settle((&node, &place), name, slot, meta) {
            let _ = self.vfs.unlink(OWNER, &self.top().node, &place);
            return Err(error);
        }
        self.report.others += 1;
        Ok(Written::Created)
    }

    /// Whether `name` is free here, and if not, what becomes of what has it.
    pub(super) fn slot(&self, name: &Name, meta: &Metadata<'_>) -> Result<Slot, Trouble> {
        if !self.may_hold_names() {
            return Ok(Slot::Free);
        }
        let Some(node) = self.find(name)? else { return Ok(Slot::Free) };
        if self.wrote(name) && !self.overwrites_itself {
            return Err(Trouble::Host(HostError::Duplicate { path: self.host_path(Some(name)) }));
        }
        let attr = node.attr().map_err(|error| self.failed(Some(name), error))?;
        match self.options.existing {
            Existing::Fail => {
                return Err(Trouble::Host(HostError::Exists { path: self.host_path(Some(name)) }));
            }
            Existing::Keep => return Ok(Slot::Kept),
            Existing::Update if attr.mtime >= meta.mtime => return Ok(Slot::Kept),
            Existing::Update | Existing::Replace => {}
        }
        if attr.kind == FileKind::Directory {
            return Err(Trouble::Host(HostError::IsDirectory { path: self.host_path(Some(name)) }));
        }
        if attr.flags.intersects(FROZEN) {
            return Err(self.failed(Some(name), Error::NotPermitted));
        }
        Ok(Slot::Taken(node, attr))
    }

    /// Whether `name` was written here, in a directory that was there before.
    pub(super) fn wrote(&self, name: &Name) -> bool {
        matches!(&self.top().names, Names::Merged(written) if written.contains(name))
    }

    /// What a new entry is. Without the source's, a file that replaces another has that one's owner and mode.
    pub(super) fn new_node(&self, kind: FileKind, meta: &Metadata<'_>, slot: &Slot) -> NewNode<'static> {
        let keep = self.options.keep;
        let before = match slot {
            Slot::Taken(_, attr) if attr.kind == kind => Some(attr),
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
            _ => self.final_mode(meta),
        };
        NewNode { kind, mode, uid, gid, rdev: DeviceNumber::default(), target: b"" }
    }

    /// The name under which something for `slot` is made. `None`: nothing is.
    fn place(&self, name: &Name, slot: &Slot) -> Result<Option<NameBuf>, Trouble> {
        Ok(match slot {
            Slot::Kept => None,
            Slot::Free => Some(name.to_buf()),
            Slot::Taken(..) => {
                let free = free_name(&self.top().node, name, |candidate| self.wrote(candidate));
                Some(free.map_err(|error| self.failed(Some(name), error))?)
            }
        })
    }

    fn make(
        &mut self,
        name: &Name,
        slot: &Slot,
        new: &NewNode<'_>,
    ) -> Result<Option<(Node, NameBuf)>, Trouble> {
        let Some(place) = self.place(name, slot)? else { return Ok(None) };
        let made = self.vfs.create(OWNER, &self.top().node, &place, new);
        let node = made.map_err(|error| self.made_before(name, error))?;
        Ok(Some((node, place)))
    }

    /// In a directory that was made here, what is there is what the source had before. A name that cannot be is counted.
    pub(super) fn made_before(&mut self, name: &Name, error: Error) -> Trouble {
        match (&self.top().names, error) {
            (_, Error::Invalid) if !self.limits.keeps.contains(Keeps::NAMES) => {
                let path = self.host_path(Some(name));
                self.report.refused(Loss::Name, error, || path);
                Trouble::Counted
            }
            (Names::Fresh, Error::Exists) => {
                Trouble::Host(HostError::Duplicate { path: self.host_path(Some(name)) })
            }
            (_, error) => self.failed(Some(name), error),
        }
    }

    /// Sets the metadata of `node`, made at `place`, and gives it its name.
    fn settle(
        &mut self,
        (node, place): (&Node, &Name),
        name: &Name,
        slot: &Slot,
        meta: &Metadata<'_>,
    ) -> Result<(), Trouble> {
        let before = match slot {
            Slot::Taken(before, attr) => Some((before.clone(), *attr)),
            _ => None,
        };
        let made = Made { node, replaces: before.as_ref(), inherits: self.top().inherits };
        self.apply(&made, meta, Some(name))?;
        self.put_in_place(place, name, slot)
    }

    fn put_in_place(&mut self, place: &Name, name: &Name, slot: &Slot) -> Result<(), Trouble> {
        if let Slot::Taken(..) = slot {
            let dir = &self.top().node;
            let backup = &self.options.backup;
            if let Err(error) = take_place((dir, place), (dir, name), backup, |kept| self.wrote(kept)) {
                let _ = self.vfs.unlink(OWNER, dir, place);
                return Err(self.failed(Some(name), error));
            }
        }
        self.note_written(name);
        Ok(())
    }
}
