//! One side of a comparison: a tree of the host or of an image, behind the same questions.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::{Attr, Error, FileKind, Ino, Name, NameBuf};
use obento_driver::{Cookie, DirEntry};
use obento_host::source::{SourceDir, SourceEntry};
use obento_host::{HostError, Xattr};
use obento_vfs::Node;

use super::MAX_NAMES;
use crate::copy::{Problem, Trouble};
use crate::xattrs;

/// Where one side of a comparison starts.
#[derive(Clone, Debug)]
pub enum DiffSide {
    /// A file or directory of the host.
    Host(PathBuf),
    /// One of an image.
    Image {
        /// The file or directory.
        node: Node,
        /// Its path, for messages.
        path: Vec<u8>,
    },
}

/// An entry of a side, looked at once.
pub enum Met {
    Host(SourceEntry),
    Image { node: Node, attr: Attr, path: Vec<u8> },
}

/// A directory of a side. It keeps no path: those of a deep tree would take the square of its depth.
pub enum Directory {
    Host(SourceDir),
    Image(Node),
}

/// A name in a directory, with what the listing knew of it.
pub struct Listed {
    pub name: NameBuf,
    ino: Ino,
    kind: Option<FileKind>,
    next: Cookie,
}

/// What is in a directory.
pub struct Listing {
    pub directory: Directory,
    /// Sorted.
    pub names: Vec<Listed>,
    /// Damage of the listing.
    pub problems: Vec<Problem>,
}

impl DiffSide {
    /// The path that messages begin with.
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Host(path) => path.as_os_str().as_bytes(),
            Self::Image { path, .. } => path,
        }
    }

    /// The entry that the comparison starts with. A symbolic link is followed, as the caller named it.
    pub fn start(&self) -> Result<Met, Problem> {
        match self {
            Self::Image { node, path } => meet(node.clone(), path.clone()),
            Self::Host(path) => {
                let entry = host_entry(path);
                entry.map(Met::Host).map_err(|error| host_problem(path, error))
            }
        }
    }
}

fn host_entry(path: &Path) -> Result<SourceEntry, HostError> {
    // What is not there is told under the name that was given.
    let Ok(path) = std::fs::canonicalize(path) else { return SourceDir::open(path)?.as_entry() };
    match (path.is_dir(), path.parent(), path.file_name().map(|name| Name::new(name.as_bytes()))) {
        (false, Some(parent), Some(Ok(name))) => SourceDir::open(parent)?.entry(name),
        _ => SourceDir::open(&path)?.as_entry(),
    }
}

fn host_problem(path: &Path, error: HostError) -> Problem {
    Problem { path: path.as_os_str().as_bytes().to_vec(), trouble: Trouble::Host(error) }
}

fn meet(node: Node, path: Vec<u8>) -> Result<Met, Problem> {
    match node.attr() {
        Ok(attr) => Ok(Met::Image { node, attr, path }),
        Err(error) => Err(Problem { path, trouble: Trouble::Volume(error) }),
    }
}

impl Met {
    pub fn attr(&self) -> &Attr {
        match self {
            Self::Host(entry) => entry.attr(),
            Self::Image { attr, .. } => attr,
        }
    }

    /// Something wrong with this entry.
    pub fn problem(&self, trouble: Trouble) -> Problem {
        match self {
            Self::Host(entry) => Problem { path: entry.path().as_os_str().as_bytes().to_vec(), trouble },
            Self::Image { path, .. } => Problem { path: path.clone(), trouble },
        }
    }

    pub fn read_link(&self) -> Result<Vec<u8>, Problem> {
        match self {
            Self::Host(entry) => entry.read_link().map_err(Trouble::Host),
            Self::Image { node, .. } => node.read_link().map_err(Trouble::Volume),
        }
        .map_err(|trouble| self.problem(trouble))
    }

    /// Sorted by name.
    pub fn xattrs(&self) -> Result<Vec<Xattr>, Problem> {
        let trouble = match self {
            Self::Host(entry) => match entry.xattrs() {
                Ok(xattrs) => return Ok(xattrs),
                Err(error) => Trouble::Host(error),
            },
            Self::Image { node, .. } => {
                let mut damage = None;
                let xattrs = xattrs::read(node, |error| damage = damage.or(Some(error)));
                match damage {
                    None => return Ok(xattrs),
                    Some(error) => Trouble::Volume(error),
                }
            }
        };
        Err(self.problem(trouble))
    }

    /// The directory's inode, in an image. On the host a directory has one name only.
    pub fn image_ino(&self) -> Option<Ino> {
        match self {
            Self::Host(_) => None,
            Self::Image { node, .. } => Some(node.ino()),
        }
    }

    /// What is in a directory.
    pub fn list(&self) -> Result<Listing, Problem> {
        match self {
            Self::Host(entry) => list_host(entry).map_err(|error| self.problem(Trouble::Host(error))),
            Self::Image { node, path, .. } => Ok(list_image(node, path)),
        }
    }
}

fn list_host(entry: &SourceEntry) -> Result<Listing, HostError> {
    let directory = entry.open_dir()?;
    let listed = |name| Listed { name, ino: Ino(0), kind: None, next: Cookie::START };
    let names = directory.names()?.into_iter().map(listed).collect();
    Ok(Listing { directory: Directory::Host(directory), names, problems: Vec::new() })
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
    let problem = |error| Problem { path: path.to_vec(), trouble: Trouble::Volume(error) };
    let directory = Directory::Image(node.clone());
    Listing { directory, names, problems: damage.into_iter().map(problem).collect() }
}

impl Directory {
    /// The entry that a name of this directory leads to. `path` is its path, for messages, in an image.
    pub fn entry(&self, listed: &Listed, path: Vec<u8>) -> Result<Met, Problem> {
        let Listed { name, ino, kind, next } = listed;
        match self {
            Self::Host(dir) => dir.entry(name).map(Met::Host).map_err(|error| {
                host_problem(&dir.path().join(std::ffi::OsStr::from_bytes(name.as_bytes())), error)
            }),
            Self::Image(node) => match node.child(&DirEntry { name, ino: *ino, kind: *kind, next: *next }) {
                Ok(node) => meet(node, path),
                Err(error) => Err(Problem { path, trouble: Trouble::Volume(error) }),
            },
        }
    }
}
