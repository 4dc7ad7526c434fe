//! `WritableFileSystem` over a server: changes of names and attributes. `write` has those of data.
//!
//! The requests are those that Linux sends for the same call of a program. Where servers ignore a part of a request
//! silently, the driver sends more:
//!
//! - Permissions and owner of a new file are compared with those that the server returns, and set again.
//! - Both times are set at once: servers of libfuse 2 ignore a single one.
//! - An owner is set before permissions: changing the owner clears set-user-ID.
//!
//! A file that is removed or replaced while it is in use is opened before that: a server of libfuse keeps an open file
//! under a hidden name until it is closed.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use obento_base::{Attr, Error, FileKind, Ino, Mode, Name, Result, Timestamp};
use obento_driver::{
    AskUsage, FileSystem as _, NewNode, RemovalKind, RenameFlags, SetAttr, TimeChange, Usage,
};
use obento_fuse_abi::{
    AttrOut, CreateIn, EntryOut, MkdirIn, MknodIn, OpenOut, ROOT, Rename2In, SetattrIn, fattr, opcode,
};
use obento_remote_nodes::FoundBy;
use rustix::process::{getgid, getuid};
use zerocopy::IntoBytes as _;

use crate::contract::{Mounted, TARGET_MAX, lock};
use crate::error::{NONSENSE, NOT_IMPLEMENTED, of_errno};
use crate::open_files::{Intent, OpenFile};
use crate::wire::{encoded_device, open, take};

/// `EINVAL`: the server does not support the flags of a rename.
const INVALID: i32 = 22;
/// `RENAME_NOREPLACE` and `RENAME_EXCHANGE`.
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

/// The greatest number of directories above a directory.
const DEPTH_MAX: usize = 1 << 16;

/// Takes the reply to a request that creates a name.
fn entry(body: &[u8]) -> Option<EntryOut> {
    Some(take::<EntryOut>(body)?.0)
}

/// Returns the bits of `st_mode` of a new file.
fn st_mode(node: &NewNode<'_>) -> u32 {
    u32::from(node.kind.mode_bits() | node.mode.bits())
}

