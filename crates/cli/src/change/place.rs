//! Where a name is, or comes to be.

use obento::{Caller, Error, FileKind, Mode, NameBuf, NewNode, Node, Place, Symlinks, free_name};

use crate::change::umask;
use crate::open::{Location, join};

/// Links that lead to where a file is to be made, one after another: Linux's `MAXSYMLINKS`.
const MAX_SYMLINKS: u32 = 40;

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Spot {
    pub dir: Node,
    pub name: NameBuf,
    /// Whether a slash follows: it must be, or become, a directory.
    pub slash: bool,
}

impl Spot {
    /// What the name leads to now; none if nothing has it.
    pub fn occupant(&self) -> Result<Option<Node>, Error> {
        match self.dir.lookup(&self.name) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error == Error::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an inode of this name, as root in the image would under the process's umask.
    pub fn create(&self, new: &NewNode<'_>) -> Result<Node, Error> {
        self.dir.vfs().create(&Caller::Owner, &self.dir, &self.name, new)
    }

    /// The same directory with a name that nothing has, for what is to take this one's place.
    pub fn temporary(&self) -> Result<Self, Error> {
        let name = free_name(&self.dir, &self.name, |_| false)?;
        Ok(Self { dir: self.dir.clone(), name, slash: false })
    }
}

/// A new inode that belongs to root.
pub fn new_node(kind: FileKind, mode: Mode) -> NewNode<'static> {
    NewNode { kind, mode, uid: 0, gid: 0, rdev: obento::DeviceNumber::default(), target: b"" }
}

/// `mode` for what is made in `dir`: without the umask's bits, unless the directory's default access control list
/// decides in its place (umask(2)).
pub fn creation_mode(dir: &Node, mode: u16) -> Mode {
    let has_list = dir.get_xattr(b"system.posix_acl_default").is_ok();
    Mode::new(if has_list { mode } else { mode & !umask() })
}

impl Location {
    /// The name that this place is. Errors: Invalid for the root, for `.` and `..` at the end, and for an inode's
    /// number.
    pub fn spot(&self) -> Result<Spot, Error> {
        let Place::Path(path) = &self.place else { return Err(Error::Invalid) };
        let vfs = self.volume.vfs();
        let last = vfs.resolve_parent(&vfs.root(), path, &Caller::Owner)?;
        Ok(Spot { dir: last.dir, name: last.name, slash: last.slash })
    }

    /// The name at the end of all links: that of the file, or the one that it would get. Errors: as [`Self::spot`];
    /// Loop.
    pub fn end(&self) -> Result<Spot, Error> {
        let mut at = self.clone();
        for _ in 0..MAX_SYMLINKS {
            let spot = at.spot()?;
            match spot.occupant()? {
                Some(node) if node.kind()? == FileKind::Symlink => {
                    at.place = Place::Path(link_path(&at.place, &node.read_link()?));
                }
                _ => return Ok(spot),
            }
        }
        Err(Error::Loop)
    }

    /// The file at this place, made if there is none: where a link leads nowhere, at its end. Answers also whether it
    /// was made.
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

    /// The place of `name` in the directory that this is.
    pub fn child(&self, name: &[u8]) -> Self {
        let path = match &self.place {
            Place::Path(path) => join(path, name),
            Place::Inode(_) => name.to_vec(),
        };
        Self { place: Place::Path(path), ..self.clone() }
    }

    /// The place of `name` in the directory that this one lies in.
    pub fn sibling(&self, name: &[u8]) -> Self {
        let above = match &self.place {
            Place::Path(path) => &path[..trimmed(path).len() - last_component(path).len()],
            Place::Inode(_) => b"",
        };
        Self { place: Place::Path([above, name].concat()), ..self.clone() }
    }

    /// The last component of the path, without slashes.
    pub fn base_name(&self) -> &[u8] {
        match &self.place {
            Place::Path(path) => last_component(path),
            Place::Inode(_) => b"",
        }
    }
}

/// The last component of `path`, slashes behind it left out.
pub fn last_component(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    &path[start..end]
}

/// Where the link at `place` leads, as a path.
fn link_path(place: &Place, target: &[u8]) -> Vec<u8> {
    let Place::Path(path) = place else { return target.to_vec() };
    if target.starts_with(b"/") {
        return target.to_vec();
    }
    let directory = path.len() - last_component(path).len() - (path.len() - trimmed(path).len());
    join(&path[..directory], target)
}

/// `path` without slashes at its end.
pub fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_component_of_a_path_stands_before_its_slashes() {
        for (path, last) in [("/a/b", "b"), ("/a/b//", "b"), ("a", "a"), ("/", ""), ("", ""), ("//a", "a")] {
            assert_eq!(last_component(path.as_bytes()), last.as_bytes(), "{path:?}");
        }
    }

    #[test]
    fn a_link_leads_on_from_the_directory_that_it_lies_in() {
        let path = |at: &str, target: &str| {
            let path = link_path(&Place::Path(at.into()), target.as_bytes());
            String::from_utf8(path).unwrap()
        };
        assert_eq!(path("/a/link", "b"), "/a/b");
        assert_eq!(path("/a/link", "/b"), "/b");
        assert_eq!(path("link", "b"), "/b");
        assert_eq!(path("/link", "../b"), "/../b");
    }
}
