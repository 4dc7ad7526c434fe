//! Files in open volumes, and how messages name them.

use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use obento::address::{Address, FileSelector};
use obento::vfs::Symlinks;
use obento::volume::is_pattern;
use obento::{Error, Node, Volume};

use crate::cause::Cause;
use crate::report::Report;

/// A path or inode in an open volume.
#[derive(Clone)]
pub struct Location {
    pub volume: Rc<Volume>,
    pub place: FileSelector,
    /// The text before the path in messages: `disk.img@2:`.
    pub prefix: Rc<[u8]>,
}

/// A file that an argument names, directly or by a pattern.
#[derive(Clone)]
pub struct Found {
    pub location: Location,
    pub node: Node,
}

impl Location {
    /// Returns the place in `volume` that `address` names: the root if it names none.
    pub fn of(volume: Rc<Volume>, address: &Address) -> Self {
        let root = || FileSelector::Path(b"/".to_vec());
        Self::within(volume, address, address.place.clone().unwrap_or_else(root))
    }

    /// Returns a place in `volume`, which `address` names.
    pub fn within(volume: Rc<Volume>, address: &Address, place: FileSelector) -> Self {
        Self { volume, place, prefix: prefix(address).into() }
    }

    /// # Errors
    ///
    /// The place is not the root directory and does not exist, although the command concerns the whole volume.
    pub fn expect_present(&self) -> Result<(), Report> {
        let is_root =
            matches!(&self.place, FileSelector::Path(path) if path.iter().all(|&byte| byte == b'/'));
        match self.volume.resolve(&self.place, Symlinks::Follow) {
            Err(error) if !is_root => Err(Report::on("cannot access", self.shown(), error)),
            _ => Ok(()),
        }
    }

    /// Returns the address of a path below this place's image, for messages and headers.
    pub fn shown(&self) -> Vec<u8> {
        let mut shown = self.prefix.to_vec();
        match &self.place {
            FileSelector::Path(path) => shown.extend_from_slice(path),
            FileSelector::Inode(ino) => shown.extend_from_slice(format!("#{ino}").as_bytes()),
        }
        shown
    }

    /// Returns the file, or the files that match if no file has exactly this name and the name is a pattern. `action`, such as
    /// `cannot access`, starts the message of an error.
    pub fn find(self, symlinks: Symlinks, action: &str) -> Result<Vec<Found>, Report> {
        let error = match self.volume.resolve(&self.place, symlinks) {
            Ok(node) => return Ok(vec![Found { node, location: self }]),
            Err(error) => error,
        };
        let failed = |cause: &dyn Cause| Report::on(action, self.shown(), cause);
        let pattern = match &self.place {
            FileSelector::Path(pattern) => pattern,
            FileSelector::Inode(_) if error == Error::Stale => {
                return Err(failed(&"no file has this inode number"));
            }
            FileSelector::Inode(_) => return Err(failed(&error)),
        };
        if error != Error::NotFound || !is_pattern(pattern) {
            return Err(failed(&error));
        }
        let matches = self.volume.glob(pattern).map_err(|error| failed(&error))?;
        if matches.is_empty() {
            return Err(Report::on(action, self.shown(), "no file has this name or matches it as a pattern"));
        }
        let at = |path| Self { place: FileSelector::Path(path), ..self.clone() };
        let follow = |path: Vec<u8>, node: Node| match symlinks {
            // A symbolic link to nothing is found too, as a shell would pass it.
            Symlinks::Follow => self.volume.resolve(&FileSelector::Path(path), symlinks).unwrap_or(node),
            Symlinks::Keep => node,
        };
        let found = matches.into_iter();
        Ok(found.map(|(path, node)| Found { node: follow(path.clone(), node), location: at(path) }).collect())
    }
}

impl Found {
    /// Returns the address, for messages and headers.
    pub fn shown(&self) -> Vec<u8> {
        self.location.shown()
    }
}

/// Returns the components of a path, with `.` and `..` removed.
pub fn components(path: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

/// Joins `directory` and a name in it with one slash.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    path.extend_from_slice(directory);
    if !directory.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Returns `disk.img@2:`, as the user wrote it.
pub fn prefix(address: &Address) -> Vec<u8> {
    let mut prefix = address.image.as_os_str().as_bytes().to_vec();
    if let Some(part) = &address.part {
        prefix.extend_from_slice(format!("@{part}").as_bytes());
    }
    prefix.push(b':');
    prefix
}