impl Mounted {
    pub(crate) fn expect_writable(&self) -> Result<()> {
        if self.is_writable.load(Ordering::Relaxed) { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Records that the attributes of an inode have changed.
    pub(crate) fn changed(&self, ino: Ino) {
        lock(&self.nodes).changed(ino);
    }

    /// Starts a change of names.
    fn change_names(&self) -> Result<MutexGuard<'_, ()>> {
        self.expect_writable()?;
        Ok(lock(&self.names))
    }

    /// Records that the entries of a directory have changed.
    fn entries_changed(&self, dir: Ino) {
        self.changed(dir);
        lock(&self.unsynced).nodes.insert(dir.0);
    }

    /// Returns the inode with this name. Starts no use of the inode, since the caller of the driver does not get it.
    fn find(&self, dir: Ino, name: &Name) -> Result<Option<Ino>> {
        match self.look_up(dir.0, name.as_bytes(), FoundBy::Listing) {
            Ok(ino) => Ok(Some(ino)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a file that loses its last name while it is in use. A file that the user may not open is lost.
    fn keep_open(&self, attr: &Attr) {
        if attr.kind == FileKind::Regular {
            let opened = self.with_file(attr.ino, Intent::Write, |_| Ok(()));
            let _ = opened.or_else(|_| self.with_file(attr.ino, Intent::Read, |_| Ok(())));
        }
    }

    /// Records that an inode lost a name.
    fn lost_a_name(&self, attr: &Attr, usage: Usage) {
        if attr.kind != FileKind::Directory && attr.nlink > 1 {
            return self.changed(attr.ino);
        }
        lock(&self.unsynced).nodes.remove(&attr.ino.0);
        let forgotten = lock(&self.nodes).removed(attr.ino, usage == Usage::Used);
        forgotten.into_iter().for_each(|node| self.send_forget(node));
    }

    /// Creates a regular file, which stays open, as it is usually written next.
    fn make_file(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<EntryOut> {
        let flags = open::READ_WRITE | open::LARGE;
        let head = CreateIn { flags: flags | open::NEW, mode: st_mode(node), umask: 0, open_flags: 0 };
        let body = [head.as_bytes(), name.as_bytes(), &[0]];
        let deadline = self.connection.deadline();
        let made = self.connection.exchange(opcode::CREATE, dir.0, &body, deadline, |body| {
            let (entry, rest) = take::<EntryOut>(body)?;
            Some((entry, take::<OpenOut>(rest)?.0.fh))
        })?;
        match made {
            Ok((entry, fh)) => {
                self.opened(OpenFile { node: entry.nodeid, fh, flags });
                Ok(entry)
            }
            Err(NOT_IMPLEMENTED) => self.make_node(dir, name, node),
            Err(errno) => Err(of_errno(errno)),
        }
    }

    fn make_node(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<EntryOut> {
        let rdev = if node.kind.is_device() { encoded_device(node.rdev) } else { Some(0) };
        let head =
            MknodIn { mode: st_mode(node), rdev: rdev.ok_or(Error::OutOfRange)?, umask: 0, padding: 0 };
        self.connection.ask(opcode::MKNOD, dir.0, &[head.as_bytes(), name.as_bytes(), &[0]], entry)
    }

    fn make(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<EntryOut> {
        let bytes = name.as_bytes();
        match node.kind {
            FileKind::Regular => self.make_file(dir, name, node),
            FileKind::Directory => {
                let head = MkdirIn { mode: node.mode.bits().into(), umask: 0 };
                self.connection.ask(opcode::MKDIR, dir.0, &[head.as_bytes(), bytes, &[0]], entry)
            }
            FileKind::Symlink => {
                self.connection.ask(opcode::SYMLINK, dir.0, &[bytes, &[0], node.target, &[0]], entry)
            }
            _ => self.make_node(dir, name, node),
        }
    }

    /// Sets the attributes that creating a file did not set. The server selects the owner of files of this user.
    fn complete(&self, ino: Ino, node: &NewNode<'_>) -> Result<Attr> {
        let attr = self.getattr(ino)?;
        let owner = |has: u32, wanted: u32, own: u32| Some(wanted).filter(|_| wanted != has && wanted != own);
        let uid = owner(attr.uid, node.uid, getuid().as_raw());
        let gid = owner(attr.gid, node.gid, getgid().as_raw());
        if uid.is_some() || gid.is_some() {
            self.set_owner(ino, uid, gid)?;
        }
        let attr = self.getattr(ino)?;
        if node.kind == FileKind::Symlink || attr.mode == node.mode {
            return Ok(attr);
        }
        self.set_mode(ino, node.mode)
    }

    /// Sets attributes, and returns all.
    pub(crate) fn set(&self, ino: Ino, new: &SetattrIn) -> Result<Attr> {
        let node = lock(&self.nodes).get(ino)?;
        // Also after a failure, some may have been set.
        self.changed(ino);
        let found = self
            .connection
            .ask(opcode::SETATTR, ino.0, &[new.as_bytes()], |body| Some(take::<AttrOut>(body)?.0))?;
        self.learnt(ino, &node, &found)
    }

    fn set_owner(&self, ino: Ino, uid: Option<u32>, gid: Option<u32>) -> Result<Attr> {
        let bit = |given: Option<u32>, bit| if given.is_some() { bit } else { 0 };
        let valid = bit(uid, fattr::UID) | bit(gid, fattr::GID);
        let (uid, gid) = (uid.unwrap_or(0), gid.unwrap_or(0));
        self.set(ino, &SetattrIn { valid, uid, gid, ..SetattrIn::default() })
    }

    fn set_mode(&self, ino: Ino, mode: Mode) -> Result<Attr> {
        let kind = lock(&self.nodes).get(ino)?.kind;
        let mode = u32::from(kind.mode_bits() | mode.bits());
        self.set(ino, &SetattrIn { valid: fattr::MODE, mode, ..SetattrIn::default() })
    }

    /// Sets both times; one that is not given keeps its value.
    pub(crate) fn set_times(
        &self,
        ino: Ino,
        atime: Option<TimeChange>,
        mtime: Option<TimeChange>,
    ) -> Result<Attr> {
        let attr = self.getattr(ino)?;
        let now = crate::write::now();
        let moment = |held: Timestamp, change: Option<TimeChange>| change.map_or(held, |to| to.moment(now));
        let (access, modification) = (moment(attr.atime, atime), moment(attr.mtime, mtime));
        let bit = |change, bit| if change == Some(TimeChange::Now) { bit } else { 0 };
        let valid = fattr::ATIME | fattr::MTIME | bit(atime, fattr::ATIME_NOW) | bit(mtime, fattr::MTIME_NOW);
        self.set(
            ino,
            &SetattrIn {
                valid,
                atime: access.secs(),
                atimensec: access.nanos(),
                mtime: modification.secs(),
                mtimensec: modification.nanos(),
                ..SetattrIn::default()
            },
        )
    }

    /// Checks that `ino`, an entry of `from`, may replace `other`. Linux checks this before it sends a request, and some
    /// servers rely on it: libfuse hides an open file before the rename, and waits forever for an ancestor of `from`.
    fn expect_replaceable(&self, ino: Ino, other: Ino, from: Ino) -> Result<()> {
        let nodes = lock(&self.nodes);
        let is_directory = |ino| nodes.get(ino).map(|node| node.kind == FileKind::Directory);
        match (is_directory(ino)?, is_directory(other)?) {
            (false, true) => return Err(Error::IsDirectory),
            (true, false) => return Err(Error::NotDirectory),
            _ => {}
        }
        let mut above = from;
        for _ in 0..DEPTH_MAX {
            if above == other && other.0 != ROOT {
                return Err(Error::NotEmpty);
            }
            if above.0 == ROOT {
                return Ok(());
            }
            above = Ino(nodes.get(above)?.parent);
        }
        Err(Error::Loop)
    }

    /// Sends RENAME, or RENAME2 if a flag is given. A server without RENAME2 does not exchange names, and the caller has
    /// checked that the new name does not exist.
    fn send_rename(&self, from: Ino, to: Ino, names: [&Name; 2], flags: RenameFlags) -> Result<()> {
        let names = [names[0].as_bytes(), &[0], names[1].as_bytes(), &[0]];
        let bits = match flags {
            RenameFlags::NO_REPLACE => NO_REPLACE,
            RenameFlags::EXCHANGE => EXCHANGE,
            _ => 0,
        };
        if bits != 0 {
            let head = Rename2In { newdir: to.0, flags: bits, padding: 0 };
            let body = [&[head.as_bytes()], &names[..]].concat();
            let deadline = self.connection.deadline();
            match self.connection.exchange(opcode::RENAME2, from.0, &body, deadline, |_| Some(()))? {
                Err(NOT_IMPLEMENTED | INVALID) if bits == EXCHANGE => return Err(Error::NotSupported),
                Err(NOT_IMPLEMENTED | INVALID) => {}
                renamed => return renamed.map_err(of_errno),
            }
        }
        let body = [&[to.0.as_bytes()], &names[..]].concat();
        self.connection.ask(opcode::RENAME, from.0, &body, |_| Some(()))
    }
}

/// The methods of the contract that change names and attributes.
impl Mounted {
    pub(crate) fn create_name(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        let _one_at_a_time = self.change_names()?;
        self.directory(dir)?;
        if self.find(dir, name)?.is_some() {
            return Err(Error::Exists);
        }
        if node.kind == FileKind::Symlink {
            match node.target.len() {
                0 => return Err(Error::Invalid),
                len if len > TARGET_MAX => return Err(Error::NameTooLong),
                _ => {}
            }
        }
        let made = self.make(dir, name, node)?;
        self.entries_changed(dir);
        let ino = self.found(dir.0, &made, FoundBy::Lookup)?.ok_or(NONSENSE)?;
        lock(&self.unsynced).nodes.insert(ino.0);
        self.complete(ino, node).inspect_err(|_| {
            // Undo the creation. If that fails too, the file remains with other attributes.
            let request = if node.kind == FileKind::Directory { opcode::RMDIR } else { opcode::UNLINK };
            self.close_files(ino);
            let _ = self.connection.ask(request, dir.0, &[name.as_bytes(), &[0]], |_| Some(()));
        })
    }

    pub(crate) fn link_name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        let _one_at_a_time = self.change_names()?;
        self.directory(dir)?;
        let node = lock(&self.nodes).get(ino)?;
        if node.kind == FileKind::Directory {
            return Err(Error::NotPermitted);
        }
        if node.is_removed() {
            return Err(Error::NotFound);
        }
        let body = [ino.0.as_bytes(), name.as_bytes(), &[0]];
        let linked = self.connection.ask(opcode::LINK, dir.0, &body, entry)?;
        lock(&self.nodes).all_changed();
        self.entries_changed(dir);
        self.found(dir.0, &linked, FoundBy::Listing)?;
        self.getattr(ino)
    }

    pub(crate) fn remove_name(
        &self,
        dir: Ino,
        name: &Name,
        victim: RemovalKind,
        ask: &mut AskUsage<'_>,
    ) -> Result<()> {
        let _one_at_a_time = self.change_names()?;
        self.directory(dir)?;
        let ino = self.look_up(dir.0, name.as_bytes(), FoundBy::Listing)?;
        let attr = self.getattr(ino)?;
        let usage = ask(&attr)?;
        let request = match (victim, attr.kind == FileKind::Directory) {
            (RemovalKind::File, true) => return Err(Error::IsDirectory),
            (RemovalKind::EmptyDirectory, false) => return Err(Error::NotDirectory),
            (RemovalKind::File, false) => opcode::UNLINK,
            (RemovalKind::EmptyDirectory, true) => opcode::RMDIR,
        };
        match usage {
            Usage::Used => self.keep_open(&attr),
            Usage::Unused => self.close_files(ino),
        }
        self.connection.ask(request, dir.0, &[name.as_bytes(), &[0]], |_| Some(()))?;
        self.entries_changed(dir);
        self.lost_a_name(&attr, usage);
        Ok(())
    }

    pub(crate) fn rename_name(
        &self,
        (from, name): (Ino, &Name),
        (to, new_name): (Ino, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        let _one_at_a_time = self.change_names()?;
        if flags.contains(RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE) {
            return Err(Error::Invalid);
        }
        let is_exchange = flags.contains(RenameFlags::EXCHANGE);
        self.directory(from)?;
        self.directory(to)?;
        let ino = self.look_up(from.0, name.as_bytes(), FoundBy::Listing)?;
        let other = self.find(to, new_name)?;
        match other {
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Error::Exists),
            None if is_exchange => return Err(Error::NotFound),
            Some(other) if other == ino => return Ok(()),
            _ => {}
        }
        if let Some(other) = other.filter(|_| !is_exchange) {
            self.expect_replaceable(ino, other, from)?;
        }
        let lost = other.filter(|_| !is_exchange).map(|other| self.getattr(other)).transpose()?;
        if let Some(lost) = &lost {
            self.keep_open(lost);
        }
        self.send_rename(from, to, [name, new_name], flags)?;
        if let Some(lost) = &lost {
            // The caller may use the replaced file.
            self.lost_a_name(lost, Usage::Used);
        }
        if let Some(other) = other.filter(|_| is_exchange) {
            lock(&self.nodes).moved(other, from);
            self.changed(other);
        }
        lock(&self.nodes).moved(ino, to);
        self.changed(ino);
        self.entries_changed(from);
        self.entries_changed(to);
        Ok(())
    }

    pub(crate) fn change_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.expect_writable()?;
        change.expect_no_project()?;
        if change.flags.is_some_and(|flags| !flags.is_empty()) {
            return Err(Error::NotSupported);
        }
        let kind = lock(&self.nodes).get(ino)?.kind;
        if change.uid.is_some() || change.gid.is_some() {
            self.set_owner(ino, change.uid, change.gid)?;
        }
        if let Some(mode) = change.mode.filter(|_| kind != FileKind::Symlink) {
            self.set_mode(ino, mode)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            self.set_times(ino, change.atime, change.mtime)?;
        }
        lock(&self.unsynced).nodes.insert(ino.0);
        // The server sets the change time, and stores no other properties.
        self.getattr(ino)
    }
}
