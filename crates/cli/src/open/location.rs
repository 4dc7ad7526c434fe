//! Files in open volumes, and how messages name them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use obento::address::{Address, FileSelector};
use obento::vfs::Symlinks;
use obento::volume::is_pattern;
use obento::{Error, Node, Volume};

use super::reports::damaged;
use crate::cause::Cause;
use crate::report::Report;

/// The reason why a symbolic link cannot be followed.
pub const DANGLING: &str = "the target of the symbolic link does not exist";

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
            Err(error) if !is_root => Err(self.not_found("cannot access", error)),
            _ => Ok(()),
        }
    }

    /// Returns the report that `action`, such as `cannot access`, failed because `error` occurred when this path was
    /// resolved. If the path is a symbolic link to a missing file, the cause says so.
    pub fn not_found(&self, action: &str, error: Error) -> Report {
        let report = Report::on(action, self.shown(), error);
        if self.is_dangling(error) { self.at_dangling_link(report) } else { damaged(report, error) }
    }

    /// Returns whether `error`, which occurred when this path was resolved, is that the path is a symbolic link to a
    /// missing file.
    pub fn is_dangling(&self, error: Error) -> bool {
        let found = |symlinks| self.volume.resolve(&self.place, symlinks);
        error == Error::NotFound && found(Symlinks::Keep).is_ok() && found(Symlinks::Follow).is_err()
    }

    /// Returns `report` with the cause that this path is a symbolic link to a missing file.
    pub fn at_dangling_link(&self, report: Report) -> Report {
        let link = crate::report::shell_word(self.shown());
        report.because(DANGLING).help(format!("'obento readlink {link}' prints the target"))
    }

    /// Returns whether none of `arguments` names the partition of this place, so that a disk was named as a whole.
    pub fn is_of_whole_disk(&self, arguments: &[OsString]) -> bool {
        let part = self.prefix.strip_suffix(b":").unwrap_or(&self.prefix);
        let names = |argument: &OsString| argument.as_bytes().starts_with(part);
        self.prefix.contains(&b'@') && !arguments.iter().any(names)
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
            return Err(self.not_found(action, error));
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

/// A name such as `disk.img@2:/path`.
pub struct PartName<'n> {
    pub image: &'n [u8],
    pub part: &'n [u8],
    pub path: &'n [u8],
}

impl<'n> PartName<'n> {
    /// Returns the parts of a name that commands print for a disk with several file systems.
    pub fn split(name: &'n [u8]) -> Option<Self> {
        let end = name.windows(2).position(|two| two == b":/")?;
        let at = name[..end].iter().rposition(|&byte| byte == b'@')?;
        Some(Self { image: &name[..at], part: &name[at + 1..end], path: &name[end + 1..] })
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
