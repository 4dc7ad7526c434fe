//! Changes of names, except renames.
//!
//! The inodes to lock may depend on a name. In this case, the name is looked up without locks, the set is locked, and
//! the name is looked up again. If it refers to another inode by then, the operation starts again.

use alloc::sync::Arc;

use obento_base::wire::to_u64;
use obento_base::{Attr, Error, FileKind, Ino, Name, Result, Timestamp};
use obento_driver::{AskUsage, INHERITED, NewNode, RemovalKind, Usage, WritableFileSystem};

use crate::contract::{LINK_MAX, SYMLINK_MAX};
use crate::dir::Entry;
use crate::inode::{Inode, LockSet, State};
use crate::volume::Tmpfs;

/// Whether an inode that gets a name has other names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Some,
    None,
}

/// Checks that `name` can be created. Fails with `NotDirectory`, `NotFound` if the directory was removed,
/// or `Exists`.
fn expect_free(dir: &State, name: &Name) -> Result<()> {
    let directory = dir.directory()?;
    match () {
        () if dir.attr.nlink == 0 => Err(Error::NotFound),
        () if directory.get(name).is_some() => Err(Error::Exists),
        () => Ok(()),
    }
}

/// Returns the link count plus one. Fails with `TooManyLinks`.
pub(crate) fn one_more(nlink: u32) -> Result<u32> {
    nlink.checked_add(1).filter(|&nlink| nlink <= LINK_MAX).ok_or(Error::TooManyLinks)
}

impl Tmpfs {
    pub(crate) fn make(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        let now = self.now();
        self.act(dir, |_, state| {
            expect_free(state, name)?;
            if node.kind == FileKind::Symlink {
                check_target(node.target)?;
            }
            let is_dir = node.kind == FileKind::Directory;
            let dir_links = if is_dir { one_more(state.attr.nlink)? } else { state.attr.nlink };
            let attr = self.add_child(dir, state, node, if is_dir { 2 } else { 1 })?;
            state.attr.nlink = dir_links;
            state.directory_mut()?.insert(Entry { name: name.to_buf(), ino: attr.ino, kind: node.kind });
            state.attr.touch_data(now);
            Ok(attr)
        })
    }

    /// Implements [`obento_driver::Nameless::create_nameless`].
    pub(crate) fn make_nameless(&self, dir: Ino, node: &NewNode<'_>) -> Result<Attr> {
        self.act(dir, |_, state| {
            state.directory()?;
            if state.attr.nlink == 0 {
                return Err(Error::NotFound);
            }
            self.add_child(dir, state, node, 0)
        })
    }

    /// Creates an inode with the attributes of a file in a directory. Fails with `NoSpace`.
    pub(crate) fn add_child(&self, dir: Ino, parent: &State, node: &NewNode<'_>, nlink: u32) -> Result<Attr> {
        self.reserve_inode()?;
        let mut made = State::new(node, dir, self.now());
        made.attr.flags = parent.attr.flags & INHERITED;
        made.attr.nlink = nlink;
        Ok(self.add(node.kind, made))
    }

    /// Adds a name to an inode that has one, or its first name as [`obento_driver::Nameless::name`] does.
    pub(crate) fn add_link(&self, ino: Ino, dir: Ino, name: &Name, names: Names) -> Result<Attr> {
        let now = self.now();
        let (dir, inode) = (self.inode(dir)?, self.inode(ino)?);
        let mut locked = LockSet::new([&dir, &inode]);
        locked.of(&dir)?.directory()?;
        let nlink = locked.of(&inode)?.attr.nlink;
        match names {
            Names::Some if inode.is_directory() => return Err(Error::NotPermitted),
            Names::Some if nlink == 0 => return Err(Error::NotFound),
            Names::None if inode.is_directory() || nlink > 0 => return Err(Error::Invalid),
            _ => {}
        }
        expect_free(locked.of(&dir)?, name)?;
        let state = locked.of(&inode)?;
        state.attr.nlink = one_more(nlink)?;
        state.attr.touch(now);
        let attr = inode.attr(state);
        let dir = locked.of(&dir)?;
        dir.directory_mut()?.insert(Entry { name: name.to_buf(), ino, kind: inode.kind });
        dir.attr.touch_data(now);
        Ok(attr)
    }

    pub(crate) fn remove_name(
        &self,
        dir: Ino,
        name: &Name,
        wanted: RemovalKind,
        ask: &mut AskUsage<'_>,
    ) -> Result<()> {
        let now = self.now();
        let dir = self.inode(dir)?;
        loop {
            let found = self.peek(&dir, name)?;
            let mut locked = LockSet::new([&dir, &found]);
            if locked.of(&dir)?.entry(name)?.ino != found.ino {
                continue;
            }
            let victim = locked.of(&found)?;
            let usage = ask(&found.attr(victim))?;
            match wanted {
                RemovalKind::File if found.is_directory() => return Err(Error::IsDirectory),
                RemovalKind::EmptyDirectory if !victim.directory()?.is_empty() => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
            unname(victim, now);
            let state = locked.of(&dir)?;
            if wanted == RemovalKind::EmptyDirectory {
                state.attr.nlink = state.attr.nlink.saturating_sub(1);
            }
            state.directory_mut()?.remove(name);
            state.attr.touch_data(now);
            drop(locked);
            if usage == Usage::Unused {
                self.free_if_nameless(found.ino);
            }
            return Ok(());
        }
    }

    /// Returns the inode to which `name` currently refers. Fails with `NotDirectory` or `NotFound`.
    pub(crate) fn peek(&self, dir: &Inode, name: &Name) -> Result<Arc<Inode>> {
        let ino = dir.state.read().entry(name)?.ino;
        // If the name was removed and the inode freed since, the name does not exist.
        self.inode(ino).map_err(|_| Error::NotFound)
    }
}

/// Removes a name of an inode; for a directory, also its link to itself.
pub(crate) fn unname(state: &mut State, now: Timestamp) {
    state.attr.nlink = if state.directory().is_ok() { 0 } else { state.attr.nlink.saturating_sub(1) };
    state.attr.touch(now);
}

/// Checks the target of a symbolic link. Fails with `Invalid` if it is empty, or with `NameTooLong`.
fn check_target(target: &[u8]) -> Result<()> {
    match target {
        [] => Err(Error::Invalid),
        _ if to_u64(target.len()) > u64::from(SYMLINK_MAX) => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}
