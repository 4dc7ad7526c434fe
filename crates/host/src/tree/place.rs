//! The current directory of a cursor, and the open directories from its root down.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::{Name, NameBuf};
use rustix::fs::Stat;
use rustix::io::Errno;

use super::dir::{Dir, Level, Written, open_parent};
use crate::owner::is_own;
use crate::{FileId, HostError};

/// Directories kept open above the current one. A tree may be deeper than the limit of open files of a
/// process.
const MAX_OPEN: usize = 64;

/// The stack of directories. Never empty.
pub(super) struct Place {
    /// Path of the tree's root, for messages.
    root: PathBuf,
    /// Names from the tree's root to the cursor's.
    prefix: Vec<NameBuf>,
    root_level: Level,
    /// The directories below the cursor's root.
    below: Vec<Level>,
    process_group: u32,
}

impl Place {
    pub fn new(root: &Path, prefix: Vec<NameBuf>, level: Level, process_group: u32) -> Self {
        Self { root: root.into(), prefix, root_level: level, below: Vec::new(), process_group }
    }

    pub fn top(&self) -> &Level {
        self.below.last().unwrap_or(&self.root_level)
    }

    pub fn top_mut(&mut self) -> &mut Level {
        self.below.last_mut().unwrap_or(&mut self.root_level)
    }

    /// Returns the current directory. Fails with `Changed` if a directory on the way was moved.
    pub fn dir(&self) -> Result<&Arc<Dir>, HostError> {
        self.top().dir.as_ref().ok_or_else(|| HostError::Changed { path: self.path(None) })
    }

    /// Returns the names from the tree's root to the current directory.
    pub fn names(&self) -> impl Iterator<Item = &NameBuf> + Clone {
        self.prefix.iter().chain(self.below.iter().filter_map(|level| level.name.as_ref()))
    }

    /// Returns the path of `name` in the current directory, or of that directory.
    pub fn path(&self, name: Option<&Name>) -> PathBuf {
        let mut path = self.root.clone();
        for name in self.names() {
            path.push(OsStr::from_bytes(name.as_bytes()));
        }
        if let Some(name) = name {
            path.push(OsStr::from_bytes(name.as_bytes()));
        }
        path
    }

    /// Enters a directory that was just opened.
    pub fn push(&mut self, name: &Name, fd: OwnedFd, stat: &Stat, origin: Origin) {
        self.below.push(level(Some(name.to_buf()), fd, stat, origin, self.process_group));
        if let Some(far) = self.below.len().checked_sub(MAX_OPEN + 1).and_then(|at| self.below.get_mut(at)) {
            far.dir = None;
        }
    }

    /// Leaves the current directory and returns it, or `None` at the cursor's root.
    pub fn pop(&mut self) -> Result<Option<Level>, HostError> {
        let Some(level) = self.below.pop() else { return Ok(None) };
        if self.top().dir.is_none()
            && let Some(child) = &level.dir
        {
            self.reopen(child).map_err(|errno| match errno {
                Errno::STALE => HostError::Changed { path: self.path(None) },
                errno => HostError::system("open", self.path(None), errno),
            })?;
        }
        Ok(Some(level))
    }

    fn reopen(&mut self, child: &Dir) -> Result<(), Errno> {
        let group = self.process_group;
        let top = self.top_mut();
        let (fd, stat) = open_parent(child, top.id)?;
        top.dir = Some(Arc::new(Dir::new(fd, &stat, (top.fresh, top.is_shared), top.written.clone(), group)));
        Ok(())
    }

    /// Returns the cursor's root, whose metadata can be set last.
    pub fn root_mut(&mut self) -> &mut Level {
        &mut self.root_level
    }

    /// Returns a place whose root is the current directory.
    pub fn fork(&self) -> Result<Self, HostError> {
        let top = self.top();
        let level = Level {
            name: None,
            id: top.id,
            dir: Some(self.dir()?.clone()),
            fresh: top.fresh,
            is_shared: top.is_shared,
            written: top.written.clone(),
            owner: top.owner,
            meta: None,
        };
        Ok(Self::new(&self.root, self.names().cloned().collect(), level, self.process_group))
    }
}

/// The origin of a directory that was just opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// This run has just created it.
    Fresh,
    /// It existed, or this run created it before.
    Existing,
    /// It existed, and another user may have exchanged it.
    Exchangeable,
}

/// Creates a level for a directory that was just opened.
pub(super) fn level(
    name: Option<NameBuf>,
    fd: OwnedFd,
    stat: &Stat,
    origin: Origin,
    process_group: u32,
) -> Level {
    let written = Written::default();
    let fresh = origin == Origin::Fresh;
    // Another user who can exchange a directory can exchange all that is below it.
    let is_shared = !fresh && (origin == Origin::Exchangeable || !is_own(stat));
    let dir = Dir::new(fd, stat, (fresh, is_shared), written.clone(), process_group);
    Level {
        name,
        id: FileId::of(stat),
        dir: Some(Arc::new(dir)),
        fresh,
        is_shared,
        written,
        owner: (stat.st_uid, stat.st_gid),
        meta: None,
    }
}
