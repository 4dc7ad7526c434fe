//! One side of a comparison: a tree of the host or of an image, with the same interface.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::{Attr, Error, FileKind, Ino, Name, NameBuf};
use obento_driver::{Cookie, DirEntry};
use obento_host::source::{SourceDir, SourceEntry};
use obento_host::{HostError, Xattr};
use obento_vfs::Node;

use super::MAX_NAMES;
use crate::copy::{Problem, ProblemReason};
use crate::xattrs;

/// The start of one side of a comparison.
#[derive(Clone, Debug)]
pub enum DiffSide {
    /// A file or directory of the host.
    Host(PathBuf),
    /// A file or directory of an image.
    Image {
        /// The file or directory.
        node: Node,
        /// The path, for messages.
        path: Vec<u8>,
    },
}

/// An entry of a side with its attributes.
pub enum SideEntry {
    Host(SourceEntry),
    Image { node: Node, attr: Attr, path: Vec<u8> },
}

/// A directory of a side. The value contains no path: the paths of a deep tree would need memory proportional
/// to the square of its depth.
pub enum Directory {
    Host(SourceDir),
    Image(Node),
}

/// A name in a directory, with the attributes in the listing.
pub struct Listed {
    pub name: NameBuf,
    ino: Ino,
    kind: Option<FileKind>,
    next: Cookie,
}

/// The contents of a directory.
pub struct Listing {
    pub directory: Directory,
    /// The names, sorted.
    pub names: Vec<Listed>,
    /// The damage of the listing.
    pub problems: Vec<Problem>,
}

impl DiffSide {
    /// Returns the path that messages begin with.
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Host(path) => path.as_os_str().as_bytes(),
            Self::Image { path, .. } => path,
        }
    }

    /// Returns the entry that the comparison starts with. Follows a symbolic link there.
    pub fn start(&self) -> Result<SideEntry, Problem> {
        match self {
            Self::Image { node, path } => meet(node.clone(), path.clone()),
            Self::Host(path) => {
                let entry = host_entry(path);
                entry.map(SideEntry::Host).map_err(|error| host_problem(path, error))
            }
        }
    }
}

fn host_entry(path: &Path) -> Result<SourceEntry, HostError> {
    // The error for a missing file contains the given path.
    let Ok(path) = std::fs::canonicalize(path) else { return SourceDir::open(path)?.as_entry() };
    match (path.is_dir(), path.parent(), path.file_name().map(|name| Name::new(name.as_bytes()))) {
        (false, Some(parent), Some(Ok(name))) => SourceDir::open(parent)?.entry(name),
        _ => SourceDir::open(&path)?.as_entry(),
    }
}

fn host_problem(path: &Path, error: HostError) -> Problem {
    Problem { path: path.as_os_str().as_bytes().to_vec(), trouble: ProblemReason::Host(error) }
}

fn meet(node: Node, path: Vec<u8>) -> Result<SideEntry, Problem> {
    match node.attr() {
        Ok(attr) => Ok(SideEntry::Image { node, attr, path }),
        Err(error) => Err(Problem { path, trouble: ProblemReason::Volume(error) }),
    }
}

impl SideEntry {
    pub fn attr(&self) -> &Attr {
        match self {
            Self::Host(entry) => entry.attr(),
            Self::Image { attr, .. } => attr,
        }
    }

    /// Returns a problem with this entry.
    pub fn problem(&self, trouble: ProblemReason) -> Problem {
        match self {
            Self::Host(entry) => Problem { path: entry.path().as_os_str().as_bytes().to_vec(), trouble },
            Self::Image { path, .. } => Problem { path: path.clone(), trouble },
        }
    }

    pub fn read_link(&self) -> Result<Vec<u8>, Problem> {
        match self {
            Self::Host(entry) => entry.read_link().map_err(ProblemReason::Host),
            Self::Image { node, .. } => node.read_link().map_err(ProblemReason::Volume),
        }
        .map_err(|trouble| self.problem(trouble))
    }

    /// Returns the attributes, sorted by name.
    pub fn xattrs(&self) -> Result<Vec<Xattr>, Problem> {
        let trouble = match self {
            Self::Host(entry) => match entry.xattrs() {
                Ok(xattrs) => return Ok(xattrs),
                Err(error) => ProblemReason::Host(error),
            },
            Self::Image { node, .. } => {
                let mut damage = None;
                let xattrs = xattrs::read(
                    node,
                    xattrs::MOST,
                    |_| true,
                    |name, error| {
                        damage.get_or_insert_with(|| ProblemReason::unread_xattr(name, error));
                    },
                );
                match damage {
                    None => return Ok(xattrs),
                    Some(reason) => reason,
                }
            }
        };
        Err(self.problem(trouble))
    }

    /// Returns the inode of a directory in an image. A directory of the host has one name only.
    pub fn image_ino(&self) -> Option<Ino> {
        match self {
            Self::Host(_) => None,
            Self::Image { node, .. } => Some(node.ino()),
        }
    }

    /// Returns the contents of a directory.
    pub fn list(&self) -> Result<Listing, Problem> {
        match self {
            Self::Host(entry) => list_host(entry).map_err(|error| self.problem(ProblemReason::Host(error))),
            Self::Image { node, path, .. } => Ok(list_image(node, path)),
        }
    }
}

fn list_host(entry: &SourceEntry) -> Result<Listing, HostError> {
    let directory = entry.open_dir()?;
    let listed = |name| Listed { name, ino: Ino(0), kind: None, next: Cookie::START };
    let names = directory.names()?.into_iter().map(listed).collect();
    let directory = Directory::Host(directory.shown_as(Path::new("")));
    Ok(Listing { directory, names, problems: Vec::new() })
}

fn list_image(node: &Node, path: &[u8]) -> Listing {
    let (mut names, mut damage) = (Vec::new(), Vec::new());
    let listed = node.read_dir(Cookie::START, &mut |entry| {
        match entry {
            Ok(DirEntry { name, ino, kind, next }) => {
                names.push(Listed { name: name.to_buf(), ino, kind, next })
            }
            Err(error) => damage.push(error),
        }
        if names.len() + damage.len() < MAX_NAMES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    damage.extend(listed.err());
    if names.len() >= MAX_NAMES {
        damage.push(Error::NoMemory);
    }
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let problem = |error| Problem { path: path.to_vec(), trouble: ProblemReason::Volume(error) };
    let directory = Directory::Image(node.clone());
    Listing { directory, names, problems: damage.into_iter().map(problem).collect() }
}

impl Directory {
    /// Returns the entry for a name of this directory. `path` is its path, for messages.
    pub fn entry(&self, listed: &Listed, path: Vec<u8>) -> Result<SideEntry, Problem> {
        let Listed { name, ino, kind, next } = listed;
        match self {
            Self::Host(dir) => {
                let path = Path::new(std::ffi::OsStr::from_bytes(&path));
                let dir = dir.shown_as(path.parent().unwrap_or(Path::new("")));
                dir.entry(name).map(SideEntry::Host).map_err(|error| host_problem(path, error))
            }
            Self::Image(node) => match node.child(&DirEntry { name, ino: *ino, kind: *kind, next: *next }) {
                Ok(node) => meet(node, path),
                Err(error) => Err(Problem { path, trouble: ProblemReason::Volume(error) }),
            },
        }
    }
}
