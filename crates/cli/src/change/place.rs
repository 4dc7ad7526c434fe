//! The directory and the name of a file that exists or is to be created.

use obento::address::FileSelector;
use obento::base::{FileKind, Mode, NameBuf};
use obento::driver::NewNode;
use obento::host::free_name;
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use crate::change::umask;
use crate::open::{Location, join};

/// The number of symbolic links that are followed to a new file: `MAXSYMLINKS` of Linux.
const MAX_SYMLINKS: u32 = 40;

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct NameInDirectory {
    pub dir: Node,
    pub name: NameBuf,
    /// Whether a slash follows the name: the file must be, or become, a directory.
    pub slash: bool,
}

impl NameInDirectory {
    /// Returns the file that has the name, if any.
    pub fn occupant(&self) -> Result<Option<Node>, Error> {
        match self.dir.lookup(&self.name) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error == Error::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an inode with this name, as root in the image would under the process's umask.
    pub fn create(&self, new: &NewNode<'_>) -> Result<Node, Error> {
        self.dir.vfs().create(&Caller::Owner, &self.dir, &self.name, new)
    }

    /// Returns an unused name in the same directory, for a file that will replace this one.
    pub fn temporary(&self) -> Result<Self, Error> {
        let name = free_name(&self.dir, &self.name, |_| false)?;
        Ok(Self { dir: self.dir.clone(), name, slash: false })
    }
}

/// Returns a new inode that belongs to root.
pub fn new_node(kind: FileKind, mode: Mode) -> NewNode<'static> {
    NewNode { kind, mode, uid: 0, gid: 0, rdev: obento::base::DeviceNumber::default(), target: b"" }
}

/// Returns `mode` for a new file in `dir`, without the bits of the umask. If the directory has a default access control
/// list, the list applies instead (umask(2)).
pub fn creation_mode(dir: &Node, mode: u16) -> Mode {
    let has_list = dir.get_xattr(b"system.posix_acl_default").is_ok();
    Mode::new(if has_list { mode } else { mode & !umask() })
}

impl Location {
    /// Returns the name at the end of the path. Fails with `Invalid` for the root, for a final `.` or `..`, and for
    /// an inode number.
    pub fn spot(&self) -> Result<NameInDirectory, Error> {
        let FileSelector::Path(path) = &self.place else { return Err(Error::Invalid) };
        let vfs = self.volume.vfs();
        let last = vfs.resolve_parent(&vfs.root(), path, &Caller::Owner)?;
        Ok(NameInDirectory { dir: last.dir, name: last.name, slash: last.slash })
    }

    /// Follows the symbolic links at the end of the path and returns the name of the file that exists or would be created. Fails as
    /// [`Self::spot`] does, and with `Loop`.
    pub fn end(&self) -> Result<NameInDirectory, Error> {
        let mut at = self.clone();
        for _ in 0..MAX_SYMLINKS {
            let spot = at.spot()?;
            match spot.occupant()? {
                Some(node) if node.kind()? == FileKind::Symlink => {
                    at.place = FileSelector::Path(link_path(&at.place, &node.read_link()?));
                }
                _ => return Ok(spot),
            }
        }
        Err(Error::Loop)
    }

    /// Opens the file at this place, or creates it; a symbolic link to nothing creates the file that it names. Returns also whether the
    /// file was created.
    pub fn open_or_create(&self, mode: u16) -> Result<(Node, bool), Error> {
        match self.volume.resolve(&self.place, Symlinks::Follow) {
            Err(error) if error == Error::NotFound => {}
            found => return found.map(|node| (node, false)),
        }
        let spot = self.end()?;
        if spot.slash {
            return Err(Error::IsDirectory);
        }
        let new = new_node(FileKind::Regular, creation_mode(&spot.dir, mode));
        spot.create(&new).map(|node| (node, true))
    }

    /// Returns the place of `name` in this directory.
    pub fn child(&self, name: &[u8]) -> Self {
        let path = match &self.place {
            FileSelector::Path(path) => join(path, name),
            FileSelector::Inode(_) => name.to_vec(),
        };
        Self { place: FileSelector::Path(path), ..self.clone() }
    }

    /// Returns the place of `name` in the same directory.
    pub fn sibling(&self, name: &[u8]) -> Self {
        let above = match &self.place {
            FileSelector::Path(path) => &path[..trimmed(path).len() - last_component(path).len()],
            FileSelector::Inode(_) => b"",
        };
        Self { place: FileSelector::Path([above, name].concat()), ..self.clone() }
    }

    /// Returns the last component of the path, without slashes.
    pub fn base_name(&self) -> &[u8] {
        match &self.place {
            FileSelector::Path(path) => last_component(path),
            FileSelector::Inode(_) => b"",
        }
    }
}

/// Returns the last component of `path`, without trailing slashes.
pub fn last_component(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    &path[start..end]
}

/// Returns the path that the symbolic link at `place` refers to.
fn link_path(place: &FileSelector, target: &[u8]) -> Vec<u8> {
    let FileSelector::Path(path) = place else { return target.to_vec() };
    if target.starts_with(b"/") {
        return target.to_vec();
    }
    let directory = path.len() - last_component(path).len() - (path.len() - trimmed(path).len());
    join(&path[..directory], target)
}

/// Returns `path` without trailing slashes.
pub fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_component_precedes_trailing_slashes() {
        for (path, last) in [("/a/b", "b"), ("/a/b//", "b"), ("a", "a"), ("/", ""), ("", ""), ("//a", "a")] {
            assert_eq!(last_component(path.as_bytes()), last.as_bytes(), "{path:?}");
        }
    }

    #[test]
    fn a_relative_link_starts_at_its_own_directory() {
        let path = |at: &str, target: &str| {
            let path = link_path(&FileSelector::Path(at.into()), target.as_bytes());
            String::from_utf8(path).unwrap()
        };
        assert_eq!(path("/a/link", "b"), "/a/b");
        assert_eq!(path("/a/link", "/b"), "/b");
        assert_eq!(path("link", "b"), "/b");
        assert_eq!(path("/link", "../b"), "/../b");
    }
}
