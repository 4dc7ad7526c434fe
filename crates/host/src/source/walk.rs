//! Walks a tree from its root down.

use std::path::Path;

use obento_base::{FileKind, NameBuf};

use rustix::io::Errno;

use super::{SourceDir, SourceEntry, SymlinkPolicy};
use crate::{FileId, HostError};

/// Directories kept open above the current one. A tree may be deeper than the limit of open files of a
/// process.
const MAX_OPEN: usize = 64;

/// Walks a tree in order: a directory, then its contents, sorted by the bytes of the names. An unreadable
/// entry is an `Err` item, and the walk continues.
pub struct Walk {
    root: Option<Root>,
    links: SymlinkPolicy,
    opens: bool,
    levels: Vec<Level>,
    /// The directories above the root, if it was part of a walk.
    above: Vec<FileId>,
    /// The directory that was returned last and is entered next.
    below: Option<SourceEntry>,
}

/// The start of a walk.
enum Root {
    Dir(SourceDir),
    Entry(SourceEntry),
}

/// A directory that is being walked.
struct Level {
    /// Closed while many deeper ones are open.
    dir: Option<SourceDir>,
    id: FileId,
    /// In reverse order, so that the next one is the last.
    names: Vec<(NameBuf, bool)>,
}

impl Walk {
    /// Starts with the directory `root`, in whose path links are followed. Fails with `System`.
    pub fn new(root: &Path) -> Result<Self, HostError> {
        Ok(Self::start(Root::Dir(SourceDir::open(root)?)))
    }

    /// Starts with `entry`, which may have any kind.
    pub fn from_entry(entry: SourceEntry) -> Self {
        Self::start(Root::Entry(entry))
    }

    fn start(root: Root) -> Self {
        Self {
            root: Some(root),
            links: SymlinkPolicy::Keep,
            opens: false,
            levels: Vec::new(),
            above: Vec::new(),
            below: None,
        }
    }

    /// Sets how links below the start are treated. With `Follow`, a directory that contains itself is an
    /// error.
    #[must_use]
    pub fn links(mut self, links: SymlinkPolicy) -> Self {
        self.links = links;
        self
    }

    /// Opens regular files to read their attributes, which saves a system call for each file if the caller
    /// reads them all.
    #[must_use]
    pub fn opening(mut self) -> Self {
        self.opens = true;
        self
    }

    /// Skips the contents of the directory that was returned last.
    pub fn prune(&mut self) {
        self.below = None;
    }

    /// Returns a walk through the contents of the directory that was returned last. This walk then skips
    /// them.
    pub(super) fn split(&mut self) -> Option<Self> {
        let below = self.below.take()?;
        let above = self.above.iter().copied().chain(self.levels.iter().map(|level| level.id)).collect();
        Some(Self {
            root: None,
            links: self.links,
            opens: self.opens,
            levels: Vec::new(),
            above,
            below: Some(below),
        })
    }

    /// Returns the number of directories between the root and the entry that was returned last. 0 for the
    /// root.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    fn descend(&mut self, entry: &SourceEntry) -> Result<(), HostError> {
        let dir = entry.open_dir()?;
        let mut names = dir.listed()?;
        names.reverse();
        self.levels.push(Level { id: entry.id(), dir: Some(dir), names });
        if let Some(far) = self.levels.len().checked_sub(MAX_OPEN + 1).and_then(|at| self.levels.get_mut(at))
        {
            far.dir = None;
        }
        Ok(())
    }

    /// Leaves the directory that is finished.
    fn ascend(&mut self) -> Result<(), HostError> {
        let child = self.levels.pop().and_then(|level| level.dir);
        let (Some(top), Some(child)) = (self.levels.last_mut(), child) else { return Ok(()) };
        if top.dir.is_none() {
            // A level has no path of its own: the paths of a deep tree would need memory proportional to the square
            // of its depth.
            match child.parent(top.id, child.path().parent().unwrap_or(Path::new(""))) {
                Ok(dir) => top.dir = Some(dir),
                Err(error) => {
                    // The directories above cannot be reached either.
                    self.levels.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn visit(&mut self, entry: SourceEntry) -> Result<SourceEntry, HostError> {
        if entry.attr().kind == FileKind::Directory {
            let mut above = self.above.iter().copied().chain(self.levels.iter().map(|level| level.id));
            if above.any(|id| id == entry.id()) {
                return Err(HostError::system("enter", entry.path(), Errno::LOOP));
            }
            self.below = Some(entry.clone());
        }
        Ok(entry)
    }
}

impl Iterator for Walk {
    type Item = Result<SourceEntry, HostError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(root) = self.root.take() {
            let entry = match root {
                Root::Dir(dir) => dir.as_entry(),
                Root::Entry(entry) => Ok(entry),
            };
            return Some(entry.and_then(|entry| self.visit(entry)));
        }
        if let Some(entry) = self.below.take()
            && let Err(error) = self.descend(&entry)
        {
            return Some(Err(error));
        }
        loop {
            let level = self.levels.last_mut()?;
            match (level.names.pop(), &level.dir) {
                (Some((name, is_file)), Some(dir)) => {
                    let entry = match is_file && self.opens {
                        true => dir.look_into(&name, self.links),
                        false => dir.look(&name, self.links),
                    };
                    return Some(entry.and_then(|entry| self.visit(entry)));
                }
                _ => {
                    if let Err(error) = self.ascend() {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}
