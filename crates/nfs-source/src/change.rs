//! [`WritableFileSystem`] over a connection: changes.
//!
//! If the connection ends before the reply to a change, the change is sent again. The server may have performed it the
//! first time. Most servers then find the first reply in their cache, but a server that restarted has lost it. The
//! results of repeated calls are therefore checked:
//!
//! | call | result of the second call | it counts as success if |
//! |---|---|---|
//! | CREATE | none: the server compares the verifier | - |
//! | MKDIR, MKNOD, SYMLINK | `Exists` | the name refers to a file of this kind, which is empty or has this target |
//! | LINK | `Exists` | the name refers to the same file |
//! | REMOVE, RMDIR | `NotFound` | always: the name existed before the first call |
//! | RENAME | `NotFound` | the new name refers to the file |
//!
//! Source: RFC 1813, sections 3.3 and 4.3. A file that is removed while it is open can no longer be used.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use obento_base::{Attr, Error, FileKind, Ino, Name, Result, Timestamp};
use obento_driver::{
    AskUsage, Cookie, ExclusiveLayout, Extent, FileSystem, Layout, NewNode, RemovalKind, RenameFlags,
    SetAttr, Size, Span, TimeChange, Usage, WritableFileSystem, WritePlace, WriteTicket,
};
use obento_remote_nodes::FoundBy;

use crate::contract::{Mounted, TARGET_MAX};
use crate::error::{NOT_SUPPORTED, of_status};
use crate::nodes::Node;
use crate::protocol::{Attributes, Created, NewAttributes, NewTime, procedure};
use crate::xdr::{Reader, Writer};

/// `createmode3`.
const GUARDED: u32 = 1;
const EXCLUSIVE: u32 = 2;

/// Returns a time of the contract as a time of the protocol.
///
/// # Errors
///
/// `OutOfRange`: the time is before 1970 or after 2106.
fn new_time(change: TimeChange) -> Result<NewTime> {
    let TimeChange::At(time) = change else { return Ok(NewTime::Server) };
    let secs = u32::try_from(time.secs()).map_err(|_| Error::OutOfRange)?;
    Ok(NewTime::At(secs, time.nanos()))
}

/// Returns `ftype3` of a file that `MKNOD` creates.
fn number_of(kind: FileKind) -> u32 {
    match kind {
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Socket => 6,
        _ => 7,
    }
}

