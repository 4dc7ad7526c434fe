//! The deep directories of a tree.
//!
//! For each access to a file, Landlock walks from the file up to a directory that a rule allows. Opening all directories of
//! a deep tree would take time proportional to the square of its depth. With a rule for every [`STEP`]th level, each
//! walk is short. A process can add rules only before it restricts itself, so the tree is searched for deep directories
//! first, before the bytes of an image are decoded.
//! Invariant: every directory that is found was below the start when it was opened.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{FileId, interrupt};

/// The number of levels from one directory with a rule to the next one.
const STEP: usize = 64;
/// The maximum number of directories that are found in all trees, because each rule uses memory of the
/// kernel.
pub(super) const FOUND_MAX: usize = 4096;
/// The number of directories above the current one that stay open.
const OPEN_MAX: usize = 64;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory whose subdirectories are being searched.
struct Level {
    /// Closed while many deeper ones are open.
    dir: Option<OwnedFd>,
    id: FileId,
    subdirectories: Vec<CString>,
}

/// Passes every [`STEP`]th level of directories below `start` to `found`, up to `left` of them, which is reduced. A directory
/// that cannot be searched is left out: access to its contents is only slower. So are other file systems, which can be
/// large or slow, and the rest of the tree after an interruption.
///
/// # Errors
///
/// The first of `found`.
pub(super) fn each<E>(
    start: BorrowedFd<'_>,
    left: &mut usize,
    mut found: impl FnMut(BorrowedFd<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut levels: Vec<Level> =
        rustix::fs::openat(start, ".", DIRECTORY, Mode::empty()).and_then(enter).into_iter().collect();
    while let Some(level) = levels.last_mut() {
        if *left == 0 || interrupt::is_requested() {
            break;
        }
        let Some((name, dir)) = level.subdirectories.pop().zip(level.dir.as_ref()) else {
            ascend(&mut levels);
            continue;
        };
        let Ok(below) = rustix::fs::openat(dir, &name, DIRECTORY, Mode::empty()).and_then(enter) else {
            continue;
        };
        if let Some(dir) = below.dir.as_ref().filter(|_| levels.len().is_multiple_of(STEP)) {
            found(dir.as_fd())?;
            *left -= 1;
        }
        levels.push(below);
        if let Some(far) = levels.len().checked_sub(OPEN_MAX + 1).and_then(|at| levels.get_mut(at)) {
            far.dir = None;
        }
    }
    Ok(())
}

/// Lists the subdirectories of `dir` that may have subdirectories themselves.
fn enter(dir: OwnedFd) -> Result<Level, Errno> {
    let id = FileId::of(&rustix::fs::fstat(&dir)?);
    let mut subdirectories = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if !may_be_directory || matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
        // On many file systems, each subdirectory adds a link. On the others, a directory has one link.
        let is_deep = |stat: rustix::fs::Stat| {
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            is_directory && stat.st_nlink != 2 && FileId::of(&stat).dev == id.dev
        };
        if stat.is_ok_and(is_deep) {
            subdirectories.push(name.to_owned());
        }
    }
    Ok(Level { dir: Some(dir), id, subdirectories })
}

/// Leaves the directory that is finished. If the directory above cannot be reached any more, the search ends.
fn ascend(levels: &mut Vec<Level>) {
    let child = levels.pop().and_then(|level| level.dir);
    let Some(top) = levels.last_mut().filter(|top| top.dir.is_none()) else { return };
    let parent = child.and_then(|child| rustix::fs::openat(child, "..", DIRECTORY, Mode::empty()).ok());
    top.dir = parent.filter(|dir| rustix::fs::fstat(dir).is_ok_and(|stat| FileId::of(&stat) == top.id));
    if top.dir.is_none() {
        levels.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Creates `depth` directories, each in the previous one, and returns the identity of each.
    fn chain(root: &std::path::Path, depth: usize) -> Vec<FileId> {
        let mut dir = OwnedFd::from(File::open(root).unwrap());
        let enter = |_| {
            rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&dir, "leaf", Mode::RWXU).unwrap();
            dir = rustix::fs::openat(&dir, "d", DIRECTORY, Mode::empty()).unwrap();
            FileId::of(&rustix::fs::fstat(&dir).unwrap())
        };
        (0..depth).map(enter).collect()
    }

    #[test]
    fn every_64th_level_is_found_in_a_tree_that_is_deeper_than_the_open_directories() {
        let root = tempfile::tempdir().unwrap();
        let all = chain(root.path(), 300);
        rustix::fs::symlink("/", root.path().join("link")).unwrap();
        let mut found = Vec::new();
        let start = File::open(root.path()).unwrap();
        let mut left = 6;
        let mut take = |dir: BorrowedFd<'_>| {
            found.push(FileId::of(&rustix::fs::fstat(dir).unwrap()));
            Ok::<(), Errno>(())
        };
        each(start.as_fd(), &mut left, &mut take).unwrap();
        // The limit applies to all trees together.
        each(start.as_fd(), &mut left, &mut take).unwrap();
        assert_eq!(found, [64, 128, 192, 256, 64, 128].map(|depth| all[depth - 1]));
        assert_eq!(left, 0);
    }
}
