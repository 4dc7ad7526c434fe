//! The whole volume in memory: inodes, names, pages of files.
//!
//! Invariant: a call that fails has changed nothing, because it checks everything before the first change.
//! Invariant: `used` is the number of bytes that all inodes take on disk, and never greater than `room`.

use std::collections::BTreeMap;

use obento::{Error, Result};
use obento::base::{Attr, FileFlags, FileKind, Generation, Ino, Name, NameBuf, Timestamp};
use obento::driver::{AskUsage, RemovalKind, Usage, Cookie, NewNode, RenameFlags, SetAttr, TimeChange};

use crate::raw::{PAGE, RawEntry, RawInode, RawPage};

pub(crate) const ROOT: Ino = Ino(1);
pub(crate) const LINK_MAX: u32 = 32_000;
pub(crate) const TARGET_MAX: usize = 4095;
/// The number of bytes that an inode, an entry and a page take on disk.
pub(crate) const INODE: u64 = size_of::<RawInode>() as u64;
pub(crate) const IN_PAGE: u64 = size_of::<RawPage>() as u64;

fn entry_len(name: &Name) -> u64 {
    (size_of::<RawEntry>() + name.as_bytes().len()) as u64
}

/// The entries of a directory, by name and in the order of their creation.
#[derive(Default)]
pub(crate) struct Directory {
    pub(crate) names: BTreeMap<NameBuf, (u64, Ino)>,
    order: BTreeMap<u64, NameBuf>,
    last: u64,
}

pub(crate) enum Body {
    Directory(Directory),
    File(BTreeMap<u64, Box<[u8; PAGE]>>),
    Symlink(Vec<u8>),
    /// A device, FIFO or socket.
    Node,
}

pub(crate) struct Inode {
    pub(crate) attr: Attr,
    pub(crate) parent: Ino,
    pub(crate) body: Body,
}

#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) inodes: BTreeMap<Ino, Inode>,
    /// The highest number that was ever assigned. Numbers are not reused, so all inodes have generation 0.
    pub(crate) last: u64,
    pub(crate) used: u64,
    pub(crate) room: u64,
}

impl Directory {
    /// Makes a name refer to `ino`. An existing name keeps its position, because a listing may have passed it.
    pub(crate) fn set(&mut self, name: &Name, ino: Ino) {
        if let Some((_, old)) = self.names.get_mut(name) {
            *old = ino;
            return;
        }
        self.last += 1;
        self.names.insert(name.to_buf(), (self.last, ino));
        self.order.insert(self.last, name.to_buf());
    }

    fn remove(&mut self, name: &Name) {
        if let Some((place, _)) = self.names.remove(name) {
            self.order.remove(&place);
        }
    }

    /// Returns at most `most` entries that follow `from`.
    pub(crate) fn after(&self, from: Cookie, most: usize) -> Vec<(Cookie, NameBuf, Ino)> {
        let rest = self.order.range(from.0.saturating_add(1)..).take(most);
        rest.map(|(&place, name)| (Cookie(place), name.clone(), self.names[name].1)).collect()
    }
}

impl Inode {
    pub(crate) fn new(ino: Ino, node: &NewNode<'_>, parent: Ino, now: Timestamp) -> Self {
        let body = match node.kind {
            FileKind::Directory => Body::Directory(Directory::default()),
            FileKind::Regular => Body::File(BTreeMap::new()),
            FileKind::Symlink => Body::Symlink(node.target.to_vec()),
            _ => Body::Node,
        };
        let attr = Attr {
            ino,
            generation: Generation(0),
            kind: node.kind,
            mode: node.mode,
            nlink: if node.kind == FileKind::Directory { 2 } else { 1 },
            uid: node.uid,
            gid: node.gid,
            rdev: if node.kind.is_device() { node.rdev } else { Default::default() },
            size: node.target.len() as u64,
            blocks: 0,
            block_size: PAGE as u32,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            flags: FileFlags::empty(),
            change: 0,
            project: 0,
        };
        Self { attr, parent, body }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attr.kind == FileKind::Directory
    }

    pub(crate) fn attr(&self) -> Attr {
        let pages = if let Body::File(pages) = &self.body { pages.len() } else { 0 };
        Attr { blocks: (pages * PAGE / 512) as u64, ..self.attr }
    }

    /// Returns the directory. Fails with `NotDirectory`.
    pub(crate) fn directory(&self) -> Result<&Directory> {
        if let Body::Directory(directory) = &self.body { Ok(directory) } else { Err(Error::NotDirectory) }
    }

