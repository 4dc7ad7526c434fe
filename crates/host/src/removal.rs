//! Removal of a directory tree of the host, by descriptor.
//!
//! Invariant: at most [`MAX_OPEN`] directories and the current one are open, since a tree may be deeper than the limit
//! of open files of a process.
//! Invariant: a directory that was closed is opened again as the parent of an open one, and only if it is the same
//! directory. A directory that another process has moved out of the tree therefore leads nowhere else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use obento_base::{Name, NameBuf};
use rustix::fs::{AtFlags, Dir, Mode, Stat};
use rustix::io::Errno;

use crate::directory::DIRECTORY;
use crate::tree::open_parent;
use crate::{CopiedEntries, FileId};

/// Directories that stay open above the current one.
const MAX_OPEN: usize = 64;

/// Removes `name` in `dir`, and below it only the entries in `copied`. Continues after an error, and returns the first.
/// Returns STALE instead, whatever the first error is, if an entry is not in `copied`, or if a directory of the tree was
/// moved.
pub(crate) fn remove(dir: impl AsFd, name: &Name, copied: Option<&CopiedEntries>) -> Result<(), Errno> {
    let Removal::Entered(top) = remove_entry(dir.as_fd(), name, copied)? else { return Ok(()) };
    TreeRemoval { dir: dir.as_fd(), copied, levels: vec![top] }.run()
}

enum Removal {
    Done,
    /// A directory that is not empty.
    Entered(EmptiedDir),
}

/// A directory whose entries are being removed.
struct EmptiedDir {
    name: NameBuf,
    id: FileId,
    /// `None` while it is closed because many deeper ones are open.
    fd: Option<OwnedFd>,
    /// The entries that were not yet visited.
    rest: std::vec::IntoIter<NameBuf>,
    result: Result<(), Errno>,
}

impl EmptiedDir {
    fn open(dir: BorrowedFd<'_>, name: &Name, copied: Option<&CopiedEntries>) -> Result<Self, Errno> {
        let fd = rustix::fs::openat(dir, name.as_bytes(), DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        expect_copied(&stat, copied)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd)? {
            // `.` and `..` are not names.
            names.extend(Name::new(entry?.file_name().to_bytes()).map(Name::to_buf));
        }
        let rest = names.into_iter();
        Ok(Self { name: name.to_buf(), id: FileId::of(&stat), fd: Some(fd), rest, result: Ok(()) })
    }

    fn note(&mut self, result: Result<(), Errno>) {
        // The copy lacks such an entry, which concerns the caller more than an entry that cannot be removed.
        self.result = if result == Err(Errno::STALE) { result } else { self.result.and(result) };
    }
}

/// The directories from the one that is removed down to the current one.
struct TreeRemoval<'a> {
    /// Contains the first of the directories.
    dir: BorrowedFd<'a>,
    copied: Option<&'a CopiedEntries>,
    levels: Vec<EmptiedDir>,
}

impl TreeRemoval<'_> {
    fn run(mut self) -> Result<(), Errno> {
        while let Some(top) = self.levels.last_mut() {
            match (top.rest.next(), &top.fd) {
                (Some(name), Some(fd)) => match remove_entry(fd.as_fd(), &name, self.copied) {
                    Ok(Removal::Entered(level)) => self.enter(level),
                    Ok(Removal::Done) => {}
                    Err(errno) => top.note(Err(errno)),
                },
                // Only directories above the current one are closed.
                (Some(_), None) => return Err(Errno::STALE),
                (None, _) => {
                    if let Some(result) = self.leave()? {
                        return result;
                    }
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, level: EmptiedDir) {
        self.levels.push(level);
        if let Some(far) = self.levels.len().checked_sub(MAX_OPEN + 2).and_then(|at| self.levels.get_mut(at))
        {
            far.fd = None;
        }
    }

    /// Removes the current directory, which was emptied, from its parent. Returns the result at the end of the tree.
    /// Fails if the parent cannot be opened again.
    fn leave(&mut self) -> Result<Option<Result<(), Errno>>, Errno> {
        let Some(left) = self.levels.pop() else { return Ok(Some(Ok(()))) };
        let Some(parent) = self.levels.last_mut() else {
            return Ok(Some(left.result.and_then(|()| remove_empty(self.dir, &left.name, self.copied))));
        };
        if let (None, Some(fd)) = (&parent.fd, &left.fd) {
            parent.fd = Some(open_parent(fd, parent.id)?.0);
        }
        let fd = parent.fd.as_ref().ok_or(Errno::STALE)?;
        let result = left.result.and_then(|()| remove_empty(fd.as_fd(), &left.name, self.copied));
        parent.note(result);
        Ok(None)
    }
}

/// Fails with STALE if `copied` lacks the entry with the status `stat`.
fn expect_copied(stat: &Stat, copied: Option<&CopiedEntries>) -> Result<(), Errno> {
    match copied {
        Some(copied) if !copied.contains(stat) => Err(Errno::STALE),
        _ => Ok(()),
    }
}

/// Removes `name`, or opens it if it is a directory that is not empty.
fn remove_entry(dir: BorrowedFd<'_>, name: &Name, copied: Option<&CopiedEntries>) -> Result<Removal, Errno> {
    if copied.is_some() {
        expect_copied(&rustix::fs::statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)?, copied)?;
    }
    match rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::empty()) {
        // Some file systems report the latter for a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed.map(|()| Removal::Done),
    }
    match rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => EmptiedDir::open(dir, name, copied).map(Removal::Entered),
        // A file that is not a directory was refused for another reason.
        Err(Errno::NOTDIR) => Err(Errno::PERM),
        // A mount point is busy: what is mounted there is not part of the tree.
        removed => removed.map(|()| Removal::Done),
    }
}

/// Removes the directory `name`, which was emptied.
fn remove_empty(dir: BorrowedFd<'_>, name: &Name, copied: Option<&CopiedEntries>) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::REMOVEDIR) {
        // An entry was added after the directory was listed.
        Err(Errno::NOTEMPTY | Errno::EXIST) if copied.is_some() => Err(Errno::STALE),
        removed => removed,
    }
}
