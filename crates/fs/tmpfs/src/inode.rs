//! An inode and what it holds.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Result, Timestamp,
};
use obento_driver::{NewNode, SetAttr, TimeChange};
use obento_env::sync::{RwLock, RwLockWriteGuard};

use crate::dir::{Directory, Entry};
use crate::map::Data;
use crate::space::PAGE;

/// What a new inode gets of its directory's flags: Linux `SHMEM_FL_INHERITED`.
const INHERITED: FileFlags = FileFlags::NO_DUMP.union(FileFlags::NO_ATIME);

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) generation: Generation,
    pub(crate) kind: FileKind,
    pub(crate) state: RwLock<State>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Directory(Directory),
    Regular(Data),
    Symlink(Box<[u8]>),
    /// A device, FIFO or socket: nothing but its attributes.
    Node,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    mode: Mode,
    uid: u32,
    gid: u32,
    rdev: DeviceNumber,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    btime: Timestamp,
    flags: FileFlags,
    project: u32,
    change: u64,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) body: Body,
}

impl State {
    /// A new inode without a name. `parent` is that of a directory.
    pub(crate) fn new(node: &NewNode<'_>, parent: Ino, now: Timestamp) -> Self {
        let body = match node.kind {
            FileKind::Directory => Body::Directory(Directory::new(parent)),
            FileKind::Regular => Body::Regular(Data::default()),
            FileKind::Symlink => Body::Symlink(node.target.into()),
            _ => Body::Node,
        };
        Self {
            nlink: 0,
            size: if node.kind == FileKind::Symlink { to_u64(node.target.len()) } else { 0 },
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            rdev: if node.kind.is_device() { node.rdev } else { DeviceNumber::default() },
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            flags: FileFlags::empty(),
            project: 0,
            change: 1,
            xattrs: BTreeMap::new(),
            body,
        }
    }

    /// Takes over what `dir` hands on to what is made in it.
    pub(crate) fn inherit(&mut self, dir: &Self) {
        self.flags = dir.flags & INHERITED;
    }

    /// Notes a change of the attributes.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.ctime = now;
        self.change = self.change.saturating_add(1);
    }

    /// Notes a change of the data.
    pub(crate) fn touch_data(&mut self, now: Timestamp) {
        self.mtime = now;
        self.touch(now);
    }

    /// Notes a change of the data that was made at `moment`, since when the attributes may have changed.
    pub(crate) fn touch_data_delayed(&mut self, moment: Timestamp) {
        self.mtime = moment;
        self.touch(moment.max(self.ctime));
    }

    pub(crate) fn apply(&mut self, change: &SetAttr, now: Timestamp) {
        let time = |slot: &mut Timestamp, change: Option<TimeChange>| match change {
            None => {}
            Some(TimeChange::Now) => *slot = now,
            Some(TimeChange::At(time)) => *slot = time,
        };
        // Reading a file is no change of it.
        if (*change != SetAttr { atime: change.atime, ..SetAttr::default() }) {
            self.touch(now);
        }
        self.mode = change.mode.unwrap_or(self.mode);
        self.uid = change.uid.unwrap_or(self.uid);
        self.gid = change.gid.unwrap_or(self.gid);
        self.flags = change.flags.unwrap_or(self.flags);
        self.project = change.project.unwrap_or(self.project);
        time(&mut self.atime, change.atime);
        time(&mut self.mtime, change.mtime);
        time(&mut self.ctime, change.ctime);
        time(&mut self.btime, change.btime);
    }

    /// Errors: NotDirectory.
    pub(crate) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Errors: NotDirectory.
    pub(crate) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The entry `name`. Errors: NotDirectory; NotFound.
    pub(crate) fn entry(&self, name: &Name) -> Result<&Entry> {
        self.directory()?.get(name).ok_or(Error::NotFound)
    }

    /// Errors: IsDirectory; Invalid for what is no regular file.
    pub(crate) fn data(&self) -> Result<&Data> {
        match &self.body {
            Body::Regular(data) => Ok(data),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Errors: IsDirectory; Invalid for what is no regular file.
    pub(crate) fn data_mut(&mut self) -> Result<&mut Data> {
        match &mut self.body {
            Body::Regular(data) => Ok(data),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }
}

impl Inode {
    pub(crate) fn attr(&self, state: &State) -> Attr {
        let pages = state.data().map_or(0, Data::page_count);
        Attr {
            ino: self.ino,
            generation: self.generation,
            kind: self.kind,
            mode: state.mode,
            nlink: state.nlink,
            uid: state.uid,
            gid: state.gid,
            rdev: state.rdev,
            size: state.size,
            blocks: pages.saturating_mul(PAGE / 512),
            block_size: 4096,
            atime: state.atime,
            mtime: state.mtime,
            ctime: state.ctime,
            btime: Some(state.btime),
            flags: state.flags,
            change: state.change,
            project: state.project,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// The states of several inodes, locked in ascending order of their numbers, each once.
pub(crate) struct LockSet<'a>(Vec<(Ino, RwLockWriteGuard<'a, State>)>);

impl<'a> LockSet<'a> {
    pub(crate) fn new(inodes: impl IntoIterator<Item = &'a Arc<Inode>>) -> Self {
        let mut inodes: Vec<_> = inodes.into_iter().collect();
        inodes.sort_by_key(|inode| inode.ino);
        inodes.dedup_by_key(|inode| inode.ino);
        Self(inodes.into_iter().map(|inode| (inode.ino, inode.state.write())).collect())
    }

    /// The state of `inode`. Errors: Stale if it is not of the set, which the caller made.
    pub(crate) fn of(&mut self, inode: &Inode) -> Result<&mut State> {
        let found = self.0.iter_mut().find(|(ino, _)| *ino == inode.ino);
        found.map(|(_, state)| &mut **state).ok_or(Error::Stale)
    }
}