    /// Returns the pages. Fails with `IsDirectory`, or with `Invalid` if the inode is not a regular file.
    pub(crate) fn file(&self) -> Result<&BTreeMap<u64, Box<[u8; PAGE]>>> {
        match &self.body {
            Body::File(pages) => Ok(pages),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Records a change of the attributes.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.attr.ctime = now;
        self.attr.change += 1;
    }

    /// Records a change of the data, at the time `when`.
    pub(crate) fn touch_data(&mut self, now: Timestamp, when: TimeChange) {
        let (changed, written) = match when {
            TimeChange::Now => (now, now),
            TimeChange::At(moment) => (moment.max(self.attr.ctime), moment),
        };
        self.attr.mtime = written;
        self.touch(changed);
    }

    pub(crate) fn apply(&mut self, change: &SetAttr, now: Timestamp) {
        // Reading a file does not change it.
        if *change != (SetAttr { atime: change.atime, ..SetAttr::default() }) {
            self.touch(now);
        }
        let attr = &mut self.attr;
        attr.mode = change.mode.unwrap_or(attr.mode);
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        attr.flags = change.flags.unwrap_or(attr.flags);
        let time = |change: Option<TimeChange>, old| match change {
            None => old,
            Some(TimeChange::Now) => now,
            Some(TimeChange::At(moment)) => moment,
        };
        attr.atime = time(change.atime, attr.atime);
        attr.mtime = time(change.mtime, attr.mtime);
        attr.ctime = time(change.ctime, attr.ctime);
        attr.btime = attr.btime.map(|old| time(change.btime, old));
    }
}

impl Tree {
    /// Returns an inode. Fails with `Stale`.
    pub(crate) fn get(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(Error::Stale)
    }