impl Mounted {
    fn expect_writable(&self) -> Result<()> {
        if self.is_writable.load(Ordering::Relaxed) { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Records the attributes that the server returned after a change.
    fn note(&self, ino: Ino, attributes: Option<Attributes>) {
        self.nodes().changed(ino, attributes, self.until());
    }

    /// Creates a regular file that does not exist yet.
    fn create_file(&self, dir: Ino, parent: &Node, name: &Name, new: &NewAttributes) -> Result<Created> {
        let place = parent.own.handle.arguments().bytes(name.as_bytes());
        // The server stores these bytes with the file, so that it recognises a repeated call.
        let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
        let [low, high] =
            [nanos, nanos >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0));
        let verifier = low ^ high ^ (u64::from(std::process::id()) << 32);
        let exclusive = place.clone().u32(EXCLUSIVE).u64(verifier);
        match self.ask_noting(procedure::CREATE, &exclusive, Created::take)?.0 {
            Ok(made) => Ok(made),
            Err(NOT_SUPPORTED) => {
                let guarded = new.put(place.u32(GUARDED));
                self.create_checked(procedure::CREATE, &guarded, (dir, parent, name), |attributes| {
                    attributes.kind == FileKind::Regular && attributes.size == 0
                })
            }
            Err(status) => Err(of_status(status)),
        }
    }

    /// Creates a file. If the call was repeated and the name exists, the file is the new one if `is_it` returns `true`.
    fn create_checked(
        &self,
        number: u32,
        arguments: &Writer,
        (dir, parent, name): (Ino, &Node, &Name),
        is_it: impl FnOnce(&Attributes) -> bool,
    ) -> Result<Created> {
        let (made, is_repeated) = self.ask_noting(number, arguments, Created::take)?;
        let error = match made.map_err(of_status) {
            Err(Error::Exists) if is_repeated => Error::Exists,
            made => return made,
        };
        let ino = self.look_up(dir, parent, name.as_bytes(), FoundBy::Listing)?;
        let node = self.nodes().get(ino)?;
        let attributes = self.attributes(&node.own.handle)?;
        match is_it(&attributes) {
            true => Ok(Created { handle: Some(node.own.handle), attributes: Some(attributes), dir: None }),
            false => Err(error),
        }
    }

    fn create_other(
        &self,
        dir: Ino,
        parent: &Node,
        name: &Name,
        node: &NewNode<'_>,
        new: &NewAttributes,
    ) -> Result<Created> {
        let place = parent.own.handle.arguments().bytes(name.as_bytes());
        let at = (dir, parent, name);
        match node.kind {
            FileKind::Directory => {
                let is_empty = |_: &Attributes| self.is_empty(dir, parent, name).unwrap_or(false);
                self.create_checked(procedure::MKDIR, &new.put(place), at, is_empty)
            }
            FileKind::Symlink => {
                // Links have no permissions.
                let bare = NewAttributes { mode: None, ..*new };
                let arguments = bare.put(place).bytes(node.target);
                let has_target = |attributes: &Attributes| {
                    attributes.kind == FileKind::Symlink
                        && self.target(dir, parent, name).is_ok_and(|target| target == node.target)
                };
                self.create_checked(procedure::SYMLINK, &arguments, at, has_target)
            }
            kind => {
                let arguments = new.put(place.u32(number_of(kind)));
                let arguments = match kind.is_device() {
                    true => arguments.u32(node.rdev.major).u32(node.rdev.minor),
                    false => arguments,
                };
                self.create_checked(procedure::MKNOD, &arguments, at, |attributes| attributes.kind == kind)
            }
        }
    }

    fn is_empty(&self, dir: Ino, parent: &Node, name: &Name) -> Result<bool> {
        let ino = self.look_up(dir, parent, name.as_bytes(), FoundBy::Listing)?;
        let mut is_empty = true;
        self.read_dir(ino, Cookie::START, &mut |_| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }

    fn target(&self, dir: Ino, parent: &Node, name: &Name) -> Result<Vec<u8>> {
        self.read_link(self.look_up(dir, parent, name.as_bytes(), FoundBy::Listing)?)
    }

    /// Sets attributes, and records the new ones.
    fn set(&self, ino: Ino, node: &Node, new: &NewAttributes) -> Result<()> {
        // Without a guard: the change does not depend on the change time of the file.
        let arguments = new.put(node.own.handle.arguments()).u32(0);
        let after = self.ask(procedure::SETATTR, &arguments, Attributes::take_after_change)?;
        self.note(ino, after);
        Ok(())
    }

    /// Sets the attributes that creating a file did not set.
    fn complete(&self, ino: Ino, node: &NewNode<'_>) -> Result<Attr> {
        let (attr, user) = (self.getattr(ino)?, self.connection.user());
        // The server selects the owner of files of this user: it may map users.
        let owner = |has: u32, wanted: u32, own: u32| Some(wanted).filter(|_| wanted != has && wanted != own);
        let uid = owner(attr.uid, node.uid, user.uid);
        let gid = owner(attr.gid, node.gid, user.gid);
        let is_exclusive = node.kind == FileKind::Regular;
        let mode = (node.kind != FileKind::Symlink && (is_exclusive || attr.mode != node.mode))
            .then(|| u32::from(node.mode.bits()));
        // The server may have stored the verifier in the times.
        let time = is_exclusive.then_some(NewTime::Server);
        let new = NewAttributes { mode, uid, gid, size: None, atime: time, mtime: time };
        if new != NewAttributes::default() {
            let made = self.nodes().get(ino)?;
            self.set(ino, &made, &new)?;
        }
        self.getattr(ino)
    }

    /// Removes a name, which exists.
    fn remove_name(&self, dir: Ino, parent: &Node, name: &Name, victim: RemovalKind) -> Result<()> {
        let number = match victim {
            RemovalKind::File => procedure::REMOVE,
            RemovalKind::EmptyDirectory => procedure::RMDIR,
        };
        let arguments = parent.own.handle.arguments().bytes(name.as_bytes());
        let (removed, is_repeated) = self.ask_noting(number, &arguments, Attributes::take_after_change)?;
        match removed.map_err(of_status) {
            Ok(after) => self.note(dir, after),
            Err(Error::NotFound) if is_repeated => self.note(dir, None),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Records that a name of a file was removed.
    fn lost_a_name(&self, ino: Ino, attr: &Attr, usage: Usage) {
        if attr.kind == FileKind::Directory || attr.nlink <= 1 {
            self.unstable().forget(ino);
            self.nodes().removed(ino, usage == Usage::Used);
        } else {
            self.note(ino, None);
        }
    }

    /// Returns the file with this name. Starts no use of the file, since the caller of the driver does not get it.
    fn find(&self, dir: Ino, parent: &Node, name: &Name) -> Result<Option<Ino>> {
        match self.look_up(dir, parent, name.as_bytes(), FoundBy::Listing) {
            Ok(ino) => Ok(Some(ino)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Takes the results of `RENAME` after the status: the attributes of both directories.
fn after_rename(reply: &mut Reader<'_>) -> Option<[Option<Attributes>; 2]> {
    Some([Attributes::take_after_change(reply)?, Attributes::take_after_change(reply)?])
}

impl WritableFileSystem for Mounted {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.expect_writable()?;
        let parent = self.directory(dir)?;
        if node.kind == FileKind::Symlink && (node.target.is_empty() || node.target.len() > TARGET_MAX) {
            let is_empty = node.target.is_empty();
            return Err(match self.find(dir, &parent, name)? {
                Some(_) => Error::Exists,
                None if is_empty => Error::Invalid,
                None => Error::NameTooLong,
            });
        }
        let new = NewAttributes { mode: Some(node.mode.bits().into()), ..NewAttributes::default() };
        let made = match node.kind {
            FileKind::Regular => self.create_file(dir, &parent, name, &new)?,
            _ => self.create_other(dir, &parent, name, node, &new)?,
        };
        self.note(dir, made.dir);
        let ino = match (made.handle, made.attributes) {
            (Some(handle), Some(attributes)) => {
                self.nodes().found(dir.0, handle, attributes, self.until(), FoundBy::Lookup)?
            }
            _ => self.look_up(dir, &parent, name.as_bytes(), FoundBy::Lookup)?,
        };
        self.complete(ino, node).inspect_err(|_| {
            // Undo the creation. If that fails too, the file remains with other attributes.
            let victim = match node.kind {
                FileKind::Directory => RemovalKind::EmptyDirectory,
                _ => RemovalKind::File,
            };
            let _ = self.remove_name(dir, &parent, name, victim);
        })
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.expect_writable()?;
        let (parent, node) = (self.directory(dir)?, self.nodes().get(ino)?);
        if node.kind == FileKind::Directory {
            return Err(Error::NotPermitted);
        }
        let place = parent.own.handle.arguments().bytes(name.as_bytes());
        let arguments = node.own.handle.arguments().fixed(&place.0);
        let (linked, is_repeated) = self.ask_noting(procedure::LINK, &arguments, |reply| {
            Some([Attributes::take_optional(reply)?, Attributes::take_after_change(reply)?])
        })?;
        let [file, after] = match linked.map_err(of_status) {
            Err(Error::Exists) if is_repeated && self.find(dir, &parent, name)? == Some(ino) => [None, None],
            linked => linked?,
        };
        self.note(ino, file);
        self.note(dir, after);
        self.getattr(ino)
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.expect_writable()?;
        let parent = self.directory(dir)?;
        let ino = self.look_up(dir, &parent, name.as_bytes(), FoundBy::Listing)?;
        let attr = self.getattr(ino)?;
        let usage = ask(&attr)?;
        match (victim, attr.kind == FileKind::Directory) {
            (RemovalKind::File, true) => return Err(Error::IsDirectory),
            (RemovalKind::EmptyDirectory, false) => return Err(Error::NotDirectory),
            _ => {}
        }
        self.remove_name(dir, &parent, name, victim)?;
        self.lost_a_name(ino, &attr, usage);
        Ok(())
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.expect_writable()?;
        if flags.contains(RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE) {
            return Err(Error::Invalid);
        }
        let (old, new) = (self.directory(from)?, self.directory(to)?);
        let ino = self.look_up(from, &old, name.as_bytes(), FoundBy::Listing)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            return Err(Error::NotSupported);
        }
        let replaced = self.find(to, &new, new_name)?;
        if replaced.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
            return Err(Error::Exists);
        }
        if replaced == Some(ino) {
            return Ok(());
        }
        let lost = replaced.map(|ino| self.getattr(ino)).transpose()?;
        let target = new.own.handle.arguments().bytes(new_name.as_bytes());
        let arguments = old.own.handle.arguments().bytes(name.as_bytes()).fixed(&target.0);
        let (renamed, is_repeated) = self.ask_noting(procedure::RENAME, &arguments, after_rename)?;
        let [old_after, new_after] = match renamed.map_err(of_status) {
            Err(Error::NotFound) if is_repeated && self.find(to, &new, new_name)? == Some(ino) => {
                [None, None]
            }
            renamed => renamed?,
        };
        self.note(from, old_after);
        self.note(to, new_after);
        if let Some(attr) = lost {
            // The caller may use the replaced file.
            self.lost_a_name(attr.ino, &attr, Usage::Used);
        }
        self.nodes().update(ino, |node| (node.parent, node.own.attributes) = (to.0, None));
        Ok(())
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.expect_writable()?;
        change.expect_no_project()?;
        if change.flags.is_some_and(|flags| !flags.is_empty()) {
            return Err(Error::NotSupported);
        }
        let node = self.nodes().get(ino)?;
        let new = NewAttributes {
            mode: change.mode.filter(|_| node.kind != FileKind::Symlink).map(|mode| mode.bits().into()),
            uid: change.uid,
            gid: change.gid,
            size: None,
            atime: change.atime.map(new_time).transpose()?,
            mtime: change.mtime.map(new_time).transpose()?,
        };
        if new.mtime.is_some() {
            // Data that is sent again later would change the time.
            self.commit(ino)?;
        }
        // The server sets the change time, and reports no other properties.
        if new != NewAttributes::default() {
            self.set(ino, &node, &new)?;
        }
        self.getattr(ino)
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.expect_writable()?;
        self.regular(ino)?;
        if size > self.size_max {
            return Err(Error::FileTooBig);
        }
        // Data that is sent again later would extend the file.
        self.commit(ino)?;
        let node = self.nodes().get(ino)?;
        self.changing(ino, || {
            self.set(ino, &node, &NewAttributes { size: Some(size), ..NewAttributes::default() })
        })
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        self.expect_writable()?;
        let attr = self.regular(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        if range.end > self.size_max {
            return Err(Error::FileTooBig);
        }
        let extent = Extent { len: range.end.saturating_sub(range.start), span: Span::Driver };
        let place = WritePlace { extent, was: Span::Driver, size: attr.size, mtime: attr.mtime };
        Ok(WriteTicket::new(ino, &range, place, None))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, None)
    }

    /// Fails with `NotSupported`: `begin_write` returns no ticket for data that the caller writes.
    fn end_write(&self, _: WriteTicket<'_>, _: TimeChange) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.expect_writable()?;
        self.regular(ino)?;
        let room = usize::try_from(self.size_max.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        if bytes.is_empty() {
            return if room == 0 { Err(Error::FileTooBig) } else { Ok(0) };
        }
        let node = self.nodes().get(ino)?;
        // Also after a failure, a part may have been written.
        self.note(ino, None);
        let (len, after) = self.changing(ino, || self.write_parts(ino, &node.own.handle, offset, bytes))?;
        self.note(ino, after);
        Ok(len)
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, _: Ino, _: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn allocate(&self, _: &Layout<'_>, _: Ino, _: Range<u64>, _: Size) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, _: Ino, _: Range<u64>, _: Size) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn collapse(&self, _: &ExclusiveLayout<'_>, _: Ino, _: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn insert(&self, _: &ExclusiveLayout<'_>, _: Ino, _: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn now(&self) -> Timestamp {
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Timestamp::new(time.as_secs().cast_signed(), time.subsec_nanos())
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.expect_writable()?;
        self.commit(ino)
    }

    fn sync(&self) -> Result<()> {
        self.expect_writable()?;
        self.commit_all()
    }

    fn close(&self) -> Result<()> {
        self.sync()?;
        self.is_writable.store(false, Ordering::Relaxed);
        Ok(())
    }
}
