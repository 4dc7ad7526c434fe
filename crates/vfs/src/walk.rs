//! Resolution of paths.
//!
//! The walk is iterative: the rest of the path is one byte string, in which a symbolic link is replaced by
//! its target.
//! Source: POSIX.1-2024 section 4.16 "Pathname Resolution"; Linux path_resolution(7).

use alloc::borrow::Cow;

use obento_base::{Corrupt, Error, FileKind, Name, NameBuf, NameError, Result};

use crate::caller::{AccessRequest, Caller};
use crate::node::Node;
use crate::vfs::Vfs;

/// Maximum number of symbolic links in one walk: Linux include/linux/namei.h `MAXSYMLINKS`.
const MAX_SYMLINKS: u32 = 40;
/// Maximum length of the rest of a path in bytes, after links were replaced by their targets: 16 times `PATH_MAX` of
/// Linux. An image can contain deeper trees than a single system call can name.
const MAX_PATH: usize = 16 * 4096;

/// The treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symlinks {
    /// Follow the link.
    Follow,
    /// Return the link itself. Exception: if a slash follows the link in the path, follow the link.
    Keep,
}

/// The result of resolving a path whose last component need not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last {
    /// Directory of the last component.
    pub dir: Node,
    /// Last component.
    pub name: NameBuf,
    /// Whether a slash follows the component. The slash requires the file to be a directory.
    pub slash: bool,
}

/// A walk in progress.
struct Walk<'p> {
    at: Node,
    rest: Cow<'p, [u8]>,
    /// Current position in `rest`.
    position: usize,
    symlinks: u32,
}

/// A component. `slash`: a slash follows the component. `last`: nothing but slashes follows the component.
struct Component {
    bytes: core::ops::Range<usize>,
    slash: bool,
    last: bool,
}

impl Vfs {
    /// Returns the inode that `path` refers to. A path that starts with `/` starts at the root, any other path at
    /// `from`.
    ///
    /// # Errors
    ///
    /// Before the first component:
    ///
    /// 1. `NotFound`: the path is empty.
    /// 2. `NameTooLong`: the path is longer than 64 KiB.
    ///
    /// At each component, the first error that applies:
    ///
    /// 1. `NotDirectory`: the inode before the component, or before a slash at the end, is not a directory. The error
    ///    is `Corrupt` if this inode is the root.
    /// 2. `AccessDenied`: `caller` may not look up names in the directory.
    /// 3. `NotFound`: the component contains a NUL and has at most 1024 bytes.
    /// 4. `NameTooLong`: the component exceeds the limit of the format.
    /// 5. `NotFound`: the component does not exist. For `..`, the directory was removed.
    /// 6. `Busy`: the error of [`Node::lookup`], or of [`Node::parent`] for `..`, if other threads interfere
    ///    too often.
    /// 7. `Loop`: the component is a symbolic link to follow, and the walk has already followed 40 symbolic
    ///    links.
    /// 8. `NameTooLong`: the target of the symbolic link and the rest of the path are together longer than 64
    ///    KiB.
    pub fn resolve(&self, from: &Node, path: &[u8], symlinks: Symlinks, caller: &Caller) -> Result<Node> {
        let mut walk = Walk::start(self, from, path)?;
        while let Some(component) = walk.next() {
            let follow = !component.last || component.slash || symlinks == Symlinks::Follow;
            walk.step(&component, follow, caller)?;
        }
        if walk.rest.last() == Some(&b'/') {
            walk.at.expect_directory()?;
        }
        Ok(walk.at)
    }