    /// Returns an inode. Fails with `Stale`.
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Error::Stale)
    }

    /// Returns the inode that a name refers to. Fails with `NotDirectory` or `NotFound`.
    pub(crate) fn named(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.get(dir)?.directory()?.names.get(name).map(|(_, ino)| *ino).ok_or(Error::NotFound)
    }

    /// Checks that `more` bytes are free. Fails with `NoSpace`.
    pub(crate) fn fits(&self, more: u64) -> Result<()> {
        if self.used + more <= self.room { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Checks that a name is free. Fails with `NotDirectory`, with `NotFound` if the directory was removed, or with
    /// `Exists`.
    fn expect_free(&self, dir: Ino, name: &Name) -> Result<()> {
        let found = self.named(dir, name);
        match found {
            Err(Error::NotDirectory | Error::Stale) => found.map(drop),
            _ if self.get(dir)?.attr.nlink == 0 => Err(Error::NotFound),
            Ok(_) => Err(Error::Exists),
            Err(_) => Ok(()),
        }
    }

    /// Checks that an inode may get another link. Fails with `TooManyLinks`.
    fn room_for_link(&self, ino: Ino) -> Result<()> {
        if self.get(ino)?.attr.nlink < LINK_MAX { Ok(()) } else { Err(Error::TooManyLinks) }
    }

    fn holds_directory(&self, ino: Option<Ino>) -> bool {
        ino.and_then(|ino| self.inodes.get(&ino)).is_some_and(Inode::is_dir)
    }

    /// Makes `name` refer to `to`, or removes it, and updates the number of subdirectories.
    fn point(&mut self, dir: Ino, name: &Name, to: Option<Ino>, now: Timestamp) {
        let old = self.named(dir, name).ok();
        let (loses, gains) = (self.holds_directory(old), self.holds_directory(to));
        self.used -= old.map_or(0, |_| entry_len(name));
        self.used += to.map_or(0, |_| entry_len(name));
        if let Some(inode) = self.inodes.get_mut(&dir)
            && let Body::Directory(directory) = &mut inode.body
        {
            match to {
                Some(ino) => directory.set(name, ino),
                None => directory.remove(name),
            }
            inode.attr.nlink = inode.attr.nlink + u32::from(gains) - u32::from(loses);
            inode.touch_data(now, TimeChange::Now);
        }
        if let Some(child) = to.and_then(|ino| self.inodes.get_mut(&ino)) {
            child.parent = dir;
        }
    }

    /// Removes a name from an inode. A directory also loses the link by which it refers to itself.
    fn lose_name(&mut self, ino: Ino, now: Timestamp) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.attr.nlink = if inode.is_dir() { 0 } else { inode.attr.nlink - 1 };
            inode.touch(now);
        }
    }

    pub(crate) fn free_if_nameless(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.attr.nlink == 0)
            && let Some(inode) = self.inodes.remove(&ino)
        {
            self.used -= inode.taken();
        }
    }

    pub(crate) fn create(
        &mut self,
        dir: Ino,
        name: &Name,
        node: &NewNode<'_>,
        now: Timestamp,
    ) -> Result<Attr> {
        self.expect_free(dir, name)?;
        match node.target.len() {
            0 if node.kind == FileKind::Symlink => return Err(Error::Invalid),
            len if len > TARGET_MAX => return Err(Error::NameTooLong),
            _ => {}
        }
        if node.kind == FileKind::Directory {
            self.room_for_link(dir)?;
        }
        let ino = Ino(self.last + 1);
        let mut inode = Inode::new(ino, node, dir, now);
        let inherited = FileFlags::NO_DUMP.union(FileFlags::NO_ATIME);
        inode.attr.flags = self.get(dir)?.attr.flags.intersection(inherited);
        self.fits(inode.taken() + entry_len(name))?;
        let attr = inode.attr();
        self.last = ino.0;
        self.used += inode.taken();
        self.inodes.insert(ino, inode);
        self.point(dir, name, Some(ino), now);
        Ok(attr)
    }

    pub(crate) fn link(&mut self, ino: Ino, dir: Ino, name: &Name, now: Timestamp) -> Result<Attr> {
        let inode = self.get(ino)?;
        self.get(dir)?.directory()?;
        match () {
            () if inode.is_dir() => return Err(Error::NotPermitted),
            () if inode.attr.nlink == 0 => return Err(Error::NotFound),
            () => {}
        }
        self.expect_free(dir, name)?;
        self.room_for_link(ino)?;
        self.fits(entry_len(name))?;
        self.point(dir, name, Some(ino), now);
        let inode = self.get_mut(ino)?;
        inode.attr.nlink += 1;
        inode.touch(now);
        Ok(inode.attr())
    }

    pub(crate) fn remove(
        &mut self,
        dir: Ino,
        name: &Name,
        victim: RemovalKind,
        ask: &mut AskUsage<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let ino = self.named(dir, name)?;
        let inode = self.get(ino)?;
        let usage = ask(&inode.attr())?;
        match victim {
            RemovalKind::File if inode.is_dir() => return Err(Error::IsDirectory),
            RemovalKind::EmptyDirectory if !inode.directory()?.names.is_empty() => {
                return Err(Error::NotEmpty);
            }
            _ => {}
        }
        self.point(dir, name, None, now);
        self.lose_name(ino, now);
        if usage == Usage::Unused {
            self.free_if_nameless(ino);
        }
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        (from, name): (Ino, &Name),
        (to, new_name): (Ino, &Name),
        flags: RenameFlags,
        now: Timestamp,
    ) -> Result<()> {
        if flags == RenameFlags::all() {
            return Err(Error::Invalid);
        }
        self.get(from)?.directory()?;
        self.get(to)?.directory()?;
        let moved = self.named(from, name)?;
        if self.get(to)?.attr.nlink == 0 {
            return Err(Error::NotFound);
        }
        match self.named(to, new_name).ok() {
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
            None if flags.contains(RenameFlags::EXCHANGE) => Err(Error::NotFound),
            Some(target) if target == moved => Ok(()),
            Some(target) if flags.contains(RenameFlags::EXCHANGE) => {
                self.exchange((from, name, moved), (to, new_name, target), now)
            }
            target => self.replace((from, name, moved), (to, new_name), target, now),
        }
    }

    fn replace(
        &mut self,
        (from, name, moved): (Ino, &Name, Ino),
        (to, new_name): (Ino, &Name),
        target: Option<Ino>,
        now: Timestamp,
    ) -> Result<()> {
        let is_dir = self.get(moved)?.is_dir();
        match target.map(|target| self.get(target)).transpose()? {
            Some(target) if target.is_dir() && !is_dir => return Err(Error::IsDirectory),
            Some(target) if !target.is_dir() && is_dir => return Err(Error::NotDirectory),
            Some(target) if is_dir && !target.directory()?.names.is_empty() => return Err(Error::NotEmpty),
            None if is_dir && from != to => self.room_for_link(to)?,
            _ => {}
        }
        let more = if target.is_none() { entry_len(new_name) } else { 0 };
        self.fits(more.saturating_sub(entry_len(name)))?;
        self.point(from, name, None, now);
        self.point(to, new_name, Some(moved), now);
        self.get_mut(moved)?.touch(now);
        if let Some(target) = target {
            self.lose_name(target, now);
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        (from, name, moved): (Ino, &Name, Ino),
        (to, new_name, target): (Ino, &Name, Ino),
        now: Timestamp,
    ) -> Result<()> {
        match (self.get(moved)?.is_dir(), self.get(target)?.is_dir()) {
            (true, false) if from != to => self.room_for_link(to)?,
            (false, true) if from != to => self.room_for_link(from)?,
            _ => {}
        }
        self.point(from, name, Some(target), now);
        self.point(to, new_name, Some(moved), now);
        self.get_mut(moved)?.touch(now);
        self.get_mut(target)?.touch(now);
        Ok(())
    }
}
