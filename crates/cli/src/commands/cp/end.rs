//! The two ends of a move: a path of the host, or a place in an image.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use obento::{
    Backup, Cookie, CopyFrom, CopySource, Error, FileKind, ImageTarget, Node, RemoveObserver, Symlinks,
    Timestamp, remove_tree, take_place, unfinished_name,
};
use tempfile::TempDir;

use crate::change::place::trimmed;
use crate::open::{Location, join};
use crate::report::{printable, words};

/// Where something is, or comes to be.
#[derive(Clone)]
pub enum End {
    Host(PathBuf),
    Image(Location),
}

/// A place beside one that is taken, where a copy becomes whole before it takes that one's.
pub struct Beside {
    pub place: End,
    /// On the host it lies in a folder that nobody else can enter, which goes in the end.
    _folder: Option<TempDir>,
}

/// Which file is at an end, whatever name leads to it.
#[derive(PartialEq, Eq)]
pub enum Identity {
    Host(u64, u64),
    Image(Node),
}

impl End {
    /// The file that is here, not followed if it is a link; none if there is none.
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Self::Host(path) => {
                fs::symlink_metadata(path).ok().map(|meta| Identity::Host(meta.dev(), meta.ino()))
            }
            Self::Image(location) => {
                location.volume.resolve(&location.place, Symlinks::Keep).ok().map(Identity::Image)
            }
        }
    }

    pub fn shown(&self) -> Vec<u8> {
        match self {
            Self::Host(path) => path.as_os_str().as_bytes().to_vec(),
            Self::Image(location) => location.shown(),
        }
    }

    /// The last component; empty if it is none.
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Host(path) => path.file_name().map_or(b"", OsStrExt::as_bytes),
            Self::Image(location) => location.base_name(),
        }
    }

    pub fn child(&self, name: &[u8]) -> Self {
        match self {
            Self::Host(path) => {
                Self::Host(OsString::from_vec(join(path.as_os_str().as_bytes(), name)).into())
            }
            Self::Image(location) => Self::Image(location.child(name)),
        }
    }

    /// What is copied, if this is a source.
    pub fn source(&self) -> Result<CopyFrom, String> {
        match self {
            Self::Host(path) => Ok(CopyFrom::Host(path.as_os_str().as_bytes().to_vec())),
            Self::Image(location) => source_of(location).map(CopyFrom::Image),
        }
    }

    /// The kind of what is there; none if nothing is.
    pub fn kind(&self, symlinks: Symlinks) -> Result<Option<FileKind>, String> {
        match self {
            Self::Host(path) => {
                let found = match symlinks {
                    Symlinks::Follow => fs::metadata(path),
                    Symlinks::Keep => fs::symlink_metadata(path),
                };
                match found {
                    Ok(meta) if meta.is_dir() => Ok(Some(FileKind::Directory)),
                    Ok(meta) if meta.is_symlink() => Ok(Some(FileKind::Symlink)),
                    Ok(_) => Ok(Some(FileKind::Regular)),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::Image(location) => match location.volume.resolve(&location.place, symlinks) {
                Ok(node) => node.kind().map(Some).map_err(words),
                Err(error) if error == Error::NotFound => Ok(None),
                Err(error) => Err(words(error)),
            },
        }
    }

    /// Whether this is `link/`: the directory that a link leads to, by the name of the link.
    pub fn is_behind_link(&self) -> bool {
        let at = match self {
            Self::Host(path) => {
                let path = path.as_os_str().as_bytes();
                path.ends_with(b"/").then(|| Self::Host(Path::new(OsStr::from_bytes(trimmed(path))).into()))
            }
            Self::Image(location) => match &location.place {
                obento::Place::Path(path) if path.ends_with(b"/") => {
                    let place = obento::Place::Path(trimmed(path).to_vec());
                    Some(Self::Image(Location { place, ..location.clone() }))
                }
                _ => None,
            },
        };
        at.is_some_and(|at| at.kind(Symlinks::Keep) == Ok(Some(FileKind::Symlink)))
    }

    /// Whether it is what `other` is: an image may have several names on the host.
    pub fn is_same(&self, other: &Self) -> bool {
        let node = |end: &Self| match end {
            Self::Host(_) => None,
            Self::Image(location) => location.volume.resolve(&location.place, Symlinks::Keep).ok(),
        };
        node(self).is_some_and(|ours| node(other) == Some(ours))
    }

    pub fn modified(&self) -> Result<Timestamp, String> {
        match self {
            Self::Host(path) => {
                let meta = fs::symlink_metadata(path).map_err(words)?;
                Ok(Timestamp::new(meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or(0)))
            }
            Self::Image(location) => {
                let node = location.volume.resolve(&location.place, Symlinks::Keep);
                node.and_then(|node| node.attr()).map(|attr| attr.mtime).map_err(words)
            }
        }
    }

    /// Whether nothing is in this directory.
    pub fn is_empty(&self) -> Result<bool, String> {
        match self {
            Self::Host(path) => Ok(fs::read_dir(path).map_err(words)?.next().is_none()),
            Self::Image(location) => {
                let node = location.volume.resolve(&location.place, Symlinks::Keep).map_err(words)?;
                let mut is_empty = true;
                let listed = node.read_dir(Cookie::START, &mut |_| {
                    is_empty = false;
                    std::ops::ControlFlow::Break(())
                });
                listed.map(|()| is_empty).map_err(words)
            }
        }
    }

    /// A place beside this one. What a move to here that was killed has left of it in an image goes.
    pub fn beside(&self) -> Result<Beside, String> {
        match self {
            Self::Host(path) => {
                let folder =
                    tempfile::Builder::new().prefix(".obento-unfinished-").tempdir_in(folder_of(path));
                let folder = folder.map_err(words)?;
                let place = Self::Host(folder.path().join(OsStr::from_bytes(self.name())));
                Ok(Beside { place, _folder: Some(folder) })
            }
            Self::Image(location) => {
                let spot = location.spot().map_err(words)?;
                let left = unfinished_name(&spot.dir, &spot.name).map_err(words)?;
                if spot.dir.lookup(&left).is_ok() {
                    // What cannot go stays, and another name is taken.
                    remove_tree(&spot.dir, &left, &mut First(None));
                }
                let name = spot.temporary().map_err(words)?.name;
                let place = Self::Image(location.sibling(name.as_bytes()));
                Ok(Beside { place, _folder: None })
            }
        }
    }

    /// Takes the place of `to`, which lies in the same directory or, on the host, in the one above. What is there is kept as
    /// `backup` says; answers under which name.
    pub fn rename_onto(&self, to: &Self, backup: &Backup) -> Result<Option<Vec<u8>>, String> {
        match (self, to) {
            (Self::Host(from), Self::Host(path)) => {
                let kept = backup.name_for(to.name(), || names(folder_of(path))).map_err(words)?;
                let kept_path = kept.as_deref().map(|name| path.with_file_name(OsStr::from_bytes(name)));
                if let Some(kept) = &kept_path {
                    fs::rename(path, kept).map_err(words)?;
                }
                fs::rename(from, path).map_err(|error| {
                    // Back to how it was, as far as that goes.
                    let _ = kept_path.map(|kept| fs::rename(kept, path));
                    words(error)
                })?;
                Ok(kept)
            }
            (Self::Image(from), Self::Image(to)) => {
                let (from, to) = (from.spot().map_err(words)?, to.spot().map_err(words)?);
                let ends = ((&from.dir, &*from.name), (&to.dir, &*to.name));
                let kept = take_place(ends.0, ends.1, backup, |_| false).map_err(words)?;
                Ok(kept.map(|name| name.as_bytes().to_vec()))
            }
            _ => Err(words(Error::CrossDevice)),
        }
    }

    /// Brings what was written here to stable storage.
    pub fn sync(&self) -> Result<(), String> {
        match self {
            Self::Host(path) => {
                let folder = fs::File::open(folder_of(path)).map_err(words)?;
                rustix::fs::syncfs(folder).map_err(words)
            }
            Self::Image(location) => location.volume.vfs().sync().map_err(words),
        }
    }

    /// Removes all of it.
    pub fn remove(&self) -> Result<(), String> {
        match self {
            Self::Host(path) => {
                let is_dir = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
                let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
                removed.map_err(words)
            }
            Self::Image(location) => {
                let spot = location.spot().map_err(words)?;
                let mut first = First(None);
                match remove_tree(&spot.dir, &spot.name, &mut first) {
                    true => Ok(()),
                    false => Err(first.0.unwrap_or_default()),
                }
            }
        }
    }
}

/// The place as what is copied into.
pub fn target_of(location: &Location) -> ImageTarget {
    ImageTarget {
        volume: (*location.volume).clone(),
        place: location.place.clone(),
        prefix: location.prefix.to_vec(),
    }
}

pub fn source_of(location: &Location) -> Result<CopySource, String> {
    let node = location.volume.resolve(&location.place, Symlinks::Keep).map_err(words)?;
    let prefix = location.prefix.to_vec();
    Ok(CopySource { node, path: location.shown().split_off(prefix.len()), prefix })
}

/// The directory that `path` lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn names(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name().into_vec())).collect()
}

/// Keeps the first failure.
struct First(Option<String>);

impl RemoveObserver for First {
    fn failed(&mut self, path: &[u8], error: Error) {
        self.0.get_or_insert_with(|| format!("{}: {error}", printable(path)));
    }
}