    /// Returns the last component of `path` and its directory. The last component need not exist. The call
    /// follows symbolic links before the last component, but not a link with the name of the last component.
    ///
    /// # Errors
    ///
    /// 1. The errors of [`resolve`](Self::resolve) for the directory.
    /// 2. `Invalid`: the last component is missing, is `.` or `..`, or contains a NUL and has at most 1024 bytes.
    /// 3. `NameTooLong`: the last component exceeds the limit of the format.
    /// 4. `AccessDenied`: `caller` may not look up names in the directory.
    pub fn resolve_parent(&self, from: &Node, path: &[u8], caller: &Caller) -> Result<Last> {
        let mut walk = Walk::start(self, from, path)?;
        while let Some(component) = walk.next() {
            if !component.last {
                walk.step(&component, true, caller)?;
                continue;
            }
            walk.at.expect_directory()?;
            let name = match Name::new(walk.bytes(&component)) {
                Ok(name) if self.name_fits(name) => name.to_buf(),
                Ok(_) | Err(NameError::TooLong) => return Err(Error::NameTooLong),
                Err(_) => return Err(Error::Invalid),
            };
            walk.at.access(caller, AccessRequest::EXEC)?;
            return Ok(Last { dir: walk.at, name, slash: component.slash });
        }
        Err(Error::Invalid)
    }
}

impl<'p> Walk<'p> {
    fn start(vfs: &Vfs, from: &Node, path: &'p [u8]) -> Result<Self> {
        match path {
            [] => return Err(Error::NotFound),
            _ if path.len() > MAX_PATH => return Err(Error::NameTooLong),
            _ => {}
        }
        let at = if path.first() == Some(&b'/') { vfs.root() } else { from.clone() };
        Ok(Self { at, rest: Cow::Borrowed(path), position: 0, symlinks: 0 })
    }

    fn bytes(&self, component: &Component) -> &[u8] {
        self.rest.get(component.bytes.clone()).unwrap_or_default()
    }

    /// Removes the next component from the path.
    fn next(&mut self) -> Option<Component> {
        let rest = self.rest.get(self.position..)?;
        let start = self.position.checked_add(rest.iter().position(|&b| b != b'/')?)?;
        let tail = self.rest.get(start..)?;
        let len = tail.iter().position(|&b| b == b'/').unwrap_or(tail.len());
        let after = tail.get(len..)?;
        self.position = start.checked_add(len)?;
        let last = after.iter().all(|&b| b == b'/');
        Some(Component { bytes: start..self.position, slash: !after.is_empty(), last })
    }

    fn step(&mut self, component: &Component, follow: bool, caller: &Caller) -> Result<()> {
        self.at.expect_directory()?;
        if *caller != Caller::Owner {
            self.at.access(caller, AccessRequest::EXEC)?;
        }
        let next = match Name::new(self.bytes(component)) {
            Ok(name) => self.at.lookup(name)?,
            Err(NameError::Dots) if self.bytes(component) == b"." => return Ok(()),
            Err(NameError::Dots) => self.at.parent()?,
            Err(NameError::TooLong) => return Err(Error::NameTooLong),
            Err(NameError::Empty | NameError::Separator) => return Err(Error::NotFound),
        };
        if follow && next.kind()? == FileKind::Symlink { self.follow(&next) } else { self.arrive(next) }
    }

    fn arrive(&mut self, next: Node) -> Result<()> {
        self.at = next;
        Ok(())
    }

    /// Prepends the target of `link` to the rest of the path.
    fn follow(&mut self, link: &Node) -> Result<()> {
        self.symlinks = self.symlinks.saturating_add(1);
        if self.symlinks > MAX_SYMLINKS {
            return Err(Error::Loop);
        }
        let mut path = link.read_link()?;
        let rest = self.rest.get(self.position..).unwrap_or_default();
        match path.len().checked_add(rest.len()) {
            Some(len) if len <= MAX_PATH => path.try_reserve_exact(rest.len())?,
            _ => return Err(Error::NameTooLong),
        }
        path.extend_from_slice(rest);
        if path.first() == Some(&b'/') {
            self.at = link.vfs().root();
        }
        self.rest = Cow::Owned::<[u8]>(path);
        self.position = 0;
        Ok(())
    }
}

impl Node {
    /// Checks that the inode is a directory. Fails with `NotDirectory`, or with `Corrupt` for the root.
    pub(crate) fn expect_directory(&self) -> Result<()> {
        match self.kind() {
            Ok(FileKind::Directory) => Ok(()),
            Ok(_) if self.is_root() => Err(Corrupt::RootKind { ino: self.ino() }.into()),
            Ok(_) => Err(Error::NotDirectory),
            Err(error) => Err(error),
        }
    }
}
